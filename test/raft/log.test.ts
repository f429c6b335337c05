/** The bounded cache of the log and the reader behind it (log.ts, L1 and L2). */
import { describe, expect, test } from "vitest";
import { AssertionError } from "../../src/base/assert.ts";
import {
  appendEntries,
  createLog,
  entriesFrom,
  entryAt,
  type RaftLog,
  termAt,
  trimCache,
  truncateLog,
} from "../../src/raft/log.ts";
import type { Entry } from "../../src/raft/types.ts";
import { Cluster } from "./cluster.ts";
import { append, entriesOf, entry, happen, loadedLog, positionOf, readerOver, times } from "./fixtures.ts";

interface Kept {
  readonly log: RaftLog;
  readonly durable: Entry[];
  /** Ranges that were asked of the reader. */
  readonly reads: [from: number, to: number][];
}

/** Entries with these terms, the last `cachedCount` of them in the cache, the rest (and these too) durable. */
function kept(terms: readonly number[], cachedCount: number): Kept {
  const durable = entriesOf(terms);
  const reads: [number, number][] = [];
  const read = readerOver(() => durable);
  const split = durable.length - cachedCount;
  const before = durable[split - 1];
  const log = createLog(
    (from, to, bytesMax) => {
      reads.push([from, to]);
      return read(from, to, bytesMax);
    },
    loadedLog(
      readerOver(() => durable.slice(0, split)),
      positionOf(0, 0),
      before,
    ),
  );
  appendEntries(log, durable.slice(split));
  return { log, durable, reads };
}

const indexesOf = (entries: readonly Entry[]): number[] => entries.map(({ index }) => index);

describe("reading across the edge of the cache", () => {
  test("an entry comes from the cache if it is there, else from the reader", () => {
    const { log, durable, reads } = kept([1, 1, 2, 3, 3], 2);
    for (let index = 1; index <= 5; index += 1) expect(entryAt(log, index)).toEqual(durable[index - 1]);
    expect(reads).toEqual([
      [1, 1],
      [2, 2],
      [3, 3],
    ]);
  });

  test("beyond the ends there is nothing", () => {
    const { log } = kept([1, 1], 1);
    expect(entryAt(log, 0)).toBeUndefined();
    expect(entryAt(log, 3)).toBeUndefined();
    expect(entryAt(log, -1)).toBeUndefined();
  });

  test("the term before the first entry is 0, that of the last needs no read, that beyond the end is unknown", () => {
    const { log, reads } = kept([4, 5], 0);
    expect(termAt(log, 0)).toBe(0);
    expect(termAt(log, 2)).toBe(5);
    expect(termAt(log, 3)).toBeUndefined();
    expect(reads).toEqual([]);
    expect(termAt(log, 1)).toBe(4);
    expect(reads).toHaveLength(1);
  });

  test("a range that begins before the cache ends at its edge, and goes on from there", () => {
    const { log } = kept(times(10, 1), 4);
    expect(indexesOf(entriesFrom(log, 3, 100, 1000))).toEqual([3, 4, 5, 6]);
    expect(indexesOf(entriesFrom(log, 7, 100, 1000))).toEqual([7, 8, 9, 10]);
    expect(indexesOf(entriesFrom(log, 9, 100, 1000))).toEqual([9, 10]);
    expect(entriesFrom(log, 11, 100, 1000)).toEqual([]);
  });

  test("the count bounds a range on both sides of the edge", () => {
    const { log } = kept(times(10, 1), 4);
    expect(indexesOf(entriesFrom(log, 2, 3, 1000))).toEqual([2, 3, 4]);
    expect(indexesOf(entriesFrom(log, 8, 2, 1000))).toEqual([8, 9]);
  });

  test("bytes bound a range on both sides of the edge, but one entry always comes", () => {
    const { log, durable } = kept(times(10, 1), 4);
    const bytes = durable[0]?.payloadBytes ?? 0;
    expect(indexesOf(entriesFrom(log, 1, 100, 2 * bytes))).toEqual([1, 2]);
    expect(indexesOf(entriesFrom(log, 7, 100, 2 * bytes))).toEqual([7, 8]);
    expect(indexesOf(entriesFrom(log, 1, 100, 0))).toEqual([1]);
    expect(indexesOf(entriesFrom(log, 7, 100, 0))).toEqual([7]);
  });

  test("a reader that has lost an entry is found out", () => {
    const { log, durable } = kept([1, 1, 1], 0);
    durable.splice(1);
    expect(() => entryAt(log, 2)).toThrow(AssertionError);
  });
});

describe("cutting the log back", () => {
  test.each([
    { claim: "inside the cache", from: 9, terms: [1, 1, 2, 2, 3, 3, 4, 4] },
    { claim: "at the first cached entry", from: 7, terms: [1, 1, 2, 2, 3, 3] },
    { claim: "before the cache", from: 4, terms: [1, 1, 2] },
    { claim: "at the first entry", from: 1, terms: [] },
  ])("$claim: the last entry is known again", ({ from, terms }) => {
    const { log } = kept([1, 1, 2, 2, 3, 3, 4, 4, 5, 5], 4);
    truncateLog(log, from);
    expect(log).toMatchObject({ lastIndex: terms.length, lastTerm: terms.at(-1) ?? 0, lastTimeMs: terms.length });
    expect(entriesOf(terms).map(({ index }) => termAt(log, index))).toEqual(terms);
    const bytes = log.cached.reduce((sum, { payloadBytes }) => sum + payloadBytes, 0);
    expect(log.cachedBytes).toBe(bytes);
  });

  test("what is appended after a cut before the cache is cached, though older rows still lie on the disk", () => {
    const { log } = kept([1, 1, 2, 2, 3, 3], 2);
    truncateLog(log, 3);
    appendEntries(log, entriesOf([9, 9], 3));
    expect(indexesOf(log.cached)).toEqual([3, 4]);
    expect([1, 2, 3, 4].map((index) => termAt(log, index))).toEqual([1, 1, 9, 9]);
    expect(entryAt(log, 5)).toBeUndefined();
  });
});

describe("appending", () => {
  test.each([
    { claim: "a hole", next: entry(4, 2) },
    { claim: "a repeated index", next: entry(2, 2) },
    { claim: "a falling term", next: entry(3, 1) },
    { claim: "a falling time", next: entry(3, 2, { timeMs: 1 }) },
  ])("$claim is refused", ({ next }) => {
    const { log } = kept([2, 2], 1);
    expect(() => appendEntries(log, [next])).toThrow(AssertionError);
  });
});

describe("the cache is bounded", () => {
  test("many entries are trimmed to half, oldest first, and stay readable through the reader", () => {
    const { log, durable } = kept(times(9000, 1), 9000);
    trimCache(log, 9000);
    expect(log.cached).toHaveLength(4096);
    expect(log.cached[0]?.index).toBe(9000 - 4096 + 1);
    for (const index of [1, 4903, 4904, 4905, 4906, 9000]) expect(entryAt(log, index)).toEqual(durable[index - 1]);
  });

  test("many bytes are trimmed too", () => {
    const { log } = kept([], 0);
    for (let index = 1; index <= 20; index += 1) {
      appendEntries(log, [entry(index, 1, { payload: "", payloadBytes: 1 << 20 })]);
    }
    trimCache(log, 20);
    expect(log.cachedBytes).toBe(4 << 20);
    expect(log.cached).toHaveLength(4);
  });

  test("below the limits nothing is trimmed", () => {
    const { log } = kept(times(8192, 1), 8192);
    trimCache(log, 8192);
    expect(log.cached).toHaveLength(8192);
  });

  test("entries that may not be durable are never trimmed (L2)", () => {
    const { log } = kept(times(9000, 1), 9000);
    trimCache(log, 100);
    expect(log.cached[0]?.index).toBe(101);
    trimCache(log, 0);
    expect(log.cached[0]?.index).toBe(101);
  });

  test("a node under a steady stream keeps its cache bounded and its log whole", () => {
    const cluster = new Cluster({ size: 3 });
    cluster.elect(1);
    for (let round = 0; round < 24; round += 1) {
      cluster.propose(1, ...Array.from({ length: 500 }, (_, position) => `${round}.${position}`));
      cluster.stabilize();
    }
    cluster.pass(60);
    for (const { id, disk } of cluster.nodes) {
      const { log, commit } = cluster.state(id);
      expect(commit).toBe(12_001);
      expect(log.cached.length).toBeLessThanOrEqual(8192);
      for (const index of [1, 2, 3_000, 11_000, 12_001]) expect(entryAt(log, index)).toEqual(disk.entries[index - 1]);
    }
  });

  test("a leader whose cache has moved on serves an old follower through the reader", () => {
    const cluster = new Cluster({ size: 3 });
    cluster.elect(1);
    cluster.crash(3);
    for (let round = 0; round < 30; round += 1) {
      cluster.propose(1, ...Array.from({ length: 500 }, (_, position) => `${round}.${position}`));
      cluster.stabilize();
    }
    expect(cluster.state(1).log.cached[0]?.index).toBeGreaterThan(1000);
    cluster.restart(3);
    cluster.pass(200);
    expect(cluster.state(3).commit).toBe(15_001);
    expect(cluster.node(3).disk.entries).toEqual(cluster.node(1).disk.entries);
  });

  test("while nothing is durable or committed the cache keeps everything", () => {
    const cluster = new Cluster({ size: 3 });
    cluster.elect(1);
    cluster.hold(1);
    for (let round = 0; round < 20; round += 1) {
      cluster.propose(1, ...Array.from({ length: 500 }, (_, position) => `${round}.${position}`));
    }
    expect(cluster.state(1).log.cached.length).toBeGreaterThanOrEqual(10_000);
  });
});

describe("a restarted node reads its log from the disk", () => {
  test("it compares, cuts back and appends without a cache", () => {
    const cluster = new Cluster({ size: 3, logs: { 3: [1, 1, 2, 2] }, terms: { 3: 2 } });
    const entries = [entry(3, 3), entry(4, 3)];
    cluster.step(3, { kind: "message", from: 1, message: append({ term: 3, prevIndex: 2, prevTerm: 1, entries }) });
    expect(cluster.terms(3)).toEqual([1, 1, 3, 3]);
    cluster.crash(3);
    cluster.restart(3);
    expect(cluster.terms(3)).toEqual([1, 1, 3, 3]);
    expect(cluster.state(3).durableIndex).toBe(4);
  });

  test("everything on its disk is durable at once", () => {
    const cluster = new Cluster({ size: 1, logs: { 1: [1, 1, 1] } });
    happen(cluster.state(1), { kind: "tick" });
    expect(cluster.state(1).durableIndex).toBe(3);
  });
});
