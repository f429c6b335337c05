/** A follower that is offered a snapshot, and one that lies complete (thesis 5; S52, S57). */
import { describe, expect, test } from "vitest";
import { AssertionError } from "../../src/base/assert.ts";
import type { RaftState } from "../../src/raft/state.ts";
import type { SnapshotPosition } from "../../src/raft/types.ts";
import {
  append,
  campaign,
  entriesOf,
  followerOf,
  happen,
  lead,
  leadAndCommit,
  logTerms,
  members,
  membershipEntry,
  type Of,
  positionOf,
  raft,
  receive,
  stored,
  theOnly,
  times,
} from "./fixtures.ts";

const stage = (state: RaftState, snapshot: SnapshotPosition) => happen(state, { kind: "snapshot_staged", snapshot });

function offer(term: number, snapshot: SnapshotPosition): Of<"snapshot_offer"> {
  return { kind: "snapshot_offer", term, snapshot };
}

/** Node 1 leads term 2; its log begins behind 10 and ends at 13, of which 11 is committed. */
function leaderBehindTen(): RaftState {
  const state = raft({ base: positionOf(10, 1), terms: [1, 1], term: 1, commit: 11 });
  lead(state);
  return state;
}

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
