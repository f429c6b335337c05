/**
 * Every way of asking wrongly that design 01 §6 names, and its answer. After each the log is empty, nothing unexpected
 * was reported, and the next correct request works.
 */
import { describe, expect, test } from "vitest";
import { createHarness, expectProblem, nested } from "./harness.ts";
import { COMPARE, JSON_TYPE, PUT, repeat, text } from "./refusal.ts";
import { LIMITS, PARAMETERS, SYSTEM } from "./refusals-of-limits.ts";
import { BODIES, FIELDS } from "./refusals-of-shape.ts";
import { CHANGES, COMPACTION, LEASES, OTHER_CLUSTERS } from "./refusals-of-sync.ts";

describe.each([
  ["the body", BODIES],
  ["the fields", FIELDS],
  ["the limits", LIMITS],
  ["the parameters", PARAMETERS],
  ["the system prefix", SYSTEM],
  ["changes", CHANGES],
  ["another cluster", OTHER_CLUSTERS],
  ["a compaction", COMPACTION],
  ["leases", LEASES],
])("refused for %s", (_group, refusals) => {
  test.each(refusals)("$claim", async ({ ask, expected, detail }) => {
    const harness = createHarness();
    const answer = await ask(harness);
    expectProblem(answer, expected);
    if (detail !== undefined) expect(answer.body.detail).toMatch(detail);
    expect(answer.body.detail.length).toBeLessThan(400);
    expect(answer.body).toMatchSnapshot();
    expect(harness.backend.logged).toEqual([]);
    expect(harness.errors).toEqual([]);
    expect((await harness.put("/v1/kv?key=a", 1)).body).toEqual({ revision: 1 });
  });
});

describe("just within the limits", () => {
  test("nesting of 100 is stored by a put and by a txn", async () => {
    const harness = createHarness();
    const body = nested(100);
    expect((await harness.send("PUT", "/v1/kv?key=a", { headers: JSON_TYPE, body })).status).toBe(200);
    const txnText = `{"success":[{"type":"put","key":"b","value":${body}}]}`;
    expect((await text("/v1/txn", txnText)(harness)).status).toBe(200);
    expect(
      (await text("/v1/kv/batch", `{"op":"put_many","items":[{"key":"c","value":${body}}]}`)(harness)).status,
    ).toBe(200);
    expect((await harness.get("/v1/kv?key=b&raw=true")).text).toBe(body);
  });

  test("what names this cluster is answered", async () => {
    const harness = createHarness();
    const headers = { "concord-cluster": "c-1" };
    expect((await harness.put("/v1/kv?key=a", 1, headers)).status).toBe(200);
    expect((await harness.get("/v1/kv?key=a", headers)).status).toBe(200);
  });

  test("brackets inside strings are no nesting", async () => {
    const harness = createHarness();
    const value = `${"[".repeat(500)}\\"${"{".repeat(500)}`;
    expect((await harness.put("/v1/kv?key=a", value)).status).toBe(200);
    expect((await harness.get("/v1/kv?key=a")).body.value).toBe(value);
  });

  test("64 compares, 128 operations, a value of 1 MiB, a batch of 500", async () => {
    const harness = createHarness();
    const large = { compare: repeat(64, { ...COMPARE, value: false }), success: repeat(128, PUT) };
    expect((await harness.post("/v1/txn", large)).body.responses.length).toBe(128);
    expect((await harness.send("PUT", "/v1/kv?key=b", { body: new Uint8Array(1 << 20) })).status).toBe(200);
    const items = Array.from({ length: 500 }, (_, index) => ({ key: `k${index}`, value: index }));
    expect((await harness.post("/v1/kv/batch", { op: "put_many", items })).body.responses.length).toBe(500);
  });
});
