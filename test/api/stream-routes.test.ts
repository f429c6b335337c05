/** Watches and topics as server-sent events, over plain Requests and Responses; upgrades where there are no sockets. */
import { afterEach, describe, expect, test, vi } from "vitest";
import { createApi } from "../../src/api/app.ts";
import type { SocketOpening } from "../../src/api/stream-socket.ts";
import { type Body, createHarness, expectProblem, type Harness } from "./harness.ts";

afterEach(() => {
  vi.useRealTimers();
});

interface Event {
  readonly id: string | null;
  readonly data: Body;
}

class Reader {
  readonly response: Response;
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  /** Chunks as they came: one per event or comment. */
  readonly chunks: string[] = [];

  constructor(response: Response) {
    this.response = response;
    this.#reader = response.body!.getReader();
  }

  /** The next chunk; null at the end. */
  async chunk(): Promise<string | null> {
    const { value, done } = await this.#reader.read();
    if (done) return null;
    const text = new TextDecoder().decode(value);
    this.chunks.push(text);
    return text;
  }

  /** The next event; null at the end. */
  async next(): Promise<Event | null> {
    for (;;) {
      const text = await this.chunk();
      if (text === null) return null;
      if (text === ":\n\n") continue;
      const match = /^(?:id: (.*)\n)?data: (.*)\n\n$/.exec(text);
      if (match === null) throw new Error(`no event: ${text}`);
      return { id: match[1] ?? null, data: JSON.parse(match[2] ?? "") };
    }
  }

  async cancel(): Promise<void> {
    await this.#reader.cancel();
  }
}

async function open(harness: Harness, target: string, headers: Record<string, string> = {}): Promise<Reader> {
  const response = await harness.api.request(target, { headers });
  expect(response.status, response.status === 200 ? "" : await response.clone().text()).toBe(200);
  return new Reader(response);
}

async function turns(): Promise<void> {
  for (let n = 0; n < 20; n += 1) await Promise.resolve();
}

describe("GET /v1/watch as events", () => {
  test("ids are positions, each frame is one chunk, headers keep proxies from holding it", async () => {
    const harness = createHarness();
    for (let n = 1; n <= 3; n += 1) await harness.put(`/v1/kv?key=/k/${n}`, n);
    const reader = await open(harness, "/v1/watch?prefix=/k/&from_revision=2", { accept: "text/event-stream" });
    expect(Object.fromEntries(reader.response.headers)).toMatchObject({
      "content-type": "text/event-stream",
      "content-encoding": "identity",
      "cache-control": "no-store",
      "concord-cluster": "c-1",
    });
    const first = await reader.next();
    expect(first).toMatchObject({ id: "3", data: { kind: "events", complete: true, position: "3" } });
    expect(first?.data.events.map((event: Body) => event.key)).toEqual(["/k/2", "/k/3"]);
    expect(await reader.next()).toEqual({ id: "3", data: { kind: "ready", revision: 3, position: "3" } });
    await harness.delete("/v1/kv?key=/k/1");
    expect(await reader.next()).toMatchObject({
      id: "4",
      data: { events: [{ type: "delete", key: "/k/1", value: null }] },
    });
    expect(reader.chunks[0]).toBe(":\n\n");
    await reader.cancel();
  });

  test("parameters mean what they say: shapes, filters, one key, one range", async () => {
    const harness = createHarness();
    await harness.put("/v1/kv?key=a", 1);
    await harness.put("/v1/kv?key=a", 2);
    await harness.put("/v1/kv?key=b", 1);
    await harness.delete("/v1/kv?key=a");
    const events = async (query: string) => {
      const reader = await open(harness, `/v1/watch?from_revision=1&${query}`);
      const event = await reader.next();
      await reader.cancel();
      return event?.data.events;
    };
    expect(await events("key=a&prev_values=true&filter=puts")).toMatchObject([
      { value: 1, prev_value: null },
      { value: 2, prev_value: 1 },
    ]);
    const bare = await events("key=a&include_values=false&filter=deletes&prev_values=true");
    expect(bare).toMatchObject([{ type: "delete", prev_value: 2 }]);
    expect(bare[0]).not.toHaveProperty("value");
    expect((await events("start=b"))[0]).not.toHaveProperty("prev_value");
    expect(await events("start=&end=b")).toHaveLength(3);
    expect(await events("prefix=")).toHaveLength(4);
  });

  test("a frame is acknowledged when its reader takes it: who reads gets everything, who does not holds its credit", async () => {
    const harness = createHarness();
    const { hub } = harness.backend;
    const reader = await open(harness, "/v1/watch?prefix=/k/&from_revision=1");
    for (let n = 0; n < 20; n += 1) await harness.put(`/v1/kv?key=/k/${n}`, "x".repeat(50_000));
    expect(hub.unacknowledged).toBeGreaterThan(200_000);
    expect(hub.unacknowledged).toBeLessThanOrEqual(256 << 10);
    const keys: string[] = [];
    while (keys.length < 20) {
      const event = await reader.next();
      for (const { key } of event?.data.events ?? []) keys.push(key);
    }
    expect(keys).toEqual(Array.from({ length: 20 }, (_, n) => `/k/${n}`));
    await turns();
    expect(hub.unacknowledged).toBe(0);
    await reader.cancel();
  });

  test("cancelling ends the connection, in the middle of a write and at rest", async () => {
    const harness = createHarness();
    const atRest = await open(harness, "/v1/watch?prefix=/k/");
    await atRest.next();
    const unread = await open(harness, "/v1/watch?prefix=/k/");
    await harness.put("/v1/kv?key=/k/1", 1);
    expect(harness.backend.connectionsCount).toBe(2);
    await atRest.cancel();
    await unread.cancel();
    await turns();
    expect(harness.backend.connectionsCount).toBe(0);
    expect(harness.backend.hub.watchesCount).toBe(0);
  });

  test("Last-Event-ID wins over the URL, and names a part of a revision too", async () => {
    const harness = createHarness();
    const success = ["a", "b", "c"].map((key) => ({ type: "put", key: `/k/${key}`, value: 1 }));
    await harness.post("/v1/txn", { success });
    const reader = await open(harness, "/v1/watch?prefix=/k/&from_revision=1", { "last-event-id": "1.1" });
    expect((await reader.next())?.data.events).toMatchObject([{ key: "/k/c", op_index: 2 }]);
    await reader.cancel();
    expectProblem(await harness.get("/v1/watch?prefix=/k/", { "last-event-id": "1.x" }), {
      status: 400,
      code: "invalid_request",
      reason: "invalid_position",
    });
  });

  test("a compacted start is a problem, so that an EventSource stops", async () => {
    const harness = createHarness();
    for (let n = 1; n <= 3; n += 1) await harness.put("/v1/kv?key=a", n);
    await harness.post("/v1/compact", { revision: 2 });
    const answer = await harness.get("/v1/watch?key=a&from_revision=1");
    expectProblem(answer, { status: 410, code: "compacted" });
    expect(answer.body.compact_revision).toBe(2);
    expect(harness.backend.connectionsCount).toBe(0);
  });

  test("the stream ends behind the last frame", async () => {
    const harness = createHarness();
    const reader = await open(harness, "/v1/watch?prefix=/k/");
    for (let n = 0; n < 40; n += 1) {
      await harness.post("/v1/txn", { success: Array.from({ length: 50 }, (_, at) => put(`/k/${n}/${at}`)) });
    }
    harness.backend.nowMs += 20_000;
    harness.backend.pump();
    const kinds: string[] = [];
    for (let event = await reader.next(); event !== null; event = await reader.next()) kinds.push(event.data.kind);
    expect(kinds.at(-1)).toBe("slow_consumer");
    await turns();
    expect(harness.backend.connectionsCount).toBe(0);
  });

  test("news of leaders do not pile up in front of a reader that does not read", async () => {
    const harness = createHarness();
    const reader = await open(harness, "/v1/watch?prefix=/k/");
    for (let leader = 1; leader <= 9; leader += 1) harness.backend.changeLeader(leader);
    const data: Body[] = [];
    while (data.at(-1)?.leader !== 9) data.push((await reader.next())?.data);
    expect(data.filter((frame) => frame.kind === "leader_changed").length).toBeLessThanOrEqual(2);
    await reader.cancel();
  });

  test("a comment every 15 s; a reader that takes nothing for 90 s is gone", async () => {
    vi.useFakeTimers();
    const harness = createHarness();
    const reader = await open(harness, "/v1/watch?prefix=/k/");
    await reader.next();
    const silent = await open(harness, "/v1/watch?prefix=/k/");
    for (let n = 1; n <= 8; n += 1) {
      const comment = reader.chunk();
      await vi.advanceTimersByTimeAsync(15_000);
      expect(await comment).toBe(":\n\n");
    }
    expect(harness.backend.connectionsCount).toBe(1);
    await expect(silent.chunk()).rejects.toBeUndefined();
    await reader.cancel();
    await vi.advanceTimersByTimeAsync(0);
    expect(harness.backend.connectionsCount).toBe(0);
    expect(vi.getTimerCount()).toBe(0);
  });
});

function put(key: string) {
  return { type: "put", key, value: "x".repeat(200) };
}

describe("what is no stream", () => {
  test.each<[target: string, headers: Record<string, string>, status: number, code: string, reason?: string]>([
    ["/v1/watch?key=a", { accept: "application/json" }, 400, "invalid_request", "accept"],
    ["/v1/watch?key=a&max_message_bytes=65536", {}, 400, "invalid_request", "unknown_parameter"],
    ["/v1/watch?key=a&cluster_id=c-2", {}, 410, "cluster_changed"],
    ["/v1/watch?key=a&filter=both", {}, 400, "invalid_request", "invalid_filter"],
    [`/v1/watch?key=${"k".repeat(4097)}`, {}, 400, "invalid_kv", "key_too_large"],
    ["/v1/watch?start=b&end=a", {}, 400, "invalid_selector", "range_reversed"],
    ["/v1/session", {}, 426, "invalid_request", "upgrade_required"],
    ["/v1/session", { upgrade: "websocket" }, 426, "invalid_request", "upgrade_unavailable"],
    ["/v1/watch?key=a", { upgrade: "websocket" }, 426, "invalid_request", "upgrade_unavailable"],
    ["/v1/topics/t", { upgrade: "WebSocket" }, 426, "invalid_request", "upgrade_unavailable"],
    ["/v1/topics/", {}, 400, "invalid_request", "topic_size"],
    [`/v1/topics/${"t".repeat(257)}`, {}, 400, "invalid_request", "topic_size"],
    ["/v1/topics/a%00b", {}, 400, "invalid_request", "invalid_topic"],
    ["/v1/watch?key=a&cluster_id=c-1", { "concord-cluster": "c-2" }, 410, "cluster_changed"],
    ["/v1/topics/t?x=1", {}, 400, "invalid_request", "unknown_parameter"],
  ])("GET %s with %j", async (target, headers, status, code, reason) => {
    const harness = createHarness();
    const answer = await harness.get(target, headers);
    expectProblem(answer, { status, code, ...(reason === undefined ? {} : { reason }) });
    expect(harness.backend.connectionsCount).toBe(0);
  });

  test("HEAD opens nothing, other methods are named", async () => {
    const harness = createHarness();
    for (const target of ["/v1/watch?key=a", "/v1/topics/t"]) {
      const answer = await harness.send("HEAD", target);
      expect([answer.status, answer.headers.get("allow")]).toEqual([405, "GET"]);
    }
    expect(harness.backend.connectionsCount).toBe(0);
    const answer = await harness.send("DELETE", "/v1/watch?key=a");
    expect([answer.status, answer.headers.get("allow")]).toEqual([405, "GET, HEAD"]);
  });

  test("a host with sockets is told what to open, for whom", async () => {
    const harness = createHarness();
    const openings: SocketOpening[] = [];
    const open = (opening: SocketOpening) => {
      openings.push(opening);
      return new Response("in place of 101");
    };
    const api = createApi(harness.backend, { sockets: { open } });
    const headers = { upgrade: "websocket", "x-concord-principal": "someone", "sec-websocket-protocol": "x, bearer" };
    const response = await api.request("/v1/watch?key=a&after=3&max_message_bytes=65536", { headers });
    expect(response.headers.get("sec-websocket-protocol")).toBe("bearer");
    await api.request("/v1/session", { headers });
    await api.request("/v1/topics/a/b%20c", { headers });
    const common = { principal: "someone", maxMessageBytes: null };
    expect(openings).toEqual([
      {
        ...common,
        kind: "watch",
        maxMessageBytes: 65_536,
        subscription: {
          watchId: 0,
          selector: { key: "a" },
          includeValues: true,
          prevValues: false,
          filter: null,
          fromRevision: null,
          afterPosition: { revision: 3, opIndex: 99_999 },
        },
      },
      { ...common, kind: "session" },
      { ...common, kind: "topic", topic: "a/b c" },
    ]);
  });
});

describe("topics", () => {
  test("who listens gets the payload as one line of JSON", async () => {
    const harness = createHarness();
    const reader = await open(harness, "/v1/topics/build%2Flog");
    const answer = await harness.send("POST", "/v1/topics/build%2Flog", {
      headers: { "content-type": "application/json" },
      body: '{\n "line": "a\\nb"\n}',
    });
    expect([answer.status, answer.body]).toEqual([202, { topic: "build/log", revision: 0 }]);
    expect(await reader.next()).toEqual({
      id: null,
      data: { topic: "build/log", payload: { line: "a\nb" }, seq: 1, dropped: 0 },
    });
    await harness.post("/v1/topics/other", 1);
    await harness.post("/v1/topics/build/log", 2);
    expect((await reader.next())?.data).toMatchObject({ payload: 2, seq: 2 });
    await reader.cancel();
    await turns();
    expect(harness.backend.connectionsCount).toBe(0);
  });

  test("what a slow reader cannot take is dropped and counted", async () => {
    const harness = createHarness();
    const reader = await open(harness, "/v1/topics/t");
    for (let n = 0; n < 10; n += 1) await harness.post("/v1/topics/t", "x".repeat(60_000));
    for (let seq = 1; seq <= 4; seq += 1) expect((await reader.next())?.data).toMatchObject({ seq, dropped: 0 });
    await turns();
    await harness.post("/v1/topics/t", "small");
    expect((await reader.next())?.data).toMatchObject({ seq: 5, payload: "small", dropped: 6 });
    await reader.cancel();
  });

  test("a payload is JSON of at most 64 KiB", async () => {
    const harness = createHarness();
    const largest = "x".repeat((64 << 10) - 2);
    expect((await harness.post("/v1/topics/t", largest)).status).toBe(202);
    const large = await harness.post("/v1/topics/t", `${largest}x`);
    expectProblem(large, { status: 400, code: "invalid_request", reason: "payload_too_large" });
    const headers = { "content-type": "application/json" };
    const broken = await harness.send("POST", "/v1/topics/t", { headers, body: "{" });
    expectProblem(broken, { status: 400, code: "invalid_request", reason: "malformed_json" });
    expect(harness.backend.published).toHaveLength(1);
  });
});
