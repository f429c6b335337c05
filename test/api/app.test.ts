import { describe, expect, test } from "vitest";
import { createApi } from "../../src/api/app.ts";
import { readBody } from "../../src/api/body.ts";
import { ERROR_TITLES } from "../../src/api/error-titles.ts";
import { ConcordError, ERROR_CODES, type ErrorCode } from "../../src/base/errors.ts";
import { BODY_BYTES_MAX } from "../../src/base/limits.ts";
import { answerOf, createHarness, expectProblem } from "./harness.ts";
import { MachineBackend } from "./machine-backend.ts";

describe("every reply", () => {
  test.each([
    ["GET", "/v1/revision"],
    ["GET", "/v1/kv?key=none"],
    ["GET", "/nowhere"],
    ["PATCH", "/v1/txn"],
    ["GET", "/livez"],
    ["POST", "/v1/txn"],
  ])("%s %s names cluster, revision, node and leader and is safe to open", async (method, target) => {
    const { send } = createHarness();
    const { headers } = await send(method, target);
    expect(headers.get("concord-cluster")).toBe("c-1");
    expect(headers.get("concord-revision")).toBe("0");
    expect(headers.get("concord-node")).toBe("1");
    expect(headers.get("concord-leader")).toBe("2");
    expect(headers.get("x-content-type-options")).toBe("nosniff");
    expect(headers.get("content-security-policy")).toContain("default-src 'none'");
    expect(headers.get("cache-control")).toBe("no-store");
  });

  test("what a node does not know is left out", async () => {
    const { get, backend } = createHarness();
    backend.clusterId = null;
    backend.leader = null;
    const { headers } = await get("/v1/revision");
    expect([headers.has("concord-cluster"), headers.has("concord-leader")]).toEqual([false, false]);
  });

  test("the revision is that of the outcome when the node lags behind it", async () => {
    const { put, backend } = createHarness();
    const position = backend.position.bind(backend);
    backend.position = () => ({ ...position(), revision: 0 });
    expect((await put("/v1/kv?key=a", 1)).headers.get("concord-revision")).toBe("1");
  });
});

describe("routes", () => {
  test("an unknown route is a problem document", async () => {
    const { get } = createHarness();
    for (const target of ["/", "/v1", "/v1/", "/v1/nothing", "/v2/kv", "/v1/kvx", "/v1/leases/1/2"]) {
      expectProblem(await get(target), { status: 404, code: "not_found", reason: "route" });
    }
  });

  test.each([
    ["POST", "/v1/kv", "GET, HEAD, PUT, DELETE"],
    ["PATCH", "/v1/kv/a", "GET, HEAD, PUT, DELETE"],
    ["GET", "/v1/txn", "POST"],
    ["DELETE", "/v1/leases", "GET, HEAD, POST"],
    ["GET", "/v1/leases/1/keepalive", "POST"],
    ["POST", "/v1/changes", "GET, HEAD"],
    ["GET", "/v1/compact", "POST"],
    ["PUT", "/v1/leases/1", "GET, HEAD, DELETE"],
    ["POST", "/v1/revision", "GET, HEAD"],
    ["POST", "/livez", "GET, HEAD"],
    ["OPTIONS", "/v1/txn", "POST"],
  ])("%s %s is not allowed and says what is", async (method, target, allow) => {
    const { send } = createHarness();
    const answer = await send(method, target);
    expectProblem(answer, { status: 405, code: "method_not_allowed" });
    expect(answer.headers.get("allow")).toBe(allow);
  });

  test("HEAD answers as GET does, without a body", async () => {
    const { send, put } = createHarness();
    await put("/v1/kv?key=a", 1);
    const answer = await send("HEAD", "/v1/kv?key=a");
    expect([answer.status, answer.headers.get("etag"), answer.text]).toEqual([200, '"1"', ""]);
    expect((await send("HEAD", "/v1/kv?key=b")).status).toBe(404);
  });

  test("the cluster's status is that of the backend", async () => {
    const { get, backend } = createHarness();
    expect((await get("/v1/cluster")).body).toEqual(await backend.cluster());
  });

  test("probes tell live, ready and how the node is", async () => {
    const { get, backend } = createHarness();
    expect((await get("/livez")).body).toEqual({ status: "live" });
    expect((await get("/readyz")).body).toEqual({ status: "ready" });
    expect((await get("/healthz")).body).toEqual({ status: "ready", node: 1, leader: 2, revision: 0, halted: false });
    backend.ready = false;
    expectProblem(await get("/readyz"), { status: 503, code: "no_leader", retry: "yes" });
    expect((await get("/healthz")).body.status).toBe("not_ready");
    backend.clusterId = null;
    expectProblem(await get("/readyz"), { status: 503, code: "cluster_not_ready", retry: "yes" });
    backend.halted = "row 7 has the wrong checksum";
    expectProblem(await get("/readyz"), { status: 503, code: "node_halted", retry: "yes" });
    expect((await get("/healthz")).text).not.toContain("row 7");
    expect((await get("/livez")).status).toBe(200);
  });

  test("a request without a principal is refused where the host names none", async () => {
    const app = createApi(new MachineBackend(), { log: () => {} });
    const answer = async (headers: Record<string, string>) =>
      await answerOf(await app.request("/v1/revision", { headers }));
    expectProblem(await answer({}), { status: 401, code: "unauthenticated" });
    expect((await answer({ "x-concord-principal": "root" })).status).toBe(200);
  });
});

describe("errors", () => {
  test("cluster errors become problem documents with their retry rule", async () => {
    const { put, backend } = createHarness();
    for (const code of ["no_leader", "overloaded", "timeout", "no_space", "behind"] as const) {
      backend.failure = new ConcordError({ code, detail: "It is so.", leader: 3 });
      const answer = await put("/v1/kv?key=a", 1);
      expectProblem(answer, { status: ERROR_CODES[code].status, code, retry: ERROR_CODES[code].retry });
      expect(answer.body.leader).toBe(3);
      expect(answer.headers.has("retry-after")).toBe(ERROR_CODES[code].retry === "yes");
    }
  });

  test("pages of other origins are told nothing that would let them read a reply", async () => {
    const { send } = createHarness();
    const headers = { origin: "https://other.example", "access-control-request-method": "PUT" };
    for (const method of ["OPTIONS", "GET", "PUT"]) {
      const answer = await send(method, "/v1/kv?key=a", { headers, ...(method === "PUT" ? { body: "1" } : {}) });
      expect([...answer.headers.keys()].filter((name) => name.startsWith("access-control-"))).toEqual([]);
      expect(answer.headers.get("cross-origin-resource-policy")).toBe("same-origin");
    }
  });

  test("an unexpected exception is logged and told without its text", async () => {
    const { put, get, backend, errors } = createHarness();
    backend.failure = new Error("secret address 10.0.0.7");
    const answer = await put("/v1/kv?key=a", 1);
    expectProblem(answer, { status: 500, code: "internal", retry: "same-request" });
    expect(answer.text).not.toContain("10.0.0.7");
    expect(errors.join()).toContain("10.0.0.7");
    backend.failure = "a string";
    expectProblem(await get("/v1/revision"), { status: 500, code: "internal", retry: "same-request" });
  });

  test("every code has a status and a title of its own that a person can read", () => {
    for (const code of Object.keys(ERROR_CODES) as ErrorCode[]) {
      expect(ERROR_CODES[code].status).toBeGreaterThanOrEqual(400);
      expect(ERROR_TITLES[code]).toMatch(/^[A-Z].*[^.]$/);
    }
    const titles = Object.values(ERROR_TITLES);
    expect(new Set(titles).size).toBe(titles.length);
  });
});

describe("bodies", () => {
  test("no more than the limit and one chunk is read of a body without end", async () => {
    let pulled = 0;
    let cancelled = false;
    const body = new ReadableStream<Uint8Array>({
      pull(controller) {
        pulled += 64 << 10;
        controller.enqueue(new Uint8Array(64 << 10));
      },
      cancel() {
        cancelled = true;
      },
    });
    const init: RequestInit & { duplex: "half" } = { method: "PUT", body, duplex: "half" };
    await expect(readBody(new Request("http://a/", init))).rejects.toMatchObject({ body: { code: "body_too_large" } });
    expect(cancelled).toBe(true);
    expect(pulled).toBeLessThanOrEqual(BODY_BYTES_MAX + 4 * (64 << 10));
  });

  test("a body of exactly the limit is read whole", async () => {
    const body = new Uint8Array(BODY_BYTES_MAX).fill(7);
    const read = await readBody(new Request("http://a/", { method: "PUT", body }));
    expect(read.length).toBe(BODY_BYTES_MAX);
    expect(read[BODY_BYTES_MAX - 1]).toBe(7);
  });
});

describe("internal routes", () => {
  const internal = { "x-concord-internal": "1" };

  function mounted() {
    const backend = new MachineBackend();
    const app = createApi(backend, { principal: "root", internal: true, log: () => {} });
    const send = async (method: string, target: string, headers: Record<string, string>, body?: unknown) =>
      await answerOf(
        await app.request(target, {
          method,
          headers: { ...headers, "content-type": "application/json" },
          ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        }),
      );
    return { backend, send };
  }

  test("they look like no route without the header, or where they are not mounted", async () => {
    const { send } = mounted();
    const targets = ["/internal/clusters", "/internal/clusters/a"];
    for (const target of targets) expectProblem(await send("GET", target, {}), { status: 404, code: "not_found" });
    expectProblem(await send("POST", targets[0] ?? "", {}, { name: "a" }), { status: 404, code: "not_found" });
    const { get } = createHarness();
    expectProblem(await get("/internal/clusters", internal), { status: 404, code: "not_found", reason: "route" });
  });

  test("a cluster is created once and found by name", async () => {
    const { send, backend } = mounted();
    const created = await send("POST", "/internal/clusters", internal, { name: "team-a", placement: ["weur", "eeur"] });
    expect([created.status, created.body]).toEqual([
      201,
      { name: "team-a", jurisdiction: null, placement: ["weur", "eeur"] },
    ]);
    expect((await send("GET", "/internal/clusters/team-a", internal)).body).toEqual(created.body);
    const again = await send("POST", "/internal/clusters", internal, { name: "team-a" });
    expectProblem(again, { status: 409, code: "cluster_exists" });
    expectProblem(await send("GET", "/internal/clusters/team-b", internal), { status: 404, code: "unknown_cluster" });
    expect(backend.logged[0]).toContain("\\u0000clusters/team-a");
  });

  test("clusters are listed in order, the default one first, and hidden from users", async () => {
    const { send } = mounted();
    for (const name of ["b", "a"]) await send("POST", "/internal/clusters", internal, { name });
    const list = (await send("GET", "/internal/clusters", internal)).body;
    expect(list.clusters.map((cluster: { name: string }) => cluster.name)).toEqual(["default", "a", "b"]);
    const behind = (await send("GET", "/internal/clusters?after=a", internal)).body;
    expect(behind).toMatchObject({ clusters: [{ name: "b" }], next: null });
    expect((await send("GET", "/v1/kv?prefix=", {})).body.records).toEqual([]);
    expect((await send("GET", "/v1/kv?end=z", {})).body.records).toEqual([]);
  });

  test.each(["", "A", "a_b", "a/b", "a".repeat(64), "\u00e9"])("the name %j is refused", async (name) => {
    const { send, backend } = mounted();
    const answer = await send("POST", "/internal/clusters", internal, { name });
    expectProblem(answer, { status: 400, code: "invalid_request", reason: "cluster_name" });
    expect(backend.logged).toEqual([]);
  });

  test("default exists from the start", async () => {
    const { send } = mounted();
    const answer = await send("POST", "/internal/clusters", internal, { name: "default" });
    expectProblem(answer, { status: 409, code: "cluster_exists" });
  });

  test("an unknown jurisdiction or location is refused", async () => {
    const { send } = mounted();
    for (const fields of [{ jurisdiction: "moon" }, { placement: ["moon"] }, { region: "eu" }]) {
      const answer = await send("POST", "/internal/clusters", internal, { name: "a", ...fields });
      expectProblem(answer, { status: 400, code: "invalid_request" });
    }
  });
});
