/** Leader transfer (thesis 3.10, 4.2.3): who may take over, what is refused meanwhile, and how it ends. */
import { describe, expect, test } from "vitest";
import { isAsleep, type RaftState } from "../../src/raft/state.ts";
import type { NodeId, Output } from "../../src/raft/types.ts";
import { Cluster, from, to } from "./cluster.ts";
import {
  append,
  campaign,
  change,
  ELECTION_MS_MAX,
  followerOf,
  HEARTBEAT_MS,
  happen,
  leaderRole,
  leading,
  matched,
  members,
  positionOf,
  propose,
  raft,
  receive,
  sent,
  settle,
  stored,
  theOnly,
  tick,
  vote,
} from "./fixtures.ts";

const transfer = (state: RaftState, id: NodeId, nowMs = 0) => happen(state, { kind: "transfer", to: id }, nowMs);
const asked = (output: Output) => output.sendLate.filter(({ message }) => message.kind === "timeout_now");

describe("a transfer is refused", () => {
  test.each([
    { claim: "to a learner", id: 4, refusal: "not_a_voter" },
    { claim: "to a stranger", id: 9, refusal: "not_a_voter" },
    { claim: "to the leader itself", id: 1, refusal: "already_leader" },
  ] as const)("$claim", ({ id, refusal }) => {
    const state = leading(members([1, 2, 3], [4]));
    expect(transfer(state, id)).toMatchObject({ refusal, sendLate: [] });
    expect(leaderRole(state).transfer).toBeNull();
  });

  test("by whoever does not lead, and while another one is under way", () => {
    expect(transfer(raft(), 2).refusal).toBe("not_leader");
    const state = leading(members([1, 2, 3]));
    expect(transfer(state, 2).refusal).toBeNull();
    expect(transfer(state, 3).refusal).toBe("transferring");
    expect(transfer(state, 2).refusal).toBe("transferring");
  });
});

describe("a leader that hands over", () => {
  test("asks at once a successor that holds everything", () => {
    const state = leading(members([1, 2, 3]));
    expect(asked(transfer(state, 2))).toEqual([{ from: 1, to: 2, message: { kind: "timeout_now", term: 1 } }]);
  });

  test("first brings it to the end of its log", () => {
    const state = leading(members([1, 2, 3]));
    propose(state, ["a", "b"]);
    expect(asked(transfer(state, 2))).toEqual([]);
    expect(asked(receive(state, 2, matched(1, 2)))).toEqual([]);
    expect(asked(receive(state, 3, matched(1, 3)))).toEqual([]);
    expect(asked(receive(state, 2, matched(1, 3)))).toHaveLength(1);
  });

  test("takes on no proposals meanwhile, but serves reads", () => {
    const state = leading(members([1, 2, 3]));
    transfer(state, 2);
    expect(propose(state, ["a"])).toMatchObject({ proposed: null, refusal: "transferring", persist: null });
    happen(state, { kind: "read", context: 4 });
    expect(receive(state, 3, matched(1, 1, 1)).reads).toEqual([{ context: 4, index: 1 }]);
  });

  test("a proposal to a follower says that it does not lead", () => {
    expect(propose(raft(), ["a"])).toMatchObject({ proposed: null, refusal: "not_leader" });
    expect(propose(leading(members([1, 2, 3])), ["a"]).refusal).toBeNull();
  });

  test("repeats its request with the heartbeats, for it may be lost, and no more often", () => {
    const state = leading(members([1, 2, 3]));
    transfer(state, 2);
    expect(asked(receive(state, 2, matched(1, 1), 1))).toEqual([]);
    expect(asked(tick(state, HEARTBEAT_MS))).toHaveLength(1);
    expect(asked(receive(state, 2, matched(1, 1), HEARTBEAT_MS + 1))).toEqual([]);
  });

  test("gives it up after an election timeout, wakes for it, and goes on in its term", () => {
    const state = leading(members([1, 2, 3]));
    transfer(state, 2, 10);
    let output = tick(state, HEARTBEAT_MS);
    for (let nowMs = 2 * HEARTBEAT_MS; nowMs <= ELECTION_MS_MAX; nowMs += HEARTBEAT_MS) {
      receive(state, 3, matched(1, 1), nowMs);
      output = tick(state, nowMs);
    }
    expect(output.wakeAtMs).toBe(ELECTION_MS_MAX + 10);
    expect(propose(state, ["a"], ELECTION_MS_MAX + 9).refusal).toBe("transferring");
    tick(state, ELECTION_MS_MAX + 10);
    expect(propose(state, ["a"], ELECTION_MS_MAX + 10).refusal).toBeNull();
    expect(state).toMatchObject({ term: 1, role: { kind: "leader", transfer: null } });
    expect(transfer(state, 3, ELECTION_MS_MAX + 10).refusal).toBeNull();
  });

  test("gives it up when the successor is no voter any more", () => {
    const cluster = new Cluster({ size: 3 });
    cluster.elect(1);
    cluster.pass(2 * HEARTBEAT_MS);
    cluster.crash(2);
    cluster.change(1, members([1, 3], [2]));
    cluster.stabilize();
    expect(cluster.transfer(1, 2).refusal).toBe("not_a_voter");
  });

  test("may do so while a change of membership is not committed", () => {
    const state = leading(members([1, 2, 3]));
    const changed = change(state, members([1, 2, 3], [4]));
    transfer(state, 2);
    settle(state, changed, 3);
    expect(asked(receive(state, 2, matched(1, 2)))).toHaveLength(1);
  });

  test("does not sleep, and wakes for it", () => {
    const state = leading(members([1, 2, 3]));
    tick(state, HEARTBEAT_MS);
    for (const id of [2, 3]) receive(state, id, matched(1, 1), HEARTBEAT_MS);
    stored(state, propose(state, ["x"], HEARTBEAT_MS), HEARTBEAT_MS);
    for (const id of [2, 3]) receive(state, id, matched(1, 2), HEARTBEAT_MS);
    tick(state, 2 * HEARTBEAT_MS);
    transfer(state, 2, 2 * HEARTBEAT_MS);
    happen(state, { kind: "quiesce" }, 2 * HEARTBEAT_MS);
    expect(isAsleep(state)).toBe(false);
    const sleeper = leading(members([1, 2, 3]));
    tick(sleeper, HEARTBEAT_MS);
    for (const id of [2, 3]) receive(sleeper, id, matched(1, 1), HEARTBEAT_MS);
    happen(sleeper, { kind: "quiesce" }, HEARTBEAT_MS);
    expect(isAsleep(sleeper)).toBe(true);
    const output = transfer(sleeper, 2, 5000);
    expect(isAsleep(sleeper)).toBe(false);
    expect(asked(output)).toHaveLength(1);
    expect(sent(output, "append")).toHaveLength(2);
  });
});

describe("a successor", () => {
  const successor = () => {
    const state = raft({ id: 2, terms: [1], term: 1 });
    receive(state, 1, append({ prevIndex: 1, prevTerm: 1 }), 1000);
    return state;
  };

  test("campaigns at once, without a pre-vote, and its requests say why", () => {
    const state = successor();
    const output = receive(state, 1, { kind: "timeout_now", term: 1 }, 1001);
    expect(state.role.kind).toBe("candidate");
    expect(state.term).toBe(2);
    expect(output.sendLate.map(({ message }) => message)).toEqual([vote(2, 1, 1, true), vote(2, 1, 1, true)]);
    expect(output.persist?.hardState).toEqual({ term: 2, votedFor: 2 });
  });

  test("an ordinary campaign does not say so", () => {
    const state = successor();
    campaign(state, 5000);
    const output = receive(state, 3, { kind: "pre_vote_reply", term: 2, granted: true }, 5000);
    expect(theOnly(output, "vote", 1).transfer).toBe(false);
  });

  test("ignores a request of the past, a repeated one, and one that comes when it leads", () => {
    const state = successor();
    receive(state, 1, { kind: "timeout_now", term: 0 });
    expect(state.role.kind).toBe("follower");
    receive(state, 1, { kind: "timeout_now", term: 1 });
    receive(state, 1, { kind: "timeout_now", term: 1 });
    expect(state.term).toBe(2);
    receive(state, 3, { kind: "vote_reply", term: 2, granted: true, wallMs: 0 });
    expect(state.role.kind).toBe("leader");
    receive(state, 1, { kind: "timeout_now", term: 2 });
    expect(state).toMatchObject({ term: 2, role: { kind: "leader" } });
  });

  test("that is asked in a later term than its own takes that term over first", () => {
    const state = successor();
    receive(state, 1, { kind: "timeout_now", term: 5 });
    expect(state.term).toBe(6);
  });
});

describe("voters of a successor", () => {
  test("do not protect the leader that asked for it (4.2.3), and the leader does not protect itself", () => {
    const follower = raft({ id: 3, terms: [1], term: 1 });
    receive(follower, 1, append({ prevIndex: 1, prevTerm: 1 }), 1000);
    expect(receive(follower, 2, vote(2, 1, 1), 1001).sendLate).toEqual([]);
    expect(theOnly(receive(follower, 2, vote(2, 1, 1, true), 1001), "vote_reply").granted).toBe(true);
    const leader = leading(members([1, 2, 3]));
    expect(receive(leader, 2, vote(2, 1, 1)).sendLate).toEqual([]);
    expect(theOnly(receive(leader, 2, vote(2, 1, 1, true)), "vote_reply").granted).toBe(true);
    expect(followerOf(leader)).toBeNull();
  });

  test("still vote once a term, and for no shorter log", () => {
    const state = raft({ id: 3, terms: [1, 1], term: 1 });
    expect(theOnly(receive(state, 2, vote(2, 1, 1, true)), "vote_reply").granted).toBe(false);
    expect(theOnly(receive(state, 1, vote(2, 2, 1, true)), "vote_reply").granted).toBe(true);
    expect(theOnly(receive(state, 2, vote(2, 2, 1, true)), "vote_reply").granted).toBe(false);
  });
});

describe("a handover", () => {
  test.each([2, 3, 5])("among %i nodes takes one election and loses nothing", (size) => {
    const cluster = new Cluster({ size });
    cluster.elect(1);
    cluster.pass(2 * HEARTBEAT_MS);
    cluster.propose(1, "a", "b", "c");
    expect(cluster.transfer(1, 2).refusal).toBeNull();
    cluster.stabilize();
    expect(cluster.leader()).toBe(2);
    expect(cluster.state(2)).toMatchObject({ term: 2, log: { lastIndex: 5 } });
    cluster.pass(2 * HEARTBEAT_MS);
    for (const { id } of cluster.nodes) expect(cluster.state(id).commit).toBe(5);
  });

  test("goes on although requests are lost", () => {
    const cluster = new Cluster({ size: 3 });
    cluster.elect(1);
    cluster.pass(2 * HEARTBEAT_MS);
    cluster.transfer(1, 3);
    for (let lost = 0; lost < 3; lost += 1) {
      expect(cluster.take(to(3, "timeout_now"))).toHaveLength(1);
      cluster.stabilize();
      cluster.advance(HEARTBEAT_MS);
      cluster.tick(1);
    }
    cluster.stabilize();
    expect(cluster.leader()).toBe(3);
  });

  test("to a successor that is cut off leaves the leader in office, and a late request costs an election at most", () => {
    const cluster = new Cluster({ size: 3 });
    cluster.elect(1);
    cluster.pass(2 * HEARTBEAT_MS);
    cluster.transfer(1, 3);
    const late = cluster.take(to(3));
    cluster.cut(1, 3);
    cluster.cut(2, 3);
    cluster.pass(ELECTION_MS_MAX + HEARTBEAT_MS);
    expect(cluster.propose(1, "x").refusal).toBeNull();
    cluster.stabilize();
    expect(cluster.state(1)).toMatchObject({ term: 1, commit: 2 });
    cluster.heal();
    for (const envelope of late) cluster.hand(envelope);
    cluster.pass(4 * ELECTION_MS_MAX);
    const leader = cluster.leader() ?? 0;
    cluster.propose(leader, "y");
    cluster.pass(2 * HEARTBEAT_MS);
    for (const { id } of cluster.nodes) expect(cluster.state(id).commit).toBe(cluster.state(leader).log.lastIndex);
  });

  test("to one that needs a snapshot succeeds only if it comes in time", () => {
    const cluster = new Cluster({ size: 3 });
    cluster.elect(1);
    cluster.pass(2 * HEARTBEAT_MS);
    cluster.crash(3);
    cluster.propose(1, "x");
    cluster.pass(2 * HEARTBEAT_MS);
    cluster.truncate(1);
    cluster.restart(3);
    cluster.transfer(1, 3);
    cluster.pass(ELECTION_MS_MAX - HEARTBEAT_MS);
    expect(cluster.leader()).toBe(3);
  });

  test("to a voter that has just been promoted works though it does not know yet that it votes", () => {
    const state = raft({ id: 4, base: positionOf(0, 0, members([1, 2, 3], [4])), terms: [1], term: 1 });
    receive(state, 1, { kind: "timeout_now", term: 1 });
    expect(state.role.kind).toBe("follower");
    const cluster = new Cluster({ size: 4, voters: [1, 2, 3], learners: [4] });
    cluster.elect(1);
    cluster.pass(2 * HEARTBEAT_MS);
    cluster.change(1, members([1, 2, 3, 4]));
    cluster.transfer(1, 4);
    cluster.stabilize();
    expect(cluster.leader()).toBe(4);
  });

  test("leaves nothing behind: the old leader follows, and hands nothing over again", () => {
    const cluster = new Cluster({ size: 3 });
    cluster.elect(1);
    cluster.pass(2 * HEARTBEAT_MS);
    cluster.transfer(1, 2);
    cluster.pass(10 * ELECTION_MS_MAX);
    expect(cluster.leader()).toBe(2);
    expect(cluster.state(2).term).toBe(2);
    expect(cluster.pool.filter(from(1, "timeout_now"))).toEqual([]);
  });
});
