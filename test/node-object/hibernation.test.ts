/** Sockets of clients outlive the instance that accepted them: watches, topics and their positions go on (S50). */
import { reset } from "cloudflare:test";
import { afterEach, describe, expect, test } from "vitest";
import { TestCluster } from "./cluster-harness.ts";
import { eventually } from "./eventually.ts";
import { quietConsole } from "./quiet-console.ts";
import { clientRows, story, TestSocket } from "./socket-client.ts";

quietConsole();
afterEach(async () => await reset());

/** A new cluster; `node` does not lead it, so that its eviction stops no write. */
async function started(): Promise<{ readonly cluster: TestCluster; readonly node: number; readonly leader: number }> {
  const cluster = new TestCluster();
  const leader = await cluster.leader();
  return { cluster, leader, node: 1 + (leader % 5) };
}

async function put(cluster: TestCluster, node: number, key: string, value: unknown): Promise<number> {
  const { status, body } = await cluster.put(node, key, value);
  expect(status, JSON.stringify(body)).toBe(200);
  return body.revision as number;
}

/** A key of `length` bytes that differs from others in its end. */
function longKey(length: number, n: number): string {
  return `${"k".repeat(length - 4)}/${String(n).padStart(3, "0")}`;
}

async function createWatches(session: TestSocket, count: number, params: (n: number) => object): Promise<void> {
  const created = Array.from({ length: count }, (_, watch_id) =>
    session.call("watch.create", { watch_id, ...params(watch_id) }),
  );
  await Promise.all(created);
  await session.until(() => countReady(session) === count);
}

function countReady(session: TestSocket): number {
  return session.messages.filter((one) => one.method === "watch" && one.params.kind === "ready").length;
}

/** Removes the instance from memory and is sure that its sockets slept through it. */
async function evict(cluster: TestCluster, node: number, socket: TestSocket): Promise<void> {
  const { closed } = socket;
  await cluster.inside(node, (state) => Object.assign(state, { marked: true }));
  await cluster.evict(node);
  expect(await cluster.inside(node, (state) => "marked" in state)).toBe(false);
  expect(socket.closed).toBe(closed);
}

describe("an evicted node", () => {
  test("goes on with 40 watches of 200-byte prefixes on one socket, without gap or repeat", async () => {
    const { cluster, node, leader } = await started();
    const session = await TestSocket.open(cluster, node, "/v1/session");
    const prefix = (n: number) => `${longKey(199, n)}/`;
    await createWatches(session, 40, (n) => ({ prefix: prefix(n) }));
    const expected: string[][] = Array.from({ length: 40 }, () => []);
    const write = async (round: number) => {
      for (let n = 0; n < 40; n += 1) {
        const key = `${prefix(n)}${round}`;
        expected[n]!.push(`put ${key}@${await put(cluster, leader, key, round)}`);
      }
    };
    await write(1);
    await cluster.converged();
    await evict(cluster, node, session);
    await write(2);
    await session.until(() => story(session.framesOf(39)).length === 2, 10_000);
    await evict(cluster, node, session);
    await evict(cluster, node, session);
    await write(3);
    await session.until(() => expected.every((all, n) => story(session.framesOf(n)).length === all.length), 10_000);
    expect(expected.map((_, n) => story(session.framesOf(n)))).toEqual(expected);
    // `ready` was said before the first eviction, and is not said again.
    expect(countReady(session)).toBe(40);
  });

  test("goes on with 100 watches of 4096-byte keys on one socket; a 101st is refused before and after", async () => {
    const { cluster, node, leader } = await started();
    const session = await TestSocket.open(cluster, node, "/v1/session");
    await createWatches(session, 100, (n) => ({ key: longKey(4096, n), include_values: false }));
    const refused = { error: { code: -32602, data: { code: "invalid_request", reason: "too_many_watches" } } };
    expect(await session.request("watch.create", { watch_id: 100, key: "/a" })).toMatchObject(refused);
    await evict(cluster, node, session);
    expect(await session.request("watch.create", { watch_id: 100, key: "/a" })).toMatchObject(refused);
    for (const n of [0, 50, 99]) await put(cluster, leader, longKey(4096, n), n);
    for (const n of [0, 50, 99]) await session.until(() => story(session.framesOf(n)).length === 1);
    expect(session.framesOf(1).filter((frame) => frame.kind === "events")).toEqual([]);
    // 4 KiB of selector each do not fit the attachment; positions alone are far below its limit.
    const bytes = await cluster.inside(node, (state) => {
      const [socket] = state.getWebSockets().filter((one) => state.getTags(one)[0]?.startsWith("connection:"));
      return JSON.stringify(socket!.deserializeAttachment()).length;
    });
    expect(bytes).toBeLessThan(4096);
  });

  test("knows watches that were cancelled or ended, and takes their ids again", async () => {
    const { cluster, node, leader } = await started();
    const session = await TestSocket.open(cluster, node, "/v1/session");
    await createWatches(session, 3, (n) => ({ prefix: `/${n}/` }));
    expect(await session.call("watch.cancel", { watch_id: 1 })).toMatchObject({ cancelled: true });
    await evict(cluster, node, session);
    expect(await session.call("watch.cancel", { watch_id: 1 })).toMatchObject({ cancelled: false });
    await session.call("watch.create", { watch_id: 1, prefix: "/again/" });
    await evict(cluster, node, session);
    for (const key of ["/0/a", "/1/a", "/again/a", "/2/a"]) await put(cluster, leader, key, 1);
    await session.until(() => story(session.framesOf(2)).length === 1);
    expect([0, 1, 2].map((id) => story(session.framesOf(id)))).toEqual([
      ["put /0/a@1"],
      ["put /again/a@3"],
      ["put /2/a@4"],
    ]);
  });

  test("serves a watch socket that slept, its acknowledgements and its end", async () => {
    const { cluster, node, leader } = await started();
    const watch = await TestSocket.open(cluster, node, "/v1/watch?prefix=/k/");
    await watch.find((frame) => frame.kind === "ready");
    await evict(cluster, node, watch);
    watch.send({ progress: true });
    await watch.find((frame) => frame.kind === "progress");
    await put(cluster, leader, "/k/1", 1);
    await watch.until(() => story(watch.messages).length === 1);
    watch.send({ ack: watch.messages.at(-1).position });
    await evict(cluster, node, watch);
    watch.socket.close(1000);
    await eventually(() => clientRows(cluster, node), 0);
  });

  test("wakes for a request of a session that slept, and for nothing that is a ping", async () => {
    const { cluster, node } = await started();
    const session = await TestSocket.open(cluster, node, "/v1/session");
    await session.find((one) => one.method === "session");
    await evict(cluster, node, session);
    session.send("ping");
    await session.until(() => session.pongs === 1);
    expect(await session.call("kv.put", { key: "/a", value: 1 })).toMatchObject({ revision: 1 });
    expect(await session.call("kv.get", { key: "/a" })).toMatchObject({ record: { value: 1 } });
    expect(session.messages.filter((one) => one.method === "session")).toHaveLength(1);
  });

  test("keeps subscriptions of topics, the count of messages and what is unacknowledged", async () => {
    const { cluster, node } = await started();
    const session = await TestSocket.open(cluster, node, "/v1/session");
    await session.call("topic.subscribe", { topic: "log" });
    const topics = () => session.messages.filter((one) => one.method === "topic").map((one) => one.params);
    const payload = "x".repeat(60_000);
    for (let n = 0; n < 6; n += 1) await cluster.call(node, "/v1/topics/log", { body: payload });
    await session.until(() => topics().length === 4);
    await evict(cluster, node, session);
    await cluster.call(node, "/v1/topics/log", { body: payload });
    session.send({ jsonrpc: "2.0", method: "topic.ack", params: { seq: 4 } });
    await session.call("revision");
    await evict(cluster, node, session);
    await cluster.call(node, "/v1/topics/log", { body: "small" });
    await session.until(() => topics().length === 5);
    expect(topics().at(-1)).toEqual({ topic: "log", payload: "small", seq: 5, dropped: 3 });
  });

  test("closes what it cannot go on with: a socket without its rows", async () => {
    const { cluster, node } = await started();
    const watch = await TestSocket.open(cluster, node, "/v1/watch?prefix=/k/");
    await watch.find((frame) => frame.kind === "ready");
    await cluster.inside(node, (state) => void state.storage.sql.exec("UPDATE clients SET data = '[99,{}]'"));
    await cluster.evict(node);
    await cluster.status(node);
    expect(await watch.closing()).toEqual({ code: 1012, reason: "reconnect" });
    expect(await clientRows(cluster, node)).toBe(0);
  });

  test("forgets the rows of clients whose sockets an aborted instance took with it", async () => {
    const { cluster, node } = await started();
    const watch = await TestSocket.open(cluster, node, "/v1/watch?prefix=/k/");
    await watch.find((frame) => frame.kind === "ready");
    await cluster.abort(node);
    expect((await watch.closing()).code).toBe(1006);
    expect(await clientRows(cluster, node)).toBe(0);
  });

  test("that finds its disk corrupt lets its watchers go, for silence would mean that nothing happened", async () => {
    const { cluster, node } = await started();
    const watch = await TestSocket.open(cluster, node, "/v1/watch?prefix=/k/");
    await watch.find((frame) => frame.kind === "ready");
    await cluster.inside(node, (state) => {
      state.storage.sql.exec("UPDATE meta SET value = '[99,null]' WHERE key = 'hard_state'");
    });
    await cluster.evict(node);
    await eventually(async () => (await cluster.status(node))?.state, "halted");
    expect((await watch.closing()).code).toBe(1012);
  });
});
