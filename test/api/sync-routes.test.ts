/** Goal: changes, compaction and what compaction takes away, over HTTP. */
import { describe, expect, test } from "vitest";
import { type Body, createHarness, expectProblem, type Harness } from "./harness.ts";

interface Page {
  readonly events: readonly { readonly key: string; readonly revision: number; readonly op_index: number }[];
  readonly next: string;
  readonly whole: boolean;
  readonly has_more: boolean;
}

async function readAll({ get }: Harness, query: string): Promise<{ pages: Page[]; story: string[] }> {
  const pages: Page[] = [];
  for (let after = ""; ; after = `&after=${pages.at(-1)?.next}`) {
    const { status, body, text } = await get(`/v1/changes?${query}${after}`);
    expect(status, text).toBe(200);
    pages.push(body);
    if (!body.has_more) break;
  }
  const story = pages.flatMap(({ events }) =>
    events.map((event) => `${event.key}@${event.revision}.${event.op_index}`),
  );
  return { pages, story };
}

async function putAll({ put }: Harness, ...keys: string[]): Promise<void> {
  for (const [index, key] of keys.entries()) await put(`/v1/kv?key=${key}`, index);
}

describe("changes", () => {
  test("a page tells events whole, in order, and where the next one begins", async () => {
    const { put, delete: remove, get } = createHarness();
    await put("/v1/kv?key=a", { x: 1 });
    await put("/v1/kv?key=b", 2);
    await remove("/v1/kv?key=a");
    const answer = await get("/v1/changes?key=a");
    const record = {
      key: "a",
      create_revision: 1,
      lease_id: null,
      expires_at_ms: null,
      content_type: null,
      metadata: {},
    };
    expect(answer.body).toEqual({
      events: [
        { ...record, revision: 1, op_index: 0, type: "put", value: { x: 1 }, mod_revision: 1, version: 1 },
        {
          ...record,
          revision: 3,
          op_index: 0,
          type: "delete",
          value: null,
          create_revision: 0,
          mod_revision: 3,
          version: 0,
        },
      ],
      next: "3",
      whole: true,
      has_more: false,
      revision: 3,
    });
    expect(answer.headers.get("concord-revision")).toBe("3");
  });

  test.each([
    ["key=b", ["b@2.0"]],
    ["prefix=b", ["b@2.0", "b1@3.0"]],
    ["prefix=", ["a@1.0", "b@2.0", "b1@3.0", "c@4.0"]],
    ["start=b1", ["b1@3.0", "c@4.0"]],
    ["start=b&end=c", ["b@2.0", "b1@3.0"]],
    ["end=b", ["a@1.0"]],
    ["prefix=nothing", []],
  ])("%s selects", async (query, expected) => {
    const harness = createHarness();
    await putAll(harness, "a", "b", "b1", "c");
    expect((await readAll(harness, query)).story).toEqual(expected);
  });

  test("pages join without gap or repeat, also within a revision, and say so", async () => {
    const harness = createHarness();
    const success = ["a", "b", "c"].map((key) => ({ type: "put", key, value: 1 }));
    await harness.post("/v1/txn", { success });
    await harness.post("/v1/txn", { success });
    const { pages, story } = await readAll(harness, "prefix=&limit=2");
    expect(story).toEqual(["a@1.0", "b@1.1", "c@1.2", "a@2.0", "b@2.1", "c@2.2"]);
    expect(pages.map(({ next, whole, has_more }) => [next, whole, has_more])).toEqual([
      ["1.1", false, true],
      ["2.0", false, true],
      ["2", true, false],
    ]);
  });

  test("behind everything there is an empty page at the newest revision", async () => {
    const harness = createHarness();
    expect((await harness.get("/v1/changes?prefix=")).body).toEqual({
      events: [],
      next: "0",
      whole: true,
      has_more: false,
      revision: 0,
    });
    await putAll(harness, "a");
    expect((await harness.get("/v1/changes?prefix=&after=1")).body).toMatchObject({ events: [], next: "1" });
  });

  test("the system's keys are no one's changes", async () => {
    const harness = createHarness();
    const { backend } = harness;
    const operation = { type: "put", key: "\0clusters/a", value: { json: 1 } } as const;
    await backend.execute({ kind: "txn", compare: [], success: [operation], failure: [] }, null, { timeoutMs: 1 });
    await putAll(harness, "a");
    for (const query of ["prefix=", "start=", "end=z"])
      expect((await readAll(harness, query)).story).toEqual(["a@2.0"]);
  });

  test("a page holds up to 1000 events, 100 unless asked", async () => {
    const harness = createHarness();
    for (let batch = 0; batch < 3; batch += 1) {
      const items = Array.from({ length: 400 }, (_, index) => ({ key: `k${index}`, value: batch }));
      await harness.post("/v1/kv/batch", { op: "put_many", items });
    }
    const counts = async (query: string) => (await readAll(harness, query)).pages.map(({ events }) => events.length);
    expect(await counts("prefix=&limit=1000")).toEqual([1000, 200]);
    expect((await counts("prefix="))[0]).toBe(100);
  });

  test("a page ends before it would be over 4 MiB", async () => {
    const harness = createHarness();
    const value = "x".repeat(1_000_000);
    for (const key of ["a", "b", "c", "d", "e", "f"]) await harness.put(`/v1/kv?key=${key}`, value);
    const { pages } = await readAll(harness, "prefix=");
    expect(pages.map(({ events }) => events.length)).toEqual([4, 2]);
  });

  test("a serializable page on a node that lags waits for the page before, and fails as behind", async () => {
    const harness = createHarness();
    const { backend, get } = harness;
    await putAll(harness, "a", "b");
    await get("/v1/changes?prefix=&after=2&consistency=serializable&timeout_ms=70");
    expect(backend.queries.at(-1)?.options).toEqual({ consistency: "serializable", timeoutMs: 70, minRevision: 2 });
    const ahead = await get("/v1/changes?prefix=&after=3.1&consistency=serializable");
    expectProblem(ahead, { status: 503, code: "behind", retry: "yes" });
    expectProblem(await get("/v1/changes?prefix=&after=3.1"), { status: 400, code: "revision_in_future" });
  });

  test("the cluster that the caller means is this one, or not known yet", async () => {
    const { get, backend } = createHarness();
    const ask = () => get("/v1/changes?prefix=", { "concord-cluster": "c-1" });
    expect((await ask()).status).toBe(200);
    backend.clusterId = null;
    expect((await ask()).status).toBe(200);
  });

  test("an event of a key that is no text carries its bytes", async () => {
    const { post, get } = createHarness();
    const key = { encoding: "base64", data: "/w==" };
    await post("/v1/txn", { success: [{ type: "put", key, value: { encoding: "base64", data: "AAE=" } }] });
    expect((await get("/v1/changes?prefix=")).body.events).toMatchObject([
      { key, value: { encoding: "base64", data: "AAE=" } },
    ]);
  });
});

describe("compaction", () => {
  test("moves forward only, and repeating it is no error", async () => {
    const harness = createHarness();
    await putAll(harness, "a", "a", "a");
    const compact = async (revision: number) => (await harness.post("/v1/compact", { revision })).body;
    expect(await compact(0)).toEqual({ compact_revision: 0, revision: 3 });
    expect(await compact(2)).toEqual({ compact_revision: 2, revision: 3 });
    expect(await compact(1)).toEqual({ compact_revision: 2, revision: 3 });
    expect(await compact(3)).toEqual({ compact_revision: 3, revision: 3 });
    expect(harness.backend.revision).toBe(3);
  });

  test("reaches up to the newest revision, not beyond", async () => {
    const harness = createHarness();
    await putAll(harness, "a");
    const answer = await harness.post("/v1/compact", { revision: 2 });
    expectProblem(answer, { status: 400, code: "revision_in_future" });
    expect(answer.body.revision).toBe(1);
  });

  test("takes the timeout of writes, and the header of the right cluster", async () => {
    const { post, backend } = createHarness();
    const answer = await post("/v1/compact?timeout_ms=60000", { revision: 0 }, { "concord-cluster": "c-1" });
    expect(answer.status).toBe(200);
    expect(backend.commands.at(-1)?.options).toEqual({ timeoutMs: 60_000 });
  });

  test.each<[string, (harness: Harness) => Promise<Body>]>([
    ["a record at a revision", ({ get }) => get("/v1/kv?key=a&revision=2")],
    ["a list at a revision", ({ get }) => get("/v1/kv?prefix=&revision=2")],
    ["records at a revision", ({ post }) => post("/v1/kv/batch", { op: "get_many", keys: ["a"], revision: 2 })],
    ["a history from a revision", ({ get }) => get("/v1/history?key=a&from=3")],
    ["a history up to a revision", ({ get }) => get("/v1/history?key=a&to=2")],
    ["changes behind a revision", ({ get }) => get("/v1/changes?prefix=&after=2")],
    ["changes behind an event of the compacted revision", ({ get }) => get("/v1/changes?prefix=&after=3.0")],
    ["changes from the very beginning", ({ get }) => get("/v1/changes?prefix=&after=0")],
    [
      "a txn that reads at a revision",
      ({ post }) => post("/v1/txn", { success: [{ type: "get", key: "a", revision: 2 }] }),
    ],
    [
      "a txn that reads at a revision and writes",
      ({ post }) =>
        post("/v1/txn", {
          success: [
            { type: "put", key: "b", value: 1 },
            { type: "get", key: "a", revision: 2 },
          ],
        }),
    ],
  ])("%s below it fails and says what can be read", async (_name, ask) => {
    const harness = createHarness();
    await putAll(harness, "a", "a", "a", "a");
    await harness.post("/v1/compact", { revision: 3 });
    const answer = await ask(harness);
    expectProblem(answer, { status: 410, code: "compacted" });
    expect(answer.body.compact_revision).toBe(3);
    expect(harness.backend.revision).toBe(4);
  });

  test("leaves the state at its revision and every event behind it", async () => {
    const harness = createHarness();
    await putAll(harness, "a", "a", "a", "a");
    await harness.post("/v1/compact", { revision: 3 });
    expect((await harness.get("/v1/kv?key=a&revision=3")).body.value).toBe(2);
    // A history begins with the version that is the state at the compacted revision.
    expect((await harness.get("/v1/history?key=a")).body.events).toMatchObject([{ revision: 3 }, { revision: 4 }]);
    expect((await readAll(harness, "prefix=&after=3")).story).toEqual(["a@4.0"]);
    expect((await readAll(harness, "prefix=")).story).toEqual(["a@4.0"]);
  });

  test("a cursor of a list that it overtook fails as compacted", async () => {
    const harness = createHarness();
    await putAll(harness, "a", "b", "c");
    const { cursor } = (await harness.get("/v1/kv?prefix=&limit=1&revision=2")).body;
    await harness.post("/v1/compact", { revision: 3 });
    const answer = await harness.get(`/v1/kv?prefix=&limit=1&cursor=${cursor}`);
    expectProblem(answer, { status: 410, code: "compacted" });
    expect(answer.body.compact_revision).toBe(3);
  });
});
