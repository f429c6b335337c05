/**
 * Goal: the socket of a session is opened, kept, tested and left by rules, and what it cannot carry goes another way.
 * Method: the model's sockets, with answers by hand, and a clock that moves by hand.
 */
import { describe, expect, test } from "vitest";
import { Concord, ConcordError } from "../../src/client/index.ts";
import type { Answer } from "./model-cluster.ts";
import { collect, createSetting, errorOf, fetchNothing, script, settle, within } from "./streaming.ts";

const ALL = { prefix: "" };
const REVISION = { result: { revision: 7 } };

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
      expect(() => Concord.connect({ url: "http://x.example", transport: "session" })).toThrow(ConcordError);
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
    await concord.currentRevision();
    await clock.advance(59_000);
    expect([socket?.isClosed, socket?.sent.filter((text) => text === "ping")]).toEqual([false, []]);
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
    collect(concord.topics.subscribe("t"));
    for (let count = 0; count < 30; count += 1) {
      cluster.publish("t", count);
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

  test("whose node tells events and answers no calls is left, when many have run out of time", async () => {
    const { cluster, clock, concord } = createSetting("session", { attemptTimeoutMs: 1_000, timeoutMs: 1_000 });
    const taken = collect(concord.sync.watch(ALL, { from_revision: 1 }));
    await settle();
    cluster.answer = ({ method }) => (method === "revision" ? "silence" : undefined);
    const calls = async (count: number) => {
      const late = Promise.allSettled(Array.from({ length: count }, () => concord.currentRevision()));
      await clock.advance(500);
      cluster.commit(["k", 1]);
      await clock.advance(4_000);
      await late;
    };
    await calls(64);
    expect(cluster.socketsOpened[0]?.isClosed).toBe(false);
    await calls(1);
    expect(cluster.socketsOpened[0]?.isClosed).toBe(true);
    cluster.commit(["k", 1]);
    await clock.advance(1_000);
    expect(taken.items.length).toBe(3);
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
