/** Backups of five real nodes, and restores into five others. */
import { reset } from "cloudflare:test";
import { afterEach, describe, expect, test } from "vitest";
import { beginIntake, endIntake, takeBackupText } from "../../src/kv/backup-intake.ts";
import { backup, openSnapshot, restore, streamOf, textOf } from "./backup-client.ts";
import { NODES, TestCluster } from "./cluster-harness.ts";
import { eventually } from "./eventually.ts";
import { quietConsole } from "./quiet-console.ts";
import { TestSocket } from "./socket-client.ts";

quietConsole();
const now = Date.now;
afterEach(async () => {
  Date.now = now;
  await reset();
});

async function started(): Promise<TestCluster> {
  const cluster = new TestCluster();
  await cluster.leader();
  return cluster;
}

/** `count` records of about `bytes`, a lease with a key, a TTL, a result under a key, something overwritten and deleted. */
async function loaded(count = 40, bytes = 20): Promise<TestCluster> {
  const cluster = await started();
  const value = "v".repeat(bytes);
  for (let from = 0; from < count; from += 100) {
    const success = Array.from({ length: Math.min(100, count - from) }, (_, at) => {
      return { type: "put", key: `/k/${String(from + at).padStart(5, "0")}`, value: `${value}${from + at}` };
    });
    expect((await cluster.txn(1, { success })).status).toBe(200);
  }
  const lease = await cluster.call(1, "/v1/leases", { body: { ttl_s: 60 } });
  await cluster.txn(1, { success: [{ type: "put", key: "/leased", value: 1, lease: lease.body.id }] });
  await cluster.txn(1, { success: [{ type: "put", key: "/ttl", value: 1, ttl: 30 }] });
  await cluster.put(1, "/over", 1);
  await cluster.put(1, "/over", 2);
  await cluster.put(1, "/gone", 1);
  await cluster.call(1, "/v1/kv?key=/gone", { method: "DELETE" });
  await cluster.txn(1, { success: [{ type: "put", key: "/once", value: 1 }] }, { "idempotency-key": "K" });
  return cluster;
}

function check(text: string) {
  const intake = beginIntake();
  const rows = takeBackupText(intake, text);
  return { manifest: endIntake(intake), rows };
}

async function keysOf(cluster: TestCluster, node: number): Promise<string[]> {
  const { body } = await cluster.call(node, "/v1/kv?prefix=/&limit=1000");
  return (body.records as { key: string }[]).map(({ key }) => key);
}

/** Tells when the node is about to hand over the second half of a backup of 1800 rows, after `act` within that turn. */
async function inTheMiddle(
  cluster: TestCluster,
  node: number,
  act: (state: DurableObjectState) => void = () => {},
): Promise<{ readonly middle: Promise<void> }> {
  let scans = 0;
  await cluster.inside(node, (state) => {
    const { sql } = state.storage;
    const exec = sql.exec.bind(sql);
    const replacement = (statement: string, ...bindings: SqlStorageValue[]) => {
      if (statement.startsWith("SELECT key, value FROM spool ")) {
        scans += 1;
        if (scans === 60) act(state);
      }
      return exec(statement, ...bindings);
    };
    Object.defineProperty(sql, "exec", { value: replacement, configurable: true });
  });
  const reached = async () => {
    // Whatever does not pause here keeps the timers of the nodes from firing.
    while (scans < 60) await scheduler.wait(1);
  };
  return { middle: reached() };
}

describe("GET /v1/cluster/snapshot", () => {
  test("is the state at one revision, on any node, equal on all for the same entry", async () => {
    const cluster = await loaded();
    await cluster.converged();
    const texts: string[] = [];
    for (const node of NODES) {
      const response = await openSnapshot(cluster, node);
      expect(response.status).toBe(200);
      expect(response.headers.get("concord-node")).toBe(String(node));
      const text = await textOf(response);
      const { manifest } = check(text);
      expect(response.headers.get("concord-backup-revision")).toBe(String(manifest.revision));
      expect(response.headers.get("concord-backup-index")).toBe(String(manifest.index));
      expect(manifest.cluster_id).toBe(response.headers.get("concord-cluster"));
      texts.push(text);
    }
    expect(new Set(texts).size).toBe(1);
  });

  test("holds what was acknowledged before, and nothing of what is written while it is read", async () => {
    const cluster = await loaded(400, 4000);
    const before = await cluster.put(2, "/last", "before");
    const response = await openSnapshot(cluster, 3);
    const reader = response.body!.getReader();
    const decoder = new TextDecoder();
    let text = "";
    for (let writes = 0; ; writes += 1) {
      const { done, value } = await reader.read();
      if (done) break;
      text += decoder.decode(value, { stream: true });
      await cluster.put(2, `/k/${String(writes % 400).padStart(5, "0")}`, "after");
      await cluster.put(2, `/new/${writes}`, "after");
    }
    const { manifest, rows } = check(text);
    expect(manifest.revision).toBe(before.body.revision);
    expect(rows.some(([row]) => row.includes("/new/"))).toBe(false);
    expect(rows.some(([, value]) => value.includes('"after"'))).toBe(false);
  }, 60_000);

  test("goes by one at a time, and is free again when it is read, cancelled or left alone", async () => {
    const cluster = await loaded(400, 4000);
    const first = await openSnapshot(cluster, 1);
    const reader = first.body!.getReader();
    await reader.read();
    const second = await openSnapshot(cluster, 1);
    expect([second.status, await second.json()]).toMatchObject([503, { code: "overloaded", reason: "backup_running" }]);
    await reader.cancel();
    await eventually(async () => (await openSnapshot(cluster, 1)).status, 200);
    // That one is left alone.
    Date.now = () => now() + 70_000;
    await cluster.put(1, "/a", 1);
    await eventually(async () => (await openSnapshot(cluster, 1)).status, 200);
  }, 60_000);

  test("is refused to others than root", async () => {
    const cluster = await started();
    expect(await cluster.call(1, "/v1/cluster/snapshot")).toMatchObject({ status: 403, body: { code: "not_admin" } });
    const refused = await cluster.call(1, "/v1/cluster/restore", { method: "POST" });
    expect(refused).toMatchObject({ status: 403, body: { code: "not_admin" } });
  });
});

describe("POST /v1/cluster/restore", () => {
  test("makes a cluster that has all of it, under a new id, behind a jump of the revision", async () => {
    const old = await loaded(600, 300);
    const text = await backup(old, 2);
    const { manifest } = check(text);
    const cluster = await started();
    const idBefore = (await cluster.cluster(1)).cluster_id;
    const down = 5;
    const socket = await TestSocket.open(cluster, 3, "/v1/watch?prefix=/");
    const session = await TestSocket.open(cluster, 4, "/v1/session");
    await cluster.pause(down);

    const restored = await restore(cluster, 2, text);
    expect(restored).toMatchObject({
      status: 200,
      body: {
        revision: manifest.revision + 1_000_000,
        backup: { cluster_id: manifest.cluster_id, revision: manifest.revision },
      },
    });
    const id = restored.body.cluster_id as string;
    expect(new Set([id, idBefore, manifest.cluster_id]).size).toBe(3);

    // Who watched is told, and comes again under the new name.
    await socket.find((frame) => frame.kind === "cluster_changed");
    expect(await session.closing()).toMatchObject({ code: 1012 });
    expect((await cluster.cluster(1)).cluster_id).toBe(id);
    expect(await keysOf(cluster, 1)).toEqual(await keysOf(old, 1));
    for (const stale of [manifest.cluster_id, idBefore ?? ""]) {
      const asked = await cluster.call(1, "/v1/kv?key=/over", { headers: { "concord-cluster": stale } });
      expect(asked).toMatchObject({ status: 410, body: { code: "cluster_changed" } });
    }
    const stale = await cluster.call(1, `/v1/watch?prefix=/&after=${manifest.revision}`, {
      headers: { accept: "text/event-stream" },
    });
    expect(stale).toMatchObject({ status: 410, body: { code: "compacted", compact_revision: restored.body.revision } });

    // Results, leases, records.
    const again = await cluster.txn(
      3,
      { success: [{ type: "put", key: "/once", value: 1 }] },
      { "idempotency-key": "K" },
    );
    expect(again).toMatchObject({ status: 200, body: { succeeded: true, revision: manifest.revision } });
    expect((await cluster.get(1, "/once")).body.version).toBe(1);
    const leases = await cluster.call(1, "/v1/leases");
    const [lease] = leases.body.leases as { remaining_ms: number; ttl_s: number }[];
    expect(lease?.remaining_ms).toBeGreaterThan(50_000);
    expect((await cluster.get(1, "/over")).body).toMatchObject({ value: 2, version: 2 });
    expect((await cluster.put(4, "/next", 1)).body.revision).toBe((restored.body.revision as number) + 1);

    // The node that was away comes to the same.
    await cluster.abort(down);
    await cluster.converged();
    await cluster.equalRows();
    expect(check(await backup(cluster, down)).manifest.cluster_id).toBe(id);
    expect((await cluster.cluster(down)).digests).toMatchObject({ equal: true });
  }, 120_000);

  test("refuses what is damaged or cut off at any line, and leaves nothing", async () => {
    const old = await loaded(60, 20_000);
    const text = await backup(old, 1);
    const cluster = await started();
    await cluster.converged();
    const before = await cluster.rows(1);
    const lines = text.split("\n");
    expect(lines.length).toBeGreaterThan(4);
    const damaged: string[] = ["", "{}", text.slice(0, -1), `${text}x`, `\ufeff${text}`];
    let at = 0;
    for (const line of lines.slice(0, -1)) {
      damaged.push(text.slice(0, at), text.slice(0, at + 1), `${text.slice(0, at)}\ufffd${text.slice(at + 1)}`);
      at += line.length + 1;
    }
    for (const each of damaged) {
      const { status, body } = await restore(cluster, 1 + (each.length % 5), each);
      expect([status, body.code], `${each.length} ${JSON.stringify(body)}`).toEqual([400, "invalid_request"]);
    }
    const newer = text.replace('{"concord_backup":1', '{"concord_backup":2');
    expect(await restore(cluster, 1, newer)).toMatchObject({ status: 400, body: { reason: "backup_version" } });
    expect(await restore(cluster, 1, text, "?revision_jump=0")).toMatchObject({
      status: 400,
      body: { reason: "invalid_revision_jump" },
    });
    await cluster.converged();
    const withoutPosition = ({ rows }: typeof before) => rows.filter(([row]) => row !== "m");
    expect(withoutPosition(await cluster.rows(1))).toEqual(withoutPosition(before));
    expect((await restore(cluster, 1, text, "?revision_jump=7")).status).toBe(200);
  }, 120_000);

  test("refuses a cluster in which something was written", async () => {
    const old = await loaded();
    const text = await backup(old, 1);
    expect(await restore(old, 2, text)).toMatchObject({
      status: 412,
      body: { code: "precondition_failed", reason: "cluster_not_empty" },
    });
    expect(await keysOf(old, 1)).toContain("/over");
  }, 60_000);

  test("interrupted it serves nothing, says so, and comes to its end when it is begun anew", async () => {
    const old = await loaded(600, 4000);
    const text = await backup(old, 1);
    const cluster = await started();
    const uploader = 1 + ((await cluster.leader()) % 5);
    const other = 1 + (uploader % 5);
    await inTheMiddle(cluster, uploader, (state) => state.abort("test: crash"));
    await expect(restore(cluster, uploader, text)).rejects.toThrow();
    for (const node of NODES) {
      const refused = { status: 503, body: { code: "cluster_not_ready", reason: "restoring" } };
      expect(await cluster.get(node, "/over")).toMatchObject(refused);
      expect(await cluster.put(node, "/a", 1)).toMatchObject(refused);
      expect(await cluster.get(node, "/over", "&consistency=serializable")).toMatchObject(refused);
    }
    expect(await cluster.call(other, "/readyz")).toMatchObject({ status: 503, body: { reason: "restoring" } });
    const refused = await openSnapshot(cluster, other);
    expect([refused.status, await refused.json()]).toMatchObject([503, { reason: "restoring" }]);

    expect((await restore(cluster, other, text)).status).toBe(200);
    expect((await cluster.call(uploader, "/v1/kv?prefix=/&limit=1&count_only=true")).body).toMatchObject({
      count: 604,
    });
    await cluster.equalRows();
  }, 120_000);

  test("goes on behind a leader that dies in the middle", async () => {
    const old = await loaded(600, 4000);
    const text = await backup(old, 1);
    const cluster = await started();
    const leader = await cluster.leader();
    const uploader = 1 + (leader % 5);
    const { middle } = await inTheMiddle(cluster, uploader);
    const restoring = restore(cluster, uploader, text);
    await middle;
    await cluster.abort(leader);
    expect((await restoring).status).toBe(200);
    await cluster.equalRows();
    expect((await cluster.call(leader, "/v1/kv?prefix=/&limit=1&count_only=true")).body).toMatchObject({ count: 604 });
  }, 120_000);

  test("one at a time on a node; a text that stops coming holds nothing for ever", async () => {
    const old = await loaded();
    const text = await backup(old, 1);
    const cluster = await started();
    let end: () => void = () => {};
    const stuck = new ReadableStream<Uint8Array>({
      start(controller) {
        controller.enqueue(new TextEncoder().encode(text.slice(0, 100)));
        end = () => controller.close();
      },
    });
    const first = restore(cluster, 1, stuck);
    await eventually(async () => (await restore(cluster, 1, "")).body.reason, "restore_running");
    Date.now = () => now() + 130_000;
    expect((await restore(cluster, 1, streamOf(text) as never)).status).toBe(200);
    end();
    expect((await first).body).toMatchObject({ code: "overloaded", reason: "restore_lost" });
  }, 60_000);
});
