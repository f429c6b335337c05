import { describe, expect, test } from "vitest";
import { createHarness, expectProblem } from "./harness.ts";

describe("txn", () => {
  test("the example of the design runs: compares, puts, a revision suffix", async () => {
    const { post, backend } = createHarness();
    const state = "/work/items/42/state";
    await post("/v1/txn", { success: [{ type: "put", key: state, value: { status: "pending" } }] });
    const { id } = (await post("/v1/leases", { ttl_s: 30 })).body;
    const claim = {
      compare: [
        { target: "field", key: state, path: ["status"], op: "==", value: "pending" },
        { target: "mod_revision", key: state, op: "==", value: 1 },
      ],
      success: [
        { type: "put", key: state, value: { status: "claimed" }, prev_kv: true },
        { type: "put", key: "/work/items/42/holder", value: "agent_7", lease: id },
        { type: "put", key: "/work/items/42/attempts/", revision_suffix: true, value: { kind: "claim" } },
      ],
      failure: [
        { type: "get", key: state },
        { type: "get", key: "/work/items/42/holder" },
      ],
    };
    const won = (await post("/v1/txn", claim)).body;
    expect(won).toMatchObject({
      succeeded: true,
      revision: 2,
      responses: [
        { type: "put", key: state, prev_kv: { value: { status: "pending" }, mod_revision: 1 } },
        { type: "put", key: "/work/items/42/holder" },
        { type: "put", key: "/work/items/42/attempts/0000000000000002" },
      ],
    });
    const lost = (await post("/v1/txn", claim)).body;
    expect(lost).toMatchObject({
      succeeded: false,
      revision: 2,
      responses: [
        { type: "get", count: 1, more: false, kvs: [{ value: { status: "claimed" } }] },
        { type: "get", count: 1, kvs: [{ value: "agent_7", lease_id: id }] },
      ],
    });
    expect(backend.revision).toBe(2);
  });

  test("get, delete and touch answer as the design says", async () => {
    const { post, backend } = createHarness();
    await post("/v1/txn", { success: [{ type: "put", key: "a/1", value: 1, ttl: 5 }] });
    await post("/v1/txn", { success: [{ type: "put", key: "a/2", value: 2 }] });
    const { body } = await post("/v1/txn", {
      success: [
        { type: "get", prefix: "a/", limit: 1, order: "desc" },
        { type: "get", range: { start: "a/", end: "a/2" }, limit: 5, count_only: true },
        { type: "touch", key: "a/1", ttl: 60 },
        { type: "touch", key: "b", ttl: 60 },
        { type: "delete", prefix: "a/", prev_kv: true },
      ],
    });
    expect(body.responses).toMatchObject([
      { type: "get", kvs: [{ key: "a/2" }], more: true },
      { type: "get", kvs: [], count: 1 },
      { type: "touch", expires_at_ms: backend.nowMs + 60_000 },
      { type: "touch", not_found: true },
      { type: "delete", deleted: 2, prev_kvs: [{ key: "a/1" }, { key: "a/2" }] },
    ]);
  });

  test("a txn that cannot write leaves nothing in the log and may be serializable", async () => {
    const { post, backend } = createHarness();
    const reads = {
      compare: [{ target: "exists", key: "a", op: "==", value: false }],
      success: [{ type: "get", key: "a" }],
    };
    const answer = await post("/v1/txn?consistency=serializable", reads);
    expect(answer.body).toEqual({
      succeeded: true,
      revision: 0,
      responses: [{ type: "get", kvs: [], count: 0, more: false }],
    });
    expect(backend.logged).toEqual([]);
    expect(backend.queries[0]?.options.consistency).toBe("serializable");
  });

  test("a txn that only reads goes through the log under an idempotency key", async () => {
    const { post, backend } = createHarness();
    await post("/v1/txn", { success: [{ type: "get", key: "a" }] }, { "idempotency-key": "k" });
    expect(backend.logged.length).toBe(1);
  });

  test("an empty txn succeeds", async () => {
    const { post } = createHarness();
    expect((await post("/v1/txn", {})).body).toEqual({ succeeded: true, revision: 0, responses: [] });
  });

  test("an empty prefix in a txn begins behind the system keys", async () => {
    const { post, backend } = createHarness();
    await post("/v1/txn", { success: [{ type: "delete", prefix: "" }] });
    expect(backend.commands[0]?.command).toMatchObject({ success: [{ selector: { range: { start: "\x01" } } }] });
  });

  test("compares on absent keys and on null follow the table (S23)", async () => {
    const { post } = createHarness();
    await post("/v1/txn", { success: [{ type: "put", key: "null", value: null }] });
    await post("/v1/txn", { success: [{ type: "put", key: "inner", value: { s: null } }] });
    const holds = async (compare: object) => (await post("/v1/txn", { compare: [compare] })).body.succeeded;
    for (const key of ["absent", "null"]) {
      expect(await holds({ target: "exists", key, op: "==", value: key === "null" })).toBe(true);
      expect(await holds({ target: "value", key, op: "==", value: null })).toBe(true);
      expect(await holds({ target: "field", key, path: ["s", "t"], op: ">", value: 1 })).toBe(false);
      expect(await holds({ target: "lease", key, op: "==", value: null })).toBe(true);
      expect(await holds({ target: "ttl", key, op: "<", value: 5 })).toBe(true);
      expect(await holds({ target: "version", key, op: "==", value: key === "null" ? 1 : 0 })).toBe(true);
    }
    expect(await holds({ target: "field", key: "inner", path: ["s"], op: "==", value: null })).toBe(true);
  });

  test("a txn that fails in apply fails whole and says why", async () => {
    const { post, get } = createHarness();
    const operations = [
      { type: "put", key: "a", value: 1 },
      { type: "put", key: "b", value: 1, lease: 99 },
    ];
    const answer = await post("/v1/txn", { success: operations });
    expectProblem(answer, { status: 404, code: "unknown_lease" });
    expect(answer.body.revision).toBe(0);
    expect((await get("/v1/kv?key=a")).status).toBe(404);
  });
});

describe("batches", () => {
  test("put_many writes all items at one revision and names what was there", async () => {
    const { post } = createHarness();
    const items = [
      { key: "a", value: 1, prev_kv: true },
      { key: "b", value: { encoding: "base64", data: "QQ==" }, content_type: "text/plain", metadata: { m: 1 } },
      { key: "a", value: 2, prev_kv: true },
    ];
    expect((await post("/v1/kv/batch", { op: "put_many", items })).body).toMatchObject({
      revision: 1,
      responses: [{ key: "a", prev_kv: null }, { key: "b" }, { key: "a", prev_kv: { value: 1 } }],
    });
  });

  test("get_many reads all keys at one revision, in order", async () => {
    const { post, put } = createHarness();
    await put("/v1/kv?key=a", 1);
    await put("/v1/kv?key=b", 2);
    const keys = ["b", "none", "a"];
    expect((await post("/v1/kv/batch", { op: "get_many", keys })).body).toMatchObject({
      revision: 2,
      records: [{ key: "b" }, null, { key: "a" }],
    });
    expect((await post("/v1/kv/batch", { op: "get_many", keys, revision: 1 })).body).toMatchObject({
      revision: 1,
      records: [null, null, { key: "a" }],
    });
  });

  test("delete_many deletes what is there", async () => {
    const { post, put } = createHarness();
    await put("/v1/kv?key=a", 1);
    const batch = { op: "delete_many", keys: ["a", "b"], prev_kv: true };
    expect((await post("/v1/kv/batch", batch)).body).toMatchObject({
      revision: 2,
      deleted: 1,
      responses: [
        { deleted: 1, prev_kv: { value: 1 } },
        { deleted: 0, prev_kv: null },
      ],
    });
  });

  test("500 keys are put, read and deleted, each at one revision (S15)", async () => {
    const { post } = createHarness();
    const keys = Array.from({ length: 500 }, (_, index) => `k${index}`);
    await post("/v1/kv/batch", { op: "put_many", items: keys.map((key) => ({ key, value: key })) });
    const read = (await post("/v1/kv/batch", { op: "get_many", keys })).body;
    expect([read.revision, read.records.every((record: object | null) => record !== null)]).toEqual([1, true]);
    expect((await post("/v1/kv/batch", { op: "delete_many", keys })).body).toMatchObject({ revision: 2, deleted: 500 });
  });
});

describe("leases", () => {
  test("a lease is granted, described with its keys, and revoked with them", async () => {
    const { post, put, get, delete: remove, backend } = createHarness();
    const granted = await post("/v1/leases", { ttl_s: 10, metadata: { owner: "a" } });
    expect(granted.status).toBe(201);
    const { id } = granted.body;
    expect(granted.body).toEqual({ id, ttl_s: 10, expires_at_ms: backend.nowMs + 10_000, revision: 0 });
    await put(`/v1/kv?key=a&lease=${id}`, 1);
    backend.nowMs += 4_000;
    expect((await get(`/v1/leases/${id}`)).body).toMatchObject({
      id,
      ttl_s: 10,
      remaining_ms: 6_000,
      metadata: { owner: "a" },
      keys: ["a"],
    });
    expect((await remove(`/v1/leases/${id}`)).body).toEqual({ deleted: 1, revision: 2 });
    expectProblem(await get(`/v1/leases/${id}`), { status: 404, code: "unknown_lease" });
    expectProblem(await remove(`/v1/leases/${id}`), { status: 404, code: "unknown_lease" });
  });

  test("an id of the caller's is taken once", async () => {
    const { post } = createHarness();
    expect((await post("/v1/leases", { ttl_s: 10, id: 77 })).body.id).toBe(77);
    expectProblem(await post("/v1/leases", { ttl_s: 10, id: 77 }), { status: 409, code: "lease_exists" });
  });

  test("the largest lease is ten years, and remains so (S35)", async () => {
    const { post, get, backend } = createHarness();
    const { id } = (await post("/v1/leases", { ttl_s: 315_360_000 })).body;
    backend.nowMs += 60_000;
    expect((await get(`/v1/leases/${id}`)).body.remaining_ms).toBe(315_360_000_000 - 60_000);
  });
});
