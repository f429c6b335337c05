/** Logs that begin behind a snapshot, and followers that need one (paper section 7, thesis 5; S52, S57). */
import { describe, expect, test } from "vitest";
import { AssertionError } from "../../src/base/assert.ts";
import { positionAt } from "../../src/raft/log.ts";
import { snapshotPeers } from "../../src/raft/snapshots.ts";
import type { RaftState } from "../../src/raft/state.ts";
import type { Output, SnapshotPosition } from "../../src/raft/types.ts";
import { Cluster, from, to } from "./cluster.ts";
import {
  append,
  campaign,
  conflict,
  ELECTION_MS_MAX,
  entriesOf,
  followerOf,
  HEARTBEAT_MS,
  happen,
  lead,
  leadAndCommit,
  leaderRole,
  logTerms,
  matched,
  members,
  membershipEntry,
  type Of,
  positionOf,
  propose,
  raft,
  receive,
  sent,
  stored,
  theOnly,
  tick,
  times,
} from "./fixtures.ts";

const truncate = (state: RaftState, index: number) => happen(state, { kind: "truncate_log", index });
const stage = (state: RaftState, snapshot: SnapshotPosition) => happen(state, { kind: "snapshot_staged", snapshot });
const ready = (state: RaftState, snapshot: SnapshotPosition | null, nowMs = 0) => {
  return happen(state, { kind: "snapshot_ready", snapshot }, nowMs);
};

function offer(term: number, snapshot: SnapshotPosition): Of<"snapshot_offer"> {
  return { kind: "snapshot_offer", term, snapshot };
}

/** Node 1 leads term 2; its log begins behind 10 and ends at 13, of which 11 is committed. */
function leaderBehindTen(): RaftState {
  const state = raft({ base: positionOf(10, 1), terms: [1, 1], term: 1, commit: 11 });
  lead(state);
  return state;
}

/** The same, and node 3 needs a snapshot. */
function leaderOfALateFollower(): RaftState {
  const state = leaderBehindTen();
  receive(state, 3, conflict(2, 12, { index: 4, term: 1 }));
  expect(progressOf(state, 3)).toMatchObject({ kind: "snapshot", next: 11, match: 0 });
  return state;
}

const progressOf = (state: RaftState, id: number) => leaderRole(state).progress.get(id);

describe("a log is cut behind what is applied", () => {
  test("and the caller is told what to drop, and what to remember of it", () => {
    const state = raft({ terms: [1, 1, 2, 2, 2], commit: 4 });
    const output = truncate(state, 3);
    expect(output.persist).toMatchObject({ dropThrough: positionOf(3, 2), append: [], install: null });
    expect(logTerms(state)).toEqual([2, 2]);
  });

  test("the membership at that entry is part of it, not a later one", () => {
    const entries = [...entriesOf([1, 1]), membershipEntry(3, 1, members([1, 2, 3], [4])), ...entriesOf([1], 4)];
    const state = raft({ entries, commit: 4 });
    expect(truncate(state, 2).persist?.dropThrough?.membership).toEqual(members([1, 2, 3]));
    expect(truncate(state, 4).persist?.dropThrough?.membership).toEqual(members([1, 2, 3], [4]));
  });

  test("but never beyond the commit index; and what is gone already is not dropped again", () => {
    const state = raft({ terms: [1, 1, 1], commit: 2 });
    expect(() => truncate(state, 3)).toThrow(AssertionError);
    const other = raft({ base: positionOf(5, 1), terms: [1], commit: 6 });
    for (const index of [0, 4, 5]) expect(truncate(other, index).persist).toBeNull();
  });

  test("what it covers was durable: a receipt for less changes nothing, and sleep does not wait for one", () => {
    const state = raft();
    const won = lead(state);
    for (const id of [2, 3]) receive(state, id, matched(1, 1));
    expect(state).toMatchObject({ commit: 1, durableIndex: 0 });
    truncate(state, 1);
    expect(state.durableIndex).toBe(1);
    stored(state, won);
    expect(state.durableIndex).toBe(1);
  });
});

describe("at the border of the log", () => {
  const follower = (commit = 10) => raft({ id: 2, base: positionOf(10, 1), terms: [1, 1, 1], term: 1, commit });
  const resultOf = (output: Output) => theOnly(output, "append_reply").result;

  test.each([
    { claim: "exactly behind the base", prevIndex: 10, terms: [1, 1] },
    { claim: "from below it", prevIndex: 7, terms: [1, 1, 1, 1, 1] },
    { claim: "all of it below", prevIndex: 3, terms: [1, 1] },
    { claim: "ending at it", prevIndex: 8, terms: [1, 1] },
  ])("an append $claim is acknowledged for what it verifies", ({ prevIndex, terms }) => {
    const state = follower();
    const entries = entriesOf(terms, prevIndex + 1);
    const output = receive(state, 1, append({ prevIndex, prevTerm: 1, entries }));
    expect(resultOf(output)).toEqual({ kind: "matched", index: Math.max(10, prevIndex + terms.length) });
    expect(state.log.lastIndex).toBe(13);
    expect(output.persist).toBeNull();
  });

  test("a heartbeat at the base is the leader's way to ask for it: who has it agrees, who has not says where it ends", () => {
    expect(resultOf(receive(follower(), 1, append({ prevIndex: 10, prevTerm: 1 })))).toEqual({
      kind: "matched",
      index: 10,
    });
    const late = raft({ id: 2, terms: [1, 1, 1], term: 1, commit: 2 });
    expect(resultOf(receive(late, 1, append({ term: 2, prevIndex: 10, prevTerm: 1 })))).toEqual({
      kind: "conflict",
      prevIndex: 10,
      index: 3,
      term: 1,
    });
  });

  test("a hint never points below what is committed, nor below the base", () => {
    const state = raft({ id: 2, base: positionOf(10, 3), terms: [5, 5, 5], term: 5, commit: 11 });
    const output = receive(state, 1, append({ term: 6, prevIndex: 13, prevTerm: 4 }));
    expect(resultOf(output)).toEqual({ kind: "conflict", prevIndex: 13, index: 11, term: 5 });
    const bare = raft({ id: 2, base: positionOf(10, 3), terms: [5, 5], term: 5 });
    expect(resultOf(receive(bare, 1, append({ term: 6, prevIndex: 12, prevTerm: 1 })))).toMatchObject({ index: 10 });
  });

  test("a tail can be cut back to the base", () => {
    const state = follower();
    receive(state, 1, append({ term: 2, prevIndex: 10, prevTerm: 1, entries: entriesOf([2], 11) }));
    expect(logTerms(state)).toEqual([2]);
  });

  test("a leader whose log is empty behind its base leads, and its time does not fall", () => {
    const state = raft({ base: { ...positionOf(10, 3), timeMs: 70_000 } });
    const output = lead(state, 0, [5000, 5000]);
    expect(output.persist?.append).toMatchObject([{ index: 11, term: 4, timeMs: 70_000 }]);
    expect(sent(output, "append", 2)).toMatchObject([{ prevIndex: 10, prevTerm: 3 }]);
  });

  test("an election compares by the base if there is nothing else", () => {
    const state = raft({ id: 2, base: positionOf(10, 3) });
    const ask = (lastIndex: number, lastTerm: number) => {
      return theOnly(receive(state, 1, { kind: "pre_vote", term: 9, lastIndex, lastTerm }), "pre_vote_reply").granted;
    };
    expect([ask(9, 3), ask(10, 2), ask(10, 3), ask(5, 4)]).toEqual([false, false, true, true]);
  });
});

describe("a leader sees that a follower needs a snapshot", () => {
  test.each([
    { claim: "from a hint below the base", hint: { index: 4, term: 1 }, needed: true },
    { claim: "from a hint whose term its log has only below the base", hint: { index: 12, term: 0 }, needed: true },
    { claim: "not from a hint at the base", hint: { index: 10, term: 1 }, needed: false },
    { claim: "not from a hint behind it", hint: { index: 11, term: 1 }, needed: false },
  ])("$claim", ({ hint, needed }) => {
    const state = leaderBehindTen();
    const output = receive(state, 3, conflict(2, 12, hint));
    expect(progressOf(state, 3)?.kind).toBe(needed ? "snapshot" : "probe");
    expect(output.snapshotWanted).toBe(needed);
    expect(sent(output, "append", 3)).toHaveLength(needed ? 0 : 1);
  });

  test("from its answer alone, also when the own log is cut behind what it needs next", () => {
    const state = raft({ size: 3 });
    stored(state, lead(state));
    stored(state, propose(state, ["a", "b"]));
    receive(state, 2, matched(1, 3));
    receive(state, 3, conflict(1, 0, { index: 0, term: 0 }));
    expect(progressOf(state, 3)).toMatchObject({ kind: "probe", next: 1 });
    expect(truncate(state, 2)).toMatchObject({ snapshotWanted: false, sendEarly: [] });
    expect(progressOf(state, 3)).toMatchObject({ kind: "probe", next: 3 });
    const beat = tick(state, HEARTBEAT_MS);
    expect(theOnly(beat, "append", 3)).toMatchObject({ prevIndex: 2, prevTerm: 1, entries: [] });
    expect(receive(state, 3, conflict(1, 2, { index: 0, term: 0 })).snapshotWanted).toBe(true);
    expect(progressOf(state, 3)).toMatchObject({ kind: "snapshot", next: 3 });
    truncate(state, 3);
    expect(progressOf(state, 3)).toMatchObject({ kind: "snapshot", next: 4 });
    expect(progressOf(state, 2)).toMatchObject({ kind: "replicate", next: 4 });
  });

  test("not while what was sent may still arrive: the answer decides", () => {
    const state = raft({ size: 3 });
    stored(state, lead(state));
    for (const id of [2, 3]) receive(state, id, matched(1, 1));
    stored(state, propose(state, ["a", "b"]));
    receive(state, 2, matched(1, 3));
    truncate(state, 3);
    expect(progressOf(state, 3)).toMatchObject({ kind: "replicate", match: 1, next: 4 });
    receive(state, 3, conflict(1, 3, { index: 1, term: 1 }));
    expect(progressOf(state, 3)?.kind).toBe("snapshot");
  });

  test("a full window that the cut has overtaken is forgotten with it", () => {
    const state = raft({ size: 3 });
    stored(state, lead(state));
    for (const id of [2, 3]) receive(state, id, matched(1, 1));
    for (let count = 0; count < 20; count += 1) stored(state, propose(state, ["x"]));
    receive(state, 2, matched(1, 17));
    receive(state, 2, matched(1, 21));
    truncate(state, 20);
    expect(progressOf(state, 3)).toMatchObject({ kind: "probe", next: 21, match: 1, inFlight: [] });
    expect(sent(receive(state, 3, matched(1, 20)), "append", 3)).toHaveLength(1);
  });

  test("and forgets it in its sleep: who was away then may have come back by other ways, or not at all", () => {
    const state = leaderOfALateFollower();
    stored(state, propose(state, ["x"]));
    receive(state, 2, matched(2, 14));
    const nowMs = ELECTION_MS_MAX + HEARTBEAT_MS;
    tick(state, ELECTION_MS_MAX);
    receive(state, 2, matched(2, 14), nowMs);
    expect(happen(state, { kind: "quiesce" }, nowMs).wakeAtMs).toBe(Number.POSITIVE_INFINITY);
    const output = happen(state, { kind: "wake" }, 10_000);
    expect(output.snapshotWanted).toBe(false);
    expect(theOnly(output, "append", 3)).toMatchObject({ prevIndex: 10 });
    expect(receive(state, 3, conflict(2, 10, { index: 4, term: 1 }), 10_001).snapshotWanted).toBe(true);
  });

  test("and asks for one until it has one, if the follower answers", () => {
    const state = leaderOfALateFollower();
    expect(tick(state, HEARTBEAT_MS).snapshotWanted).toBe(true);
    expect(ready(state, positionOf(11, 1)).snapshotWanted).toBe(false);
    expect(ready(state, null).snapshotWanted).toBe(true);
    expect(snapshotPeers(state, ELECTION_MS_MAX)).toEqual([3]);
    receive(state, 2, matched(2, 13), ELECTION_MS_MAX + 1);
    const silent = happen(state, { kind: "truncate_log", index: 0 }, ELECTION_MS_MAX + 1);
    expect(silent.snapshotWanted).toBe(false);
    expect(snapshotPeers(state, ELECTION_MS_MAX + 1)).toEqual([]);
    const back = receive(state, 3, conflict(2, 10, { index: 4, term: 1 }), ELECTION_MS_MAX + 2);
    expect(back.snapshotWanted).toBe(true);
  });
});

describe("a follower that needs a snapshot", () => {
  test("gets no entries, but heartbeats at the base with the read round, and its answers confirm that", () => {
    const state = leaderOfALateFollower();
    stored(state, propose(state, ["x"]));
    receive(state, 2, matched(2, 14));
    const output = happen(state, { kind: "read", context: 5 });
    expect(theOnly(output, "append", 3)).toMatchObject({ prevIndex: 10, prevTerm: 1, entries: [], round: 1 });
    const reply = { ...conflict(2, 10, { index: 4, term: 1 }), round: 1 };
    expect(receive(state, 3, reply).reads).toEqual([{ context: 5, index: 14 }]);
    expect(progressOf(state, 3)?.kind).toBe("snapshot");
  });

  test("is offered the snapshot at once, with every heartbeat, and no sooner than it needs it", () => {
    const state = leaderBehindTen();
    ready(state, positionOf(11, 1));
    expect(leaderRole(state).snapshot).toBeNull();
    receive(state, 3, conflict(2, 12, { index: 4, term: 1 }));
    expect(ready(state, positionOf(11, 1)).sendLate).toEqual([
      { from: 1, to: 3, message: offer(2, positionOf(11, 1)) },
    ]);
    const beat = tick(state, HEARTBEAT_MS);
    expect(sent(beat, "snapshot_offer", 3)).toEqual([offer(2, positionOf(11, 1))]);
    expect(sent(beat, "snapshot_offer", 2)).toEqual([]);
  });

  test("goes on behind the snapshot once it has it, or wherever it got to by itself", () => {
    for (const index of [10, 11, 12]) {
      const state = leaderOfALateFollower();
      ready(state, positionOf(11, 1));
      const output = receive(state, 3, matched(2, index));
      expect(progressOf(state, 3)).toMatchObject({ kind: "replicate", match: index });
      expect(sent(output, "append", 3)[0]).toMatchObject({ prevIndex: index });
      expect(leaderRole(state).snapshot).toBeNull();
    }
  });

  test("that took in a snapshot which the log does not reach any more needs another one", () => {
    const state = leaderOfALateFollower();
    stored(state, propose(state, ["x"]));
    receive(state, 2, matched(2, 14));
    ready(state, positionOf(11, 1));
    expect(truncate(state, 12).snapshotWanted).toBe(true);
    receive(state, 3, matched(2, 11));
    expect(progressOf(state, 3)).toMatchObject({ kind: "snapshot", match: 11, next: 13 });
    const output = ready(state, positionAt(state.log, 13));
    expect(sent(output, "snapshot_offer", 3)).toHaveLength(1);
  });

  test("that answers late, from before it had the snapshot, does not go back", () => {
    const state = leaderOfALateFollower();
    ready(state, positionOf(11, 1));
    receive(state, 3, matched(2, 11));
    receive(state, 3, conflict(2, 10, { index: 4, term: 1 }));
    expect(progressOf(state, 3)).toMatchObject({ kind: "replicate", match: 11 });
  });

  test("that has lost what it had after all is looked for in the log, if the log reaches so far", () => {
    const state = leaderOfALateFollower();
    receive(state, 3, conflict(2, 10, { index: 4, term: 1 }));
    expect(progressOf(state, 3)?.kind).toBe("snapshot");
    receive(state, 3, conflict(2, 12, { index: 11, term: 1 }));
    expect(progressOf(state, 3)).toMatchObject({ kind: "probe", next: 12 });
  });
});

describe("a snapshot that a leader is told of", () => {
  test.each([
    { claim: "below its base", snapshot: positionOf(9, 1) },
    { claim: "whose membership nobody knows", snapshot: positionOf(11, 1, members([])) },
  ])("is of no use $claim", ({ snapshot }) => {
    const state = leaderOfALateFollower();
    expect(ready(state, snapshot)).toMatchObject({ snapshotWanted: true, sendLate: [] });
  });

  test.each([
    { claim: "of another term than its log", snapshot: positionOf(11, 2) },
    { claim: "of another time", snapshot: { ...positionOf(11, 1), timeMs: 5 } },
    { claim: "of another membership", snapshot: positionOf(11, 1, members([1, 2])) },
    { claim: "that is not committed", snapshot: positionOf(12, 1) },
  ])("$claim is a broken invariant", ({ snapshot }) => {
    expect(() => ready(leaderOfALateFollower(), snapshot)).toThrow(AssertionError);
  });

  test("means nothing to a follower", () => {
    expect(ready(raft({ terms: [1], commit: 1 }), positionOf(1, 1))).toMatchObject({ persist: null, sendLate: [] });
  });
});

describe("a follower that is offered a snapshot", () => {
  test("is to fetch it, and hears its leader by it", () => {
    const state = raft({ id: 2, terms: [1], term: 1, commit: 1 });
    const output = receive(state, 1, offer(2, positionOf(20, 2)), 1000);
    expect(output.snapshotOffer).toEqual({ from: 1, snapshot: positionOf(20, 2) });
    expect(output.sendLate).toEqual([]);
    expect(output.persist?.hardState).toEqual({ term: 2, votedFor: null });
    expect(followerOf(state)).toBe(1);
    expect(
      receive(state, 3, { kind: "vote", term: 9, lastIndex: 99, lastTerm: 9, transfer: false }, 1001).sendLate,
    ).toEqual([]);
  });

  test("answers at once if it has that much already (S52)", () => {
    const state = raft({ id: 2, terms: times(20, 1), term: 1, commit: 18 });
    const output = receive(state, 1, offer(1, positionOf(15, 1)));
    expect(output.snapshotOffer).toBeNull();
    expect(theOnly(output, "append_reply").result).toEqual({ kind: "matched", index: 18 });
    expect(state.commit).toBe(18);
  });

  test("learns from it what is committed, if its log has that entry", () => {
    const state = raft({ id: 2, terms: times(20, 1), term: 1, commit: 3 });
    const output = receive(state, 1, offer(1, positionOf(15, 1)));
    expect(theOnly(output, "append_reply").result).toEqual({ kind: "matched", index: 15 });
    expect(output).toMatchObject({ snapshotOffer: null, commitIndex: 15, persist: null });
  });

  test("ignores a leader of the past", () => {
    const state = raft({ id: 2, terms: [1], term: 5 });
    expect(receive(state, 1, offer(4, positionOf(20, 2)))).toMatchObject({ snapshotOffer: null, sendLate: [] });
    expect(followerOf(state)).toBeNull();
  });

  test("a leader is not offered one in its own term", () => {
    const state = leaderBehindTen();
    expect(() => receive(state, 2, offer(2, positionOf(20, 2)))).toThrow(AssertionError);
  });
});

describe("a snapshot that lies complete", () => {
  const behind = (terms: readonly number[] = times(20, 2), commit = 10) => {
    const state = raft({ id: 2, terms, term: 3, commit });
    receive(state, 1, append({ term: 3, prevIndex: terms.length + 9, prevTerm: 3 }));
    return state;
  };

  test("takes the place of the whole log if that has another entry at its index (S52)", () => {
    const state = behind();
    const output = stage(state, positionOf(20, 3));
    expect(output.persist).toMatchObject({ install: { snapshot: positionOf(20, 3), keepsSuffix: false }, append: [] });
    expect(state.log).toMatchObject({ lastIndex: 20, lastTerm: 3, cached: [] });
    expect(output.commitIndex).toBe(20);
    expect(theOnly(output, "append_reply").result).toEqual({ kind: "matched", index: 20 });
    const next = receive(state, 1, append({ term: 3, prevIndex: 20, prevTerm: 3, entries: entriesOf([3], 21) }));
    expect(theOnly(next, "append_reply").result).toEqual({ kind: "matched", index: 21 });
  });

  test("or ends before its index", () => {
    const state = behind(times(15, 2));
    expect(stage(state, positionOf(20, 3)).persist?.install?.keepsSuffix).toBe(false);
    expect(state.log).toMatchObject({ lastIndex: 20, lastTerm: 3 });
  });

  test("leaves what stands behind its index if the log has its last entry", () => {
    const state = behind();
    const output = stage(state, positionOf(15, 2));
    expect(output.persist?.install).toEqual({ snapshot: positionOf(15, 2), keepsSuffix: true });
    expect(state.log).toMatchObject({ base: positionOf(15, 2), lastIndex: 20 });
    expect(logTerms(state)).toEqual(times(5, 2));
    expect(theOnly(output, "append_reply").result).toEqual({ kind: "matched", index: 15 });
  });

  test.each([
    { claim: "older than what is committed", index: 9 },
    { claim: "as old as that", index: 10 },
  ])("changes nothing if it is $claim (S52)", ({ index }) => {
    const state = behind();
    const output = stage(state, positionOf(index, 2));
    expect(output).toMatchObject({ persist: null, sendLate: [], commitIndex: 10 });
    expect(state.log).toMatchObject({ lastIndex: 20, base: { index: 0 } });
  });

  test("of a term that this node has not reached is none of its cluster's yet", () => {
    expect(stage(raft({ term: 2 }), positionOf(20, 3)).persist).toBeNull();
  });

  test.each([
    { order: [20, 30], installed: [20, 30] },
    { order: [30, 20], installed: [30] },
    { order: [20, 20, 30, 30, 20], installed: [20, 30] },
  ])("staged in the order $order, what stands in the end is 30 (S52)", ({ order, installed }) => {
    const state = behind();
    const taken = order.flatMap((index) => stage(state, positionOf(index, 3)).persist?.install?.snapshot.index ?? []);
    expect(taken).toEqual(installed);
    expect(state).toMatchObject({ commit: 30 });
    expect(state.log).toMatchObject({ lastIndex: 30, lastTerm: 3 });
  });

  test("comes with its membership, and an abandoned one with a higher index is gone (S57)", () => {
    const entries = [...entriesOf(times(20, 2)), membershipEntry(21, 2, members([1, 2]))];
    const state = raft({ id: 2, entries, term: 3, commit: 10 });
    stage(state, positionOf(20, 3, members([2, 3, 4], [7])));
    expect(state.log.memberships).toEqual([{ index: 20, membership: members([2, 3, 4], [7]) }]);
  });

  test("leaves a later membership in force if the log agrees with it", () => {
    const entries = [...entriesOf(times(20, 2)), membershipEntry(21, 2, members([1, 2]))];
    const state = raft({ id: 2, entries, term: 3, commit: 10 });
    stage(state, positionOf(20, 2));
    expect(state.log.memberships.map(({ index }) => index)).toEqual([20, 21]);
  });

  test("with another membership than a log that agrees with it is a broken invariant", () => {
    expect(() => stage(behind(), positionOf(15, 2, members([2, 3])))).toThrow(AssertionError);
    const stranger = raft({ id: 2, base: positionOf(0, 0, members([])), terms: times(20, 2), term: 3, commit: 10 });
    expect(stage(stranger, positionOf(15, 2)).persist?.install?.keepsSuffix).toBe(true);
  });

  test("is durable only once it is told so", () => {
    const state = behind();
    const output = stage(state, positionOf(20, 3));
    expect(state.durableIndex).toBe(10);
    stored(state, output);
    expect(state.durableIndex).toBe(20);
  });

  test("comes too late for a leader, which has all of it or will commit it", () => {
    const state = raft({ terms: times(20, 2), commit: 10 });
    leadAndCommit(state);
    state.commit = 21;
    expect(stage(state, positionOf(22, 3)).persist).toBeNull();
    expect(state.role.kind).toBe("leader");
  });

  test("ends a candidacy: the log that was advertised is not there any more", () => {
    const state = raft({ id: 2, terms: times(20, 2), term: 3, commit: 10 });
    campaign(state);
    receive(state, 1, { kind: "pre_vote_reply", term: 4, granted: true });
    expect(state.role.kind).toBe("candidate");
    stage(state, positionOf(20, 3));
    expect(state.role.kind).toBe("follower");
    receive(state, 1, { kind: "vote_reply", term: 4, granted: true, wallMs: 0 });
    expect(state.role.kind).toBe("follower");
  });

  test("is acknowledged to nobody if no leader is known", () => {
    const output = stage(raft({ id: 2, term: 3 }), positionOf(20, 3));
    expect(output.persist?.install?.snapshot.index).toBe(20);
    expect(output.sendLate).toEqual([]);
  });
});

describe("a cluster whose log is cut", () => {
  /** Node 3 is away while 20 entries are written and dropped everywhere. */
  function late(size = 3): Cluster {
    const cluster = new Cluster({ size });
    cluster.elect(1);
    cluster.pass(2 * HEARTBEAT_MS);
    cluster.crash(3);
    for (let count = 0; count < 20; count += 1) cluster.propose(1, `w${count}`);
    cluster.pass(2 * HEARTBEAT_MS);
    for (const { id } of cluster.nodes) if (id !== 3) cluster.truncate(id);
    return cluster;
  }

  const caughtUp = (cluster: Cluster, id: number) => {
    const leader = cluster.leader() ?? 0;
    expect(cluster.state(id).commit).toBe(cluster.state(leader).log.lastIndex);
    expect(cluster.state(id).term).toBe(cluster.state(leader).term);
  };

  test("brings a late follower up to date by a snapshot, while it goes on writing", () => {
    const cluster = late();
    cluster.restart(3);
    for (let count = 0; count < 10; count += 1) {
      cluster.propose(1, "more");
      cluster.pass(20);
    }
    cluster.pass(2 * HEARTBEAT_MS);
    caughtUp(cluster, 3);
    expect(cluster.state(3).log.base.index).toBeGreaterThanOrEqual(21);
    expect(cluster.state(1).term).toBe(1);
  });

  test("and one that knows nothing at all", () => {
    const cluster = new Cluster({ size: 4, voters: [1, 2, 3] });
    cluster.elect(1);
    cluster.propose(1, "x");
    cluster.pass(2 * HEARTBEAT_MS);
    cluster.truncate(1);
    cluster.change(1, members([1, 2, 3], [4]));
    cluster.pass(4 * HEARTBEAT_MS);
    caughtUp(cluster, 4);
    expect(cluster.membership(4)).toEqual(members([1, 2, 3], [4]));
  });

  test("also if every offer but the last one is lost, and acknowledgements too", () => {
    const cluster = late();
    cluster.restart(3);
    for (let lost = 0; lost < 5; lost += 1) {
      cluster.advance(HEARTBEAT_MS);
      cluster.tick(1);
      cluster.take(to(3, "snapshot_offer"));
      cluster.stabilize();
      if (cluster.node(1).snapshotWanted) cluster.snapshot(1);
      cluster.take(to(3, "snapshot_offer"));
    }
    expect(cluster.state(3).commit).toBe(1);
    cluster.advance(HEARTBEAT_MS);
    cluster.tick(1);
    cluster.stabilize();
    cluster.stage(3);
    cluster.take(from(3));
    cluster.pass(2 * HEARTBEAT_MS);
    caughtUp(cluster, 3);
  });

  test.each([0, 1])(
    "a crash in the turn that takes it in leaves the old state or the new one (%i turns kept)",
    (kept) => {
      const cluster = late();
      cluster.restart(3);
      cluster.advance(HEARTBEAT_MS);
      cluster.tick(1);
      cluster.stabilize();
      cluster.snapshot(1);
      cluster.stabilize();
      cluster.hold(3);
      cluster.stage(3);
      expect(cluster.pool.filter(from(3))).toEqual([]);
      cluster.crash(3, kept);
      const { disk } = cluster.node(3);
      expect([disk.base.index, disk.entries.length, disk.applied]).toEqual(kept === 0 ? [0, 1, 1] : [21, 0, 21]);
      cluster.restart(3);
      cluster.pass(4 * HEARTBEAT_MS);
      caughtUp(cluster, 3);
    },
  );

  test("a node that took in a snapshot can lead, and serve it on", () => {
    const cluster = late(5);
    cluster.restart(3);
    cluster.pass(4 * HEARTBEAT_MS);
    cluster.crash(4);
    cluster.propose(1, "x");
    cluster.pass(2 * HEARTBEAT_MS);
    cluster.crash(1);
    cluster.advance(ELECTION_MS_MAX);
    cluster.elect(3);
    cluster.pass(2 * HEARTBEAT_MS);
    cluster.truncate(3);
    cluster.restart(4);
    cluster.pass(4 * HEARTBEAT_MS);
    caughtUp(cluster, 4);
  });

  test("a leader that changes in the middle makes its own snapshot, and the old one, fetched late, still helps", () => {
    const cluster = late(5);
    cluster.restart(3);
    cluster.advance(HEARTBEAT_MS);
    cluster.tick(1);
    cluster.stabilize();
    const old = cluster.snapshot(1);
    cluster.crash(1);
    cluster.advance(ELECTION_MS_MAX);
    cluster.elect(2);
    cluster.truncate(2);
    expect(cluster.stage(3, old).persist?.install?.snapshot).toEqual(old);
    cluster.pass(4 * HEARTBEAT_MS);
    caughtUp(cluster, 3);
  });
});
