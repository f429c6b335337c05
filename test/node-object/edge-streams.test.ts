/** Streams through the Worker in front of the nodes: upgrades, tokens of browsers, server-sent events. */
import { env, reset } from "cloudflare:test";
import { afterEach, describe, expect, test, vi } from "vitest";
import { createEdge, type EdgeEnvironment } from "../../src/api/edge.ts";
import { EventStream } from "../../src/api/stream-events.ts";
import { Connections } from "../../src/node-object/connections.ts";
import { eventually } from "./eventually.ts";
import { quietConsole } from "./quiet-console.ts";
import { story, TestSocket } from "./socket-client.ts";

quietConsole();
afterEach(async () => await reset());

const ORIGIN = "http://127.0.0.1:8787";

/** The Worker over the nodes of the cluster `default`, which every test begins anew. */
function worker(environment: Partial<EdgeEnvironment> = { CONCORD_LOOPBACK_DEV: "1" }) {
  const edge = createEdge();
  const all = { NODES: env.NODES, NODE_COUNT: "5", ...environment };
  const send = async (path: string, init: RequestInit = {}) =>
    await edge.fetch(new Request(`${ORIGIN}${path}`, init), all as EdgeEnvironment);
  const open = async (path: string, headers: Record<string, string> = {}) => {
    const response = await send(path, { headers: { upgrade: "websocket", ...headers } });
    return { response, socket: response.webSocket === null ? null : new TestSocket(response.webSocket!) };
  };
  const put = async (key: string, value: unknown) => {
    const body = JSON.stringify(value);
    const write = () =>
      send(`/v1/kv?key=${key}`, { method: "PUT", headers: { "content-type": "application/json" }, body });
    await eventually(async () => (await write()).status, 200, 10_000);
  };
  return { send, open, put };
}

/** Reads server-sent events one by one. */
class EventReader {
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  #text = "";

  constructor(response: Response) {
    this.#reader = response.body!.getReader();
  }

  /** The next event that is not a comment. */
  async next(): Promise<{ readonly id: string | null; readonly data: Record<string, unknown> }> {
    for (;;) {
      const end = this.#text.indexOf("\n\n");
      if (end < 0) {
        const { value, done } = await this.#reader.read();
        if (done) throw new Error("the stream ended");
        this.#text += new TextDecoder().decode(value);
        continue;
      }
      const block = this.#text.slice(0, end).split("\n");
      this.#text = this.#text.slice(end + 2);
      const data = block.find((line) => line.startsWith("data: "));
      if (data === undefined) continue;
      const id = block.find((line) => line.startsWith("id: "))?.slice(4) ?? null;
      return { id, data: JSON.parse(data.slice(6)) };
    }
  }

  /** The next one with events. */
  async nextEvents(): Promise<{ readonly id: string | null; readonly data: Record<string, unknown> }> {
    for (;;) {
      const event = await this.next();
      if (event.data.kind === "events") return event;
    }
  }

  async cancel(): Promise<void> {
    await this.#reader.cancel();
  }
}

describe("upgrades through the Worker", () => {
  test("a session, a watch and a topic are answered 101 and live", async () => {
    const { open, put } = worker();
    await put("/k/1", 1);
    const { socket: session } = await open("/v1/session");
    expect(await session!.call("kv.put", { key: "/k/2", value: 2 })).toMatchObject({ revision: 2 });
    const { socket: watch } = await open("/v1/watch?prefix=/k/&from_revision=1&node=3");
    await watch!.until(() => story(watch!.messages).length === 2);
    const { socket: topic } = await open("/c/default/v1/topics/t");
    await session!.call("topic.publish", { topic: "t", payload: 1 });
    await topic!.until(() => topic!.messages.length === 1);
  });

  test("a pinned node answers, by query and by header", async () => {
    const { open, put } = worker();
    await put("/k", 1);
    for (const [path, headers] of [
      ["/v1/session?node=4", {}],
      ["/v1/session", { "concord-prefer-node": "4" }],
    ] as const) {
      const { response, socket } = await open(path, headers);
      expect(response.headers.get("concord-node")).toBe("4");
      expect((await socket!.find((one) => one.method === "session")).params.node).toBe(4);
    }
  });

  test("bad parameters come as a problem document with its status", async () => {
    const { open, put } = worker();
    await put("/k", 1);
    const { response, socket } = await open("/v1/watch?keys=a");
    expect(socket).toBeNull();
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ code: "invalid_request", reason: "unknown_parameter" });
  });

  test("a browser sends its token as a sub-protocol, and is answered the name alone", async () => {
    const { put } = worker();
    await put("/k", 1);
    const { open } = worker({ CONCORD_ROOT_TOKEN: "a-token" });
    const { response, socket } = await open("/v1/session", { "sec-websocket-protocol": "bearer, a-token" });
    expect(response.status).toBe(101);
    expect(response.headers.get("sec-websocket-protocol")).toBe("bearer");
    expect(await socket!.call("kv.get", { key: "/k" })).toMatchObject({ record: { value: 1 } });
    for (const protocol of ["bearer, other", "bearer", "a-token", "bearer a-token", "bearer, a-token, more"]) {
      const refused = await open("/v1/session", { "sec-websocket-protocol": protocol });
      expect(refused.response.status, protocol).toBe(401);
    }
    const viaHeader = await open("/v1/session", { authorization: "Bearer a-token" });
    expect(viaHeader.response.status).toBe(101);
    expect(viaHeader.response.headers.get("sec-websocket-protocol")).toBeNull();
  });

  test("in development, pages of other origins open no socket", async () => {
    const { open, put } = worker();
    await put("/k", 1);
    for (const origin of ["https://evil.example", "http://127.0.0.1:9999", "null"]) {
      const { response } = await open("/v1/session", { origin });
      expect(response.status, origin).toBe(403);
    }
    expect((await open("/v1/session", { origin: ORIGIN })).response.status).toBe(101);
  });
});

describe("server-sent events through the Worker", () => {
  test("stream as they happen, and cancelling leaves nothing on the node", async () => {
    const forget = vi.spyOn(Connections.prototype, "forget");
    const { send, put } = worker();
    await put("/k/1", 1);
    const response = await send("/v1/watch?prefix=/k/&from_revision=1&node=2", {
      headers: { accept: "text/event-stream" },
    });
    expect(response.status).toBe(200);
    expect(Object.fromEntries(response.headers)).toMatchObject({
      "content-type": "text/event-stream",
      "content-encoding": "identity",
      "cache-control": "no-store",
      "concord-node": "2",
    });
    const reader = new EventReader(response);
    expect(await reader.nextEvents()).toMatchObject({ id: "1", data: { complete: true, position: "1" } });
    for (let n = 2; n < 5; n += 1) {
      await put(`/k/${n}`, n);
      expect(await reader.nextEvents()).toMatchObject({
        id: String(n),
        data: { events: [{ key: `/k/${n}`, value: n }] },
      });
    }
    expect(forget).not.toHaveBeenCalled();
    await reader.cancel();
    await eventually(() => forget.mock.calls.length, 1, 5000);
  });

  test("a reader that comes back with Last-Event-ID goes on behind it", async () => {
    const { send, put } = worker();
    for (let n = 1; n <= 3; n += 1) await put(`/k/${n}`, n);
    const headers = { accept: "text/event-stream", "last-event-id": "2" };
    const reader = new EventReader(await send("/v1/watch?prefix=/k/&from_revision=1", { headers }));
    expect(await reader.nextEvents()).toMatchObject({ id: "3", data: { events: [{ key: "/k/3" }] } });
    await reader.cancel();
  });

  test("a megabyte for a reader that reads late arrives whole", async () => {
    const sent = vi.spyOn(EventStream.prototype, "send");
    const { send, put } = worker();
    await put("/first", 1);
    const reader = new EventReader(await send("/v1/watch?prefix=/k/&from_revision=1&node=1"));
    for (let n = 1; n <= 20; n += 1) await put(`/k/${n}`, "x".repeat(60_000));
    await put("/last", 1);
    // What the reader has not taken is not acknowledged, and what is not acknowledged holds back the rest.
    expect(sent.mock.calls.length).toBeLessThan(8);
    const keys: unknown[] = [];
    while (keys.length < 20) {
      const { data } = await reader.nextEvents();
      for (const event of (data.events ?? []) as { key: string }[]) keys.push(event.key);
    }
    expect(keys).toEqual(Array.from({ length: 20 }, (_, n) => `/k/${n + 1}`));
    await reader.cancel();
  });

  test("topics come as events too", async () => {
    const { send, put } = worker();
    await put("/k", 1);
    const reader = new EventReader(await send("/v1/topics/t?node=1"));
    const published = await send("/v1/topics/t?node=5", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: '{"a":[1, 2]}',
    });
    expect(published.status).toBe(202);
    expect(await reader.next()).toEqual({ id: null, data: { topic: "t", payload: { a: [1, 2] }, seq: 1, dropped: 0 } });
    await reader.cancel();
  });
});
