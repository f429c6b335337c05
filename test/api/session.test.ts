/** The session without a socket: JSON-RPC as text, over the real state machine. */
import { describe, expect, test, vi } from "vitest";
import { Session } from "../../src/api/session.ts";
import { METHODS } from "../../src/api/session-methods.ts";
import { TopicWindow } from "../../src/api/topic-window.ts";
import { ConcordError } from "../../src/base/errors.ts";
import { type Body, nested } from "./harness.ts";
import { MachineBackend } from "./machine-backend.ts";

class Rig {
  readonly backend = new MachineBackend();
  readonly sent: Body[] = [];
  readonly errors: string[] = [];
  closed: { code: number; reason: string } | null = null;
  readonly session: Session;

  constructor() {
    const holder: { session?: Session } = {};
    const connection = this.backend.connect({
      onFrames: (frames) => holder.session?.onFrames(frames),
      onTopic: (message) => holder.session?.onTopic(message),
    });
    this.session = new Session({
      socket: {
        send: (text) => void this.sent.push(JSON.parse(text)),
        close: (code, reason) => {
          this.closed = { code, reason };
        },
      },
      connection,
      window: new TopicWindow(),
      context: { backend: this.backend, log: (_level, message) => void this.errors.push(message) },
      principal: "root",
    });
    holder.session = this.session;
  }

  /** Sends one message and waits for what it brings about. */
  async say(message: unknown): Promise<Body[]> {
    const before = this.sent.length;
    await this.session.onText(typeof message === "string" ? message : JSON.stringify(message));
    return this.sent.slice(before);
  }

  async call(method: string, params: object = {}, id: number | string = 1): Promise<Body> {
    return (await this.say({ jsonrpc: "2.0", id, method, params })).find((one) => one.id === id);
  }
}

describe("the envelope", () => {
  test.each<[name: string, text: string, code: number, id: unknown, reason: string]>([
    ["no JSON", "{", -32700, null, "malformed_json"],
    ["an empty message", "", -32700, null, "malformed_json"],
    ["a batch", '[{"jsonrpc":"2.0","id":1,"method":"revision"}]', -32600, null, "invalid_rpc"],
    ["a string", '"revision"', -32600, null, "invalid_rpc"],
    ["no version", '{"id":1,"method":"revision"}', -32600, 1, "invalid_rpc"],
    ["another version", '{"jsonrpc":"1.0","id":1,"method":"revision"}', -32600, 1, "invalid_rpc"],
    ["no method", '{"jsonrpc":"2.0","id":1}', -32600, 1, "invalid_rpc"],
    ["an id of null", '{"jsonrpc":"2.0","id":null,"method":"revision"}', -32600, null, "invalid_rpc"],
    ["an id that is an object", '{"jsonrpc":"2.0","id":{},"method":"revision"}', -32600, null, "invalid_rpc"],
    ["params by position", '{"jsonrpc":"2.0","id":"a","method":"revision","params":[]}', -32600, "a", "invalid_rpc"],
    ["a member too many", '{"jsonrpc":"2.0","id":"a","method":"revision","x":1}', -32600, "a", "invalid_rpc"],
    ["an unknown method", '{"jsonrpc":"2.0","id":2,"method":"kv.steal"}', -32601, 2, "method"],
    ["a request without an id", '{"jsonrpc":"2.0","method":"revision"}', -32600, null, "missing_id"],
    [
      "too deep a value",
      `{"jsonrpc":"2.0","id":3,"method":"kv.put","params":{"key":"a","value":${nested(106)}}}`,
      -32602,
      3,
      "depth_exceeded",
    ],
    [
      "a number out of range",
      '{"jsonrpc":"2.0","id":4,"method":"kv.put","params":{"value":1e999}}',
      -32602,
      4,
      "number_out_of_range",
    ],
  ])("%s is refused and the session goes on", async (_name, text, code, id, reason) => {
    const rig = new Rig();
    const [answer, ...others] = await rig.say(text);
    expect(others).toEqual([]);
    expect(answer).toMatchObject({ jsonrpc: "2.0", id, error: { code, data: { reason, retry: "no" } } });
    expect(answer.error.message).toMatch(/^[A-Z]/);
    expect((await rig.call("revision")).result).toEqual({ revision: 0 });
    expect(rig.backend.logged).toEqual([]);
  });

  test("a message nested a million deep is refused at once, under its id, whole or cut off", async () => {
    const rig = new Rig();
    const message = (value: string) =>
      `{"params":{"id":9,"value":${value}},"jsonrpc":"2.0","method":"x\\"{","id":"a\\"]"}`;
    const parse = vi.spyOn(JSON, "parse");
    for (const [value, id] of [
      [nested(1_000_000), 'a"]'],
      ["[".repeat(2_000_000), null],
    ] as const) {
      const [answer] = await rig.say(message(value));
      expect(answer).toMatchObject({ id, error: { code: -32602, data: { reason: "depth_exceeded" } } });
    }
    // Parsing one of them would take a second.
    expect(Math.max(...parse.mock.calls.map(([text]) => text.length))).toBeLessThan(1000);
    parse.mockRestore();
  });

  test("ids come back as they were, strings and numbers", async () => {
    const rig = new Rig();
    rig.session.greet();
    for (const id of [0, -1, 1.5, "", 'a"b', "1"]) {
      expect(await rig.say({ jsonrpc: "2.0", id, method: "revision" })).toEqual([
        { jsonrpc: "2.0", id, result: { revision: 0 } },
      ]);
    }
  });
});

describe("params", () => {
  test("an unknown field is an error of every method, and `__proto__` is one", async () => {
    const rig = new Rig();
    for (const method of METHODS.keys()) {
      for (const field of ["unheard_of", "__proto__"]) {
        const text = `{"jsonrpc":"2.0","id":1,"method":"${method}","params":{"${field}":1}}`;
        const [answer] = await rig.say(text);
        expect(answer.error?.code, `${method} ${field}`).toBe(-32602);
      }
    }
    expect(rig.backend.logged).toEqual([]);
  });

  test("errors carry the code by the status and the whole problem", async () => {
    const rig = new Rig();
    expect((await rig.call("kv.put", { key: "" })).error).toMatchObject({
      code: -32602,
      data: { code: "invalid_kv", status: 400 },
    });
    expect((await rig.call("lease.info", { id: 5 })).error).toMatchObject({
      code: -32000,
      message: "No such lease",
      data: { code: "unknown_lease", status: 404, retry: "no" },
    });
    expect((await rig.call("kv.get", { key: "a", timeout_ms: 0 })).error.data).toMatchObject({
      reason: "invalid_timeout_ms",
    });
    expect((await rig.call("kv.get", { key: "a", min_revision: 0, cluster_id: "other" })).error.data).toMatchObject({
      code: "cluster_changed",
    });
    for (const since of [-1, 0]) {
      expect((await rig.call("kv.put", { key: "a", value: 1, idempotency_since: since })).error.data).toMatchObject({
        reason: "idempotency_since",
      });
    }
    rig.backend.failure = new ConcordError({ code: "no_leader", detail: "None." });
    expect((await rig.call("kv.put", { key: "a", value: 1 })).error).toMatchObject({
      code: -32000,
      data: { code: "no_leader", retry: "yes" },
    });
  });

  test("every method obeys the cluster that the request names", async () => {
    const rig = new Rig();
    for (const method of METHODS.keys()) {
      const answer = await rig.call(method, { cluster_id: "other" });
      expect(answer.error.data.code, method).toBe("cluster_changed");
    }
    expect((await rig.call("kv.put", { key: "a", value: 1, cluster_id: "c-1" })).result).toEqual({ revision: 1 });
  });

  test("what is no ConcordError is logged and told as internal", async () => {
    const rig = new Rig();
    rig.backend.failure = new TypeError("secret");
    const { error } = await rig.call("kv.put", { key: "a", value: 1 });
    expect(error).toMatchObject({ code: -32000, data: { code: "internal" } });
    expect(JSON.stringify(error)).not.toContain("secret");
    expect(rig.errors).toHaveLength(1);
  });

  test("keys and consistency travel with the request", async () => {
    const rig = new Rig();
    await rig.call("kv.put", { key: "a", value: 1, idempotency_key: "K", idempotency_since: 0, timeout_ms: 77 });
    expect(rig.backend.commands.at(-1)?.options).toEqual({ timeoutMs: 77 });
    expect(rig.backend.logged.at(-1)).toContain('"key":"K"');
    await rig.call("kv.get", { key: "a", consistency: "serializable", min_revision: 1 });
    expect(rig.backend.queries.at(-1)?.options).toMatchObject({ consistency: "serializable", minRevision: 1 });
  });
});

describe("order", () => {
  test("greets first, and says who leads when that changes", async () => {
    const rig = new Rig();
    rig.backend.leader = null;
    rig.session.greet();
    expect(rig.sent).toEqual([
      {
        jsonrpc: "2.0",
        method: "session",
        params: { cluster_id: "c-1", node: 1, leader: null, revision: 0, ready: true },
      },
    ]);
    rig.backend.leader = 3;
    const [news, answer] = await rig.say({ jsonrpc: "2.0", id: 1, method: "revision" });
    expect(news).toEqual({ jsonrpc: "2.0", method: "leader_changed", params: { leader: 3 } });
    expect(answer.result).toEqual({ revision: 0 });
    rig.backend.changeLeader(3);
    rig.backend.changeLeader(4);
    expect(rig.sent.slice(3)).toEqual([{ jsonrpc: "2.0", method: "leader_changed", params: { leader: 4 } }]);
  });

  test("what a request brings about within its call stands behind its answer", async () => {
    const rig = new Rig();
    await rig.call("topic.subscribe", { topic: "t" });
    const [answer, message] = await rig.say({
      jsonrpc: "2.0",
      id: 7,
      method: "topic.publish",
      params: { topic: "t", payload: null },
    });
    expect(answer).toMatchObject({ id: 7, result: { revision: 0 } });
    expect(message.params).toEqual({ topic: "t", payload: null, seq: 1, dropped: 0 });
  });

  test("no frame of a watch follows the answer to its cancel", async () => {
    const rig = new Rig();
    await rig.call("watch.create", { watch_id: 0, prefix: "a" });
    await rig.call("kv.put", { key: "a", value: 1 });
    expect((await rig.call("watch.cancel", { watch_id: 0 })).result).toEqual({ cancelled: true, revision: 1 });
    const after = rig.sent.length;
    await rig.call("kv.put", { key: "a", value: 2 });
    expect(rig.sent.slice(after).map((one) => one.method)).toEqual([undefined]);
    expect((await rig.call("watch.cancel", { watch_id: 0 })).result).toEqual({ cancelled: false, revision: 2 });
  });

  test("progress of a watch that is not there is refused: nothing would follow", async () => {
    const rig = new Rig();
    const refused = { code: -32000, data: { code: "not_found", reason: "watch" } };
    expect((await rig.call("watch.progress", { watch_id: 3 })).error).toMatchObject(refused);
    await rig.call("watch.create", { watch_id: 3, prefix: "a" });
    expect((await rig.call("watch.progress", { watch_id: 3 })).result).toEqual({ revision: 0 });
    await rig.call("watch.cancel", { watch_id: 3 });
    expect((await rig.call("watch.progress", { watch_id: 3 })).error).toMatchObject(refused);
  });

  test("a topic's payload is nested as deep as a value may be", async () => {
    const rig = new Rig();
    const publish = (levels: number) =>
      rig.say(`{"jsonrpc":"2.0","id":1,"method":"topic.publish","params":{"topic":"t","payload":${nested(levels)}}}`);
    expect((await publish(101))[0]).toMatchObject({ error: { code: -32602, data: { reason: "depth_exceeded" } } });
    expect(rig.backend.published).toEqual([]);
    expect((await publish(100))[0]).toMatchObject({ result: { revision: 0 } });
    expect(rig.backend.published).toEqual([{ topic: "t", payload: nested(100) }]);
  });

  test("acknowledging by notification is answered by nothing, and frees credit", async () => {
    const rig = new Rig();
    await rig.call("watch.create", { watch_id: 0, prefix: "a" });
    await rig.call("kv.put", { key: "a", value: "x".repeat(1000) });
    expect(rig.backend.hub.unacknowledged).toBeGreaterThan(1000);
    expect(await rig.say({ jsonrpc: "2.0", method: "watch.ack", params: { watch_id: 0, position: "1" } })).toEqual([]);
    expect(rig.backend.hub.unacknowledged).toBe(0);
    const [refused] = await rig.say({ jsonrpc: "2.0", method: "watch.ack", params: { watch_id: 0, position: "x" } });
    expect(refused).toMatchObject({ id: null, error: { code: -32602, data: { reason: "invalid_position" } } });
  });
});

describe("bounds", () => {
  test("256 requests are in flight at most; each that ends makes room", async () => {
    const rig = new Rig();
    const releases: (() => void)[] = [];
    rig.backend.query = async () => {
      const { promise, resolve } = Promise.withResolvers<void>();
      releases.push(resolve);
      await promise;
      return { ok: true, revision: 0, result: { kind: "revision", revision: 0 } } as never;
    };
    const ask = (id: number) => rig.session.onText(JSON.stringify({ jsonrpc: "2.0", id, method: "revision" }));
    const pending = Array.from({ length: 256 }, (_, id) => ask(id));
    await ask(256);
    expect(rig.sent.at(-1)).toMatchObject({ id: 256, error: { code: -32000, data: { reason: "too_many_requests" } } });
    // What is done at once takes no place, or acknowledgements would be lost behind a client's own requests.
    await rig.session.onText(
      JSON.stringify({ jsonrpc: "2.0", id: "c", method: "watch.cancel", params: { watch_id: 1 } }),
    );
    expect(rig.sent).toContainEqual(expect.objectContaining({ id: "c", result: { cancelled: false, revision: 0 } }));
    const before = rig.sent.length;
    const ack = { jsonrpc: "2.0", method: "watch.ack", params: { watch_id: 1, position: "1" } };
    await rig.session.onText(JSON.stringify(ack));
    expect(rig.sent.length).toBe(before);
    releases[0]?.();
    await pending[0];
    const more = ask(257);
    for (const release of releases) release();
    await Promise.all([...pending, more]);
    expect(rig.sent.filter((one) => one.result !== undefined)).toHaveLength(258);
  });
});
