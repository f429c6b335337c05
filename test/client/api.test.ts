/**
 * Goal: client and API mean the same by every operation, watch and topic, over both transports.
 * Method: the API's own code over the real state machine and the real watch hub, in one process.
 */
import { afterEach, describe, expect, test } from "vitest";
import { createApi } from "../../src/api/app.ts";
import { Concord, type ConnectOptions } from "../../src/client/index.ts";
import { MachineBackend } from "../api/machine-backend.ts";
import { SessionHost } from "./session-host.ts";
import { collect, settle, TRANSPORTS, type TransportName } from "./streaming.ts";

const open: Concord[] = [];

afterEach(() => {
  for (const concord of open.splice(0)) concord.close();
});

function createSetting(transport: TransportName, options: Partial<ConnectOptions> = {}) {
  const backend = new MachineBackend();
  const api = createApi(backend, { principal: "root", log: () => {} });
  const host = new SessionHost(backend);
  const concord = Concord.connect({
    fetch: (request) => api.fetch(request),
    ...(transport === "session" ? { webSocket: host.openSocket } : {}),
    random: () => 0,
    ...options,
  });
  open.push(concord);
  return { backend, host, concord };
}

describe.each(TRANSPORTS)("over %s", (transport) => {
  test("records are written, read, listed, conditionally changed and deleted", async () => {
    const { concord, host } = createSetting(transport);
    expect(await concord.kv.get("a")).toBeNull();
    expect(await concord.kv.put("a", { x: 1 }, { metadata: { m: 1 } })).toEqual({ revision: 1, key: "a" });
    expect(await concord.kv.get("a")).toMatchObject({ key: "a", value: { x: 1 }, metadata: { m: 1 }, mod_revision: 1 });
    expect((await concord.kv.updateIf("a", 1, 2)).succeeded).toBe(true);
    expect(await concord.kv.create("a", 3)).toMatchObject({ succeeded: false, current: { value: 2 } });
    await concord.kv.putMany([
      { key: "b", value: 1 },
      { key: "c", value: 1, content_type: "text/plain" },
    ]);
    expect((await concord.kv.getMany(["c", "x"])).records.map((record) => record?.content_type)).toEqual([
      "text/plain",
      undefined,
    ]);
    const past = await concord.kv.page({ start: "a" }, { limit: 1, order: "desc", revision: 2 });
    expect(past.records.map(({ key, value }) => [key, value])).toEqual([["a", 2]]);
    const listed = collect(concord.kv.list({ prefix: "" }, { limit: 1, consistency: "serializable" }));
    await listed.ended;
    expect(listed.items.map(({ key }) => key)).toEqual(["a", "b", "c"]);
    const history = collect(concord.kv.history("a", { limit: 1 }));
    await history.ended;
    expect(history.items.map(({ value }) => value)).toEqual([{ x: 1 }, 2]);
    expect((await concord.kv.get("a", { revision: 1 }))?.value).toEqual({ x: 1 });
    expect(await concord.kv.deleteMany(["b", "x"], { prev_kv: true })).toMatchObject({ deleted: 1 });
    expect(await concord.kv.delete("c")).toMatchObject({ deleted: 1 });
    expect([concord.clusterId, concord.revision, await concord.currentRevision()]).toEqual(["c-1", 5, 5]);
    expect((await concord.cluster()).cluster_id).toBe("c-1");
    expect(host.openedCount).toBe(transport === "session" ? 1 : 0);
  });

  test("keys and values of every kind arrive as they are", async () => {
    const { concord } = createSetting(transport);
    for (const key of ["..", "//x", "a b+c", "?#&=%", "\u{1F600}"]) {
      await concord.kv.put(key, { "": [null, 0, "\u2028\0"] });
      expect((await concord.kv.get(key))?.value).toEqual({ "": [null, 0, "\u2028\0"] });
    }
  });

  test("txns are run, resolved and refused alike", async () => {
    const { concord, backend } = createSetting(transport);
    const txn = {
      compare: [{ target: "version", key: "a", op: "==", value: 0 }],
      success: [{ type: "put", key: "a", value: 1 }],
    } as const;
    expect((await concord.txn(txn, { idempotencyKey: "k 1" })).succeeded).toBe(true);
    expect((await concord.txn(txn, { idempotencyKey: "k 1" })).succeeded).toBe(true);
    expect((await concord.txn(txn)).succeeded).toBe(false);
    expect(await concord.txnResult("k 1")).toMatchObject({ status: "known", outcome: { ok: true } });
    expect(
      (await concord.txn({ success: [{ type: "get", key: "a" }] }, { consistency: "serializable" })).succeeded,
    ).toBe(true);
    expect(backend.revision).toBe(1);
    await expect(concord.kv.put("a", 1, { ttl: 1, lease: 1 })).rejects.toMatchObject({
      code: "invalid_kv",
      body: { reason: "ttl_and_lease_conflict" },
    });
    await expect(concord.kv.put("a", 1, { lease: 99 })).rejects.toMatchObject({ code: "unknown_lease" });
    await expect(concord.kv.get("a", { revision: 99 })).rejects.toMatchObject({ code: "revision_in_future" });
    await expect(concord.kv.put("a".repeat(5_000), 1)).rejects.toMatchObject({ code: "invalid_kv" });
    await expect(concord.kv.put("large", "x".repeat(1_100_000))).rejects.toMatchObject({
      body: { reason: "value_too_large" },
    });
    await expect(concord.kv.put("huge", "x".repeat(3_000_000))).rejects.toMatchObject({ code: "body_too_large" });
    expect(await concord.currentRevision()).toBe(1);
  });

  test("history is given up, and what needs it is told", async () => {
    const { concord } = createSetting(transport);
    for (let value = 0; value < 6; value += 1) await concord.kv.put("a", value);
    const all = collect(concord.sync.allChanges({ prefix: "" }, { limit: 4 }));
    await all.ended;
    expect(all.items.map(({ value }) => value)).toEqual([0, 1, 2, 3, 4, 5]);
    expect(await concord.compact(4)).toMatchObject({ compact_revision: 4 });
    await expect(concord.sync.changes({ key: "a" }, { after: "2" })).rejects.toMatchObject({ code: "compacted" });
    const taken = collect(concord.sync.watch({ key: "a" }, { from_revision: 2 }));
    await settle();
    expect(taken.outcome).toMatchObject({ code: "compacted", body: { compact_revision: 4 } });
    const rest = collect(concord.sync.allChanges({ range: { start: "a", end: "b" } }, { after: "4" }));
    await rest.ended;
    expect(rest.items.map(({ value }) => value)).toEqual([4, 5]);
  });

  test("what was stored of another cluster, or lies in the future, is told and not waited for", async () => {
    const { concord } = createSetting(transport);
    await concord.kv.putMany([
      { key: "a", value: 1 },
      { key: "b", value: 2 },
    ]);
    const { next, cluster_id } = await concord.sync.changes({ prefix: "" }, { limit: 1 });
    expect([next, cluster_id]).toEqual(["1.0", "c-1"]);
    for (const stored of [{ after: next, cluster_id: "c-1" }, { after: next }]) {
      expect((await concord.sync.changes({ prefix: "" }, stored)).events).toHaveLength(1);
      expect((await concord.sync.watch({ prefix: "" }, stored).next()).value?.key).toBe("b");
    }
    const foreign = { after: next, cluster_id: "c-0" };
    const future = { after: "2" };
    for (const [options, code] of [
      [foreign, "cluster_changed"],
      [future, "revision_in_future"],
    ] as const) {
      await expect(concord.sync.changes({ prefix: "" }, options)).rejects.toMatchObject({ code });
      await expect(concord.sync.watch({ prefix: "" }, options).next()).rejects.toMatchObject({ code });
      await expect(concord.sync.watchGrouped({ prefix: "" }, options).open()).rejects.toMatchObject({ code });
    }
    const serializable = { ...foreign, consistency: "serializable" } as const;
    await expect(concord.sync.changes({ prefix: "" }, serializable)).rejects.toMatchObject({ code: "cluster_changed" });
  });

  test("a watch replays, goes live, and knows values before", async () => {
    const { concord } = createSetting(transport);
    await concord.kv.put("a", 1);
    await concord.kv.put("a", 2);
    const statuses: string[] = [];
    const onStatus = ({ kind }: { readonly kind: string }) => void statuses.push(kind);
    const events = collect(concord.sync.watch({ key: "a" }, { from_revision: 1, prev_values: true, onStatus }));
    const deletes = collect(concord.sync.watch({ prefix: "" }, { filter: "deletes", include_values: false }));
    await settle();
    await concord.kv.delete("a");
    await concord.kv.put("b", 1);
    await settle();
    expect(events.items.map(({ type, value, prev_value }) => [type, value, prev_value])).toEqual([
      ["put", 1, null],
      ["put", 2, 1],
      ["delete", null, 2],
    ]);
    expect(deletes.items.map(({ key, value }) => [key, value])).toEqual([["a", undefined]]);
    expect(statuses).toEqual(["ready"]);
  });

  test("a large revision comes in parts, a large value in one piece, and the credit is given back (S43)", async () => {
    const { concord, host } = createSetting(transport);
    host.messageBytesMax = 65_536;
    await concord.kv.put("value", "é".repeat(500_000));
    await concord.txn({
      success: Array.from(
        { length: 40 },
        (_, index) => ({ type: "put", key: `k${index}`, value: "x".repeat(32_000) }) as const,
      ),
    });
    for (let count = 0; count < 100; count += 1) await concord.kv.put(`l${count}`, "y".repeat(10_000));
    const grouped = collect(concord.sync.watchGrouped({ prefix: "" }, { from_revision: 1 }));
    const events = collect(concord.sync.watch({ prefix: "" }, { from_revision: 1 }));
    for (let turn = 0; turn < 100 && events.items.length < 141; turn += 1) await settle();
    expect(grouped.items.map((item) => item.events.length)).toEqual([1, 40, ...Array(100).fill(1)]);
    expect(events.items.map(({ key }) => key)).toEqual(
      grouped.items.flatMap((item) => item.events.map(({ key }) => key)),
    );
  });

  test("follow keeps a copy through a compaction that cuts it off", async () => {
    const { concord, backend } = createSetting(transport);
    await concord.kv.putMany(["a", "b", "c"].map((key) => ({ key, value: key })));
    const taken = collect(concord.sync.follow({ prefix: "" }, { limit: 2 }));
    await settle();
    await concord.kv.delete("b");
    await settle();
    expect(taken.items.map((item) => ("key" in item ? `${item.kind} ${String(item.key)}` : item.kind))).toEqual([
      "put a",
      "put b",
      "put c",
      "synced",
      "delete b",
    ]);
    expect(backend.revision).toBe(2);
  });

  test("topics tell who listens", async () => {
    const { concord, backend } = createSetting(transport);
    const subscription = concord.topics.subscribe("a/b c");
    await subscription.open();
    const taken = collect(subscription);
    await concord.topics.publish("a/b c", { n: 1 });
    await settle();
    expect(taken.items).toEqual([{ topic: "a/b c", payload: { n: 1 }, dropped: 0 }]);
    expect(backend.published.length).toBe(1);
    await expect(concord.topics.publish("t", "x".repeat(70_000))).rejects.toMatchObject({
      body: { reason: "payload_too_large" },
    });
    await expect(concord.topics.subscribe("\0").open()).rejects.toMatchObject({ code: "invalid_request" });
  });

  test("what is left is forgotten by the node", async () => {
    const { concord, backend } = createSetting(transport);
    for await (const _ of watchOnce(concord)) break;
    const waiting = collect(concord.sync.watch({ prefix: "" }));
    await settle();
    expect(backend.hub.watchesCount).toBe(1);
    concord.close();
    await settle();
    expect([waiting.outcome, backend.hub.watchesCount, backend.connectionsCount]).toEqual(["done", 0, 0]);
  });
});

async function* watchOnce(concord: Concord) {
  await concord.kv.put("a", 1);
  yield* concord.sync.watch({ key: "a" }, { from_revision: 1 });
}

test("leases are granted, kept, listed and revoked over a session as over HTTP", async () => {
  const { concord } = createSetting("session");
  const { id } = await concord.lease.grant({ ttl_s: 10 });
  await concord.kv.put("a", 1, { lease: id });
  expect(await concord.lease.info(id)).toMatchObject({ keys: ["a"] });
  expect(await concord.lease.revoke(id)).toMatchObject({ deleted: 1 });
  expect(await concord.lease.info(id)).toBeNull();
});

test("a session that breaks under a write gives the write's own result back (S24)", async () => {
  const { concord, host, backend } = createSetting("session");
  await concord.kv.put("k", 1);
  const execute = backend.execute.bind(backend);
  let breaks = true;
  backend.execute = async (...args) => {
    const outcome = await execute(...args);
    if (breaks) {
      breaks = false;
      host.breakAll();
      await concord.kv.put("k", "another's");
    }
    return outcome;
  };
  expect(await concord.kv.updateIf("k", 1, 4)).toEqual({ succeeded: true, revision: 2 });
  expect((await concord.kv.get("k"))?.value).toBe("another's");
  expect(backend.revision).toBe(3);
});
