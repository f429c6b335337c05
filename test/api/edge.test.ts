/** What the Worker passes on, to which node, and what becomes of it when that node fails; clusters by name. */
import { describe, expect, test } from "vitest";
import { createEdge } from "../../src/api/edge.ts";
import { ConcordError } from "../../src/base/errors.ts";
import { createSetting } from "./fake-nodes.ts";
import { expectProblem } from "./harness.ts";

const KEYED = { "idempotency-key": "K" };

describe("what leaves for a node", () => {
  test.each(["/internal/clusters", "/internal", "/peer/message", "/peer/stream", "/c/default/internal/clusters"])(
    "%s is no route",
    async (path) => {
      const { send, nodes } = createSetting();
      const headers = { "x-concord-internal": "1", "x-concord-peer": "1", "x-concord-principal": "root" };
      expectProblem(await send("GET", path, { headers }), { status: 404, code: "not_found", reason: "route" });
      expect(nodes.stubs).toBe(0);
    },
  );

  test.each(["/v1/../internal/clusters", "/v1/%2e%2e/internal/clusters", "/v1//internal/clusters", "/v1/./x"])(
    "%s does not lead behind the Worker",
    async (path) => {
      const { send } = createSetting();
      expectProblem(await send("GET", path), { status: 404, code: "not_found", reason: "route" });
    },
  );

  test("an address that is no URL, as two Host headers make it, is a bad request", async () => {
    const { nodes } = createSetting();
    const request = new Request("http://localhost/v1/kv?key=a");
    Object.defineProperty(request, "url", { value: "http://localhost, other/v1/kv?key=a" });
    const response = await createEdge().fetch(request, { NODES: nodes, CONCORD_ROOT_TOKEN: "t" });
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ code: "invalid_request", reason: "url" });
    expect(nodes.stubs).toBe(0);
  });

  test("headers of ours are taken away, others go on", async () => {
    const { send, nodes } = createSetting();
    const headers = {
      ...{ "x-concord-internal": "1", "X-Concord-Principal": "someone", "x-concord-peer": "1", "x-concord-new": "1" },
      ...{ "if-none-match": '"1"', traceparent: "00-1-2-3" },
    };
    await send("GET", "/v1/kv?key=a", { headers });
    const received = [...(nodes.requests[0]?.headers.keys() ?? [])].filter((name) => name.startsWith("x-concord-"));
    expect(received.sort()).toEqual(["x-concord-object", "x-concord-principal"]);
    expect(nodes.requests[0]?.headers.get("x-concord-principal")).toBe("root");
    expect(nodes.requests[0]?.headers.get("x-concord-object")).toBe("default/1");
    expect(nodes.requests[0]?.headers.get("traceparent")).toBe("00-1-2-3");
  });

  test("path and query arrive as they were written, without the pin", async () => {
    const { send, nodes } = createSetting();
    await send("GET", "/v1/kv/a%2Fb%20c?node=3&raw=true");
    expect(nodes.requests[0]?.url).toBe("http://node/v1/kv/a%2Fb%20c?raw=true");
    expect(nodes.asked).toEqual(["default/3"]);
  });

  test("a write without a body goes through", async () => {
    const { send, nodes } = createSetting();
    await send("POST", "/v1/leases", { body: { ttl_s: 10 } });
    expect((await send("POST", "/v1/leases/1/keepalive")).body).toMatchObject({ id: 1, ttl_s: 10 });
    expect(nodes.requests.at(-1)?.headers.has("content-type")).toBe(false);
    expect((await send("GET", "/v1/changes?prefix=")).body).toMatchObject({ events: [], next: "0" });
  });

  test("a body over the limit is refused before a node sees it", async () => {
    const { send, nodes } = createSetting();
    const answer = await send("PUT", "/v1/kv?key=a", { body: new Uint8Array(3 << 20) });
    expectProblem(answer, { status: 413, code: "body_too_large" });
    expect(nodes.stubs).toBe(0);
  });

  test("the Worker describes itself and answers liveness itself", async () => {
    const { send, nodes } = createSetting();
    expect((await send("GET", "/")).body).toMatchObject({
      name: "Concord Edge",
      api: "http://127.0.0.1:8787/v1",
      cluster: "http://127.0.0.1:8787/v1/cluster",
    });
    expect((await send("GET", "/livez")).body).toEqual({ status: "live" });
    expectProblem(await send("POST", "/", { body: {} }), { status: 405, code: "method_not_allowed" });
    expect(nodes.stubs).toBe(0);
  });
});

describe("choice of a node", () => {
  test("writes and linearizable reads go to the last known leader, serializable reads anywhere", async () => {
    const { send, nodes } = createSetting({ CONCORD_LOOPBACK_DEV: "1" }, 0.7);
    await send("PUT", "/v1/kv?key=a", { body: 1 });
    await send("PUT", "/v1/kv?key=a", { body: 2 });
    await send("GET", "/v1/kv?key=a");
    await send("GET", "/v1/kv?key=a&consistency=serializable");
    expect(nodes.asked).toEqual(["default/4", "default/2", "default/2", "default/4"]);
    expect(new Set(nodes.requests).size).toBe(nodes.stubs);
  });

  test("leaders of different clusters are kept apart", async () => {
    const { send, nodes } = createSetting();
    await send("POST", "/v1/clusters", { body: { name: "a" } });
    nodes.backend("a").leader = 5;
    await send("GET", "/c/a/v1/revision");
    await send("GET", "/c/a/v1/revision");
    await send("GET", "/v1/revision");
    expect(nodes.asked.slice(-3)).toEqual(["a/1", "a/5", "default/2"]);
  });

  test("a read goes to another node when one cannot be reached, by a fresh stub", async () => {
    const { send, nodes } = createSetting();
    nodes.faults.set("default/1", { kind: "refuse" });
    nodes.faults.set("default/2", { kind: "lose" });
    expect((await send("GET", "/v1/revision")).status).toBe(200);
    expect([nodes.asked, nodes.stubs]).toEqual([["default/1", "default/2", "default/3"], 3]);
  });

  test("a write under a key is repeated elsewhere and has one effect", async () => {
    const { send, nodes } = createSetting();
    nodes.faults.set("default/1", { kind: "lose" });
    const answer = await send("PUT", "/v1/kv?key=a", { headers: KEYED, body: { large: "x".repeat(100_000) } });
    expect(answer.body).toEqual({ revision: 1 });
    expect(nodes.asked).toEqual(["default/1", "default/2"]);
    expect(nodes.backend("default").revision).toBe(1);
  });

  test("a write without a key is not repeated: its outcome is unknown", async () => {
    const { send, nodes } = createSetting();
    nodes.faults.set("default/1", { kind: "lose" });
    const answer = await send("PUT", "/v1/kv?key=a", { body: 1 });
    expectProblem(answer, { status: 504, code: "timeout", retry: "same-request" });
    expect(nodes.asked).toEqual(["default/1"]);
  });

  test("a write that an overloaded node turned away goes elsewhere, key or not", async () => {
    const { send, nodes } = createSetting();
    const error = Object.assign(new Error("overloaded"), { overloaded: true });
    nodes.faults.set("default/1", { kind: "refuse", error });
    expect((await send("PUT", "/v1/kv?key=a", { body: 1 })).status).toBe(200);
    for (let node = 1; node <= 5; node += 1) nodes.faults.set(`default/${node}`, { kind: "refuse", error });
    expectProblem(await send("PUT", "/v1/kv?key=a", { body: 1 }), { status: 503, code: "overloaded", retry: "yes" });
  });

  test("when no node can be reached a read may be repeated and a keyed write is unknown", async () => {
    const { send, nodes } = createSetting();
    for (let node = 1; node <= 5; node += 1) nodes.faults.set(`default/${node}`, { kind: "refuse" });
    expectProblem(await send("GET", "/v1/revision"), { status: 503, code: "no_leader", retry: "yes" });
    const write = await send("PUT", "/v1/kv?key=a", { headers: KEYED, body: 1 });
    expectProblem(write, { status: 504, code: "timeout", retry: "same-request" });
    expect(nodes.asked.length).toBe(10);
  });

  test("a halted node's request goes to another one; if all have halted, it is told", async () => {
    const { send, nodes } = createSetting();
    nodes.backend("default").execute = async () => {
      if (nodes.backend("default").node < 3) throw new ConcordError({ code: "node_halted", detail: "It has halted." });
      return { ok: true, revision: 7, result: { kind: "txn", succeeded: true, revision: 7, responses: [PUT_RESULT] } };
    };
    expect((await send("PUT", "/v1/kv?key=a", { body: 1 })).body).toEqual({ revision: 7 });
    const pinned = await send("PUT", "/v1/kv?key=a&node=1", { body: 1 });
    expectProblem(pinned, { status: 503, code: "node_halted", retry: "yes" });
  });

  test("a pin asks that node alone", async () => {
    const { send, nodes } = createSetting();
    nodes.faults.set("default/4", { kind: "refuse" });
    const answer = await send("GET", "/v1/revision", { headers: { "concord-prefer-node": "4" } });
    expectProblem(answer, { status: 503, code: "no_leader", retry: "yes" });
    expect(nodes.asked).toEqual(["default/4"]);
    for (const node of ["0", "6", "x", "-1", "1.5", ""]) {
      const headers = { "concord-prefer-node": node };
      const refused = await send("GET", "/v1/revision", { headers });
      expectProblem(refused, { status: 400, code: "invalid_request", reason: "node" });
    }
  });

  test("a node that stays silent ends in a timeout", async () => {
    const { send, nodes } = createSetting();
    nodes.faults.set("default/1", { kind: "silence" });
    const answer = await send("GET", "/v1/revision?timeout_ms=1");
    expectProblem(answer, { status: 504, code: "timeout", retry: "same-request" });
  });

  test("fewer nodes are configured by NODE_COUNT", async () => {
    const { send, nodes } = createSetting({ CONCORD_LOOPBACK_DEV: "1", NODE_COUNT: "3" }, 0.99);
    await send("GET", "/v1/revision?consistency=serializable");
    expect(nodes.asked).toEqual(["default/3"]);
    const answer = await send("GET", "/v1/revision?node=4");
    expectProblem(answer, { status: 400, code: "invalid_request", reason: "node" });
  });
});

const PUT_RESULT = { type: "put", key: "a" } as const;

describe("clusters", () => {
  test("a cluster is created by name, has its own data, and is listed", async () => {
    const { send, nodes } = createSetting();
    const created = await send("POST", "/v1/clusters", { body: { name: "team-a", placement: ["weur", "eeur"] } });
    expect([created.status, created.headers.get("location")]).toEqual([201, "/c/team-a/v1"]);
    expect(created.body).toMatchObject({ name: "team-a", url: "http://127.0.0.1:8787/c/team-a/v1" });
    await send("PUT", "/c/team-a/v1/kv?key=a", { body: "theirs" });
    await send("PUT", "/v1/kv?key=a", { body: "ours" });
    expect((await send("GET", "/c/team-a/v1/kv?key=a")).body.value).toBe("theirs");
    expect((await send("GET", "/c/default/v1/kv?key=a")).body.value).toBe("ours");
    expect((await send("GET", "/v1/clusters")).body.clusters).toMatchObject([{ name: "default" }, { name: "team-a" }]);
    expect((await send("GET", "/c/team-a/readyz")).body).toEqual({ status: "ready" });
    const asked = nodes.asked.indexOf("team-a/1");
    expect(nodes.hints[asked]).toBe("weur");
  });

  test("an unknown cluster is 404 and none of its objects is touched", async () => {
    const { send, nodes } = createSetting();
    for (const name of ["nope", "Nope", "a%2Fb", "a".repeat(64), "", "a%00"]) {
      const answer = await send("GET", `/c/${name}/v1/revision`);
      expectProblem(answer, { status: 404, code: "unknown_cluster" });
    }
    expect(new Set(nodes.asked)).toEqual(new Set(["default/1"]));
  });

  test("a name is looked up once per isolate, while unknown names are looked up again", async () => {
    const first = createSetting();
    await first.send("GET", "/c/a/v1/revision");
    await first.send("POST", "/v1/clusters", { body: { name: "a" } });
    const before = first.nodes.asked.length;
    expect((await first.send("GET", "/c/a/v1/revision")).status).toBe(200);
    expect((await first.send("GET", "/c/a/v1/revision")).status).toBe(200);
    expect(first.nodes.asked.slice(before)).toEqual(["a/1", "a/2"]);
  });

  test("an isolate that did not create the cluster finds it", async () => {
    const { nodes, send } = createSetting();
    await send("POST", "/v1/clusters", { body: { name: "a" } });
    const other = createEdge({ random: () => 0 });
    const request = new Request("http://localhost/c/a/v1/revision");
    const response = await other.fetch(request, { NODES: nodes, CONCORD_LOOPBACK_DEV: "1" });
    expect(response.status).toBe(200);
  });

  test("a list of clusters that cannot be read is not an unknown cluster", async () => {
    const { send, nodes } = createSetting();
    nodes.backend("default").failure = new Error("lost");
    const answer = await send("GET", "/c/a/v1/revision");
    expectProblem(answer, { status: 503, code: "cluster_not_ready", reason: "cluster_list", retry: "yes" });
  });

  test("a cluster is created once; a repeated request under its key gets the first answer", async () => {
    const { send } = createSetting();
    const create = (headers: Record<string, string>) => send("POST", "/v1/clusters", { headers, body: { name: "a" } });
    expect((await create(KEYED)).status).toBe(201);
    expect((await create(KEYED)).status).toBe(201);
    expectProblem(await create({}), { status: 409, code: "cluster_exists" });
  });

  test("a jurisdiction that the platform does not have is refused before anything is written", async () => {
    const { send, nodes } = createSetting();
    const answer = await send("POST", "/v1/clusters", { body: { name: "a", jurisdiction: "eu" } });
    expectProblem(answer, { status: 400, code: "invalid_request", reason: "jurisdiction" });
    expect(nodes.stubs).toBe(0);
  });

  test("a jurisdiction is asked of the platform for every request of its cluster", async () => {
    const { send, nodes } = createSetting();
    const asked: string[] = [];
    Reflect.set(nodes, "jurisdiction", (name: string) => {
      asked.push(name);
      return nodes;
    });
    await send("POST", "/v1/clusters", { body: { name: "a", jurisdiction: "eu" } });
    await send("GET", "/c/a/v1/revision");
    expect(asked).toEqual(["eu", "eu"]);
  });

  test.each([
    ["PUT", 405],
    ["DELETE", 405],
  ])("%s /v1/clusters is not allowed", async (method, status) => {
    const { send } = createSetting();
    expect((await send(method, "/v1/clusters")).status).toBe(status);
  });

  test("a malformed request for a cluster reaches no node", async () => {
    const { send, nodes } = createSetting();
    for (const body of [[], {}, { name: 7 }, { name: "a", regions: [] }]) {
      expectProblem(await send("POST", "/v1/clusters", { body }), { status: 400, code: "invalid_request" });
    }
    expect(nodes.stubs).toBe(0);
  });
});
