/**
 * Goal: watches share sockets without touching each other, are acknowledged by rule, and none is lost unnoticed.
 * Method: the model's sockets, with answers by hand, and a clock that moves by hand.
 */
import { describe, expect, test } from "vitest";
import type { Answer } from "./model-cluster.ts";
import { collect, createSetting, sentOf, settle } from "./streaming.ts";

const ALL = { prefix: "" };

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
    for (let count = 0; count < 3; count += 1) {
      cluster.commit(["k", count]);
      await settle();
      cluster.tellProgress();
      await settle();
      expect(socket?.acknowledged.at(-1)?.position).toBe(String(101 + count));
    }
  });

  test("acknowledge progress, which costs credit too", async () => {
    const { cluster, concord } = createSetting("session");
    collect(concord.sync.watch({ prefix: "quiet" }, { from_revision: 1 }));
    await settle();
    for (let count = 1; count <= 3; count += 1) {
      cluster.commit(["k", count]);
      cluster.tellProgress();
      await settle();
    }
    expect(cluster.socketsOpened[0]?.acknowledged.map(({ position }) => position)).toEqual(["0", "1", "2", "3"]);
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
