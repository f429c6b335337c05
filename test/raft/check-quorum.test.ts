/** Check-quorum: a leader that a majority does not answer stops leading (thesis section 6.2; S06). */
import { describe, expect, test } from "vitest";
import { Cluster } from "./cluster.ts";
import {
  conflict,
  ELECTION_MS_MAX,
  followerOf,
  HEARTBEAT_MS,
  lead,
  leadAndCommit,
  leaderRole,
  matched,
  preVote,
  raft,
  receive,
  sent,
  theOnly,
  tick,
} from "./fixtures.ts";

/** Ticks the leader on time from heartbeat to heartbeat until `untilMs` or until it does not lead any more. */
function heartbeatsUntil(state: ReturnType<typeof raft>, untilMs: number): number {
  let nowMs = 0;
  while (state.role.kind === "leader" && state.role.heartbeatAtMs <= untilMs) {
    nowMs = state.role.heartbeatAtMs;
    tick(state, nowMs);
  }
  return nowMs;
}

describe("check-quorum (thesis 6.2)", () => {
  test("a leader that nobody answers steps down within an election timeout and one heartbeat", () => {
    const state = raft({ size: 5 });
    lead(state);
    const nowMs = heartbeatsUntil(state, 10_000);
    expect(state.role.kind).toBe("follower");
    expect(nowMs).toBeGreaterThan(ELECTION_MS_MAX);
    expect(nowMs).toBeLessThanOrEqual(ELECTION_MS_MAX + HEARTBEAT_MS);
  });

  test("the answers of a minority do not keep it in office", () => {
    const state = raft({ size: 5 });
    leadAndCommit(state);
    let nowMs = 0;
    while (state.role.kind === "leader" && nowMs < 10_000) {
      nowMs = state.role.heartbeatAtMs;
      tick(state, nowMs);
      receive(state, 2, matched(1, 1), nowMs);
    }
    expect(nowMs).toBeLessThanOrEqual(ELECTION_MS_MAX + HEARTBEAT_MS);
  });

  test("the answers of a bare majority do, whatever they say", () => {
    const state = raft({ size: 5, terms: [1, 1], term: 1 });
    lead(state);
    for (let nowMs = HEARTBEAT_MS; nowMs < 5_000; nowMs += HEARTBEAT_MS) {
      tick(state, nowMs);
      receive(state, 2, matched(2, 0), nowMs);
      receive(state, 3, conflict(2, 2, { index: 0, term: 0 }), nowMs);
      expect(state.role.kind).toBe("leader");
    }
  });

  test("answers of an earlier term do not count", () => {
    const state = raft({ term: 4 });
    lead(state);
    let nowMs = 0;
    while (state.role.kind === "leader" && nowMs < 5_000) {
      nowMs = state.role.heartbeatAtMs;
      tick(state, nowMs);
      receive(state, 2, matched(4, 0), nowMs);
    }
    expect(state.role.kind).toBe("follower");
  });

  test("stepping down changes neither term nor vote and writes nothing", () => {
    const state = raft({ size: 3 });
    lead(state);
    heartbeatsUntil(state, ELECTION_MS_MAX - HEARTBEAT_MS);
    const output = tick(state, ELECTION_MS_MAX + HEARTBEAT_MS);
    expect(followerOf(state)).toBeNull();
    expect(state).toMatchObject({ term: 1, votedFor: 1 });
    expect(output).toMatchObject({ persist: null, sendEarly: [], sendLate: [] });
  });

  test("a leader that has stepped down helps others to lead at once", () => {
    const state = raft({ size: 3 });
    lead(state);
    const nowMs = heartbeatsUntil(state, 10_000);
    expect(theOnly(receive(state, 2, preVote(2, 9, 9), nowMs), "pre_vote_reply").granted).toBe(true);
  });

  test("a leader whose own timer is late first sends a heartbeat and judges at the next one", () => {
    const state = raft({ size: 3 });
    leadAndCommit(state);
    const output = tick(state, 60_000);
    expect(state.role.kind).toBe("leader");
    expect(sent(output, "append")).toHaveLength(2);
    receive(state, 3, matched(1, 1), 60_010);
    tick(state, 60_000 + HEARTBEAT_MS);
    expect(state.role.kind).toBe("leader");
  });

  test("it steps down at that next heartbeat if nobody has answered", () => {
    const state = raft({ size: 3 });
    leadAndCommit(state);
    tick(state, 60_000);
    tick(state, 60_000 + HEARTBEAT_MS);
    expect(state.role.kind).toBe("follower");
  });

  test("a leader whose timers are always late judges all the same, every other time at the latest", () => {
    const state = raft({ size: 3 });
    leadAndCommit(state);
    let nowMs = 0;
    for (let count = 0; count < 100 && state.role.kind === "leader"; count += 1) {
      nowMs = leaderRole(state).heartbeatAtMs + HEARTBEAT_MS + 1;
      tick(state, nowMs);
    }
    expect(state.role.kind).toBe("follower");
    expect(nowMs).toBeLessThanOrEqual(ELECTION_MS_MAX + 4 * (2 * HEARTBEAT_MS + 1));
  });

  test("a single node has its majority in itself", () => {
    const cluster = new Cluster({ size: 1 });
    cluster.pass(ELECTION_MS_MAX);
    cluster.pass(10 * ELECTION_MS_MAX);
    expect(cluster.leader()).toBe(1);
    expect(cluster.state(1).term).toBe(1);
  });
});

describe("a leader that can send but not receive (S06)", () => {
  function deafLeader(): Cluster {
    const cluster = new Cluster({ size: 5 });
    cluster.elect(1);
    for (const other of [2, 3, 4, 5]) cluster.cutOneWay(other, 1);
    return cluster;
  }

  test("it steps down within about one election timeout, and another leader commits", () => {
    const cluster = deafLeader();
    const tookMs = cluster.passUntil(() => cluster.state(1).role.kind !== "leader", 2 * ELECTION_MS_MAX);
    expect(tookMs).toBeLessThanOrEqual(ELECTION_MS_MAX + 2 * HEARTBEAT_MS);
    cluster.passUntil(() => (cluster.leader() ?? 1) !== 1, 3 * ELECTION_MS_MAX);
    const leader = cluster.leader() ?? 0;
    cluster.propose(leader, "x");
    cluster.stabilize();
    expect(cluster.state(leader).commit).toBe(cluster.state(leader).log.lastIndex);
  });

  test("what it proposed meanwhile is committed by the next leader or overwritten, never both", () => {
    const cluster = deafLeader();
    for (let write = 0; write < 1000; write += 1) cluster.propose(1, `w${write}`);
    cluster.stabilize();
    expect(cluster.state(1).commit).toBe(1);
    cluster.passUntil(() => (cluster.leader() ?? 1) !== 1, 5 * ELECTION_MS_MAX);
    cluster.heal();
    cluster.pass(4 * ELECTION_MS_MAX);
    const leader = cluster.leader() ?? 0;
    expect(cluster.terms(1)).toEqual(cluster.terms(leader));
    expect(cluster.state(1).commit).toBe(cluster.state(leader).commit);
  });

  test("its messages in flight stay bounded while nobody answers", () => {
    const cluster = deafLeader();
    for (let write = 0; write < 1000; write += 1) cluster.propose(1, `w${write}`);
    for (const progress of leaderRole(cluster.state(1)).progress.values()) {
      expect(progress.inFlight.length).toBeLessThanOrEqual(16);
    }
    expect(cluster.pool.length).toBeLessThanOrEqual(4 * 16);
  });
});

describe("liveness with partial connections (thesis 6.4 and 9.6)", () => {
  test("when only one node reaches a majority, that node leads", () => {
    // The old leader and three others are connected to node 2 only.
    const cluster = new Cluster({ size: 5 });
    cluster.elect(1);
    for (const left of [1, 3, 4, 5]) for (const right of [1, 3, 4, 5]) if (left < right) cluster.cut(left, right);
    cluster.passUntil(() => cluster.leader() === 2, 20 * ELECTION_MS_MAX);
    cluster.propose(2, "x");
    cluster.stabilize();
    expect(cluster.state(2).commit).toBe(cluster.state(2).log.lastIndex);
  });

  test("when a majority is gone and returns, a leader is found", () => {
    const cluster = new Cluster({ size: 5 });
    cluster.elect(1);
    for (const id of [3, 4, 5]) cluster.crash(id);
    cluster.pass(5 * ELECTION_MS_MAX);
    expect(cluster.leader()).toBeNull();
    cluster.restart(4);
    cluster.passUntil(() => cluster.leader() !== null, 6 * ELECTION_MS_MAX);
  });

  test("a leader whose disk has stopped does not stop the cluster: the others commit its entries", () => {
    const cluster = new Cluster({ size: 3 });
    cluster.elect(1);
    cluster.hold(1);
    cluster.propose(1, "x");
    cluster.stabilize();
    expect(cluster.state(1).commit).toBe(2);
    expect(cluster.state(1).durableIndex).toBe(1);
    cluster.crash(1);
    cluster.advance(ELECTION_MS_MAX);
    cluster.elect(2);
    expect(cluster.terms(2)).toEqual([1, 1, 2]);
  });
});
