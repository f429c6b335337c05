/** Quiescence with learners, snapshots on their way and members that come and go (design 02 §4; quiescence.ts Q1). */
import { describe, expect, test } from "vitest";
import { isAsleep, laggingPeers, type RaftState } from "../../src/raft/state.ts";
import { Cluster, from } from "./cluster.ts";
import {
  append,
  change,
  conflict,
  ELECTION_MS_MAX,
  entriesOf,
  HEARTBEAT_MS,
  happen,
  leaderRole,
  leading,
  matched,
  members,
  membershipEntry,
  positionOf,
  preVote,
  raft,
  receive,
  sent,
  settle,
  theOnly,
  tick,
} from "./fixtures.ts";

/** A leader whose followers hold and know everything. */
function idle(membership = members([1, 2, 3], [4])): RaftState {
  const state = leading(membership);
  tick(state, HEARTBEAT_MS);
  for (const id of leaderRole(state).progress.keys()) receive(state, id, matched(1, 1), HEARTBEAT_MS);
  return state;
}

function sleeps(state: RaftState, nowMs = HEARTBEAT_MS): boolean {
  happen(state, { kind: "quiesce" }, nowMs);
  return isAsleep(state);
}

describe("a leader falls asleep with its learners", () => {
  test("which are told like everybody", () => {
    const state = idle();
    const output = happen(state, { kind: "quiesce" }, HEARTBEAT_MS);
    expect(output.sendLate.map(({ to }) => to)).toEqual([2, 3, 4]);
  });

  test("not while one that answers is behind, or has not heard what is committed", () => {
    const behind = idle();
    const progress = leaderRole(behind).progress.get(4);
    if (progress !== undefined) progress.match = 0;
    expect(sleeps(behind)).toBe(false);
    const unaware = idle();
    const other = leaderRole(unaware).progress.get(4);
    if (other !== undefined) other.sentCommit = 0;
    expect(sleeps(unaware)).toBe(false);
  });

  test("without one that does not answer, for which it looks from time to time", () => {
    const state = idle();
    const nowMs = ELECTION_MS_MAX + 2 * HEARTBEAT_MS;
    for (const id of [2, 3]) receive(state, id, matched(1, 1), nowMs);
    expect(sleeps(state, nowMs)).toBe(true);
    expect(laggingPeers(state)).toEqual([4]);
    expect(happen(state, { kind: "probe" }, nowMs).sendEarly.map(({ to }) => to)).toEqual([4]);
  });

  test("learners are no majority: without the voters' answers it does not sleep", () => {
    const state = idle(members([1, 2, 3], [4, 5, 6]));
    const nowMs = ELECTION_MS_MAX + 2 * HEARTBEAT_MS;
    for (const id of [4, 5, 6]) receive(state, id, matched(1, 1), nowMs);
    expect(sleeps(state, nowMs)).toBe(false);
  });

  test("a single voter sleeps with its learners", () => {
    expect(sleeps(idle(members([1], [2])))).toBe(true);
  });
});

describe("a leader stays awake", () => {
  test("while a member that answers needs a snapshot", () => {
    const state = raft({ base: positionOf(10, 1, members([1, 2, 3])) });
    const late = leaderBehindItsBase(state);
    expect(leaderRole(late).progress.get(3)?.kind).toBe("snapshot");
    expect(sleeps(late)).toBe(false);
    receive(late, 3, matched(2, 11), HEARTBEAT_MS);
    tick(late, 2 * HEARTBEAT_MS);
    expect(sleeps(late, 2 * HEARTBEAT_MS)).toBe(true);
  });

  test("while a change of membership is not committed, and until everybody has heard of it", () => {
    const state = idle();
    const output = change(state, members([1, 2, 3], [4, 5]), HEARTBEAT_MS);
    expect(sleeps(state)).toBe(false);
    settle(state, output, 2, 3, 4);
    expect(sleeps(state)).toBe(false);
    receive(state, 5, matched(1, 2), HEARTBEAT_MS);
    tick(state, 2 * HEARTBEAT_MS);
    expect(sleeps(state, 2 * HEARTBEAT_MS)).toBe(true);
  });

  test("while somebody who has left has not heard so, if it answers; it is not looked for in sleep", () => {
    const state = idle();
    settle(state, change(state, members([1, 2, 3]), HEARTBEAT_MS), 2, 3);
    tick(state, 2 * HEARTBEAT_MS);
    expect(sleeps(state, 2 * HEARTBEAT_MS)).toBe(false);
    const nowMs = HEARTBEAT_MS + ELECTION_MS_MAX + 1;
    for (const id of [2, 3]) receive(state, id, matched(1, 2), nowMs - 1);
    expect(leaderRole(state).progress.has(4)).toBe(true);
    expect(sleeps(state, nowMs)).toBe(true);
    expect(laggingPeers(state)).toEqual([]);
    expect(happen(state, { kind: "probe" }, nowMs + 1)).toMatchObject({ sendEarly: [], sendLate: [] });
  });

  /** It leads term 2 behind a base that node 3 has not; everything else is committed. */
  function leaderBehindItsBase(state: RaftState): RaftState {
    const won = leadFrom(state);
    settle(state, won, 2);
    receive(state, 3, conflict(2, 10, { index: 4, term: 1 }));
    tick(state, HEARTBEAT_MS);
    for (const id of [2]) receive(state, id, matched(2, 11), HEARTBEAT_MS);
    return state;
  }

  function leadFrom(state: RaftState) {
    if (state.role.kind !== "leader") state.role.electionAtMs = 0;
    happen(state, { kind: "tick" });
    receive(state, 2, { kind: "pre_vote_reply", term: 2, granted: true });
    return receive(state, 2, { kind: "vote_reply", term: 2, granted: true, wallMs: 0 });
  }
});

describe("asleep", () => {
  test("a leader may cut its log, and stays asleep", () => {
    const state = idle();
    expect(sleeps(state)).toBe(true);
    const output = happen(state, { kind: "truncate_log", index: 1 }, HEARTBEAT_MS);
    expect(output.persist?.dropThrough?.index).toBe(1);
    expect(isAsleep(state)).toBe(true);
  });

  test("a leader wakes for a change of membership, and greets everybody", () => {
    const state = idle();
    expect(sleeps(state)).toBe(true);
    const output = change(state, members([1, 2, 3]), 5000);
    expect(isAsleep(state)).toBe(false);
    expect(output.sendEarly.map(({ to }) => to)).toEqual([2, 3, 4]);
  });

  test("a follower takes in a snapshot that lies complete, and wakes by it", () => {
    const state = raft({ id: 2, terms: [1], term: 1, commit: 1, asleep: true });
    const output = happen(state, { kind: "snapshot_staged", snapshot: positionOf(9, 1) });
    expect(output.persist?.install?.snapshot.index).toBe(9);
    expect(isAsleep(state)).toBe(false);
  });

  test("a pre-vote of a member wakes, one of a stranger is only answered", () => {
    for (const [candidate, wakes] of [
      [3, true],
      [9, false],
    ] as const) {
      const follower = raft({ id: 2, terms: [1], term: 1, asleep: true });
      expect(sent(receive(follower, candidate, preVote(2, 1, 1)), "pre_vote_reply")).toHaveLength(1);
      expect(isAsleep(follower)).toBe(!wakes);
      const leader = idle();
      expect(sleeps(leader)).toBe(true);
      receive(leader, candidate, preVote(2, 1, 1), HEARTBEAT_MS);
      expect(isAsleep(leader)).toBe(!wakes);
    }
  });

  test("a stranger's pre-vote does wake whoever does not know for certain that it has left", () => {
    // Voters 1 and 2; node 2 alone has the entry that removes node 1, and lost its memory in its sleep.
    const entries = [membershipEntry(1, 1, members([2]))];
    const base = positionOf(0, 0, members([1, 2]));
    const state = raft({ id: 2, base, entries, term: 1, asleep: true });
    expect(theOnly(receive(state, 1, preVote(2, 0, 0)), "pre_vote_reply").granted).toBe(false);
    expect(isAsleep(state)).toBe(false);
    const certain = raft({ id: 2, base, entries, term: 1, commit: 1, asleep: true });
    receive(certain, 1, preVote(2, 0, 0));
    expect(isAsleep(certain)).toBe(true);
  });

  test("a learner sleeps when its leader says so, and is woken by its next message", () => {
    const state = raft({ id: 4, base: positionOf(0, 0, members([1, 2, 3], [4])) });
    receive(state, 1, append({ entries: entriesOf([1, 1]), commit: 2 }));
    receive(state, 1, { kind: "quiesce", term: 1, index: 2, commit: 2, timeMs: 0 });
    expect(isAsleep(state)).toBe(true);
    receive(state, 1, append({ prevIndex: 2, prevTerm: 1, commit: 2 }));
    expect(isAsleep(state)).toBe(false);
  });
});

describe("a cluster with a learner", () => {
  test("sleeps and is woken by one call at the learner", () => {
    const cluster = new Cluster({ size: 4, voters: [1, 2, 3], learners: [4] });
    cluster.elect(1);
    cluster.pass(2 * HEARTBEAT_MS);
    expect(cluster.quiesce(1)).toBe(true);
    cluster.stabilize();
    cluster.advance(3_600_000);
    for (const { id } of cluster.nodes) expect(isAsleep(cluster.state(id))).toBe(true);
    cluster.wake(4);
    cluster.stabilize();
    for (const { id } of cluster.nodes) expect(isAsleep(cluster.state(id))).toBe(false);
    expect(cluster.state(1).term).toBe(1);
  });

  test("a learner that was not told to sleep calls once, is heard, and sleeps with the rest", () => {
    const cluster = new Cluster({ size: 4, voters: [1, 2, 3], learners: [4] });
    cluster.elect(1);
    cluster.pass(2 * HEARTBEAT_MS);
    cluster.quiesce(1);
    cluster.take(({ to, message }) => to === 4 && message.kind === "quiesce");
    cluster.stabilize();
    let calls = 0;
    cluster.onDelivery = ({ message }) => {
      if (message.kind === "wake") calls += 1;
    };
    cluster.passUntil(() => !isAsleep(cluster.state(1)), 2 * ELECTION_MS_MAX);
    expect(calls).toBeGreaterThan(0);
    cluster.pass(2 * HEARTBEAT_MS);
    expect(cluster.quiesce(1)).toBe(true);
    cluster.stabilize();
    cluster.pass(10 * ELECTION_MS_MAX);
    for (const { id } of cluster.nodes) expect(isAsleep(cluster.state(id))).toBe(true);
    expect(cluster.pool.filter(from(4))).toEqual([]);
  });
});
