/** The time of entries: the state machine's only clock (design 02 section 3). */
import { describe, expect, test } from "vitest";
import { logTimeMs } from "../../src/raft/state.ts";
import { Cluster } from "./cluster.ts";
import {
  ELECTION_MS_MAX,
  electionAt,
  entriesOf,
  entry,
  happen,
  lead,
  propose,
  raft,
  receive,
  stored,
  theOnly,
  tick,
  vote,
} from "./fixtures.ts";

describe("the time of a term begins at the median of the voters' wall clocks", () => {
  test.each([
    { claim: "of three clocks the middle one", size: 5, walls: [5000, 1000, 9000], startMs: 5000 },
    { claim: "a fast clock among three is outvoted", size: 5, walls: [5000, 5010, 999_999], startMs: 5010 },
    { claim: "a slow clock among three is outvoted", size: 5, walls: [5000, 0, 5010], startMs: 5000 },
    { claim: "the leader's own wrong clock is outvoted", size: 5, walls: [999_999, 5000, 5010], startMs: 5010 },
    { claim: "of two clocks the lower one", size: 3, walls: [9000, 5000], startMs: 5000 },
    { claim: "of four clocks the lower of the middle ones", size: 7, walls: [4000, 1000, 3000, 2000], startMs: 2000 },
    { claim: "fractions are cut off", size: 3, walls: [5000.9, 5000.7], startMs: 5000 },
  ])("$claim", ({ size, walls, startMs }) => {
    const state = raft({ size });
    const output = lead(state, 100, walls);
    expect(output.persist?.append).toMatchObject([{ kind: "leader_start", timeMs: startMs }]);
  });

  test("a voter's clock travels with its vote", () => {
    const state = raft();
    const output = receive(state, 2, vote(1, 0, 0), 0, 123_456);
    expect(theOnly(output, "vote_reply").wallMs).toBe(123_456);
  });

  test("a single node's time begins at its own clock", () => {
    const state = raft({ size: 1 });
    expect(lead(state, 0, [777]).persist?.append).toMatchObject([{ timeMs: 777 }]);
  });

  test("a vote that comes twice is one clock, the latest", () => {
    const state = raft({ size: 5 });
    tick(state, electionAt(state));
    const nowMs = electionAt(state);
    for (const from of [2, 3]) receive(state, from, { kind: "pre_vote_reply", term: 1, granted: true }, nowMs, 5000);
    receive(state, 2, { kind: "vote_reply", term: 1, granted: true, wallMs: 1000 }, nowMs);
    receive(state, 2, { kind: "vote_reply", term: 1, granted: true, wallMs: 9000 }, nowMs);
    const output = receive(state, 3, { kind: "vote_reply", term: 1, granted: true, wallMs: 6000 }, nowMs);
    expect(output.persist?.append).toMatchObject([{ timeMs: 6000 }]);
  });
});

describe("time never falls", () => {
  test("a term whose clocks are behind the last entry begins at that entry's time", () => {
    const state = raft({ entries: [entry(1, 1, { timeMs: 90_000 })] });
    expect(lead(state, 0, [5000, 5000]).persist?.append).toMatchObject([{ timeMs: 90_000 }]);
  });

  test("and goes on from there by elapsed time: a clock that stood too high does not freeze it", () => {
    const state = raft({ entries: [entry(1, 1, { timeMs: 90_000 })] });
    lead(state, 0, [5000, 5000]);
    expect(propose(state, ["a"], 40).persist?.append).toMatchObject([{ timeMs: 90_040 }]);
  });

  test("time advances by the leader's own elapsed time, whatever its wall clock does", () => {
    const state = raft();
    lead(state, 1000, [5000, 5000]);
    const outputs = [1000, 1010, 1010, 1500].map((nowMs) => propose(state, ["p"], nowMs));
    expect(outputs.map((output) => output.persist?.append[0]?.timeMs)).toEqual([5000, 5010, 5010, 5500]);
  });

  test("entries of one turn have one time", () => {
    const state = raft();
    lead(state, 0, [5000, 5000]);
    const times = propose(state, ["a", "b", "c"], 7).persist?.append.map(({ timeMs }) => timeMs);
    expect(times).toEqual([5007, 5007, 5007]);
  });

  test("fractions of a millisecond never make a time that is not a whole number", () => {
    const state = raft();
    lead(state, 0.25, [5000.5, 5000.5]);
    for (const nowMs of [0.3, 1.249, 1.26, 7.9]) propose(state, ["p"], nowMs);
    for (const { timeMs } of state.log.cached) expect(Number.isInteger(timeMs)).toBe(true);
  });

  test("a monotonic clock that jumps back does not take time back", () => {
    const state = raft();
    lead(state, 1000, [5000, 5000]);
    propose(state, ["a"], 1500);
    expect(propose(state, ["b"], 900).persist?.append).toMatchObject([{ timeMs: 5500 }]);
  });

  test("over changes of leader with clocks far apart the log's time only rises", () => {
    const cluster = new Cluster({ size: 5, seed: 4 });
    [0, 60_000, -60_000, 3_600_000, -3_600_000].forEach((offset, position) => {
      cluster.node(position + 1).wallOffsetMs = 10_000_000 + offset;
    });
    for (const id of [3, 1, 5, 2, 4]) {
      cluster.advance(ELECTION_MS_MAX);
      cluster.elect(id);
      cluster.propose(id, `by ${id}`);
      cluster.pass(50);
    }
    const times = cluster.node(1).disk.entries.map(({ timeMs }) => timeMs);
    expect(times).toHaveLength(10);
    expect([...times].sort((left, right) => left - right)).toEqual(times);
    // Every election here has at most one of the two clocks that are an hour off among its three votes.
    expect(Math.max(...times)).toBeLessThan(10_000_000 + 600_000);
  });

  test("followers keep the leader's time as it is", () => {
    const state = raft();
    const entries = entriesOf([1]).map((sent) => ({ ...sent, timeMs: 987_654 }));
    const output = receive(state, 2, {
      kind: "append",
      term: 1,
      prevIndex: 0,
      prevTerm: 0,
      commit: 0,
      round: 0,
      entries,
    });
    expect(output.persist?.append[0]?.timeMs).toBe(987_654);
    expect(state.log.lastTimeMs).toBe(987_654);
  });

  test("a follower whose log is cut back takes the time of its new last entry", () => {
    const state = raft({ entries: [entry(1, 1, { timeMs: 10 }), entry(2, 1, { timeMs: 99_999 })] });
    const entries = [entry(2, 2, { timeMs: 500 })];
    receive(state, 2, { kind: "append", term: 2, prevIndex: 1, prevTerm: 1, commit: 0, round: 0, entries });
    expect(state.log.lastTimeMs).toBe(500);
  });

  test("acknowledgements carry the follower's wall clock", () => {
    const state = raft();
    const message = { kind: "append", term: 1, prevIndex: 0, prevTerm: 0, commit: 0, round: 0, entries: [] } as const;
    expect(theOnly(receive(state, 2, message, 5, 4242), "append_reply").wallMs).toBe(4242);
  });

  test("a late tick changes no entry's time", () => {
    const state = raft();
    stored(state, lead(state, 0, [5000, 5000]));
    tick(state, 10_000);
    expect(state.log.lastTimeMs).toBe(5000);
  });
});

describe("the log's time at this moment", () => {
  test("is what an entry proposed now would carry", () => {
    const state = raft();
    lead(state, 100, [5000, 5000]);
    for (const nowMs of [100, 130.5, 90, 4000]) {
      const timeMs = logTimeMs(state, nowMs);
      expect(propose(state, ["a"], nowMs).persist?.append).toMatchObject([{ timeMs }]);
    }
  });

  test("is known to leaders only, also to one that sleeps", () => {
    const state = raft({ size: 1 });
    expect(logTimeMs(state, 0)).toBeNull();
    stored(state, lead(state, 0, [777]));
    happen(state, { kind: "quiesce" }, 100);
    expect(logTimeMs(state, 60_000)).toBe(60_777);
  });
});
