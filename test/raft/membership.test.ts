/** Memberships as data (membership.ts), and the log that knows the one in force (log.ts, L1 and L3). */
import { describe, expect, test } from "vitest";
import { AssertionError } from "../../src/base/assert.ts";
import { MEMBERSHIP_EXTRA_UNITS_MAX } from "../../src/base/limits.ts";
import {
  appendEntries,
  createLog,
  entriesFrom,
  entryAt,
  membershipAt,
  membershipEntries,
  newestMembership,
  positionAt,
  type RaftLog,
  rebase,
  replaceLog,
  termAt,
  truncateLog,
} from "../../src/raft/log.ts";
import {
  assertFollows,
  equalMemberships,
  hasMajority,
  majorityOf,
  membershipPayload,
  NO_MEMBERS,
  normalMembership,
  parseMembership,
  votersApart,
} from "../../src/raft/membership.ts";
import type { Entry } from "../../src/raft/types.ts";
import {
  entriesOf,
  entry,
  loadedLog,
  members,
  membershipEntry,
  positionOf,
  readerOver,
  votersUpTo,
} from "./fixtures.ts";

describe("a membership", () => {
  test("survives its payload, with and without what the caller keeps with it", () => {
    for (const one of [members([1]), members([1, 2, 3], [4, 5]), members([2], [], 'é"\n')]) {
      expect(parseMembership(membershipPayload(one).payload)).toEqual(one);
    }
    expect(membershipPayload(members([1], [], "é"))).toEqual({
      payload: '{"voters":[1],"learners":[],"extra":"é"}',
      payloadBytes: 41,
    });
  });

  test("is made normal: ids ascend, whatever order they were given in (M1)", () => {
    expect(normalMembership(members([3, 1, 2], [5, 4], "x"))).toEqual(members([1, 2, 3], [4, 5], "x"));
  });

  test.each([
    { claim: "nobody votes", wanted: members([], [1]) },
    { claim: "an id votes twice", wanted: members([1, 2, 2]) },
    { claim: "a voter is a learner too", wanted: members([1, 2], [2]) },
    { claim: "there are more than seven voters", wanted: votersUpTo(8) },
    { claim: "there are more than seven learners", wanted: members([1], [2, 3, 4, 5, 6, 7, 8, 9]) },
    { claim: "an id is not positive", wanted: members([0, 1]) },
    { claim: "an id is no whole number", wanted: members([1, 1.5]) },
    { claim: "the caller's part is too long", wanted: members([1], [], "x".repeat(MEMBERSHIP_EXTRA_UNITS_MAX + 1)) },
  ])("is not valid if $claim", ({ wanted }) => {
    expect(normalMembership(wanted)).toBeNull();
    expect(parseMembership(JSON.stringify(wanted))).toBeNull();
  });

  test.each([
    "",
    "{",
    "null",
    "[]",
    "{}",
    '{"voters":[1]}',
    '{"voters":[2,1],"learners":[]}',
    '{"voters":"1","learners":[]}',
  ])("is not %s", (payload) => {
    expect(parseMembership(payload)).toBeNull();
  });

  test("equals another one only in all of its parts", () => {
    const one = members([1, 2], [3], "x");
    expect(equalMemberships(one, members([1, 2], [3], "x"))).toBe(true);
    for (const other of [
      members([1], [3], "x"),
      members([1, 2], [], "x"),
      members([1, 2], [3]),
      members([1, 2], [3], "y"),
    ]) {
      expect(equalMemberships(one, other)).toBe(false);
    }
  });

  test.each([
    { size: 1, needed: 1 },
    { size: 2, needed: 2 },
    { size: 3, needed: 2 },
    { size: 4, needed: 3 },
    { size: 5, needed: 3 },
    { size: 6, needed: 4 },
    { size: 7, needed: 4 },
  ])("of $size voters needs $needed, and learners are none of them", ({ size, needed }) => {
    const membership = { ...votersUpTo(size), learners: [8, 9] };
    expect(majorityOf(membership)).toBe(needed);
    expect(hasMajority(membership, (id) => id <= needed)).toBe(true);
    expect(hasMajority(membership, (id) => id < needed || id > 7)).toBe(false);
  });

  test("of nobody has no majority, whoever agrees", () => {
    expect(hasMajority(NO_MEMBERS, () => true)).toBe(false);
  });

  test("one voter apart, two memberships share a voter of any two majorities (thesis 4.1); further apart they need not", () => {
    const majorities = (size: readonly number[]) => {
      return subsets(size).filter((chosen) => chosen.length > size.length / 2);
    };
    for (let size = 1; size <= 6; size += 1) {
      const { voters } = votersUpTo(size);
      expect(votersApart(members(voters), votersUpTo(size + 1))).toBe(1);
      for (const left of majorities(voters)) {
        for (const right of majorities(votersUpTo(size + 1).voters)) {
          expect(left.some((id) => right.includes(id))).toBe(true);
        }
      }
    }
    expect(votersApart(members([1, 2, 3]), members([1, 2, 4]))).toBe(2);
    expect(() => assertFollows(members([1, 2, 3]), members([1, 2, 4]))).toThrow(AssertionError);
    expect(() => assertFollows(NO_MEMBERS, members([1, 2, 4]))).not.toThrow();
  });
});

function subsets(ids: readonly number[]): number[][] {
  const sets: number[][] = [[]];
  for (const id of ids) sets.push(...sets.map((chosen) => [...chosen, id]));
  return sets;
}

const THREE = members([1, 2, 3]);
const FOUR = members([1, 2, 3, 4]);
const FIVE = members([1, 2, 3, 4, 5]);

/** Six entries behind a base at 10, with memberships at 12 and 15; the last `cachedCount` are cached. */
function grown(cachedCount: number): { readonly log: RaftLog; readonly durable: Entry[] } {
  const durable = entriesOf([2, 2, 2, 3, 3, 3], 11);
  durable[1] = membershipEntry(12, 2, FOUR);
  durable[4] = membershipEntry(15, 3, FIVE);
  const read = readerOver(() => durable);
  const split = durable.length - cachedCount;
  const loaded = loadedLog(
    readerOver(() => durable.slice(0, split)),
    positionOf(10, 2, THREE),
    durable[split - 1],
  );
  const log = createLog(read, loaded);
  appendEntries(log, durable.slice(split));
  return { log, durable };
}

describe.each([{ cachedCount: 0 }, { cachedCount: 3 }, { cachedCount: 6 }])(
  "a log behind a base, $cachedCount of 6 entries cached",
  ({ cachedCount }) => {
    test("knows index, term and time of its base, and nothing below it (L1)", () => {
      const { log } = grown(cachedCount);
      expect(termAt(log, 10)).toBe(2);
      expect(entryAt(log, 10)).toBeUndefined();
      for (const gone of [-1, 0, 1, 9]) expect(termAt(log, gone)).toBeUndefined();
      expect(() => entriesFrom(log, 10, 100, 1000)).toThrow(AssertionError);
      expect(entriesFrom(log, 11, 1, 1000).map(({ index }) => index)).toEqual([11]);
    });

    test("has the last membership in force, and knows the one at any of its positions (L3)", () => {
      const { log } = grown(cachedCount);
      expect(newestMembership(log)).toEqual({ index: 15, membership: FIVE });
      expect([10, 11, 12, 14, 15, 16].map((index) => membershipAt(log, index))).toEqual([
        THREE,
        THREE,
        FOUR,
        FOUR,
        FIVE,
        FIVE,
      ]);
      expect(() => membershipAt(log, 9)).toThrow(AssertionError);
      expect(positionAt(log, 13)).toEqual({ index: 13, term: 2, timeMs: 13, membership: FOUR });
      expect(positionAt(log, 10)).toBe(log.base);
      expect(() => positionAt(log, 17)).toThrow(AssertionError);
    });

    test.each([
      { from: 16, membership: FIVE },
      { from: 15, membership: FOUR },
      { from: 13, membership: FOUR },
      { from: 12, membership: THREE },
      { from: 11, membership: THREE },
    ])("cut back at $from it goes back to the membership before (thesis 4.1)", ({ from, membership }) => {
      const { log } = grown(cachedCount);
      truncateLog(log, from);
      expect(newestMembership(log).membership).toEqual(membership);
      expect(log.lastIndex).toBe(from - 1);
      expect([log.lastTerm, log.lastTimeMs]).toEqual([termAt(log, from - 1), from - 1]);
    });

    test("is never cut back at its base", () => {
      expect(() => truncateLog(grown(cachedCount).log, 10)).toThrow(AssertionError);
    });

    test.each([11, 12, 13, 15, 16])("begins behind %i and is the same log from there", (index) => {
      const { log, durable } = grown(cachedCount);
      const base = positionAt(log, index);
      rebase(log, base);
      expect(log.base).toEqual(base);
      expect(termAt(log, index)).toBe(base.term);
      expect(termAt(log, index - 1)).toBeUndefined();
      expect(log.cached[0]?.index ?? 17).toBeGreaterThan(index);
      expect(log).toMatchObject({ lastIndex: 16, lastTerm: 3, lastTimeMs: 16 });
      expect(newestMembership(log).membership).toEqual(FIVE);
      expect(membershipAt(log, index)).toEqual(base.membership);
      for (let at = index + 1; at <= 16; at += 1) expect(entryAt(log, at)).toEqual(durable[at - 11]);
      expect(log.cachedBytes).toBe(log.cached.reduce((sum, { payloadBytes }) => sum + payloadBytes, 0));
      appendEntries(log, [entry(17, 4)]);
      expect(entryAt(log, 17)?.term).toBe(4);
    });

    test("replaced, it is empty behind the new base, and time does not go back behind it", () => {
      const { log } = grown(cachedCount);
      const base = { index: 14, term: 5, timeMs: 900, membership: members([4, 5]) };
      replaceLog(log, base);
      expect(log).toMatchObject({ lastIndex: 14, lastTerm: 5, lastTimeMs: 900, cached: [], cachedBytes: 0 });
      expect(newestMembership(log)).toEqual({ index: 14, membership: members([4, 5]) });
      expect(() => appendEntries(log, [entry(15, 5, { timeMs: 899 })])).toThrow(AssertionError);
      appendEntries(log, [entry(15, 5, { timeMs: 900 })]);
      expect(log.lastIndex).toBe(15);
    });
  },
);

describe("a log that is loaded", () => {
  test("refuses memberships that are not its own", () => {
    const read = readerOver(() => []);
    const base = positionOf(10, 2, THREE);
    const last = { lastIndex: 12, lastTerm: 2, lastTimeMs: 12 };
    const load = (...memberships: Entry[]) => createLog(read, { base, ...last, memberships });
    expect(newestMembership(load(membershipEntry(12, 2, FOUR))).index).toBe(12);
    expect(() => load(membershipEntry(13, 2, FOUR))).toThrow(AssertionError);
    expect(() => load(membershipEntry(10, 2, FOUR))).toThrow(AssertionError);
    expect(() => load(membershipEntry(12, 2, FIVE))).toThrow(AssertionError);
    expect(() => load(entry(12, 2))).toThrow(AssertionError);
    expect(() => createLog(read, { base, lastIndex: 9, lastTerm: 2, lastTimeMs: 9, memberships: [] })).toThrow(
      AssertionError,
    );
  });

  test("finds its memberships by reading, in pieces, if the storage keeps no list of them", () => {
    const { durable } = grown(0);
    const read = readerOver(() => durable);
    for (const bytesMax of [0, 20, 10_000]) {
      expect(membershipEntries(read, 11, 16, bytesMax)).toEqual([durable[1], durable[4]]);
    }
    expect(membershipEntries(read, 13, 14, 0)).toEqual([]);
    expect(() => membershipEntries(read, 11, 17, 0)).toThrow(AssertionError);
  });

  test("refuses an entry whose payload is no membership, or one that is two voters apart", () => {
    const { log } = grown(6);
    const broken = entry(17, 3, { kind: "membership", payload: "{}", payloadBytes: 2 });
    expect(() => appendEntries(log, [broken])).toThrow(AssertionError);
    expect(() => appendEntries(grown(6).log, [membershipEntry(17, 3, members([1, 2, 3]))])).toThrow(AssertionError);
  });
});
