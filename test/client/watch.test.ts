/**
 * Goal: a watch gives every event once, in order, whatever happens to connections, over both transports alike.
 * Method: a model of the cluster that does wrong by hand, and a clock that moves by hand.
 */
import { describe, expect, test } from "vitest";
import { ConcordError, type WatchStatus } from "../../src/client/index.ts";
import { collect, connectTo, createSetting, keysOf, settle, TRANSPORTS } from "./streaming.ts";

const ALL = { prefix: "" };

describe.each(TRANSPORTS)("a watch over %s", (transport) => {
  test("from now on tells what comes behind open, in order, and nothing from before", async () => {
    const { cluster, concord } = createSetting(transport);
    cluster.commit(["before", 1]);
    const watch = concord.sync.watch(ALL);
    await watch.open();
    expect(watch.position).toBe("1");
    cluster.commit(["a", 1], ["b", { x: "é\u{1F600}\n" }]);
    cluster.commit(["a", undefined]);
    const { items } = collect(watch);
    await settle();
    expect(items.map(({ revision, op_index, type, value }) => [revision, op_index, type, value])).toEqual([
      [2, 0, "put", 1],
      [2, 1, "put", { x: "é\u{1F600}\n" }],
      [3, 0, "delete", null],
    ]);
  });

  test("without open begins with the first next", async () => {
    const { cluster, concord } = createSetting(transport);
    const watch = concord.sync.watch(ALL);
    cluster.commit(["early", 1]);
    const { items } = collect(watch);
    await settle();
    cluster.commit(["late", 1]);
    await settle();
    expect(keysOf(items)).toEqual(["late"]);
  });

  test("tells the options to the node", async () => {
    const { cluster, concord } = createSetting(transport);
    const { items } = collect(
      concord.sync.watch(
        { range: { start: "a", end: "c" } },
        { from_revision: 1, include_values: false, filter: "puts" },
      ),
    );
    cluster.commit(["a", 1], ["c", 1]);
    cluster.commit(["a", undefined], ["b", 2]);
    await settle();
    expect(items.map(({ key, value }) => [key, value])).toEqual([
      ["a", undefined],
      ["b", undefined],
    ]);
    expect(cluster.opened[0]?.terms).toMatchObject({ from_revision: 1, include_values: false, filter: "puts" });
  });

  test("from now on, cut off before any event, misses nothing of the gap, on a node that lags (S45)", async () => {
    const { cluster, clock, concord } = createSetting(transport);
    cluster.commit(["before", 1]);
    const watch = concord.sync.watch(ALL);
    await watch.open();
    const { items } = collect(watch);
    cluster.breakAll();
    cluster.nextNode = 2;
    cluster.lags = [0, 2, 0];
    cluster.commit(["x", 1]);
    await clock.advance(1_000);
    expect(cluster.opened.at(-1)).toMatchObject({ node: 2, terms: { after: "1", cluster_id: "c-1" } });
    expect(items).toEqual([]);
    cluster.lags = [0, 0, 0];
    cluster.pump();
    await settle();
    expect(keysOf(items)).toEqual(["x"]);
  });

  test("is resumed behind the last event that was taken, again and again (S45)", async () => {
    const { cluster, clock, concord } = createSetting(transport);
    const { items } = collect(concord.sync.watch(ALL, { from_revision: 1 }));
    for (let round = 1; round <= 5; round += 1) {
      cluster.commit([`k${round}`, round], [`l${round}`, round]);
      await settle();
      cluster.breakAll();
      cluster.nextNode = 1 + (round % 3);
      await clock.advance(1_000);
    }
    cluster.commit(["end", 1]);
    await clock.advance(1_000);
    expect(keysOf(items)).toEqual([1, 2, 3, 4, 5].flatMap((round) => [`k${round}`, `l${round}`]).concat("end"));
    expect(cluster.opened.map(({ terms }) => terms.after)).toEqual([undefined, "1", "2", "3", "4", "5"]);
    expect(new Set(cluster.opened.map(({ node }) => node)).size).toBe(3);
  });

  test("of a quiet prefix resumes from its last progress, behind a compaction of its start (S44)", async () => {
    const { cluster, clock, concord } = createSetting(transport);
    for (let count = 0; count < 8; count += 1) cluster.commit(["other", count]);
    const taken = collect(concord.sync.watch({ prefix: "/quiet" }, { from_revision: 9 }));
    await settle();
    for (let count = 0; count < 100; count += 1) cluster.commit(["other", count]);
    cluster.tellProgress();
    await settle();
    cluster.compact(100);
    cluster.breakAll();
    cluster.commit(["/quiet/x", 1]);
    await clock.advance(1_000);
    expect(cluster.opened.at(-1)?.terms.after).toBe("108");
    expect(keysOf(taken.items)).toEqual(["/quiet/x"]);
    expect(taken.outcome).toBe("open");
  });

  test("tells progress only when everything before it has been taken (S44)", async () => {
    const { cluster, concord } = createSetting(transport);
    const told: unknown[] = [];
    const onStatus = (status: WatchStatus) => {
      if (status.kind === "progress") told.push([status.kind, status.revision]);
    };
    const watch = concord.sync.watch(ALL, { from_revision: 1, onStatus });
    await watch.open();
    await settle();
    cluster.commit(["a", 1]);
    cluster.commit(["b", 1]);
    cluster.tellProgress();
    await settle();
    for (let taken = 0; taken < 2; taken += 1) {
      const { value } = await watch.next();
      told.push(value?.key);
      expect(watch.position).toBe(`${taken + 1}.0`);
      await settle();
    }
    const next = watch.next();
    await settle();
    expect(told).toEqual(["a", "b", ["progress", 2]]);
    expect(watch.position).toBe("2");
    await watch.return();
    expect((await next).done).toBe(true);
  });

  test.each([
    [
      { kind: "compacted", compact_revision: 7 },
      { code: "compacted", body: { compact_revision: 7 } },
    ],
    [
      { kind: "resync", revision: 9 },
      { code: "compacted", body: { reason: "resync", revision: 9 } },
    ],
    [{ kind: "cluster_changed" }, { code: "cluster_changed" }],
  ] as const)("ends by an error on %j, once everything before it has been taken", async (frame, error) => {
    const { cluster, concord } = createSetting(transport);
    const watch = concord.sync.watch(ALL);
    await watch.open();
    cluster.commit(["a", 1]);
    await settle();
    cluster.tell(frame);
    const taken = collect(watch);
    await settle();
    expect(keysOf(taken.items)).toEqual(["a"]);
    expect(taken.outcome).toBeInstanceOf(ConcordError);
    expect(taken.outcome).toMatchObject(error);
    expect(await watch.next()).toEqual({ done: true, value: undefined });
  });

  test("that begins behind a compaction says at which revision", async () => {
    const { cluster, concord } = createSetting(transport);
    for (let count = 0; count < 5; count += 1) cluster.commit(["a", count]);
    cluster.compact(4);
    const taken = collect(concord.sync.watch(ALL, { from_revision: 2 }));
    await settle();
    expect(taken.outcome).toMatchObject({ code: "compacted", body: { compact_revision: 4 } });
  });

  test("does not go on in another cluster", async () => {
    const { cluster, clock, concord } = createSetting(transport);
    const watch = concord.sync.watch(ALL);
    await watch.open();
    const taken = collect(watch);
    cluster.restore("c-2", 50);
    await clock.advance(1_000);
    expect(taken.outcome).toMatchObject({ code: "cluster_changed" });
  });

  test("that was too slow goes on where it was, without a hole", async () => {
    const { cluster, clock, concord } = createSetting(transport);
    const statuses: WatchStatus[] = [];
    const watch = concord.sync.watch(ALL, { from_revision: 1, onStatus: (status) => statuses.push(status) });
    await watch.open();
    for (let count = 0; count < 20; count += 1) cluster.commit([`k${count}`, count]);
    await settle();
    cluster.tell({ kind: "slow_consumer", position: "" });
    for (let count = 20; count < 40; count += 1) cluster.commit([`k${count}`, count]);
    const taken = collect(watch);
    await clock.advance(1_000);
    expect(keysOf(taken.items)).toEqual(Array.from({ length: 40 }, (_, count) => `k${count}`));
    expect(statuses.find(({ kind }) => kind === "interrupted")).toMatchObject({
      error: { body: { reason: "slow_consumer" } },
    });
  });

  test("takes parts of a large revision, event by event or as one revision (S43)", async () => {
    const { cluster, clock, concord } = createSetting(transport);
    cluster.cut = () => 7;
    const changes = Array.from({ length: 30 }, (_, count) => [`k${count}`, "x".repeat(100)] as const);
    cluster.commit(["first", 1]);
    cluster.commit(...changes);
    cluster.commit(["last", 1]);
    const events = collect(concord.sync.watch(ALL, { from_revision: 1 }));
    const revisions = collect(concord.sync.watchGrouped(ALL, { from_revision: 1 }));
    await clock.advance(1_000);
    const keys = ["first", ...changes.map(([key]) => key), "last"];
    expect(keysOf(events.items)).toEqual(keys);
    expect(revisions.items.map(({ revision, events }) => [revision, events.length])).toEqual([
      [1, 1],
      [2, 30],
      [3, 1],
    ]);
    expect(keysOf(revisions.items.flatMap((item) => item.events))).toEqual(keys);
  });

  test("that is cut off inside a revision goes on inside it", async () => {
    const { cluster, clock, concord } = createSetting(transport);
    cluster.cut = () => 2;
    cluster.creditFrames = 1;
    cluster.commit(["a", 1], ["b", 1], ["c", 1], ["d", 1], ["e", 1]);
    const watch = concord.sync.watch(ALL, { from_revision: 1 });
    const grouped = concord.sync.watchGrouped(ALL, { from_revision: 1 });
    const keys: unknown[] = [];
    const revisions = collect(grouped);
    for (let taken = 0; taken < 2; taken += 1) keys.push((await watch.next()).value?.key);
    expect(watch.position).toBe("1.1");
    cluster.breakAll();
    const rest = collect(watch);
    await clock.advance(1_000);
    expect([...keys, ...keysOf(rest.items)]).toEqual(["a", "b", "c", "d", "e"]);
    expect(revisions.items.map(({ events }) => events.length)).toEqual([5]);
    // What was on its way when the stream ended may have arrived.
    expect(cluster.opened.map(({ terms }) => terms.after).slice(2)).toEqual(
      Array(2).fill(expect.stringMatching(/^1\.[13]$/)),
    );
  });

  test("hands its position to another process", async () => {
    const { cluster, clock, concord } = createSetting(transport);
    for (const key of ["a", "b", "c"]) cluster.commit([key, 1], [`${key}'`, 1]);
    const watch = concord.sync.watch(ALL, { from_revision: 1 });
    for (let taken = 0; taken < 3; taken += 1) await watch.next();
    expect(watch.position).toBe("2.0");
    const other = connectTo(cluster, clock, transport);
    const taken = collect(other.sync.watch(ALL, watch.position === null ? {} : { after: watch.position }));
    await settle();
    expect(keysOf(taken.items)).toEqual(["b'", "c", "c'"]);
  });

  describe("from where nothing is yet", () => {
    test("a position of the future is of another history: it ends at once", async () => {
      const { cluster, concord } = createSetting(transport);
      cluster.commit(["a", 1]);
      const statuses: WatchStatus[] = [];
      const watch = collect(concord.sync.watch(ALL, { after: "7.2", onStatus: (status) => statuses.push(status) }));
      await settle();
      expect(watch.outcome).toMatchObject({ code: "revision_in_future", reason: "after", retry: "no" });
      expect([statuses, cluster.watches.size]).toEqual([[], 0]);
    });

    test("a position that the node alone has not come to is waited for", async () => {
      const { cluster, concord } = createSetting(transport);
      for (const key of ["a", "b", "c"]) cluster.commit([key, 1]);
      cluster.lags = [2, 0, 0];
      const watch = collect(concord.sync.watch(ALL, { after: "2" }));
      await settle();
      expect([watch.outcome, watch.items]).toEqual(["open", []]);
      cluster.lags = [0, 0, 0];
      cluster.pump();
      await settle();
      expect(keysOf(watch.items)).toEqual(["c"]);
    });

    test("a revision of the future is waited for, and told so once", async () => {
      const { cluster, clock, concord } = createSetting(transport);
      cluster.commit(["a", 1]);
      const statuses: WatchStatus[] = [];
      const onStatus = (status: WatchStatus) => void statuses.push(status);
      const next = collect(concord.sync.watch(ALL, { from_revision: 2, onStatus }));
      const later = collect(concord.sync.watch(ALL, { from_revision: 3, onStatus }));
      await settle();
      cluster.breakAll();
      await clock.advance(1_000);
      for (const key of ["b", "c"]) cluster.commit([key, 1]);
      await settle();
      expect([keysOf(next.items), keysOf(later.items)]).toEqual([["b", "c"], ["c"]]);
      expect(statuses.filter(({ kind }) => kind === "waiting")).toEqual([{ kind: "waiting", revision: 3 }]);
    });
  });

  test("with the cluster that its position is of, ends where that is another one", async () => {
    const { cluster, clock, concord } = createSetting(transport);
    for (const key of ["a", "b"]) cluster.commit([key, 1]);
    const watch = concord.sync.watch(ALL, { from_revision: 1 });
    expect(watch.clusterId).toBeNull();
    await watch.next();
    const { position: after, clusterId: cluster_id } = watch;
    if (after === null || cluster_id === null) throw new Error("nothing is known");
    const stored = { after, cluster_id };
    const same = connectTo(cluster, clock, transport);
    expect((await same.sync.watch(ALL, stored).next()).value?.key).toBe("b");
    cluster.restore("c-2", 9);
    const other = connectTo(cluster, clock, transport);
    await other.currentRevision();
    for (const options of [stored, { from_revision: 2, cluster_id }, { cluster_id }]) {
      const taken = collect(other.sync.watch(ALL, options));
      await settle();
      expect(taken.outcome).toMatchObject({ code: "cluster_changed" });
    }
    expect(cluster.watches.size).toBe(0);
  });

  describe("beside others", () => {
    test("is the only one that an exception in its loop ends (S48)", async () => {
      const { cluster, concord } = createSetting(transport);
      const left = collect(concord.sync.watch({ prefix: "l" }, { from_revision: 1 }));
      const right = concord.sync.watch({ prefix: "r" }, { from_revision: 1 });
      const thrown = (async () => {
        for await (const { key } of right) throw new Error(`cannot stand ${String(key)}`);
      })();
      await settle();
      cluster.commit(["l1", 1], ["r1", 1]);
      await expect(thrown).rejects.toThrow("cannot stand r1");
      await settle();
      expect([...cluster.watches].map(({ terms }) => terms.prefix)).toEqual(["l"]);
      cluster.commit(["l2", 1], ["r2", 1]);
      await settle();
      expect(keysOf(left.items)).toEqual(["l1", "l2"]);
      expect(await right.next()).toEqual({ done: true, value: undefined });
    });

    test("is the only one that a refusal ends (S48)", async () => {
      const { cluster, concord } = createSetting(transport);
      cluster.forbiddenPrefix = "b";
      const [a, b, c] = ["a", "b", "c"].map((prefix) => collect(concord.sync.watch({ prefix }, { from_revision: 1 })));
      cluster.commit(["a", 1], ["b", 1], ["c", 1]);
      await settle();
      expect(b?.outcome).toMatchObject({ code: "forbidden" });
      expect([a?.items.length, b?.items.length, c?.items.length]).toEqual([1, 0, 1]);
      await expect(concord.sync.watch({ prefix: "b" }).open()).rejects.toMatchObject({ code: "forbidden" });
    });

    test("ends at once when it is left, also while it waits, and the node forgets it (S48)", async () => {
      const { cluster, concord } = createSetting(transport);
      const watch = concord.sync.watch(ALL);
      const next = watch.next();
      await settle();
      expect(cluster.watches.size).toBe(1);
      await watch.close();
      expect(await next).toEqual({ done: true, value: undefined });
      await settle();
      expect(cluster.watches.size).toBe(0);
    });

    test("that is left before it was ever opened asks for nothing", async () => {
      const { cluster, concord } = createSetting(transport);
      const watch = concord.sync.watch(ALL);
      await watch.return();
      expect((await watch.next()).done).toBe(true);
      await watch.open();
      expect(cluster.opened).toEqual([]);
    });
  });

  test("ends quietly by its signal, and by the end of the client", async () => {
    const { cluster, concord } = createSetting(transport);
    const controller = new AbortController();
    const first = collect(concord.sync.watch(ALL, { signal: controller.signal }));
    const second = collect(concord.sync.watch(ALL));
    await settle();
    controller.abort();
    await settle();
    expect([first.outcome, second.outcome, cluster.watches.size]).toEqual(["done", "open", 1]);
    concord.close();
    await settle();
    expect([second.outcome, cluster.watches.size]).toEqual(["done", 0]);
    expect(() => concord.sync.watch(ALL)).toThrow(ConcordError);
    const late = collect(
      connectTo(cluster, createSetting(transport).clock, transport).sync.watch(ALL, { signal: AbortSignal.abort() }),
    );
    await settle();
    expect(late.outcome).toBe("done");
  });

  test("ends by what its onStatus throws", async () => {
    const { cluster, concord } = createSetting(transport);
    const onStatus = () => {
      throw new Error("no statuses, please");
    };
    const taken = collect(concord.sync.watch(ALL, { onStatus }));
    await settle();
    expect(taken.outcome).toMatchObject({ message: "no statuses, please" });
    expect(cluster.watches.size).toBe(0);
  });

  test("is sent no more than its consumer takes", async () => {
    const { cluster, concord } = createSetting(transport);
    cluster.creditFrames = 3;
    cluster.cut = () => 1;
    const watch = concord.sync.watch(ALL, { from_revision: 1 });
    await watch.open();
    for (let count = 0; count < 50; count += 1) cluster.commit([`k${count}`, "x".repeat(30_000)]);
    await settle();
    const [served] = cluster.watches;
    expect(Number(served?.position)).toBeLessThanOrEqual(3);
    for (let taken = 0; taken < 20; taken += 1) await watch.next();
    await settle();
    expect(Number(served?.position)).toBeGreaterThanOrEqual(20);
    expect(Number(served?.position)).toBeLessThanOrEqual(24);
    const rest = collect(watch);
    await settle();
    expect(rest.items.length).toBe(30);
  });
});
