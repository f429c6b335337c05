import { describe, expect, test } from "vitest";
import { createHarness, expectProblem } from "./harness.ts";

const KEY = "/v1/kv?key=a";

describe("one record", () => {
  test("a put answers its revision and a get answers the record with the revision as its tag", async () => {
    const { put, get } = createHarness();
    const written = await put(KEY, { x: 1 });
    expect([written.status, written.body, written.headers.get("etag")]).toEqual([200, { revision: 1 }, '"1"']);
    const read = await get(KEY);
    expect(read.status).toBe(200);
    expect(read.headers.get("etag")).toBe('"1"');
    expect(read.body).toEqual({
      key: "a",
      value: { x: 1 },
      create_revision: 1,
      mod_revision: 1,
      version: 1,
      lease_id: null,
      expires_at_ms: null,
      content_type: null,
      metadata: {},
    });
  });

  test.each([null, "", 0, false, [], {}])("the value %j is a value and not absence", async (value) => {
    const { put, get } = createHarness();
    await put(KEY, value);
    expect((await get(KEY)).body.value).toEqual(value);
    expectProblem(await get("/v1/kv?key=b"), { status: 404, code: "not_found" });
  });

  test("a body that is not JSON is stored as bytes with its content type", async () => {
    const { send, get } = createHarness();
    const headers = { "content-type": "text/plain; charset=utf-8" };
    await send("PUT", KEY, { headers, body: new Uint8Array([0xff, 0x00, 0x41]) });
    expect((await get(KEY)).body).toMatchObject({
      value: { encoding: "base64", data: "/wBB" },
      content_type: "text/plain; charset=utf-8",
    });
    const raw = await get(`${KEY}&raw=true`);
    expect(raw.headers.get("content-type")).toBe("text/plain; charset=utf-8");
    expect(raw.headers.get("content-security-policy")).toContain("sandbox");
  });

  test("raw bytes come back byte for byte", async () => {
    const { send, api } = createHarness();
    const bytes = Uint8Array.from({ length: 256 }, (_, index) => index);
    await send("PUT", KEY, { headers: { "content-type": "application/octet-stream" }, body: bytes });
    const response = await api.request(`${KEY}&raw=true`);
    expect(new Uint8Array(await response.arrayBuffer())).toEqual(bytes);
  });

  test("a body without content type is bytes without content type", async () => {
    const { send, get } = createHarness();
    await send("PUT", KEY, { body: new Uint8Array([1]) });
    expect((await get(KEY)).body).toMatchObject({ value: { encoding: "base64", data: "AQ==" }, content_type: null });
    expect((await get(`${KEY}&raw=true`)).headers.get("content-type")).toBe("application/octet-stream");
  });

  test("a +json body is JSON and keeps its content type; application/json needs none", async () => {
    const { put, get } = createHarness();
    await put(KEY, { x: 1 }, { "content-type": "application/geo+json" });
    expect((await get(KEY)).body).toMatchObject({ value: { x: 1 }, content_type: "application/geo+json" });
    const raw = await get(`${KEY}&raw=true`);
    expect([raw.headers.get("content-type"), raw.text]).toEqual(["application/geo+json", '{"x":1}']);
    await put(KEY, [1], { "content-type": "Application/JSON; charset=utf-8" });
    expect((await get(KEY)).body).toMatchObject({ value: [1], content_type: null });
    expect((await get(`${KEY}&raw`)).headers.get("content-type")).toBe("application/json");
  });

  test("JSON of the shape of bytes is bytes, whichever way it is written", async () => {
    const { put, get } = createHarness();
    await put(KEY, { encoding: "base64", data: "QQ==" });
    expect((await get(`${KEY}&raw=true`)).text).toBe("A");
    await put(KEY, { encoding: "base64", data: "QQ==", more: 1 });
    expect((await get(KEY)).body.value).toEqual({ encoding: "base64", data: "QQ==", more: 1 });
  });

  test("a property named __proto__ stays a property", async () => {
    const { send, get } = createHarness();
    const headers = { "content-type": "application/json" };
    await send("PUT", KEY, { headers, body: '{"__proto__":{"x":1}}' });
    expect((await get(KEY)).text).toContain('"value":{"__proto__":{"x":1}}');
  });

  test("prev_kv answers the record before, or null", async () => {
    const { put } = createHarness();
    expect((await put(`${KEY}&prev_kv=true`, 1)).body).toEqual({ revision: 1, prev_kv: null });
    expect((await put(`${KEY}&prev_kv=true`, 2)).body).toMatchObject({
      revision: 2,
      prev_kv: { value: 1, version: 1 },
    });
  });

  test("ttl gives the record an end, lease attaches it", async () => {
    const { put, post, get, backend } = createHarness();
    await put(`${KEY}&ttl=5`, 1);
    expect((await get(KEY)).body.expires_at_ms).toBe(backend.nowMs + 5000);
    const { id } = (await post("/v1/leases", { ttl_s: 10 })).body;
    await put(`${KEY}&lease=${id}`, 1);
    expect((await get(KEY)).body.lease_id).toBe(id);
  });

  test("a delete answers how many it deleted and does not move the revision for none", async () => {
    const { put, get, delete: remove } = createHarness();
    await put(KEY, 1);
    expect((await remove("/v1/kv?key=b")).body).toEqual({ revision: 1, deleted: 0 });
    expect((await remove(`${KEY}&prev_kv=true`)).body).toMatchObject({
      revision: 2,
      deleted: 1,
      prev_kv: { value: 1 },
    });
    expect((await remove(`${KEY}&prev_kv=true`)).body).toEqual({ revision: 2, deleted: 0, prev_kv: null });
    expectProblem(await get(KEY), { status: 404, code: "not_found" });
  });

  test("a revision reads the past", async () => {
    const { put, get } = createHarness();
    await put(KEY, "old");
    await put(KEY, "new");
    const old = await get(`${KEY}&revision=1`);
    expect([old.body.value, old.headers.get("etag")]).toEqual(["old", '"1"']);
    expectProblem(await get(`${KEY}&revision=3`), { status: 400, code: "revision_in_future" });
  });

  test("HEAD answers the headers of GET without its body", async () => {
    const { put, send } = createHarness();
    await put(KEY, 1);
    const head = await send("HEAD", KEY);
    expect([head.status, head.text, head.headers.get("etag")]).toEqual([200, "", '"1"']);
  });
});

describe("keys", () => {
  test("a key in the path is decoded once", async () => {
    const { put, get } = createHarness();
    await put("/v1/kv/a%2Fb%2520c/d", 1);
    expect((await get("/v1/kv?key=a%2Fb%2520c%2Fd")).body.key).toBe("a/b%20c/d");
    expect((await get("/v1/kv/a%2Fb%2520c/d")).status).toBe(200);
    expect((await get("/v1/kv?key=a%2Fb%20c%2Fd")).status).toBe(404);
  });

  test("a key may be named like a route below /v1/kv", async () => {
    const { put, get } = createHarness();
    await put("/v1/kv/batch", 1);
    expect((await get("/v1/kv/batch")).body.key).toBe("batch");
  });

  test("plus is a space in a query, as forms encode it, and a plus in a path", async () => {
    const { put, get } = createHarness();
    await put("/v1/kv?key=a+b", 1);
    expect((await get("/v1/kv/a%20b")).body.key).toBe("a b");
    await put("/v1/kv/a+b", 2);
    expect((await get("/v1/kv?key=a%2Bb")).body.value).toBe(2);
  });

  test.each(["é", "｡", "\u{1F600}", "a&b=c#d?e", "日本語", "..", ".", "//", " "])(
    "the key %j travels in a query",
    async (key) => {
      const { put, get } = createHarness();
      const target = `/v1/kv?key=${encodeURIComponent(key)}`;
      await put(target, 1);
      expect((await get(target)).body.key).toBe(key);
    },
  );

  test("a key of 4096 bytes is allowed", async () => {
    const { put, get } = createHarness();
    const key = "é".repeat(2048);
    expect((await put(`/v1/kv?key=${encodeURIComponent(key)}`, 1)).status).toBe(200);
    expect((await get(`/v1/kv?key=${encodeURIComponent(key)}`)).body.key).toBe(key);
  });

  test("a key that is no UTF-8 is written as bytes and can be named as bytes", async () => {
    const { post, get } = createHarness();
    const key = { encoding: "base64", data: "/w==" };
    await post("/v1/txn", { success: [{ type: "put", key, value: 1 }] });
    expect((await get("/v1/kv?prefix=")).body.records[0].key).toEqual(key);
    const batch = await post("/v1/kv/batch", { op: "get_many", keys: [key] });
    expect(batch.body.records[0]).toMatchObject({ key, value: 1 });
  });
});

describe("conditions", () => {
  test("If-None-Match * creates once", async () => {
    const { put, get } = createHarness();
    expect((await put(KEY, 1, { "if-none-match": "*" })).status).toBe(200);
    const second = await put(KEY, 2, { "if-none-match": "*" });
    expectProblem(second, { status: 412, code: "precondition_failed" });
    expect([second.body.revision, second.headers.get("etag")]).toEqual([1, '"1"']);
    expect((await get(KEY)).body.value).toBe(1);
  });

  test("If-Match writes only over that revision and tells the current one", async () => {
    const { put, delete: remove } = createHarness();
    await put(KEY, 1);
    await put(KEY, 2);
    await put("/v1/kv?key=b", 0);
    const stale = await put(KEY, 3, { "if-match": '"1"' });
    expectProblem(stale, { status: 412, code: "precondition_failed" });
    expect([stale.body.revision, stale.headers.get("etag")]).toEqual([3, '"2"']);
    expect((await put(KEY, 3, { "if-match": '"2"' })).body).toEqual({ revision: 4 });
    expectProblem(await remove(KEY, { "if-match": '"2"' }), { status: 412, code: "precondition_failed" });
    expect((await remove(KEY, { "if-match": 'W/"4"' })).body).toEqual({ revision: 5, deleted: 1 });
  });

  test("If-Match of an absent record fails without a tag", async () => {
    const { put } = createHarness();
    for (const tag of ["*", '"1"']) {
      const answer = await put(KEY, 1, { "if-match": tag });
      expectProblem(answer, { status: 412, code: "precondition_failed" });
      expect(answer.headers.has("etag")).toBe(false);
    }
  });

  test("If-Match * writes over whatever is there", async () => {
    const { put } = createHarness();
    await put(KEY, 1);
    expect((await put(KEY, 2, { "if-match": "*" })).status).toBe(200);
  });

  test("If-None-Match with a tag writes unless the record is at that revision", async () => {
    const { put } = createHarness();
    expect((await put(KEY, 1, { "if-none-match": '"1"' })).status).toBe(200);
    expectProblem(await put(KEY, 2, { "if-none-match": '"7", "1"' }), { status: 412, code: "precondition_failed" });
    expect((await put(KEY, 2, { "if-none-match": '"7"' })).status).toBe(200);
  });

  test("a get answers 304 for a tag that it is given, and 412 for one that is gone", async () => {
    const { put, get } = createHarness();
    await put(KEY, 1);
    for (const tag of ['"1"', 'W/"1"', '"9", "1"', "*"]) {
      const answer = await get(KEY, { "if-none-match": tag });
      expect([answer.status, answer.text, answer.headers.get("etag")]).toEqual([304, "", '"1"']);
      expect(answer.headers.get("concord-revision")).toBe("1");
    }
    expect((await get(KEY, { "if-none-match": '"2"' })).status).toBe(200);
    expect((await get(KEY, { "if-match": '"1"' })).status).toBe(200);
    const gone = await get(KEY, { "if-match": '"2"' });
    expectProblem(gone, { status: 412, code: "precondition_failed" });
    expect(gone.headers.get("etag")).toBe('"1"');
  });

  test.each([
    ["if-match", "1", "if_match"],
    ["if-match", '"a"', "if_match"],
    ["if-match", '"1", "2"', "if_match"],
    ["if-none-match", '"-1"', "if_none_match"],
    ["if-none-match", "", "if_none_match"],
  ])("%s: %s on a put is refused", async (name, value, reason) => {
    const { put, backend } = createHarness();
    expectProblem(await put(KEY, 1, { [name]: value }), { status: 400, code: "invalid_kv", reason });
    expect(backend.logged).toEqual([]);
  });
});

describe("consistency", () => {
  test("a read is linearizable unless it says otherwise", async () => {
    const { get, backend } = createHarness();
    await get("/v1/revision");
    await get("/v1/revision?consistency=serializable&min_revision=0&timeout_ms=70");
    expect(backend.queries.map(({ options }) => options)).toEqual([
      { consistency: "linearizable", timeoutMs: 5000 },
      { consistency: "serializable", timeoutMs: 70, minRevision: 0 },
    ]);
  });

  test("a serializable read of a node that lags behind min_revision says behind", async () => {
    const { get } = createHarness();
    const answer = await get("/v1/revision?consistency=serializable&min_revision=5");
    expectProblem(answer, { status: 503, code: "behind", retry: "yes" });
    expect(answer.headers.get("retry-after")).toBe("1");
  });

  test("a linearizable read with a min_revision of the future says so", async () => {
    const { get } = createHarness();
    const answer = await get("/v1/revision?min_revision=5");
    expectProblem(answer, { status: 400, code: "revision_in_future", reason: "min_revision" });
  });

  test("min_revision of another cluster is refused; the same cluster's, or none, is not", async () => {
    const { get } = createHarness();
    const target = "/v1/revision?consistency=serializable&min_revision=0";
    expectProblem(await get(target, { "concord-cluster": "c-0" }), { status: 410, code: "cluster_changed" });
    expect((await get(target, { "concord-cluster": "c-1" })).status).toBe(200);
    expectProblem(await get("/v1/revision", { "concord-cluster": "c-0" }), { status: 410, code: "cluster_changed" });
  });
});
