/**
 * Goal: each limit of design 01 §5 that the API shows, at the limit and one past it, to the byte where it is bytes.
 * Method: requests over the real state machine. Counts that tables of refusals hold already are here for their other half.
 */
import { describe, expect, test } from "vitest";
import {
  BATCH_KEYS_MAX,
  BODY_BYTES_MAX,
  CONTENT_TYPE_BYTES_MAX,
  METADATA_BYTES_MAX,
  NESTING_MAX,
  RANGE_LIMIT_MAX,
  REPLY_BYTES_MAX,
  TXN_BYTES_MAX,
  VALUE_BYTES_MAX,
} from "../../src/base/limits.ts";
import { createHarness, expectProblem, type Harness, nested } from "./harness.ts";
import { repeat } from "./refusal.ts";

const JSON_TYPE = { "content-type": "application/json" };

function text(bytes: number): string {
  return "x".repeat(bytes);
}

function putWith(harness: Harness, more: object) {
  return harness.post("/v1/txn", { success: [{ type: "put", key: "a", value: 1, ...more }] });
}

describe("bytes", () => {
  test("of a value of JSON, as it is written", async () => {
    const harness = createHarness();
    expect((await harness.put("/v1/kv?key=a", text(VALUE_BYTES_MAX - 2))).status).toBe(200);
    const over = await harness.put("/v1/kv?key=a", text(VALUE_BYTES_MAX - 1));
    expectProblem(over, { status: 400, code: "invalid_kv", reason: "value_too_large" });
  });

  test("of metadata, as JSON", async () => {
    const harness = createHarness();
    const frame = '{"m":""}'.length;
    expect((await putWith(harness, { metadata: { m: text(METADATA_BYTES_MAX - frame) } })).status).toBe(200);
    const over = await putWith(harness, { metadata: { m: text(METADATA_BYTES_MAX - frame + 1) } });
    expectProblem(over, { status: 400, code: "invalid_kv", reason: "metadata_too_large" });
    const lease = (bytes: number) => harness.post("/v1/leases", { ttl_s: 5, metadata: { m: text(bytes - frame) } });
    expect((await lease(METADATA_BYTES_MAX)).status).toBe(201);
    expectProblem(await lease(METADATA_BYTES_MAX + 1), { status: 400, code: "invalid_lease" });
  });

  test("of a content type", async () => {
    const harness = createHarness();
    const type = (bytes: number) => `text/${text(bytes - 5)}`;
    expect((await putWith(harness, { content_type: type(CONTENT_TYPE_BYTES_MAX) })).status).toBe(200);
    const over = await putWith(harness, { content_type: type(CONTENT_TYPE_BYTES_MAX + 1) });
    expectProblem(over, { status: 400, code: "invalid_kv", reason: "content_type_too_large" });
  });

  test("of a txn as the command that is logged", async () => {
    const harness = createHarness();
    const half = text(TXN_BYTES_MAX / 2 - 500);
    const success = (length: number) => [
      { type: "put", key: "a", value: half },
      { type: "put", key: "b", value: text(length) },
    ];
    await harness.post("/v1/txn", { success: success(0) });
    const { command } = JSON.parse(harness.backend.logged[0] ?? "");
    const fits = TXN_BYTES_MAX - JSON.stringify(command).length;
    expect((await harness.post("/v1/txn", { success: success(fits) })).status).toBe(200);
    const over = await harness.post("/v1/txn", { success: success(fits + 1) });
    expectProblem(over, { status: 400, code: "invalid_txn", reason: "txn_too_large" });
    const items = (length: number) => success(length).map(({ key, value }) => ({ key, value }));
    const batch = (length: number) => harness.post("/v1/kv/batch", { op: "put_many", items: items(length) });
    expect((await batch(fits)).status).toBe(200);
    expectProblem(await batch(fits + 1), { status: 400, code: "invalid_txn", reason: "txn_too_large" });
  });

  test.each(["with its length", "without"])("of a body, declared %s", async (how) => {
    const harness = createHarness();
    const put = (bytes: number) =>
      harness.send("POST", "/v1/txn", {
        headers: { ...JSON_TYPE, ...(how === "without" ? {} : { "content-length": String(bytes) }) },
        body: "{}".padEnd(bytes, " "),
      });
    expect((await put(BODY_BYTES_MAX)).status).toBe(200);
    expectProblem(await put(BODY_BYTES_MAX + 1), { status: 413, code: "body_too_large" });
  });

  test("of a reply: one byte more in a record is one too many, and what fits is as large as can be", async () => {
    const harness = createHarness();
    for (let index = 0; index < 3; index += 1) await harness.put(`/v1/kv?key=k${index}`, text(VALUE_BYTES_MAX - 2));
    const ask = async (length: number) => {
      await harness.put("/v1/kv?key=k3", text(length));
      return await harness.post("/v1/txn", { success: [{ type: "get", prefix: "k", limit: 9 }] });
    };
    // A record is reckoned with a little more than its text: what fits lies just below.
    const small = JSON.stringify((await ask(0)).body.responses[0].kvs).length;
    let [fits, over] = [REPLY_BYTES_MAX - small - 4 * 512, REPLY_BYTES_MAX - small + 1];
    expect([(await ask(fits)).status, (await ask(over)).status]).toEqual([200, 422]);
    while (over - fits > 1) {
      const between = Math.floor((fits + over) / 2);
      if ((await ask(between)).status === 200) fits = between;
      else over = between;
    }
    const largest = await ask(fits);
    const bytes = JSON.stringify(largest.body.responses[0].kvs).length;
    expect(bytes).toBeLessThanOrEqual(REPLY_BYTES_MAX);
    expectProblem(await ask(fits + 1), { status: 422, code: "result_too_large" });
    // A list of the same ends a record early instead.
    expect((await harness.get("/v1/kv?prefix=k")).body).toMatchObject({ count: 3, cursor: expect.any(String) });
  });
});

describe("counts", () => {
  test("levels of a value wherever one stands, of metadata and of a compare", async () => {
    const harness = createHarness();
    const deep = (levels: number) => JSON.parse(nested(levels));
    const txn = (levels: number) =>
      harness.post("/v1/txn", { compare: [{ target: "value", key: "a", op: "==", value: deep(levels) }] });
    expect((await txn(NESTING_MAX)).status).toBe(200);
    expectProblem(await txn(NESTING_MAX + 1), { status: 400, code: "invalid_kv", reason: "depth_exceeded" });
    // The object that metadata is counts itself.
    expect((await putWith(harness, { metadata: { m: deep(NESTING_MAX - 1) } })).status).toBe(200);
    const over = await putWith(harness, { metadata: { m: deep(NESTING_MAX) } });
    expectProblem(over, { status: 400, code: "invalid_kv", reason: "depth_exceeded" });
    const topic = (levels: number) => harness.post("/v1/topics/t", deep(levels));
    expect((await topic(NESTING_MAX)).status).toBe(202);
    expectProblem(await topic(NESTING_MAX + 1), { status: 400, code: "invalid_request", reason: "depth_exceeded" });
  });

  test.each(["put_many", "get_many", "delete_many"])("keys of %s", async (op) => {
    const harness = createHarness();
    const batch = (count: number) =>
      harness.post("/v1/kv/batch", {
        op,
        ...(op === "put_many" ? { items: repeat(count, { key: "a", value: 1 }) } : { keys: repeat(count, "a") }),
      });
    expect((await batch(BATCH_KEYS_MAX)).status).toBe(200);
    expectProblem(await batch(BATCH_KEYS_MAX + 1), { status: 400, code: "invalid_kv", reason: "too_many_keys" });
  });

  test.each(["/v1/kv?prefix=", "/v1/history?key=a", "/v1/changes?prefix=", "/v1/leases?anonymous=true"])(
    "items of a page of %s",
    async (target) => {
      const harness = createHarness();
      expect((await harness.get(`${target}&limit=${RANGE_LIMIT_MAX}`)).status).toBe(200);
      const over = await harness.get(`${target}&limit=${RANGE_LIMIT_MAX + 1}`);
      expectProblem(over, { status: 400, code: "invalid_selector", reason: "range_limit_too_large" });
    },
  );
});
