/** The session over a real WebSocket of a real node: every method, watches side by side, limits of messages. */
import { reset } from "cloudflare:test";
import { afterEach, describe, expect, test } from "vitest";
import { TestCluster } from "./cluster-harness.ts";
import { eventually } from "./eventually.ts";
import { quietConsole } from "./quiet-console.ts";
import { clientRows, type Message, story, TestSocket } from "./socket-client.ts";

quietConsole();
afterEach(async () => await reset());

async function opened(query = ""): Promise<{ readonly cluster: TestCluster; readonly session: TestSocket }> {
  const cluster = new TestCluster();
  await cluster.leader();
  return { cluster, session: await TestSocket.open(cluster, 1, `/v1/session${query}`) };
}

/** Acknowledges every frame of every watch. */
function acknowledging(session: TestSocket): TestSocket {
  session.onMessage = ({ method, params }) => {
    if (method !== "watch" || params.position === undefined) return;
    session.send({
      jsonrpc: "2.0",
      method: "watch.ack",
      params: { watch_id: params.watch_id, position: params.position },
    });
  };
  return session;
}

function statuses(frames: readonly Message[]): string[] {
  return frames.flatMap(({ kind }) => (kind === "events" ? [] : [kind]));
}

describe("GET /v1/session", () => {
  test("greets with the cluster, the node and its leader", async () => {
    const { cluster, session } = await opened();
    const { params } = await session.find((one) => one.method === "session");
    const { cluster_id } = await cluster.cluster(1);
    expect(params).toEqual({ cluster_id, node: 1, leader: await cluster.leader(), revision: 0, ready: true });
  });

  test("serves every method, each with a revision", async () => {
    const { session } = await opened();
    const calls: [method: string, params: object, result: object][] = [
      ["kv.put", { key: "/a", value: { n: 1 }, metadata: { m: 1 } }, { revision: 1 }],
      [
        "kv.put",
        { key: "/a", value: 2, prev_kv: true, idempotency_key: "one" },
        { revision: 2, prev_kv: { value: { n: 1 } } },
      ],
      [
        "kv.put",
        { key: "/a", value: 2, prev_kv: true, idempotency_key: "one" },
        { revision: 2, prev_kv: { value: { n: 1 } } },
      ],
      ["kv.get", { key: "/a" }, { record: { value: 2, version: 2 }, revision: 2 }],
      ["kv.get", { key: "/none", consistency: "serializable", min_revision: 2 }, { record: null }],
      ["kv.list", { prefix: "/", limit: 10 }, { count: 1, records: [{ key: "/a" }], cursor: null }],
      [
        "kv.batch",
        {
          op: "put_many",
          items: [
            { key: "/b", value: 1 },
            { key: "/c", value: 1 },
          ],
        },
        { revision: 3 },
      ],
      ["kv.batch", { op: "get_many", keys: ["/b", "/none"] }, { records: [{ value: 1 }, null] }],
      ["kv.delete", { key: "/b", prev_kv: true }, { deleted: 1, prev_kv: { value: 1 }, revision: 4 }],
      ["kv.history", { key: "/a" }, { events: [{ revision: 1 }, { revision: 2 }] }],
      ["txn", { success: [{ type: "put", key: "/t", value: 1 }] }, { succeeded: true, revision: 5 }],
      ["txn.result", { key: "one" }, { status: "known", outcome: { ok: true, revision: 2 } }],
      ["changes", { prefix: "/", after: "4" }, { events: [{ key: "/t" }], next: "5", whole: true, has_more: false }],
      ["revision", {}, { revision: 5 }],
      ["cluster", {}, { revision: expect.any(Number), nodes: expect.any(Array) }],
      ["lease.grant", { ttl_s: 60, id: 77 }, { id: 77, ttl_s: 60 }],
      ["lease.keepalive", { id: 77, ttl_s: 30 }, { id: 77, ttl_s: 30 }],
      ["lease.info", { id: 77 }, { id: 77, ttl_s: 30, keys: [] }],
      ["lease.list", {}, { leases: [{ id: 77 }], next: null }],
      ["lease.revoke", { id: 77 }, { deleted: 0 }],
      ["watch.create", { watch_id: 0, prefix: "/w/" }, { watch_id: 0, position: "5", cluster_id: expect.any(String) }],
      ["watch.progress", { watch_id: 0 }, {}],
      ["watch.ack", { watch_id: 0, position: "5" }, {}],
      ["watch.cancel", { watch_id: 0 }, { cancelled: true }],
      ["topic.subscribe", { topic: "t" }, {}],
      ["topic.publish", { topic: "t", payload: [1] }, {}],
      ["topic.ack", { seq: 1 }, {}],
      ["topic.unsubscribe", { topic: "t" }, {}],
      ["compact", { revision: 3 }, { compact_revision: 3 }],
    ];
    for (const [method, params, expected] of calls) {
      const result = await session.call(method, params);
      expect(result, method).toMatchObject(expected);
      expect(result.revision, method).toEqual(expect.any(Number));
    }
  });

  test("answers side by side: a read that waits holds up nothing", async () => {
    const { session } = await opened();
    const waiting = session.request("kv.get", {
      key: "/a",
      consistency: "serializable",
      min_revision: 2,
      timeout_ms: 4000,
    });
    await session.call("kv.put", { key: "/a", value: 1 });
    await session.call("kv.put", { key: "/a", value: 2 });
    expect((await waiting).result).toMatchObject({ record: { value: 2 } });
  });

  test("pipelined writes of one client share commits, and their order is that of the messages", async () => {
    const cluster = new TestCluster();
    const leader = await cluster.leader();
    const session = await TestSocket.open(cluster, leader, "/v1/session");
    const logRows = () =>
      cluster.inside(leader, (state) => Number(state.storage.sql.exec("SELECT count(*) AS n FROM log").one().n));
    const before = await logRows();
    const puts = Array.from({ length: 200 }, (_, n) => session.request("kv.put", { key: `/p/${n}`, value: n }, 10_000));
    const revisions = (await Promise.all(puts)).map(({ result }) => result.revision);
    expect(revisions).toEqual(Array.from({ length: 200 }, (_, n) => n + 1));
    // One row of the log is one commit. A commit for each message would be 200.
    expect((await logRows()) - before).toBeLessThan(50);
  });

  test("a write ends by its timeout when there is no majority", async () => {
    const { cluster, session } = await opened();
    for (const id of [2, 3, 4]) await cluster.pause(id);
    const { error } = await session.request("kv.put", { key: "/a", value: 1, timeout_ms: 500 });
    expect(error.code).toBe(-32000);
    expect(["timeout", "no_leader"]).toContain(error.data.code);
  });

  test("takes 256 requests at a time and refuses the next", async () => {
    const { session } = await opened();
    const params = { key: "/a", consistency: "serializable", min_revision: 9, timeout_ms: 60_000 };
    for (let n = 0; n < 256; n += 1) session.send({ jsonrpc: "2.0", id: `w${n}`, method: "kv.get", params });
    const refused = await session.request("kv.get", params);
    expect(refused.error).toMatchObject({
      code: -32000,
      data: { code: "overloaded", reason: "too_many_requests", retry: "yes" },
    });
    session.socket.close(1000);
  });

  test("progress of a watch that is not there is refused", async () => {
    const { session } = await opened();
    const { error } = await session.request("watch.progress", { watch_id: 9 });
    expect(error).toMatchObject({ code: -32000, data: { code: "not_found", reason: "watch" } });
    session.socket.close(1000);
  });

  test("closes on a message over 2 MiB, and on bytes", async () => {
    const { cluster, session } = await opened();
    session.send("é".repeat(1_100_000));
    expect((await session.closing()).code).toBe(1009);
    const second = await TestSocket.open(cluster, 1, "/v1/session");
    second.socket.send(new Uint8Array(3));
    expect((await second.closing()).code).toBe(1003);
    await eventually(() => clientRows(cluster, 1), 0);
  });
});

describe("watches on one session", () => {
  test("one is refused, one is cancelled, the others go on; id 0 is an id like any other (S48)", async () => {
    const { session } = await opened();
    const [created, refused, third, twice] = await Promise.all([
      session.request("watch.create", { watch_id: 0, prefix: "/a/" }),
      session.request("watch.create", { watch_id: 1, key: "\0system" }),
      session.request("watch.create", { watch_id: 2, prefix: "/c/" }),
      session.request("watch.create", { watch_id: 0, prefix: "/b/" }),
      // Before the answer to its creation has come.
      session.request("watch.cancel", { watch_id: 0 }),
    ]);
    expect(created.result).toMatchObject({ watch_id: 0 });
    expect(refused.error).toMatchObject({ code: -32000, data: { code: "forbidden", reason: "system_prefix" } });
    expect(third.result).toMatchObject({ watch_id: 2 });
    expect(twice.error).toMatchObject({ code: -32602, data: { reason: "watch_id_in_use" } });
    const before = session.framesOf(0).length;
    for (const key of ["/a/1", "/b/1", "/c/1"]) await session.call("kv.put", { key, value: 1 });
    await session.until(() => story(session.framesOf(2)).length === 1);
    expect(session.framesOf(0)).toHaveLength(before);
    expect(story(session.framesOf(0))).toEqual([]);
    // Forgotten at once: the id is free.
    expect(await session.call("watch.create", { watch_id: 0, key: "/a/1", from_revision: 1 })).toMatchObject({
      position: "0",
    });
    await session.until(() => story(session.framesOf(0)).length === 1);
  });

  test("the answer to watch.create stands in front of its frames", async () => {
    const { cluster, session } = await opened();
    for (let n = 0; n < 3; n += 1) await session.call("kv.put", { key: "/a", value: n });
    await cluster.converged();
    await session.call("watch.create", { watch_id: 5, key: "/a", from_revision: 1 });
    await session.until(() => statuses(session.framesOf(5)).includes("ready"));
    const answer = session.messages.findIndex((one) => one.result?.watch_id === 5);
    const first = session.messages.findIndex((one) => one.params?.watch_id === 5);
    expect(answer).toBeLessThan(first);
  });

  test("a watch that ends with its last frame leaves the session and its rows in order", async () => {
    const { cluster, session } = await opened();
    for (let n = 0; n < 3; n += 1) await session.call("kv.put", { key: "/a", value: n });
    await session.call("compact", { revision: 2 });
    await cluster.converged();
    await session.call("watch.create", { watch_id: 0, key: "/a", from_revision: 1 });
    await session.until(() => statuses(session.framesOf(0)).includes("compacted"));
    expect(session.framesOf(0)).toEqual([{ watch_id: 0, kind: "compacted", compact_revision: 2 }]);
    expect(await clientRows(cluster, 1)).toBe(1);
    await session.call("watch.create", { watch_id: 0, key: "/a", from_revision: 3 });
    await session.until(() => statuses(session.framesOf(0)).includes("ready"));
    expect(await clientRows(cluster, 1)).toBe(2);
  });

  test("a change of leader is told once per session", async () => {
    const { cluster } = await opened();
    const leader = await cluster.leader();
    const session = await TestSocket.open(cluster, 1 + (leader % 5), "/v1/session");
    for (const watch_id of [0, 1]) await session.call("watch.create", { watch_id, prefix: "/" });
    await cluster.pause(leader);
    const isNews = (one: Message) => one.method === "leader_changed" && one.params.leader !== null;
    const { params } = await session.find(isNews, 10_000);
    expect(params.leader).not.toBe(leader);
    await session.call("kv.put", { key: "/a", value: 1 });
    expect(session.messages.filter(isNews)).toHaveLength(1);
    await cluster.abort(leader);
  });
});

describe("large revisions", () => {
  test("a delete of 10 000 keys comes in parts with one end mark", async () => {
    const { cluster, session } = await opened();
    const keys = Array.from({ length: 10_000 }, (_, n) => `/many/${String(n).padStart(5, "0")}`);
    for (let from = 0; from < keys.length; from += 500) {
      const items = keys.slice(from, from + 500).map((key) => ({ key, value: 0 }));
      await session.call("kv.batch", { op: "put_many", items });
    }
    await cluster.converged();
    acknowledging(session);
    await session.call("watch.create", { watch_id: 0, prefix: "/many/", filter: "deletes" });
    await session.until(() => statuses(session.framesOf(0)).includes("ready"));
    const { revision, responses } = await session.call("txn", { success: [{ type: "delete", prefix: "/many/" }] });
    expect(responses).toEqual([{ type: "delete", deleted: 10_000 }]);
    await session.until(() => story(session.framesOf(0)).length === keys.length, 15_000);
    const frames = session.framesOf(0).filter(({ kind }) => kind === "events");
    expect(story(frames)).toEqual(keys.map((key) => `delete ${key}@${revision}`));
    await session.until(() => session.framesOf(0).at(-1).complete === true);
    const parts = session.framesOf(0).filter(({ kind }) => kind === "events");
    expect(parts.length).toBeGreaterThan(4);
    expect(parts.map(({ complete }) => complete)).toEqual([...parts.slice(1).map(() => false), true]);
    expect(parts.at(-1).position).toBe(String(revision));
    expect(parts.at(-2).position).toMatch(new RegExp(`^${revision}\\.\\d+$`));
    expect(Math.max(...parts.map((part) => JSON.stringify(part).length))).toBeLessThan(300_000);
  });

  test("a value of 1 MiB with the one before it passes a client that takes 1 MiB, ten times over (S43)", async () => {
    const { cluster, session } = await opened("?max_message_bytes=1048576");
    const large = (letter: string) => `"\\é${letter}`.repeat(150_000).slice(0, 599_000);
    await session.call("kv.put", { key: "/big", value: large("a") });
    await session.call("kv.put", { key: "/big", value: large("b") });
    await cluster.converged();
    for (let round = 0; round < 10; round += 1) {
      const reader = await TestSocket.open(cluster, 1, "/v1/session?max_message_bytes=1048576");
      await reader.call("watch.create", { watch_id: 0, key: "/big", after: "1", prev_values: true });
      await reader.until(() => story(reader.framesOf(0)).length === 1);
      const [{ events }] = reader.framesOf(0);
      expect(events[0].value === large("b") && events[0].prev_value === large("a")).toBe(true);
      expect(reader.chunks).toBeGreaterThan(1);
      expect(reader.longestBytes).toBeLessThanOrEqual(1 << 20);
      reader.socket.close(1000);
    }
    expect((await session.call("kv.get", { key: "/big" })).record.value === large("b")).toBe(true);
    expect(session.longestBytes).toBeLessThanOrEqual(1 << 20);
    const watch = await TestSocket.open(cluster, 2, "/v1/watch?key=/big&after=1&max_message_bytes=65536");
    await watch.until(() => story(watch.messages).length === 1);
    expect(watch.longestBytes).toBeLessThanOrEqual(65_536);
  });
});

describe("topics", () => {
  test("a message reaches subscribers on every node, and none that has left", async () => {
    const { cluster, session } = await opened();
    const sockets = await Promise.all([2, 3].map((id) => TestSocket.open(cluster, id, "/v1/topics/build%2Flog")));
    await session.call("topic.subscribe", { topic: "build/log" });
    const published = await cluster.call(4, "/v1/topics/build%2Flog", { body: { line: 1 } });
    expect(published).toMatchObject({ status: 202, body: { topic: "build/log", revision: 0 } });
    const message = { topic: "build/log", payload: { line: 1 }, seq: 1, dropped: 0 };
    for (const socket of sockets) {
      await socket.until(() => socket.messages.length > 0);
      expect(socket.messages).toEqual([message]);
    }
    await session.find((one) => one.method === "topic");
    await session.call("topic.unsubscribe", { topic: "build/log" });
    await session.call("topic.publish", { topic: "build/log", payload: 2 });
    for (const socket of sockets) await socket.until(() => socket.messages.length === 2);
    expect(session.messages.filter((one) => one.method === "topic").map((one) => one.params)).toEqual([message]);
    sockets[0]!.send({ ack: "1" });
    expect((await sockets[0]!.closing()).code).toBe(1008);
  });
});
