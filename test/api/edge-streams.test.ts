/** What the Worker does with streams: which node, which headers, whose token. The nodes here have no sockets. */
import { describe, expect, test, vi } from "vitest";
import { createEdge } from "../../src/api/edge.ts";
import { createSetting, FakeNodes } from "./fake-nodes.ts";
import { expectProblem } from "./harness.ts";

const UPGRADE = { upgrade: "websocket" };

describe("the node of a stream", () => {
  test("a session goes to the leader once it is known, watches and topics anywhere", async () => {
    const { send, nodes } = createSetting();
    await send("GET", "/v1/revision"); // tells that node 2 leads
    await send("GET", "/v1/session", { headers: UPGRADE });
    await send("GET", "/v1/watch?key=a", { headers: UPGRADE });
    await send("GET", "/v1/topics/t", { headers: UPGRADE });
    await send("POST", "/v1/topics/t", { body: 1 });
    expect(nodes.asked.map((name) => name.split("/")[1])).toEqual(["1", "2", "1", "1", "1"]);
  });

  test("a pinned node alone is asked, another takes the place of one that is not ready", async () => {
    const { send, nodes } = createSetting();
    nodes.faults.set("default/1", { kind: "refuse" });
    await send("GET", "/v1/session", { headers: UPGRADE });
    await send("GET", "/v1/watch?key=a&node=4", { headers: UPGRADE });
    await send("GET", "/c/default/v1/watch?key=a", { headers: { ...UPGRADE, "concord-prefer-node": "5" } });
    expect(nodes.asked).toEqual(["default/1", "default/2", "default/4", "default/5"]);
  });
});

describe("the handshake", () => {
  test("an upgrade arrives as one, without what describes the outer connection", async () => {
    const { send, nodes } = createSetting();
    const handshake = { "sec-websocket-key": "k", "sec-websocket-version": "13", "sec-websocket-extensions": "e" };
    const answer = await send("GET", "/v1/session", { headers: { ...UPGRADE, ...handshake } });
    expectProblem(answer, { status: 426, code: "invalid_request", reason: "upgrade_unavailable" });
    const names = [...(nodes.requests[0]?.headers.keys() ?? [])];
    expect(names).toContain("upgrade");
    expect(names.filter((name) => name.startsWith("sec-websocket-"))).toEqual([]);
  });

  test("a token in a sub-protocol lets in, and does not reach the node", async () => {
    const { send, nodes } = createSetting({ CONCORD_ROOT_TOKEN: "secret" });
    const withToken = (protocol: string, headers: Record<string, string> = UPGRADE) =>
      send("GET", "/v1/session", { headers: { ...headers, "sec-websocket-protocol": protocol } });
    expect((await withToken("bearer, secret")).status).toBe(426);
    expect(nodes.requests[0]?.headers.get("sec-websocket-protocol")).toBe("bearer");
    expect(JSON.stringify([...(nodes.requests[0]?.headers ?? [])])).not.toContain("secret");
    for (const protocol of ["bearer, wrong", "bearer,", "secret", "bearer, secret, secret", "x, bearer, secret"]) {
      expectProblem(await withToken(protocol), { status: 401, code: "unauthenticated" });
    }
    // Only of an upgrade: nothing else has that header for a reason.
    expectProblem(await withToken("bearer, secret", {}), { status: 401, code: "unauthenticated" });
    expect(nodes.requests).toHaveLength(1);
  });

  test("in development, a page of another origin opens nothing", async () => {
    const { send, nodes } = createSetting();
    const headers = { ...UPGRADE, origin: "https://evil.example", "sec-websocket-protocol": "bearer, x" };
    expectProblem(await send("GET", "/v1/session", { headers }), {
      status: 403,
      code: "forbidden",
      reason: "foreign_origin",
    });
    expect(nodes.requests).toEqual([]);
  });
});

describe("server-sent events", () => {
  test("stream through while they happen, past every deadline of a request", async () => {
    vi.useFakeTimers();
    const nodes = new FakeNodes();
    const request = new Request("http://127.0.0.1:8787/v1/watch?prefix=/k/");
    const response = await createEdge().fetch(request, { NODES: nodes, CONCORD_LOOPBACK_DEV: "1" });
    const reader = response.body!.getReader();
    const next = async () => new TextDecoder().decode((await reader.read()).value);
    expect(await next()).toBe(":\n\n");
    expect(await next()).toContain('"kind":"ready"');
    for (let minute = 0; minute < 10; minute += 1) {
      const comment = next();
      await vi.advanceTimersByTimeAsync(60_000);
      expect(await comment).toBe(":\n\n");
      expect(nodes.backend("default").connectionsCount).toBe(1);
    }
    await reader.cancel();
    await vi.advanceTimersByTimeAsync(0);
    expect(nodes.backend("default").connectionsCount).toBe(0);
    vi.useRealTimers();
  });
});
