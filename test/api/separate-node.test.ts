/** A process that serves one node: its variables, whom it asks, and who comes in as a peer. */
import { describe, expect, test, vi } from "vitest";
import { type SeparateVariables, separateNodeOf } from "../../src/api/separate-node.ts";
import { createSetting } from "./fake-nodes.ts";
import { expectProblem } from "./harness.ts";

const SECRET = "correct-horse-battery";
const PEERS = { 1: "http://10.0.0.1:8800", 3: "http://10.0.0.3:8800/", 4: "https://four/x", 5: "http://[fd00::5]:88" };
const VARIABLES = { NODE_ID: "2", PEERS: JSON.stringify(PEERS), CLUSTER_SECRET: SECRET };
const ENVIRONMENT = { ...VARIABLES, CONCORD_LOOPBACK_DEV: "1" };

describe("the variables", () => {
  test("none of them: all nodes are at hand", () => {
    expect(separateNodeOf({}, 5)).toBeNull();
    expect(separateNodeOf({ NODE_ID: "", PEERS: "", CLUSTER_SECRET: "" }, 5)).toBeNull();
  });

  test("all of them: one node, and where its peers are", () => {
    const node = separateNodeOf(VARIABLES, 5);
    expect(node).toMatchObject({ id: 2, secret: SECRET });
    expect([...(node?.peers ?? [])]).toEqual([
      [1, "http://10.0.0.1:8800"],
      [3, "http://10.0.0.3:8800"],
      [4, "https://four/x"],
      [5, "http://[fd00::5]:88"],
    ]);
  });

  test("one list of all nodes serves every process", () => {
    const all = JSON.stringify({ ...PEERS, 2: "http://10.0.0.2:8800" });
    expect(separateNodeOf({ ...VARIABLES, PEERS: all }, 5)?.peers.has(2)).toBe(false);
  });

  const peers = (changes: object) => ({ PEERS: JSON.stringify({ ...PEERS, ...changes }) });
  test.each<[string, SeparateVariables, number]>([
    ["NODE_ID", { NODE_ID: "" }, 5],
    ["NODE_ID", { NODE_ID: "6" }, 5],
    ["NODE_ID", { NODE_ID: "02" }, 5],
    ["CLUSTER_SECRET", { CLUSTER_SECRET: "" }, 5],
    ["CLUSTER_SECRET", { CLUSTER_SECRET: "too-short" }, 5],
    ["CLUSTER_SECRET", { CLUSTER_SECRET: "with blanks is no header" }, 5],
    ["PEERS", { PEERS: "" }, 5],
    ["PEERS", { PEERS: "[]" }, 5],
    ["PEERS", { PEERS: "not JSON" }, 5],
    ["PEERS", peers({ 3: undefined }), 5],
    ["PEERS", peers({ 6: "http://six" }), 5],
    ["PEERS", peers({}), 7],
    ["PEERS", peers({ 3: "ftp://three" }), 5],
    ["PEERS", peers({ 3: "three:8800" }), 5],
    ["PEERS", peers({ 3: "http://u:p@three" }), 5],
    ["PEERS", peers({ 3: "http://three/?a" }), 5],
  ])("a wrong %s is refused by its name, and no value is told: %o", (name, changes, nodesCount) => {
    const variables = { ...VARIABLES, ...changes };
    let text = "";
    try {
      separateNodeOf(variables, nodesCount);
    } catch (error) {
      expect(error).toBeInstanceOf(RangeError);
      text = String(error);
    }
    expect(text).toContain(name);
    for (const value of [SECRET, "too-short", "with blanks", "u:p"]) expect(text).not.toContain(value);
  });
});

describe("clients of a process of one node", () => {
  test("its own node is asked, and no other", async () => {
    const { send, nodes } = createSetting(ENVIRONMENT);
    await send("GET", "/v1/revision"); // tells that node 2 leads
    await send("PUT", "/v1/kv?key=a", { body: 1 });
    await send("GET", "/v1/kv?key=a&node=2");
    nodes.faults.set("default/2", { kind: "refuse" });
    expectProblem(await send("GET", "/v1/revision"), { status: 503, code: "no_leader", retry: "yes" });
    expect(new Set(nodes.asked)).toEqual(new Set(["default/2"]));
  });

  test("another node is not asked for: it has an address of its own", async () => {
    const { send, nodes } = createSetting(ENVIRONMENT);
    for (const ask of [send("GET", "/v1/revision?node=3"), send("GET", "/v1/revision?node=1")]) {
      expectProblem(await ask, { status: 400, code: "invalid_request", reason: "node" });
    }
    expect(nodes.asked).toEqual([]);
  });

  test("a cluster of another name is this node's object of that cluster, in no jurisdiction", async () => {
    const { send, nodes } = createSetting(ENVIRONMENT);
    expect((await send("POST", "/v1/clusters", { body: { name: "second" } })).status).toBe(201);
    await send("GET", "/c/second/v1/revision");
    expect(nodes.asked.at(-1)).toBe("second/2");
    const body = { name: "third", jurisdiction: "eu" };
    expectProblem(await send("POST", "/v1/clusters", { body }), {
      status: 400,
      code: "invalid_request",
      reason: "jurisdiction",
    });
  });

  test("half a configuration serves nobody, and the log says which variable is wrong", async () => {
    const log = vi.spyOn(console, "error").mockImplementation(() => {});
    const { send, nodes } = createSetting({ ...ENVIRONMENT, PEERS: "" });
    const answer = await send("GET", "/v1/revision");
    expectProblem(answer, { status: 500, code: "internal", retry: "same-request" });
    expect(nodes.asked).toEqual([]);
    expect(String(log.mock.calls)).toContain("PEERS must be");
    expect(String(log.mock.calls) + answer.text).not.toContain(SECRET);
    log.mockRestore();
  });
});

describe("peers of a process of one node", () => {
  const headers = { "x-concord-secret": SECRET, "x-concord-object": "default/2", "x-concord-peer": "4" };

  test.each(["message", "stream", "status", "digest?index=7"])("/peer/%s comes in with the secret", async (path) => {
    const { send, nodes } = createSetting(ENVIRONMENT);
    const upgrade = path === "stream" ? { upgrade: "websocket" } : {};
    const body = path === "message" ? { body: { frame: 1 } } : {};
    const more = { "x-concord-principal": "root", "x-concord-internal": "1", authorization: "Bearer x" };
    const method = path === "message" ? "POST" : "GET";
    await send(method, `/peer/${path}`, { headers: { ...headers, ...upgrade, ...more }, ...body });
    expect(nodes.asked).toEqual(["default/2"]);
    const [request] = nodes.requests;
    expect(request?.url).toBe(`http://node/peer/${path}`);
    const passed = Object.fromEntries(request?.headers ?? []);
    delete passed["content-type"];
    expect(passed).toEqual({ "x-concord-object": "default/2", "x-concord-peer": "4", ...upgrade });
  });

  test("no root token is asked of a peer, nor is it on this machine", async () => {
    const { send, nodes } = createSetting({ ...VARIABLES, CONCORD_ROOT_TOKEN: "t" });
    await send("GET", "http://10.0.0.2:8800/peer/status", { headers });
    expect(nodes.asked).toEqual(["default/2"]);
  });

  test.each<[string, Record<string, string>]>([
    ["no secret", { "x-concord-secret": "" }],
    ["a wrong secret", { "x-concord-secret": `${SECRET}x` }],
    ["the secret as a token", { "x-concord-secret": "", authorization: `Bearer ${SECRET}` }],
  ])("with %s, a peer route is no route", async (_what, changes) => {
    const { send, nodes } = createSetting(ENVIRONMENT);
    for (const path of ["/peer/message", "/peer/stream", "/peer/status", "/peer/x"]) {
      const given = { ...headers, ...changes };
      const answer = await send("GET", path, { headers: given });
      expectProblem(answer, { status: 404, code: "not_found", reason: "route" });
      expect(answer.body).toEqual((await send("GET", "/no/route", { headers: given })).body);
    }
    const guarded = createSetting({ ...VARIABLES, CONCORD_ROOT_TOKEN: "t" });
    const answer = await guarded.send("GET", "/peer/status", { headers: { ...headers, ...changes } });
    expectProblem(answer, { status: 401, code: "unauthenticated" });
    expect([...nodes.asked, ...guarded.nodes.asked]).toEqual([]);
  });

  test("the secret opens peer routes alone, in no other path and of no other node", async () => {
    const { send, nodes } = createSetting(ENVIRONMENT);
    for (const path of ["/peer/x", "/peer/", "/peer/message/x", "/internal/clusters", "/c/default/peer/message"]) {
      expectProblem(await send("GET", path, { headers }), { status: 404, code: "not_found" });
    }
    for (const object of ["default/3", "default", "/2", "No Name/2", "default/02", ""]) {
      const answer = await send("GET", "/peer/status", { headers: { ...headers, "x-concord-object": object } });
      expect([object, answer.status]).toEqual([object, 421]);
    }
    expect(nodes.asked).toEqual([]);
  });

  test("a secret opens nothing where all nodes are at hand", async () => {
    const { send, nodes } = createSetting();
    expectProblem(await send("GET", "/peer/status", { headers }), { status: 404, code: "not_found" });
    expect(nodes.asked).toEqual([]);
  });

  test("what a peer knows of a client's request never comes from the client", async () => {
    const { send, nodes } = createSetting(ENVIRONMENT);
    await send("GET", "/v1/kv?key=a", { headers });
    const names = [...(nodes.requests[0]?.headers.keys() ?? [])].filter((name) => name.startsWith("x-concord-"));
    expect(names.sort()).toEqual(["x-concord-object", "x-concord-principal"]);
  });

  test("a node that breaks under a peer's request is told as unavailable", async () => {
    const { send, nodes } = createSetting(ENVIRONMENT);
    nodes.faults.set("default/2", { kind: "refuse" });
    expect((await send("POST", "/peer/message", { headers, body: 1 })).status).toBe(503);
  });
});
