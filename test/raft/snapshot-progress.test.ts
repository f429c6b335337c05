/** The leader of followers that need a snapshot (thesis 5): how it knows, what it sends, what it may offer. */
import { describe, expect, test } from "vitest";
import { AssertionError } from "../../src/base/assert.ts";
import { positionAt } from "../../src/raft/log.ts";
import { snapshotPeers } from "../../src/raft/snapshots.ts";
import type { RaftState } from "../../src/raft/state.ts";
import type { SnapshotPosition } from "../../src/raft/types.ts";
import {
  conflict,
  ELECTION_MS_MAX,
  HEARTBEAT_MS,
  happen,
  lead,
  leaderRole,
  matched,
  members,
  type Of,
  positionOf,
  propose,
  raft,
  receive,
  sent,
  stored,
  theOnly,
  tick,
} from "./fixtures.ts";

const truncate = (state: RaftState, index: number) => happen(state, { kind: "truncate_log", index });
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

  test("not from a wild hint of one that is known to hold the base", () => {
    const state = leaderBehindTen();
    receive(state, 3, matched(2, 11));
    receive(state, 3, conflict(2, 13, { index: 4, term: 1 }));
    expect(progressOf(state, 3)).toMatchObject({ kind: "probe", match: 11, next: 12 });
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
    expect(sent(propose(state, ["c"]), "append", 3)).toEqual([]);
    const beat = tick(state, HEARTBEAT_MS);
    expect(theOnly(beat, "append", 3)).toMatchObject({ prevIndex: 2, prevTerm: 1, entries: [] });
    expect(receive(state, 3, conflict(1, 2, { index: 0, term: 0 })).snapshotWanted).toBe(true);
    expect(progressOf(state, 3)).toMatchObject({ kind: "snapshot", next: 3 });
    truncate(state, 3);
    expect(progressOf(state, 3)).toMatchObject({ kind: "snapshot", next: 4 });
    expect(progressOf(state, 2)).toMatchObject({ kind: "replicate", next: 5 });
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
    expect(sent(propose(state, ["y"]), "append", 3)).toEqual([]);
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
