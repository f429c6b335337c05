import { describe, expect, test } from "vitest";
import { createHarness, expectProblem, type Harness } from "./harness.ts";

const KEYED = { "idempotency-key": "K" };
const JSON_TYPE = { "content-type": "application/json" };

describe("the same request under one key (S26)", () => {
  test.each<[string, (harness: Harness) => ReturnType<Harness["get"]>]>([
    ["a put", (harness) => harness.put("/v1/kv?key=a&prev_kv=true", 1, KEYED)],
    ["a put by path", (harness) => harness.put("/v1/kv/a", 1, KEYED)],
    ["a create", (harness) => harness.put("/v1/kv?key=a", 1, { ...KEYED, "if-none-match": "*" })],
    ["a delete", (harness) => harness.delete("/v1/kv?key=a", KEYED)],
    ["a txn", (harness) => harness.post("/v1/txn", { success: [{ type: "put", key: "a", value: 1 }] }, KEYED)],
    ["a batch", (harness) => harness.post("/v1/kv/batch", { op: "put_many", items: [{ key: "a", value: 1 }] }, KEYED)],
    ["a lease grant", (harness) => harness.post("/v1/leases", { ttl_s: 5 }, KEYED)],
    ["a keep-alive of no lease", (harness) => harness.post("/v1/leases/9/keepalive", {}, KEYED)],
    ["a compaction", (harness) => harness.post("/v1/compact", { revision: 0 }, KEYED)],
  ])("%s has one effect and one answer", async (_name, ask) => {
    const harness = createHarness();
    const first = await ask(harness);
    await harness.put("/v1/kv?key=other", 1);
    const second = await ask(harness);
    expect(second.text).toBe(first.text);
    expect(second.headers.get("etag")).toBe(first.headers.get("etag"));
    const history = (await harness.get("/v1/history?key=a")).body.events;
    expect(history.length).toBeLessThan(2);
    expect((await harness.get("/v1/leases/2")).status).toBe(404);
  });

  test("a failed condition is replayed as well, though it would hold now", async () => {
    const harness = createHarness();
    await harness.put("/v1/kv?key=a", 1);
    const ask = () => harness.put("/v1/kv?key=a", 2, { ...KEYED, "if-match": '"9"' });
    const first = await ask();
    await harness.delete("/v1/kv?key=a");
    expect((await ask()).text).toBe(first.text);
    expectProblem(first, { status: 412, code: "precondition_failed" });
  });

  test("property order and defaults that are spelled out do not make another request", async () => {
    const harness = createHarness();
    const send = (body: string) => harness.send("POST", "/v1/txn", { headers: { ...KEYED, ...JSON_TYPE }, body });
    const bodies = [
      '{"success":[{"type":"put","key":"a","value":{"x":1,"y":[{"p":1,"q":2}]}}]}',
      '{"success":[{"value":{"y":[{"q":2,"p":1}],"x":1},"key":"a","type":"put"}]}',
      '{"failure":[],"compare":[],"success":[{"type":"put","key":"a","value":{"x":1,"y":[{"p":1,"q":2}]},"prev_kv":false,"ignore_value":false,"ignore_lease":false,"revision_suffix":false,"metadata":{}}]}',
    ];
    for (const body of bodies) expect((await send(body)).body.revision).toBe(1);
    expect(harness.backend.revision).toBe(1);
  });

  test("defaults of gets and deletes are the same as nothing", async () => {
    const harness = createHarness();
    const ask = (get: object, remove: object) => {
      const success = [
        { type: "get", key: "a", ...get },
        { type: "delete", key: "b", ...remove },
      ];
      return harness.post("/v1/txn", { success }, KEYED);
    };
    expect((await ask({}, {})).status).toBe(200);
    const spelledOut = { order: "asc", keys_only: false, count_only: false };
    expect((await ask(spelledOut, { prev_kv: false })).status).toBe(200);
  });

  test("a put and the txn that it stands for are one request", async () => {
    const harness = createHarness();
    await harness.put("/v1/kv?key=a", 1, KEYED);
    const txn = { success: [{ type: "put", key: "a", value: 1 }] };
    expect((await harness.post("/v1/txn", txn, KEYED)).body.revision).toBe(1);
    expect(harness.backend.revision).toBe(1);
  });
});

describe("another request under the same key", () => {
  test.each<[string, (harness: Harness) => ReturnType<Harness["get"]>]>([
    ["another value", (harness) => harness.put("/v1/kv?key=a", 2, KEYED)],
    ["another key", (harness) => harness.put("/v1/kv?key=b", 1, KEYED)],
    ["another option", (harness) => harness.put("/v1/kv?key=a&prev_kv=true", 1, KEYED)],
    ["another condition", (harness) => harness.put("/v1/kv?key=a", 1, { ...KEYED, "if-none-match": "*" })],
    ["another content type", (harness) => harness.put("/v1/kv?key=a", 1, { ...KEYED, "content-type": "a/b+json" })],
    ["another operation", (harness) => harness.delete("/v1/kv?key=a", KEYED)],
    ["a lease grant", (harness) => harness.post("/v1/leases", { ttl_s: 5 }, KEYED)],
    ["a keep-alive", (harness) => harness.post("/v1/leases/1/keepalive", {}, KEYED)],
    ["a revoke", (harness) => harness.delete("/v1/leases/1", KEYED)],
    ["a compaction", (harness) => harness.post("/v1/compact", { revision: 1 }, KEYED)],
  ])("%s is a conflict and writes nothing", async (_name, ask) => {
    const harness = createHarness();
    await harness.put("/v1/kv?key=a", 1, KEYED);
    expectProblem(await ask(harness), { status: 409, code: "idempotency_conflict" });
    expect(harness.backend.revision).toBe(1);
    expect((await harness.get("/v1/leases/1")).status).toBe(404);
  });

  test("a keep-alive for another time is another request, one that spells its fields out is not", async () => {
    const harness = createHarness();
    await harness.post("/v1/leases", { ttl_s: 5 });
    const keep = (body: object) => harness.post("/v1/leases/1/keepalive", body, KEYED);
    const first = await keep({});
    harness.backend.nowMs += 1000;
    expect((await harness.send("POST", "/v1/leases/1/keepalive", { headers: KEYED })).text).toBe(first.text);
    expectProblem(await keep({ ttl_s: 5 }), { status: 409, code: "idempotency_conflict" });
    const other = await harness.post("/v1/leases/2/keepalive", {}, KEYED);
    expectProblem(other, { status: 409, code: "idempotency_conflict" });
  });

  test("a compaction to another revision is another request", async () => {
    const harness = createHarness();
    await harness.put("/v1/kv?key=a", 1);
    await harness.put("/v1/kv?key=a", 2);
    const compact = (revision: number) => harness.post("/v1/compact", { revision }, KEYED);
    expect((await compact(1)).body).toEqual({ compact_revision: 1, revision: 2 });
    await harness.post("/v1/compact", { revision: 2 });
    expect((await compact(1)).body).toEqual({ compact_revision: 1, revision: 2 });
    expectProblem(await compact(2), { status: 409, code: "idempotency_conflict" });
  });

  test("metadata that replaces what is there is not the default", async () => {
    const harness = createHarness();
    await harness.post("/v1/txn", { success: [{ type: "put", key: "a", value: 1, metadata: { m: 1 } }] });
    const put = { type: "put", key: "a", ignore_value: true };
    await harness.post("/v1/txn", { success: [put] });
    expect((await harness.get("/v1/kv?key=a")).body.metadata).toEqual({ m: 1 });
    await harness.post("/v1/txn", { success: [{ ...put, metadata: {} }] });
    expect((await harness.get("/v1/kv?key=a")).body.metadata).toEqual({});
  });
});

describe("scope, since and results", () => {
  test("a key belongs to the principal that the Worker names", async () => {
    const harness = createHarness();
    const as = (name: string) => harness.put("/v1/kv?key=a", name, { ...KEYED, "x-concord-principal": name });
    expect((await as("one")).body.revision).toBe(1);
    expect((await as("two")).body.revision).toBe(2);
  });

  test("idempotency-since travels into the log", async () => {
    const harness = createHarness();
    await harness.put("/v1/kv?key=a", 1, { ...KEYED, "idempotency-since": "0" });
    const { idempotency } = JSON.parse(harness.backend.logged[0] ?? "");
    expect(idempotency).toMatchObject({ scope: "root", key: "K", since: 0 });
    expect(idempotency.hash).toMatch(/^[0-9a-f]{64}$/);
  });

  test("a result is found by its key, by path and by query", async () => {
    const harness = createHarness();
    const key = "a/b c%d..";
    await harness.put("/v1/kv?key=a", 1, { "idempotency-key": key });
    const expected = {
      status: "known",
      revision: 1,
      idem_floor: 0,
      outcome: {
        ok: true,
        revision: 1,
        result: { kind: "txn", succeeded: true, revision: 1, responses: [{ type: "put" }] },
      },
    };
    expect((await harness.get(`/v1/txn/results/${encodeURIComponent(key)}`)).body).toMatchObject(expected);
    expect((await harness.get(`/v1/txn/results?key=${encodeURIComponent(key)}`)).body).toMatchObject(expected);
    expect(harness.backend.queries.every(({ options }) => options.consistency === "linearizable")).toBe(true);
  });

  test("a stored apply error is told as a problem document", async () => {
    const harness = createHarness();
    await harness.put("/v1/kv?key=a&lease=9", 1, KEYED);
    const { outcome } = (await harness.get("/v1/txn/results/K")).body;
    expect(outcome).toMatchObject({ ok: false, error: { status: 404, code: "unknown_lease", retry: "no" } });
  });

  test("a lease's result is found as well", async () => {
    const harness = createHarness();
    await harness.post("/v1/leases", { ttl_s: 5 }, KEYED);
    expect((await harness.get("/v1/txn/results/K")).body.outcome.result).toMatchObject({
      kind: "lease_grant",
      ttl_s: 5,
    });
    await harness.post("/v1/leases/1/keepalive", {}, { "idempotency-key": "A" });
    const items = [{ id: 1, ttl_s: 5, expires_at_ms: harness.backend.nowMs + 5000 }];
    const kept = (await harness.get("/v1/txn/results/A")).body.outcome.result;
    expect(kept).toEqual({ kind: "lease_keep_alive", items });
    await harness.delete("/v1/leases/1", { "idempotency-key": "R" });
    expect((await harness.get("/v1/txn/results/R")).body.outcome.result).toEqual({ kind: "lease_revoke", deleted: 0 });
  });

  test("the result of a compaction is found as well", async () => {
    const harness = createHarness();
    await harness.put("/v1/kv?key=a", 1);
    await harness.post("/v1/compact", { revision: 1 }, KEYED);
    const { result } = (await harness.get("/v1/txn/results/K")).body.outcome;
    expect(result).toEqual({ kind: "compact", compact_revision: 1 });
  });

  test("an unknown key is an answer, not an error; another principal's key is unknown", async () => {
    const harness = createHarness();
    await harness.put("/v1/kv?key=a", 1, { ...KEYED, "x-concord-principal": "other" });
    expect((await harness.get("/v1/txn/results/K")).body).toEqual({ status: "unknown", idem_floor: 0, revision: 1 });
    expectProblem(await harness.get("/v1/txn/results/"), {
      status: 400,
      code: "invalid_request",
      reason: "idempotency_key_size",
    });
  });

  test("`unknown` is told only behind an entry of its own: what the leader's log holds is decided first (S27)", async () => {
    const harness = createHarness();
    const { backend } = harness;
    const put = {
      kind: "txn",
      compare: [],
      success: [{ type: "put", key: "a", value: { json: 1 } }],
      failure: [],
    } as const;
    const applyNext = backend.execute.bind(backend);
    let waiting = true;
    backend.execute = async (command, idempotency, options) => {
      // The write under K stands in the log before whatever is executed now.
      if (waiting) await applyNext(put, { scope: "root", key: "K", hash: "h" }, options);
      waiting = false;
      return await applyNext(command, idempotency, options);
    };
    expect((await harness.get("/v1/txn/results/K")).body).toMatchObject({ status: "known", revision: 1 });
    expect((await harness.get("/v1/txn/results/L")).body).toMatchObject({ status: "unknown", revision: 1 });
  });

  test("validation errors and cluster errors are not kept", async () => {
    const harness = createHarness();
    expect((await harness.put("/v1/kv?key=", 1, KEYED)).status).toBe(400);
    harness.backend.failure = new Error("lost");
    expect((await harness.put("/v1/kv?key=a", 1, KEYED)).status).toBe(500);
    expect((await harness.put("/v1/kv?key=a", 2, KEYED)).body.revision).toBe(1);
  });

  test("a replay of a large result says that its values were dropped", async () => {
    const harness = createHarness();
    await harness.put("/v1/kv?key=a", "x".repeat(40_000));
    const ask = () => harness.put("/v1/kv?key=a&prev_kv=true", 1, KEYED);
    expect((await ask()).body.values_dropped).toBeUndefined();
    expect((await ask()).body).toMatchObject({ revision: 2, values_dropped: true });
  });
});
