/**
 * Goal: a lease ends on time, whatever happened to the objects that knew of it, and no earlier (design 01 §3, 02 §3, §4).
 * Method: real alarms and real time; the long waits of the tests run side by side. Serializable reads wake nobody.
 */
import { reset } from "cloudflare:test";
import { afterAll, describe, expect, test } from "vitest";
import { NODES, TestCluster } from "./cluster-harness.ts";
import { eventually } from "./eventually.ts";
import { quietConsole } from "./quiet-console.ts";

quietConsole();
afterAll(async () => await reset());

const TTL_S = 30;
const KEYS = 101;

/** Grants a lease and attaches the keys to it; when the grant was asked for, and the node that led. */
async function leased(cluster: TestCluster): Promise<{ grantedAtMs: number; leader: number }> {
  const leader = await cluster.leader();
  const grantedAtMs = Date.now();
  const { body } = await cluster.call(leader, "/v1/leases", { body: { ttl_s: TTL_S } });
  const success = Array.from({ length: KEYS }, (_, n) => ({
    type: "put",
    key: `/leased/${n}`,
    value: n,
    lease: body.id,
  }));
  const { status } = await cluster.txn(leader, { success });
  expect(status).toBe(200);
  return { grantedAtMs, leader };
}

async function count(cluster: TestCluster, node: number): Promise<unknown> {
  const { body } = await cluster.call(node, "/v1/kv?prefix=/leased/&count_only=true&consistency=serializable");
  return body.count;
}

/** Seconds from the grant until the keys were gone on `node`; some of them were never seen gone without the others. */
async function endedAfterS(cluster: TestCluster, node: number, grantedAtMs: number): Promise<number> {
  for (;;) {
    const left = await count(cluster, node);
    if (left === 0) return (Date.now() - grantedAtMs) / 1000;
    expect(left).toBe(KEYS);
    if (Date.now() > grantedAtMs + 45_000) return Number.POSITIVE_INFINITY;
    await scheduler.wait(100);
  }
}

const wait = (untilMs: number) => scheduler.wait(Math.max(0, untilMs - Date.now()));

describe("a lease of 30 s", () => {
  test.concurrent("ends although the last leader's object is gone while all sleep", async () => {
    const cluster = new TestCluster();
    const { grantedAtMs, leader } = await leased(cluster);
    await wait(grantedAtMs + 22_000);
    const asleep = await Promise.all(NODES.map(async (id) => (await cluster.status(id))?.quiescent));
    expect(asleep).toEqual(NODES.map(() => true));
    await cluster.pause(leader);
    const ended = await endedAfterS(cluster, 1 + (leader % 5), grantedAtMs);
    expect(ended).toBeGreaterThanOrEqual(TTL_S);
    expect(ended).toBeLessThanOrEqual(TTL_S + 6);
    await cluster.abort(leader);
  }, 60_000);

  test.concurrent("ends although all five objects are reset right after it was acknowledged", async () => {
    const cluster = new TestCluster();
    const { grantedAtMs } = await leased(cluster);
    await Promise.all(NODES.map((id) => cluster.abort(id)));
    // Nobody asks for anything: their alarms alone bring them back.
    await wait(grantedAtMs + 29_000);
    const ended = await endedAfterS(cluster, 2, grantedAtMs);
    expect(ended).toBeGreaterThanOrEqual(TTL_S);
    expect(ended).toBeLessThanOrEqual(TTL_S + 3);
    // At one revision: the one that the leased keys' history ends with.
    const revisions = await Promise.all(
      [0, 50, 100].map(async (n) => {
        const { body } = await cluster.call(2, `/v1/history?key=/leased/${n}`);
        return (body.events as { revision: number; type: string }[]).at(-1);
      }),
    );
    expect(revisions).toMatchObject([{ type: "delete" }, { type: "delete" }, { type: "delete" }]);
    expect(new Set(revisions.map((event) => event?.revision)).size).toBe(1);
  }, 60_000);

  test.concurrent("of 3 s lives through a loss of the leader that lasts 2 s, kept alive by its owner", async () => {
    const cluster = new TestCluster();
    const leader = await cluster.leader();
    const other = 1 + (leader % 5);
    const { body: lease } = await cluster.call(other, "/v1/leases", { body: { ttl_s: 3 } });
    await cluster.put(other, "/kept", 1, {});
    await cluster.txn(other, { success: [{ type: "put", key: "/kept", value: 1, lease: lease.id }] });
    await cluster.pause(leader);
    const lostAtMs = Date.now();
    let isBack = false;
    while (Date.now() < lostAtMs + 8000) {
      if (!isBack && Date.now() > lostAtMs + 2000) {
        isBack = true;
        await cluster.abort(leader);
      }
      await cluster.call(other, `/v1/leases/${lease.id}/keepalive?timeout_ms=900`, { method: "POST" });
      await scheduler.wait(300);
      expect((await cluster.get(other, "/kept", "&consistency=serializable")).status).toBe(200);
    }
    await eventually(async () => (await cluster.get(other, "/kept", "&consistency=serializable")).status, 404, 8000);
  }, 60_000);
});

test("101 leases that end in one second all end, in commands of 50", async () => {
  const cluster = new TestCluster();
  const leader = await cluster.leader();
  const items = Array.from({ length: 101 }, (_, n) => ({ key: `/many/${n}`, value: n, ttl: 1 }));
  await cluster.call(leader, "/v1/kv/batch", { body: { op: "put_many", items } });
  const left = async () => {
    const { body } = await cluster.call(leader, "/v1/kv?prefix=/many/&count_only=true&consistency=serializable");
    return body.count;
  };
  await eventually(left, 0, 6000);
  const { body } = await cluster.call(leader, "/v1/revision");
  // One revision for the puts, three for 50 + 50 + 1 leases.
  expect(body.revision).toBe(4);
});
