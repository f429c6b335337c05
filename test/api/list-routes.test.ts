import { describe, expect, test } from "vitest";
import { createHarness, expectProblem, type Harness } from "./harness.ts";

async function put(harness: Harness, keys: readonly string[]): Promise<void> {
  for (const key of keys) await harness.put(`/v1/kv?key=${encodeURIComponent(key)}`, key);
}

async function allKeys(harness: Harness, query: string): Promise<string[]> {
  const keys: string[] = [];
  for (let cursor: string | null = ""; cursor !== null; ) {
    const { body } = await harness.get(`/v1/kv?${query}${cursor === "" ? "" : `&cursor=${cursor}`}`);
    keys.push(...body.records.map((record: { key: string }) => record.key));
    cursor = body.cursor;
  }
  return keys;
}

describe("lists", () => {
  test("a list answers records in byte order, the count and the revision", async () => {
    const harness = createHarness();
    await put(harness, ["b/2", "a", "b/1"]);
    const { body } = await harness.get("/v1/kv?prefix=b%2F");
    expect(body).toMatchObject({ count: 2, cursor: null, revision: 3 });
    expect(body.records.map((record: { key: string }) => record.key)).toEqual(["b/1", "b/2"]);
  });

  test("ranges are half open; either end may be left out", async () => {
    const harness = createHarness();
    await put(harness, ["a", "b", "c"]);
    expect(await allKeys(harness, "start=a&end=c")).toEqual(["a", "b"]);
    expect(await allKeys(harness, "start=b")).toEqual(["b", "c"]);
    expect(await allKeys(harness, "end=b")).toEqual(["a"]);
    expect(await allKeys(harness, "prefix=")).toEqual(["a", "b", "c"]);
    expect(await allKeys(harness, "start=")).toEqual(["a", "b", "c"]);
  });

  test("order, keys_only, count_only and limit", async () => {
    const harness = createHarness();
    await put(harness, ["a", "b", "c"]);
    expect(await allKeys(harness, "prefix=&order=desc")).toEqual(["c", "b", "a"]);
    expect(await allKeys(harness, "prefix=&order=desc&limit=1")).toEqual(["c", "b", "a"]);
    expect((await harness.get("/v1/kv?prefix=&count_only=true&limit=1")).body).toMatchObject({
      records: [],
      count: 3,
      cursor: null,
    });
    const keysOnly = (await harness.get("/v1/kv?prefix=&keys_only=true")).body.records[0];
    expect(keysOnly).toMatchObject({ key: "a", mod_revision: 1 });
  });

  test("keys_only leaves the value out, which a stored null is not", async () => {
    const harness = createHarness();
    await harness.put("/v1/kv?key=a", null);
    expect((await harness.get("/v1/kv?prefix=")).body.records[0].value).toBeNull();
    expect("value" in (await harness.get("/v1/kv?prefix=&keys_only=true")).body.records[0]).toBe(false);
    const gets = [
      { type: "get", key: "a" },
      { type: "get", prefix: "a", limit: 1, keys_only: true },
    ];
    for (const headers of [{}, { "idempotency-key": "k" }, { "idempotency-key": "k" }]) {
      const { responses } = (await harness.post("/v1/txn", { success: gets }, headers)).body;
      expect(responses[0].kvs[0].value).toBeNull();
      expect("value" in responses[1].kvs[0]).toBe(false);
    }
  });

  test("UTF-8 order holds on pages and ranges alike (S13)", async () => {
    const harness = createHarness();
    await put(harness, ["\u{1F600}", "\uFF61", "a"]);
    expect(await allKeys(harness, "prefix=&limit=1")).toEqual(["a", "\uFF61", "\u{1F600}"]);
    const range = `start=${encodeURIComponent("\uFF00")}&end=${encodeURIComponent("\u{1F700}")}`;
    expect(await allKeys(harness, range)).toEqual(["\uFF61", "\u{1F600}"]);
    const remove = { type: "delete", range: { start: "\uFF00", end: "\u{1F700}" } };
    expect((await harness.post("/v1/txn", { success: [remove] })).body.responses).toEqual([
      { type: "delete", deleted: 2 },
    ]);
  });

  test("a list at a revision shows that state", async () => {
    const harness = createHarness();
    await put(harness, ["a", "b"]);
    const { body } = await harness.get("/v1/kv?prefix=&revision=1");
    expect([body.count, body.revision]).toEqual([1, 1]);
    expectProblem(await harness.get("/v1/kv?prefix=&revision=9"), { status: 400, code: "revision_in_future" });
  });
});

describe("cursors", () => {
  test("pages show the state of the first page while writes go on", async () => {
    const harness = createHarness();
    await put(harness, ["a", "c", "e"]);
    const first = (await harness.get("/v1/kv?prefix=&limit=1")).body;
    await put(harness, ["b", "d"]);
    await harness.delete("/v1/kv?key=e");
    const second = (await harness.get(`/v1/kv?prefix=&limit=1&cursor=${first.cursor}`)).body;
    const third = (await harness.get(`/v1/kv?prefix=&limit=5&cursor=${second.cursor}`)).body;
    expect([second.records[0].key, third.records[0].key, third.cursor]).toEqual(["c", "e", null]);
    expect([first.revision, second.revision, third.revision]).toEqual([3, 3, 3]);
  });

  test("a cursor travels in a URL as it is, whatever the keys", async () => {
    const harness = createHarness();
    await put(harness, ["\u{1F600}", "ÿÿÿ~>?"]);
    const { cursor } = (await harness.get("/v1/kv?prefix=&limit=1")).body;
    expect(encodeURIComponent(cursor)).toBe(cursor);
  });

  test("a later page on a node that lags behind waits instead of failing for good", async () => {
    const harness = createHarness();
    await put(harness, ["a", "b"]);
    const { cursor } = (await harness.get("/v1/kv?prefix=&limit=1")).body;
    await harness.get(`/v1/kv?prefix=&consistency=serializable&cursor=${cursor}`);
    expect(harness.backend.queries.at(-1)?.options.minRevision).toBe(2);
  });

  test("a cursor is bound to what was asked", async () => {
    const harness = createHarness();
    await put(harness, ["a", "b", "c"]);
    const { cursor } = (await harness.get("/v1/kv?prefix=&limit=1")).body;
    for (const query of ["prefix=a", "start=a", "prefix=&order=desc", "prefix=&keys_only=true"]) {
      const answer = await harness.get(`/v1/kv?${query}&cursor=${cursor}`);
      expectProblem(answer, { status: 400, code: "invalid_selector", reason: "cursor" });
    }
    const other = await harness.get(`/v1/kv?prefix=&revision=1&cursor=${cursor}`);
    expectProblem(other, { status: 400, code: "invalid_selector", reason: "cursor" });
  });

  test("a tampered cursor is refused, wherever it was changed", async () => {
    const harness = createHarness();
    await put(harness, ["a", "b", "c"]);
    const { cursor } = (await harness.get("/v1/kv?prefix=&limit=1")).body as { cursor: string };
    for (let position = 0; position < cursor.length; position += 1) {
      // The last character may carry bits that decoding drops; changing those changes nothing.
      if (position === cursor.length - 1) continue;
      const changed = cursor.slice(0, position) + (cursor[position] === "A" ? "B" : "A") + cursor.slice(position + 1);
      const answer = await harness.get(`/v1/kv?prefix=&cursor=${changed}`);
      expect([answer.body.code, answer.body.reason].join()).toMatch(/^(invalid_selector,cursor|cluster_changed,)$/);
    }
    for (const text of ["", "x", btoa("null"), btoa("[1,2,3]"), btoa('[1,"a",3,"c-1",0]')]) {
      const answer = await harness.get(`/v1/kv?prefix=&cursor=${encodeURIComponent(text)}`);
      expectProblem(answer, { status: 400, code: "invalid_selector", reason: "cursor" });
    }
    expect(harness.errors).toEqual([]);
  });

  test("a cursor of another cluster says that the cluster changed", async () => {
    const harness = createHarness();
    await put(harness, ["a", "b"]);
    const { cursor } = (await harness.get("/v1/kv?prefix=&limit=1")).body;
    harness.backend.clusterId = "c-2";
    expectProblem(await harness.get(`/v1/kv?prefix=&cursor=${cursor}`), { status: 410, code: "cluster_changed" });
  });
});

describe("history", () => {
  test("a key's changes are listed oldest first, deletes included", async () => {
    const harness = createHarness();
    await put(harness, ["a", "b"]);
    await harness.delete("/v1/kv?key=a");
    const { body } = await harness.get("/v1/history?key=a");
    expect(body).toMatchObject({ cursor: null, revision: 3 });
    expect(body.events).toMatchObject([
      { revision: 1, op_index: 0, type: "put", key: "a", value: "a", version: 1 },
      { revision: 3, op_index: 0, type: "delete", key: "a", value: null },
    ]);
  });

  test("pages end at the revision of the first one", async () => {
    const harness = createHarness();
    await put(harness, ["a", "a", "a"]);
    const first = (await harness.get("/v1/history?key=a&limit=2")).body;
    await put(harness, ["a"]);
    const second = (await harness.get(`/v1/history?key=a&limit=9&cursor=${first.cursor}`)).body;
    const revisions = [...first.events, ...second.events].map((event: { revision: number }) => event.revision);
    expect([revisions, second.cursor]).toEqual([[1, 2, 3], null]);
  });

  test("from and to bound it", async () => {
    const harness = createHarness();
    await put(harness, ["a", "a", "a"]);
    const { body } = await harness.get("/v1/history?key=a&from=2&to=2");
    expect(body.events.map((event: { revision: number }) => event.revision)).toEqual([2]);
    expectProblem(await harness.get("/v1/history?key=a&to=9"), { status: 400, code: "revision_in_future" });
  });

  test("a list's cursor is none of a history's", async () => {
    const harness = createHarness();
    await put(harness, ["a", "b"]);
    const { cursor } = (await harness.get("/v1/kv?prefix=&limit=1")).body;
    const answer = await harness.get(`/v1/history?key=a&cursor=${cursor}`);
    expectProblem(answer, { status: 400, code: "invalid_selector", reason: "cursor" });
  });
});
