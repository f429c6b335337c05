/** The client against the API over the real state machine, in one process: `fetch` is the app's. */
import { describe, expect, test } from "vitest";
import { createApi } from "../../src/api/app.ts";
import { bytes, bytesOf, Concord, ConcordError, type ConnectOptions } from "../../src/client/index.ts";
import { MachineBackend } from "../api/machine-backend.ts";

function createSetting(options: Partial<ConnectOptions> = {}) {
  const backend = new MachineBackend();
  const api = createApi(backend, { principal: "root", log: () => {} });
  const concord = Concord.connect({ fetch: (request) => api.fetch(request), ...options });
  return { backend, concord };
}

async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const item of items) all.push(item);
  return all;
}

describe("kv", () => {
  test("put, get and delete", async () => {
    const { concord } = createSetting();
    expect(await concord.kv.put("a", { x: 1 }, { metadata: { m: 1 } })).toEqual({ revision: 1, key: "a" });
    const record = await concord.kv.get<{ x: number }>("a");
    expect([record?.value.x, record?.metadata, record?.mod_revision]).toEqual([1, { m: 1 }, 1]);
    expect(await concord.kv.put("a", 2, { prev_kv: true })).toMatchObject({
      revision: 2,
      prev_kv: { value: { x: 1 } },
    });
    expect(await concord.kv.delete("a", { prev_kv: true })).toMatchObject({
      revision: 3,
      deleted: 1,
      prev_kv: { value: 2 },
    });
    expect(await concord.kv.delete("a")).toEqual({ revision: 3, deleted: 0 });
    expect(await concord.kv.get("a")).toBeNull();
    expect((await concord.kv.get("a", { revision: 2 }))?.value).toBe(2);
  });

  test.each(["..", ".", "//x", "a b+c", "?#&=%", "\u{1F600}"])("the key %j works everywhere", async (key) => {
    const { concord } = createSetting();
    await concord.kv.put(key, 1);
    expect((await concord.kv.get(key))?.key).toBe(key);
    expect((await collect(concord.kv.list({ prefix: key }))).length).toBe(1);
    expect((await collect(concord.kv.history(key))).length).toBe(1);
  });

  test("bytes go in and come out, as values and as keys", async () => {
    const { concord } = createSetting();
    const data = Uint8Array.from({ length: 256 }, (_, index) => index);
    const key = bytes(new Uint8Array([0xff]));
    await concord.kv.put(key, bytes(data));
    const record = await concord.kv.get(key);
    expect(record?.key).toEqual(key);
    expect(bytesOf(record?.value ?? null)).toEqual(data);
    expect([bytesOf("QQ=="), bytesOf(null), bytesOf({ encoding: "base64" })]).toEqual([null, null, null]);
  });

  test("revision_suffix names the key", async () => {
    const { concord } = createSetting();
    const { key } = await concord.kv.put("notes/", "n", { revision_suffix: true });
    expect(key).toBe("notes/0000000000000001");
  });

  test("create, replace, updateIf and deleteIf tell a failed condition as a result", async () => {
    const { concord } = createSetting();
    expect(await concord.kv.replace("a", 1)).toEqual({ succeeded: false, revision: 0, current: null });
    expect(await concord.kv.create("a", 1)).toEqual({ succeeded: true, revision: 1 });
    expect(await concord.kv.create("a", 2)).toMatchObject({ succeeded: false, current: { value: 1, mod_revision: 1 } });
    expect(await concord.kv.replace("a", 2)).toEqual({ succeeded: true, revision: 2 });
    expect(await concord.kv.updateIf("a", 1, 3)).toMatchObject({ succeeded: false, current: { value: 2 } });
    expect(await concord.kv.updateIf("a", 2, 3)).toEqual({ succeeded: true, revision: 3 });
    expect(await concord.kv.deleteIf("a", 2)).toMatchObject({ succeeded: false, current: { value: 3 } });
    expect(await concord.kv.deleteIf("a", 3)).toEqual({ succeeded: true, revision: 4 });
  });

  test("batches", async () => {
    const { concord } = createSetting();
    const items = [
      { key: "a", value: 1 },
      { key: "b", value: 2, content_type: "text/plain" },
    ];
    expect(await concord.kv.putMany(items)).toEqual({ revision: 1, responses: [{ key: "a" }, { key: "b" }] });
    const { records, revision } = await concord.kv.getMany<number>(["b", "c", "a"]);
    expect([revision, records.map((record) => record?.value)]).toEqual([1, [2, undefined, 1]]);
    expect(await concord.kv.deleteMany(["a", "c"])).toMatchObject({ revision: 2, deleted: 1 });
  });

  test("a list goes through all pages at one revision while writes go on", async () => {
    const { concord } = createSetting();
    await concord.kv.putMany(["a", "b", "c", "d"].map((key) => ({ key, value: key })));
    const seen: unknown[] = [];
    for await (const { key } of concord.kv.list({ start: "b" }, { limit: 1, consistency: "serializable" })) {
      seen.push(key);
      await concord.kv.put(`${String(key)}+`, 1);
    }
    expect(seen).toEqual(["b", "c", "d"]);
    expect((await collect(concord.kv.list({ prefix: "" }, { limit: 2, order: "desc" }))).length).toBe(7);
    expect((await concord.kv.page({ start: "a", end: "b" }, { count_only: true })).count).toBe(1);
    expect((await concord.kv.page({}, { revision: 1, keys_only: true })).records.length).toBe(4);
  });

  test("history goes through all pages", async () => {
    const { concord } = createSetting();
    for (let value = 1; value <= 5; value += 1) await concord.kv.put("a", value);
    const events = await collect(concord.kv.history("a", { limit: 2 }));
    expect(events.map(({ value }) => value)).toEqual([1, 2, 3, 4, 5]);
    expect((await concord.kv.historyPage("a", { from: 2, to: 3 })).events.length).toBe(2);
  });
});

describe("txn", () => {
  test("is the plain object of the wire", async () => {
    const { concord } = createSetting();
    const result = await concord.txn({
      compare: [{ target: "exists", key: "a", op: "==", value: false }],
      success: [{ type: "put", key: "a", value: 1 }],
      failure: [{ type: "get", key: "a" }],
    });
    expect(result).toEqual({ succeeded: true, revision: 1, responses: [{ type: "put", key: "a" }] });
  });

  test("that only reads leaves nothing in the log", async () => {
    const { concord, backend } = createSetting();
    await concord.txn({ success: [{ type: "get", key: "a" }] });
    expect(backend.logged).toEqual([]);
    await concord.txn({ success: [{ type: "get", key: "a" }] }, { idempotencyKey: "k" });
    expect(backend.logged.length).toBe(1);
  });

  test("an unknown outcome is resolved by its key, whatever characters it has", async () => {
    const { concord } = createSetting();
    for (const idempotencyKey of ["k", "..", "a/b c%d"]) {
      expect(await concord.txnResult(idempotencyKey)).toMatchObject({ status: "unknown" });
      await concord.kv.put("a", 1, { idempotencyKey });
      expect(await concord.txnResult(idempotencyKey)).toMatchObject({ status: "known", outcome: { ok: true } });
    }
  });

  test("errors have a code, a reason and a retry rule", async () => {
    const { concord } = createSetting();
    const promise = concord.kv.put("a", 1, { ttl: 1, lease: 1 });
    await expect(promise).rejects.toBeInstanceOf(ConcordError);
    await expect(promise).rejects.toMatchObject({
      code: "invalid_kv",
      retry: "no",
      status: 400,
      body: { reason: "ttl_and_lease_conflict" },
    });
  });

  /** A client whose next reply is lost after the commit, while another client goes on. */
  function losingReplies(options: Partial<ConnectOptions>) {
    const backend = new MachineBackend();
    const api = createApi(backend, { principal: "root", log: () => {} });
    const other = Concord.connect({ fetch: api.fetch });
    const state = { losesNext: false };
    const fetch = async (request: Request) => {
      const response = await api.fetch(request);
      if (!state.losesNext) return response;
      state.losesNext = false;
      await other.kv.put("k", 2);
      throw new TypeError("connection lost");
    };
    return { state, concord: Concord.connect({ fetch, ...options }), other };
  }

  test("a compare-and-set whose reply was lost reports its own success (S24)", async () => {
    const { state, concord, other } = losingReplies({});
    const { revision } = await concord.kv.put("k", 1);
    state.losesNext = true;
    expect(await concord.kv.updateIf("k", revision, 4)).toEqual({ succeeded: true, revision: revision + 1 });
    expect((await other.kv.get("k"))?.value).toBe(2);
  });

  test("without a key it reports that it does not know, and writes once (S24)", async () => {
    const { state, concord, other } = losingReplies({ idempotency: false });
    const { revision } = await concord.kv.put("k", 1);
    state.losesNext = true;
    await expect(concord.kv.updateIf("k", revision, 4)).rejects.toMatchObject({
      code: "timeout",
      retry: "same-request",
    });
    const values = (await collect(other.kv.history("k"))).map(({ value }) => value);
    expect(values).toEqual([1, 4, 2]);
  });

  test("ten identical requests at once have one effect and ten equal answers (S26)", async () => {
    const { concord, backend } = createSetting();
    const answers = await Promise.all(
      Array.from({ length: 10 }, () => concord.kv.put("a", 1, { idempotencyKey: "same" })),
    );
    expect(new Set(answers.map((answer) => JSON.stringify(answer))).size).toBe(1);
    expect(backend.revision).toBe(1);
  });

  test("a kept result that lost its values is completed by a read, or says so", async () => {
    const { concord } = createSetting();
    await concord.kv.put("a", "x".repeat(40_000));
    for (let attempt = 1; attempt <= 2; attempt += 1) {
      const result = await concord.kv.create<string>("a", 1, { idempotencyKey: "c" });
      expect(result.succeeded ? 0 : result.current?.value.length).toBe(40_000);
    }
    const replace = () => concord.kv.put("a", 1, { idempotencyKey: "p", prev_kv: true });
    expect((await replace()).values_dropped).toBeUndefined();
    expect((await replace()).values_dropped).toBe(true);
  });

  test("a failing node is asked again and the write has one effect", async () => {
    const { concord, backend } = createSetting();
    expect((await concord.kv.put("a", 1)).revision).toBe(1);
    backend.failure = new Error("lost");
    expect((await concord.kv.put("a", 2)).revision).toBe(2);
    expect(backend.failure).toBeNull();
  });
});

describe("leases and the cluster", () => {
  test("a lease is granted, described and revoked", async () => {
    const { concord } = createSetting();
    const { id, ttl_s } = await concord.lease.grant({ ttl_s: 10, metadata: { owner: "a" } });
    expect(ttl_s).toBe(10);
    await concord.kv.put("a", 1, { lease: id });
    expect(await concord.lease.info(id)).toMatchObject({ keys: ["a"], remaining_ms: 10_000, metadata: { owner: "a" } });
    expect(await concord.lease.revoke(id)).toEqual({ deleted: 1, revision: 2 });
    expect(await concord.lease.info(id)).toBeNull();
    await expect(concord.lease.revoke(id)).rejects.toMatchObject({ code: "unknown_lease" });
  });

  test("the cluster's status, id and revision are known", async () => {
    const { concord, backend } = createSetting();
    expect([concord.clusterId, concord.revision]).toEqual([null, 0]);
    expect(await concord.cluster()).toEqual(await backend.cluster());
    await concord.kv.put("a", 1);
    expect([concord.clusterId, concord.revision, await concord.currentRevision()]).toEqual(["c-1", 1, 1]);
  });
});
