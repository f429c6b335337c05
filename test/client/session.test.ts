/**
 * Goal: calls over a session end as calls over HTTP do, whatever becomes of the socket; and the socket is kept, tested and
 * left by rules. Method: the model's sockets, with answers by hand, and a clock that moves by hand.
 */
import { describe, expect, test } from "vitest";
import { Concord, ConcordError } from "../../src/client/index.ts";
import type { Answer, Asked } from "./model-cluster.ts";
import { collect, createSetting, settle } from "./streaming.ts";

const ALL = { prefix: "" };
const REVISION = { result: { revision: 7 } };

async function errorOf(promise: Promise<unknown>): Promise<ConcordError> {
  const error = await promise.then(
    (value) => new Error(`answered ${JSON.stringify(value)}`),
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(ConcordError);
  return error as ConcordError;
}

/** Awaits what needs the clock to move. */
async function within<T>(clock: { advance(ms: number): Promise<void> }, ms: number, promise: Promise<T>): Promise<T> {
  promise.catch(() => {}); // Awaited below.
  await clock.advance(ms);
  return await promise;
}

function sentOf(socket: { readonly sent: readonly string[] } | undefined): Asked[] {
  return (socket?.sent ?? []).filter((text) => text !== "ping").map((text) => JSON.parse(text) as Asked);
}

/** Answers one after the other, then as a node would. */
function script(...answers: readonly Answer[]): (asked: Asked) => Answer | undefined {
  const left = [...answers];
  return () => left.shift();
}

describe("the socket", () => {
  test("is opened by the first call, with the token as a subprotocol, and shared", async () => {
    const { cluster, concord } = createSetting("session", { token: "t0", cluster: "team-a" });
    expect(cluster.socketsOpened).toEqual([]);
    await Promise.all([concord.currentRevision(), concord.currentRevision(), concord.kv.put("a", 1)]);
    const taken = collect(concord.sync.watch(ALL));
    await settle();
    expect(cluster.socketsOpened.map(({ url, protocols }) => [url.split("?")[0], protocols])).toEqual([
      ["ws://model.example/c/team-a/v1/session", ["bearer", "t0"]],
    ]);
    expect(cluster.requests).toEqual([]);
    expect(taken.outcome).toBe("open");
    expect(concord.clusterId).toBe("c-1");
  });

  test("needs no token", async () => {
    const { cluster, concord } = createSetting("session");
    await concord.currentRevision();
    expect(cluster.socketsOpened[0]?.protocols).toEqual([]);
  });

  test("is the global one where no fetch is given, and HTTP can be forced", () => {
    expect(() => Concord.connect({ url: "http://x.example", fetch: fetchNothing, transport: "session" })).not.toThrow();
    expect(() => Concord.connect({ url: "http://x.example", transport: "http" })).not.toThrow();
    const { WebSocket } = globalThis;
    Reflect.deleteProperty(globalThis, "WebSocket");
    try {
      expect(() => Concord.connect({ url: "http://x.example", transport: "session" })).toThrow(TypeError);
      expect(() => Concord.connect({ url: "http://x.example" })).not.toThrow();
    } finally {
      globalThis.WebSocket = WebSocket;
    }
  });

  test("is closed when nothing has used it for a minute; nothing is sent until then", async () => {
    const { cluster, clock, concord } = createSetting("session");
    await concord.currentRevision();
    await clock.advance(59_000);
    const [socket] = cluster.socketsOpened;
    expect([socket?.isClosed, socket?.sent.length]).toEqual([false, 1]);
    await clock.advance(2_000);
    expect(socket?.isClosed).toBe(true);
    expect(clock.timersCount).toBe(0);
    await clock.advance(1_000);
    await concord.currentRevision();
    expect(cluster.socketsOpened.length).toBe(2);
  });

  test("is pinged every 20 s of silence while a watch is open, and kept by any sign of life", async () => {
    const { cluster, clock, concord } = createSetting("session");
    const taken = collect(concord.sync.watch(ALL, { from_revision: 1 }));
    await clock.advance(65_000);
    const [socket] = cluster.socketsOpened;
    expect(socket?.sent.filter((text) => text === "ping").length).toBe(3);
    for (let count = 0; count < 20; count += 1) {
      cluster.commit(["k", count]);
      await clock.advance(10_000);
    }
    expect(socket?.sent.filter((text) => text === "ping").length).toBe(3);
    expect([cluster.socketsOpened.length, taken.items.length]).toEqual([1, 20]);
  });

  test("is pinged once a minute by a client that only listens, for a node forgets those who say nothing", async () => {
    const { cluster, clock, concord } = createSetting("session");
    collect(concord.sync.watch({ prefix: "quiet" }, { from_revision: 1 }));
    for (let count = 0; count < 30; count += 1) {
      cluster.tellProgress();
      await clock.advance(10_000);
    }
    expect(cluster.socketsOpened.length).toBe(1);
    expect(cluster.socketsOpened[0]?.sent.filter((text) => text === "ping").length).toBe(5);
  });

  test("whose node answers pings and no calls is left (S84)", async () => {
    const { cluster, clock, concord } = createSetting("session", { timeoutMs: 8_000 });
    await concord.currentRevision();
    cluster.answer = ({ method }) => (method === "revision" ? "silence" : undefined);
    const call = concord.currentRevision();
    await clock.advance(6_900);
    expect(cluster.socketsOpened[0]?.isClosed).toBe(false);
    expect(await within(clock, 600, call)).toBe(0);
    expect(cluster.socketsOpened[0]?.isClosed).toBe(true);
  });

  test("that is slow with one call and quick with others is kept", async () => {
    const { cluster, clock, concord } = createSetting("session", { attemptTimeoutMs: 1_000, timeoutMs: 1_000 });
    await concord.currentRevision();
    let isFirst = true;
    cluster.answer = () => {
      if (!isFirst) return undefined;
      isFirst = false;
      return "silence";
    };
    const slow = errorOf(concord.currentRevision());
    await clock.advance(500);
    await concord.currentRevision();
    await clock.advance(10_000);
    expect((await slow).body.reason).toBe("late");
    expect(cluster.socketsOpened.length).toBe(1);
    expect(cluster.socketsOpened[0]?.isClosed).toBe(false);
  });

  test("whose node has halted is left for another", async () => {
    const { cluster, clock, concord } = createSetting("session");
    await concord.currentRevision();
    cluster.answer = script({ problem: { code: "node_halted", retry: "yes" } });
    cluster.nextNode = 2;
    expect(await within(clock, 1_000, concord.currentRevision())).toBe(0);
    expect(cluster.socketsOpened[0]?.isClosed).toBe(true);
  });

  test("whose node has no leader is left, when its calls under way have ended", async () => {
    const { cluster, clock, concord } = createSetting("session");
    await concord.currentRevision();
    let answer: (answer: Answer) => void = () => {};
    cluster.answer = () => new Promise((resolve) => (answer = resolve));
    const pending = concord.currentRevision({ timeoutMs: 20_000 });
    await settle();
    cluster.changeLeader(null);
    cluster.leader = 1;
    await clock.advance(4_900);
    cluster.answer = () => undefined;
    await clock.advance(0);
    expect(await concord.currentRevision()).toBe(0);
    await clock.advance(90);
    expect(cluster.socketsOpened.length).toBe(1);
    expect(cluster.socketsOpened[0]?.isClosed).toBe(false);
    answer(REVISION);
    expect(await pending).toBe(7);
    await clock.advance(1_000);
    expect(cluster.socketsOpened[0]?.isClosed).toBe(true);
  });
});

function fetchNothing(): Promise<Response> {
  return new Promise(() => {});
}

describe("calls", () => {
  test("travel with what they need: key, revision known before, time left", async () => {
    const { cluster, concord } = createSetting("session");
    await concord.kv.put("a", 1);
    await concord.kv.put("a", 2);
    await concord.currentRevision({ consistency: "serializable" });
    const [lookup, first, second, read] = sentOf(cluster.socketsOpened[0]);
    expect(lookup).toMatchObject({ method: "revision", params: { consistency: "serializable" } });
    expect(first?.params).toMatchObject({
      idempotency_since: 0,
      timeout_ms: 5_000,
      success: [{ type: "put", key: "a" }],
    });
    expect(first?.params.idempotency_key).toMatch(/^[0-9a-f]{32}$/);
    expect(second?.params.idempotency_since).toBe(1);
    expect(second?.params.idempotency_key).not.toBe(first?.params.idempotency_key);
    expect(read?.params).toMatchObject({ consistency: "serializable", min_revision: 2, cluster_id: "c-1" });
    expect(concord.revision).toBe(2);
  });

  test("run side by side, and end in whatever order", async () => {
    const { cluster, concord } = createSetting("session");
    await concord.currentRevision();
    const answers: ((answer: Answer) => void)[] = [];
    cluster.answer = () => new Promise((resolve) => answers.push(resolve));
    const calls = [concord.currentRevision(), concord.currentRevision(), concord.currentRevision()];
    await settle();
    expect(answers.length).toBe(3);
    for (const [index, answer] of [...answers.entries()].reverse()) answer({ result: { revision: index } });
    expect(await Promise.all(calls)).toEqual([0, 1, 2]);
  });

  test("are at most 256 at a time; the others wait for their turn and all are answered", async () => {
    const { cluster, concord } = createSetting("session");
    const calls = Array.from({ length: 1_000 }, () => concord.currentRevision());
    expect((await Promise.all(calls)).length).toBe(1_000);
    expect(cluster.socketsOpened[0]?.unansweredMax).toBe(256);
    expect(cluster.requests).toEqual([]);
  });

  test("beyond what may wait are refused and tried again later", async () => {
    const { cluster, clock, concord } = createSetting("session");
    await concord.currentRevision();
    const answers: ((answer: Answer) => void)[] = [];
    cluster.answer = () => new Promise((resolve) => answers.push(resolve));
    const calls = Array.from({ length: 256 + 4_096 + 10 }, () => concord.currentRevision());
    await settle();
    cluster.answer = () => undefined;
    for (const answer of answers) answer(REVISION);
    const answered = await within(clock, 1_000, Promise.all(calls));
    expect(answered.length).toBe(256 + 4_096 + 10);
  });

  test("under a key whose socket broke are the same request again; without one the outcome is unknown (S24)", async () => {
    const { cluster, clock, concord } = createSetting("session");
    await concord.kv.put("a", 0);
    cluster.answer = script("break");
    expect((await within(clock, 1_000, concord.kv.put("a", 1))).revision).toBe(2);
    const [first] = sentOf(cluster.socketsOpened[0]).slice(-1);
    const [again] = cluster.requests;
    expect(again?.headers.get("idempotency-key")).toBe(first?.params.idempotency_key);
    expect(again?.headers.get("idempotency-since")).toBe(String(first?.params.idempotency_since));
    expect(cluster.asked.at(-1)?.params).toEqual({ success: first?.params.success });
    cluster.answer = script("break");
    const error = await within(clock, 1_000, errorOf(concord.kv.put("a", 2, { idempotencyKey: null })));
    expect([error.code, error.body.reason, error.retry]).toEqual(["timeout", "connection", "same-request"]);
    expect(cluster.records.get("a")?.value).toBe(1);
  });

  test("that were never written are repeated freely, also without a key", async () => {
    const { cluster, clock, concord } = createSetting("session", { idempotency: false });
    await concord.currentRevision();
    cluster.answer = ({ method }) => (method === "revision" ? "silence" : undefined);
    const stuck = Array.from({ length: 256 }, () => concord.currentRevision({ timeoutMs: 4_000 }));
    const put = concord.kv.put("a", 1);
    await settle();
    cluster.answer = () => undefined;
    cluster.breakAll();
    expect((await within(clock, 1_000, put)).revision).toBe(1);
    expect(cluster.asked.filter(({ method }) => method === "txn").length).toBe(1);
    await within(clock, 10_000, Promise.allSettled(stuck));
  });

  test("whose caller has gone end at once, and their late answer is nobody's", async () => {
    const { cluster, concord } = createSetting("session");
    await concord.currentRevision();
    let answer: (answer: Answer) => void = () => {};
    cluster.answer = () => new Promise((resolve) => (answer = resolve));
    const controller = new AbortController();
    const call = errorOf(concord.currentRevision({ signal: controller.signal }));
    await settle();
    controller.abort();
    expect((await call).body.reason).toBe("aborted");
    answer(REVISION);
    cluster.answer = () => undefined;
    expect(await concord.currentRevision()).toBe(0);
  });

  test("fail with the node's own error, with its retry rule", async () => {
    const { cluster, concord } = createSetting("session");
    await concord.currentRevision();
    cluster.answer = script({ problem: { code: "compacted", retry: "no", reason: "r", compact_revision: 3 } });
    const error = await errorOf(concord.kv.page(ALL));
    expect([error.code, error.body.reason, error.body.compact_revision]).toEqual(["compacted", "r", 3]);
    cluster.answer = script({ problem: { code: "a_new_code", retry: "no" } });
    expect((await errorOf(concord.currentRevision())).body.reason).toBe("a_new_code");
  });

  test("over 2 MiB go over HTTP, and do not close the socket of the others (S43)", async () => {
    const { cluster, concord } = createSetting("session");
    await concord.kv.put("small", 1);
    await concord.kv.put("large", "é".repeat(1_100_000));
    expect(cluster.requests.map(({ url }) => new URL(url).pathname)).toEqual(["/v1/txn"]);
    expect(cluster.socketsOpened.length).toBe(1);
  });

  test("are answered by messages in parts (S43)", async () => {
    const { cluster, concord } = createSetting("session");
    cluster.messageCharsMax = 1_000;
    cluster.commit(["a", "\u{1F600}".repeat(10_000)], ["b", "x".repeat(2_999)]);
    const taken = collect(concord.sync.watch(ALL, { from_revision: 1 }));
    const page = await concord.kv.page(ALL);
    await settle();
    expect(page.records.map(({ value }) => value)).toEqual(taken.items.map(({ value }) => value));
    expect(cluster.socketsOpened[0]?.url).toContain("max_message_bytes=1048576");
  });

  test("outlive a node that sends what is no message", async () => {
    const { cluster, clock, concord } = createSetting("session");
    await concord.currentRevision();
    for (const bad of [
      { kind: "chunk", index: 5, last: true, data: "" },
      { kind: "chunk", index: 0, last: true, data: "{" },
    ]) {
      cluster.socketsOpened.at(-1)?.deliver(bad);
      await clock.advance(1_000);
      expect(cluster.socketsOpened.at(-1)?.isClosed).toBe(true);
      await concord.currentRevision();
    }
    expect(cluster.socketsOpened.length).toBe(3);
    cluster.socketsOpened.at(-1)?.deliver({ jsonrpc: "2.0", method: "of_a_later_version", params: {} });
    cluster.socketsOpened.at(-1)?.deliver({ jsonrpc: "2.0", id: 999, result: {} });
    await concord.currentRevision();
    expect(cluster.socketsOpened.length).toBe(3);
  });

  test("refuse an older revision than one seen, and take what is said of the past as it is (S86)", async () => {
    const { cluster, clock, concord } = createSetting("session");
    cluster.answer = script(REVISION, { result: { revision: 3 } });
    await concord.currentRevision();
    for (let count = 0; count < 9; count += 1) cluster.commit(["k", count]);
    expect(await within(clock, 1_000, concord.currentRevision({ consistency: "serializable" }))).toBe(9);
    cluster.answer = script({ result: { records: [], count: 0, cursor: null, revision: 3 } });
    const page = await concord.kv.page(ALL, { consistency: "serializable", revision: 3 });
    expect(page.revision).toBe(3);
  });

  test("tell of another cluster once, as over HTTP", async () => {
    const changes: unknown[] = [];
    const { cluster, clock, concord } = createSetting("session", {
      onClusterChanged: (change) => changes.push(change),
    });
    cluster.commit(["k", 1]);
    await concord.currentRevision();
    cluster.restore("c-2", 50);
    await clock.advance(1_000);
    expect((await errorOf(concord.currentRevision())).code).toBe("cluster_changed");
    expect(await concord.currentRevision()).toBe(50);
    expect(changes).toEqual([{ from: "c-1", to: "c-2" }]);
  });
});

describe("without sockets", () => {
  test("calls go over HTTP, and a socket is tried again later", async () => {
    const { cluster, clock, concord } = createSetting("session");
    cluster.refusesSockets = true;
    expect(await concord.currentRevision()).toBe(0);
    expect(await concord.currentRevision()).toBe(0);
    expect([cluster.requests.length, cluster.socketsOpened.length]).toEqual([2, 1]);
    cluster.refusesSockets = false;
    await clock.advance(60_000);
    await concord.currentRevision();
    expect([cluster.requests.length, cluster.socketsOpened.length]).toEqual([2, 2]);
  });

  test("calls do not wait for one that does not open", async () => {
    const { cluster, clock, concord } = createSetting("session");
    cluster.greets = false;
    const call = concord.currentRevision();
    await clock.advance(2_600);
    expect(await call).toBe(0);
    expect(cluster.requests.length).toBe(1);
    await clock.advance(8_000);
    expect(cluster.socketsOpened[0]?.isClosed).toBe(true);
  });

  test("the third attempt of a call goes over HTTP, whatever is wrong with the node behind the socket", async () => {
    const { cluster, clock, concord } = createSetting("session");
    const asked: string[] = [];
    cluster.answer = ({ method }) => {
      asked.push(method);
      return method === "txn" ? { problem: { code: "no_leader", retry: "yes" } } : undefined;
    };
    expect((await within(clock, 2_000, concord.kv.put("a", 1))).revision).toBe(1);
    expect(asked).toEqual(["revision", "txn", "txn"]);
    expect(cluster.requests.length).toBe(1);
    expect(cluster.socketsOpened.length).toBe(1);
  });

  test("watches come as server-sent events, and over a session again when there is one", async () => {
    const { cluster, clock, concord } = createSetting("session");
    cluster.refusesSockets = true;
    const taken = collect(concord.sync.watch(ALL, { from_revision: 1 }));
    await settle();
    cluster.commit(["a", 1]);
    await settle();
    expect(cluster.opened.map(({ transport }) => transport)).toEqual(["events"]);
    cluster.refusesSockets = false;
    await clock.advance(1_000);
    cluster.breakAll();
    cluster.commit(["b", 1]);
    await clock.advance(1_000);
    expect(cluster.opened.map(({ transport }) => transport)).toEqual(["events", "session"]);
    expect(taken.items.map(({ key }) => key)).toEqual(["a", "b"]);
  });

  test("a session that worked before is tried a few times before a watch goes another way", async () => {
    const { cluster, clock, concord } = createSetting("session");
    collect(concord.sync.watch(ALL, { from_revision: 1 }));
    await settle();
    cluster.refusesSockets = true;
    cluster.breakAll();
    await clock.advance(3_000);
    expect(cluster.socketsOpened.length).toBe(4);
    expect(cluster.opened.map(({ transport }) => transport)).toEqual(["session", "events"]);
  });
});

describe("watches of a session", () => {
  test("have ids of their own from 0, and 0 is one like the others (S48)", async () => {
    const { cluster, concord } = createSetting("session");
    const watches = ["a", "b", "c"].map((prefix) => concord.sync.watch({ prefix }, { from_revision: 1 }));
    const taken = watches.map(collect);
    await settle();
    await watches[0]?.close();
    await settle();
    const [socket] = cluster.socketsOpened;
    expect(
      sentOf(socket)
        .filter(({ method }) => method === "watch.create")
        .map(({ params }) => params.watch_id),
    ).toEqual([0, 1, 2]);
    expect(socket?.cancelled).toEqual([0]);
    cluster.commit(["a", 1], ["b", 1], ["c", 1]);
    await settle();
    expect(taken.map(({ items }) => items.length)).toEqual([0, 1, 1]);
  });

  test("given up before the node has answered are forgotten by the node (S48)", async () => {
    const { cluster, concord } = createSetting("session");
    await concord.currentRevision();
    let answer: (answer: Answer | undefined) => void = () => {};
    cluster.answer = ({ method }) =>
      method === "watch.create" ? new Promise<Answer>((resolve) => (answer = resolve as never)) : undefined;
    const controller = new AbortController();
    const taken = collect(concord.sync.watch(ALL, { signal: controller.signal }));
    await settle();
    controller.abort();
    await settle();
    answer(undefined);
    await settle();
    expect(taken.outcome).toBe("done");
    expect(sentOf(cluster.socketsOpened[0]).map(({ method }) => method)).toEqual([
      "revision",
      "watch.create",
      "watch.cancel",
    ]);
  });

  test("resume from where their creation said, if nothing else has come (S45)", async () => {
    const { cluster, clock, concord } = createSetting("session");
    cluster.commit(["a", 1]);
    cluster.isHolding = true;
    const watch = concord.sync.watch(ALL);
    await watch.open();
    const taken = collect(watch);
    await settle();
    cluster.breakAll();
    cluster.commit(["x", 1]);
    cluster.isHolding = false;
    await clock.advance(1_000);
    expect(cluster.opened.map(({ terms }) => terms.after)).toEqual([undefined, "1"]);
    expect(taken.items.map(({ key }) => key)).toEqual(["x"]);
  });

  test("are acknowledged as they are taken, in few messages", async () => {
    const { cluster, concord } = createSetting("session");
    const taken = collect(concord.sync.watch(ALL, { from_revision: 1 }));
    await settle();
    cluster.cut = () => 1;
    for (let count = 0; count < 100; count += 1) cluster.commit([`k${count}`, count]);
    await settle();
    const [socket] = cluster.socketsOpened;
    expect(taken.items.length).toBe(100);
    expect(socket?.acknowledged.at(-1)?.position).toBe("100");
    expect(socket?.acknowledged.length).toBeLessThan(10);
    const quiet = sentOf(socket).length;
    cluster.tellProgress();
    await settle();
    expect(sentOf(socket).length).toBe(quiet);
  });

  test("are acknowledged before the node has to wait: by a quarter of its credit", async () => {
    const { cluster, concord } = createSetting("session");
    const watch = concord.sync.watch(ALL, { from_revision: 1 });
    await watch.open();
    cluster.cut = () => 1;
    for (let count = 0; count < 20; count += 1) cluster.commit([`k${count}`, "x".repeat(20_000)]);
    await settle();
    for (let count = 0; count < 10; count += 1) await watch.next();
    expect(cluster.socketsOpened[0]?.acknowledged.map(({ position }) => position)).toEqual(["4", "8"]);
    await watch.close();
  });

  test("beyond a hundred share further sockets", async () => {
    const { cluster, concord } = createSetting("session");
    const taken = Array.from({ length: 250 }, (_, count) =>
      collect(concord.sync.watch({ key: `k${count}` }, { from_revision: 1 })),
    );
    await settle();
    expect(cluster.watches.size).toBe(250);
    expect(cluster.socketsOpened.length).toBe(3);
    cluster.commit(["k0", 1], ["k249", 1]);
    await settle();
    expect(taken.flatMap(({ items }) => items).length).toBe(2);
    concord.close();
    await settle();
    expect([cluster.watches.size, cluster.sockets.size]).toEqual([0, 0]);
  });

  test("that a node has lost are noticed as soon as others show that there is news (S84)", async () => {
    const { cluster, clock, concord } = createSetting("session");
    cluster.losesWatches = true;
    const taken = collect(concord.sync.watch(ALL, { from_revision: 1 }));
    await clock.advance(200_000);
    const [socket] = cluster.socketsOpened;
    expect(sentOf(socket).map(({ method }) => method)).toEqual(["watch.create"]);
    cluster.losesWatches = false;
    await concord.kv.put("a", 1);
    await clock.advance(95_000);
    expect(sentOf(socket).map(({ method }) => method)).toContain("watch.progress");
    expect(taken.items.map(({ key }) => key)).toEqual(["a"]);
  });

  test("that live answer a probe by their progress and are left alone", async () => {
    const { cluster, clock, concord } = createSetting("session");
    const watch = concord.sync.watch({ prefix: "quiet" }, { from_revision: 1 });
    collect(watch);
    await settle();
    await concord.kv.put("a", 1);
    await clock.advance(300_000);
    expect(watch.position).toBe("1");
    const methods = sentOf(cluster.socketsOpened[0]).map(({ method }) => method);
    expect(methods.filter((method) => method === "watch.progress").length).toBe(1);
    expect(cluster.opened.length).toBe(1);
  });
});

describe("the end of the client", () => {
  test("ends calls under way and sockets, and refuses what comes later", async () => {
    const { cluster, concord } = createSetting("session");
    await concord.currentRevision();
    cluster.answer = () => "silence";
    const call = errorOf(concord.kv.put("a", 1));
    await settle();
    concord.close();
    expect(await call).toMatchObject({ code: "timeout", body: { reason: "aborted" } });
    for (const later of [concord.currentRevision(), concord.kv.put("a", 1), concord.topics.publish("t", 1)]) {
      expect(await errorOf(later)).toMatchObject({ code: "invalid_request", body: { reason: "closed" } });
    }
    expect(() => concord.topics.subscribe("t")).toThrow(ConcordError);
    expect(() => concord.sync.follow(ALL)).toThrow(ConcordError);
    expect(cluster.sockets.size).toBe(0);
    concord.close();
  });

  test("ends requests of HTTP, also one that looks up the revision for a write", async () => {
    const { concord } = createSetting("events", { fetch: fetchNothing });
    const calls = [errorOf(concord.currentRevision()), errorOf(concord.kv.put("a", 1))];
    await settle();
    concord.close();
    expect((await Promise.all(calls)).map(({ code }) => code)).toEqual(["timeout", "timeout"]);
  });
});

describe("a write that waits for the revision", () => {
  test("gives up by its own signal and its own time, and says that nothing was sent", async () => {
    const { cluster, clock, concord } = createSetting("events", { fetch: fetchNothing });
    const controller = new AbortController();
    const aborted = errorOf(concord.kv.put("a", 1, { signal: controller.signal }));
    const short = errorOf(concord.kv.put("a", 1, { timeoutMs: 100 }));
    await settle();
    controller.abort();
    expect((await aborted).body.reason).toBe("aborted");
    expect(await within(clock, 200, short)).toMatchObject({ code: "overloaded", retry: "yes" });
    concord.close();
    await settle();
    expect(cluster.revision).toBe(0);
  });
});
