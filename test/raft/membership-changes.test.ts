/** Changes of membership at the leader (thesis 4.1 and 4.2; S57): what is refused, who counts, who leaves and how. */
import { describe, expect, test } from "vitest";
import { PROMOTION_LAG_ENTRIES_MAX } from "../../src/base/limits.ts";
import { isAsleep, membershipOf, type RaftState } from "../../src/raft/state.ts";
import type { Membership } from "../../src/raft/types.ts";
import { between, Cluster, from, to } from "./cluster.ts";
import {
  campaign,
  change,
  conflict,
  ELECTION_MS_MAX,
  entry,
  HEARTBEAT_MS,
  happen,
  lead,
  leadAndCommit,
  leaderRole,
  leading,
  matched,
  members,
  membershipEntry,
  positionOf,
  propose,
  raft,
  receive,
  sent,
  settle,
  stored,
  tick,
  times,
} from "./fixtures.ts";

describe("a change is an entry, in force as soon as it is appended (thesis 4.1)", () => {
  test("at the leader before anybody has answered, and on a follower before it is committed", () => {
    const state = leading(members([1, 2, 3]));
    const wanted = members([1, 2, 3], [4]);
    const output = change(state, wanted);
    expect(output).toMatchObject({ proposed: { firstIndex: 2, term: 1 }, refusal: null });
    expect(output.persist?.append).toMatchObject([{ index: 2, kind: "membership" }]);
    expect(membershipOf(state)).toEqual(wanted);
    const follower = raft({ id: 2, entries: [entry(1, 1, { timeMs: 0 })] });
    const [append] = sent(output, "append", 2);
    if (append === undefined) throw new Error("nothing was sent to node 2");
    receive(follower, 1, append);
    expect(follower.commit).toBe(1);
    expect(membershipOf(follower)).toEqual(wanted);
  });

  test("a new member is sent entries in the same step", () => {
    const state = leading(members([1, 2, 3]));
    expect(sent(change(state, members([1, 2, 3], [4])), "append", 4)).toMatchObject([{ prevIndex: 1 }]);
  });

  test("a follower goes back to the membership before when the entry is cut off", () => {
    const cluster = new Cluster({ size: 5 });
    cluster.elect(1);
    cluster.partition([1, 2], [3, 4, 5]);
    cluster.change(1, members([1, 2, 3, 4]));
    cluster.stabilize();
    expect(cluster.membership(2)).toEqual(members([1, 2, 3, 4]));
    cluster.advance(ELECTION_MS_MAX);
    cluster.elect(3);
    cluster.heal();
    cluster.pass(3 * ELECTION_MS_MAX);
    for (const { id } of cluster.nodes) expect(cluster.membership(id)).toEqual(members([1, 2, 3, 4, 5]));
    cluster.crash(2);
    cluster.restart(2);
    expect(cluster.membership(2)).toEqual(members([1, 2, 3, 4, 5]));
  });

  test("it outlives a restart, committed or not, and a log that is cut behind it", () => {
    const cluster = new Cluster({ size: 4, voters: [1, 2, 3] });
    cluster.elect(1);
    cluster.change(1, members([1, 2, 3], [4], "note"));
    cluster.pass(2 * HEARTBEAT_MS);
    cluster.truncate(4);
    for (const { id } of cluster.nodes) {
      cluster.crash(id);
      cluster.restart(id);
      expect(cluster.membership(id)).toEqual(members([1, 2, 3], [4], "note"));
    }
  });
});

describe("a change is refused", () => {
  const refused = (state: RaftState, membership: Membership, nowMs = 0) => {
    const { lastIndex } = state.log;
    const output = change(state, membership, nowMs);
    expect(output).toMatchObject({ proposed: null, persist: null, sendEarly: [] });
    expect(state.log.lastIndex).toBe(lastIndex);
    return output.refusal;
  };

  test("by whoever does not lead", () => {
    expect(refused(raft(), members([1, 2]))).toBe("not_leader");
  });

  test("before an entry of the leader's own term is committed: two leaders' changes could miss each other", () => {
    const state = raft({ terms: [1, 1], commit: 2 });
    const won = lead(state);
    expect(refused(state, members([1, 2]))).toBe("not_ready");
    settle(state, won, 2);
    expect(change(state, members([1, 2])).refusal).toBeNull();
  });

  test("while an earlier one is not committed (S57)", () => {
    const state = leading(members([1, 2, 3]));
    const first = change(state, members([1, 2, 3], [4]));
    expect(refused(state, members([1, 2, 3]))).toBe("change_pending");
    settle(state, first, 2);
    expect(change(state, members([1, 2, 3])).refusal).toBeNull();
  });

  test("also if the earlier one is of another leader's term: the new leader commits it first", () => {
    const state = raft({ entries: [membershipEntry(1, 1, members([1, 2]))] });
    const won = lead(state);
    expect(refused(state, members([1]))).toBe("not_ready");
    settle(state, won, 2);
    expect(state.commit).toBe(2);
    expect(change(state, members([1])).refusal).toBeNull();
  });

  test.each([
    { claim: "two voters come", wanted: members([1, 2, 3, 4, 5]), learners: [4, 5] },
    { claim: "two voters go", wanted: members([1]), learners: [] },
    { claim: "one comes for another", wanted: members([1, 2, 4]), learners: [4] },
  ])("if $claim at once (thesis 4.1)", ({ wanted, learners }) => {
    expect(refused(leading(members([1, 2, 3], learners)), wanted)).toBe("several_voters");
  });

  test("if it is not well-formed, or changes nothing", () => {
    const state = leading(members([1, 2, 3], [4], "x"));
    expect(refused(state, members([], [1]))).toBe("invalid_membership");
    expect(refused(state, members([1, 2, 3], [3]))).toBe("invalid_membership");
    expect(refused(state, members([3, 2, 1], [4], "x"))).toBe("unchanged");
    expect(change(state, members([1, 2, 3], [4], "y")).refusal).toBeNull();
  });

  test("while a new leader, or one that wakes, has no sign of life of a majority", () => {
    const state = raft({ base: positionOf(0, 0, members([1, 2, 3, 4, 5])) });
    leadAndCommit(state);
    for (const id of [2, 3]) receive(state, id, matched(1, 1));
    expect(refused(state, members([1, 2, 4, 5]))).toBe("quorum_unreachable");
    const awake = leaderRole(state);
    tick(state, HEARTBEAT_MS);
    for (const id of [2, 3, 4, 5]) receive(state, id, matched(1, 1), HEARTBEAT_MS);
    tick(state, 2 * HEARTBEAT_MS); // all hear how far it is committed
    happen(state, { kind: "quiesce" }, 2 * HEARTBEAT_MS);
    expect(isAsleep(state)).toBe(true);
    const nowMs = 10 * ELECTION_MS_MAX;
    happen(state, { kind: "wake" }, nowMs);
    expect(awake.progress.get(2)?.heardAtMs).toBe(nowMs);
    expect(refused(state, members([1, 2, 4, 5]), nowMs)).toBe("quorum_unreachable");
    for (const id of [2, 4]) receive(state, id, matched(1, 1), nowMs);
    expect(change(state, members([1, 2, 4, 5]), nowMs).refusal).toBeNull();
  });

  test("if the leader does not reach a majority of what would be the voters: it could never be committed", () => {
    const state = leading(members([1, 2, 3, 4]));
    const nowMs = 2 * ELECTION_MS_MAX;
    for (const id of [2, 3]) receive(state, id, matched(1, 1), nowMs);
    expect(refused(state, members([1, 2, 4]), nowMs + ELECTION_MS_MAX + 1)).toBe("quorum_unreachable");
    expect(refused(state, members([2, 4, 3]), nowMs + ELECTION_MS_MAX + 1)).toBe("quorum_unreachable");
    expect(change(state, members([1, 2, 3]), nowMs + ELECTION_MS_MAX).refusal).toBeNull();
  });

  test("while the leader hands over", () => {
    const state = leading(members([1, 2, 3]));
    happen(state, { kind: "transfer", to: 2 });
    expect(refused(state, members([1, 2]))).toBe("transferring");
  });
});

describe("a learner (thesis 4.2.1)", () => {
  test("gets every entry, and counts for nothing", () => {
    const cluster = new Cluster({ size: 5, voters: [1, 2, 3], learners: [4, 5] });
    cluster.elect(1);
    cluster.pass(2 * HEARTBEAT_MS);
    for (const id of [2, 3]) cluster.crash(id);
    cluster.propose(1, "x");
    cluster.stabilize();
    expect(cluster.terms(4)).toEqual([1, 1]);
    expect(cluster.state(1).commit).toBe(1);
    cluster.pass(2 * ELECTION_MS_MAX);
    expect(cluster.leader()).toBeNull();
  });

  test("does not confirm a read round, but may ask", () => {
    const cluster = new Cluster({ size: 4, voters: [1, 2, 3], learners: [4] });
    cluster.elect(1);
    cluster.pass(2 * HEARTBEAT_MS);
    cluster.read(4, 7);
    cluster.deliver(from(4, "read_index"));
    cluster.deliver(between(1, 4));
    cluster.deliver(from(4, "append_reply"));
    expect(cluster.pool.filter(to(4, "read_index_reply"))).toEqual([]);
    cluster.stabilize();
    expect(cluster.node(4).reads).toEqual([{ context: 7, index: 1 }]);
  });

  test("never campaigns: without a leader it calls the voters once, and sleeps", () => {
    const state = raft({ id: 4, base: positionOf(0, 0, members([1, 2, 3], [4])), terms: [1], term: 1 });
    const output = tick(state, 2 * ELECTION_MS_MAX);
    tick(state, 2 * ELECTION_MS_MAX + HEARTBEAT_MS);
    expect(sent(output, "pre_vote")).toEqual([]);
    expect(isAsleep(state)).toBe(true);
    const cluster = new Cluster({ size: 4, voters: [1, 2, 3], learners: [4] });
    const called = cluster.campaign(4);
    expect(sent(called, "wake")).toHaveLength(3);
    expect(called.wakeAtMs).toBe(Number.POSITIVE_INFINITY);
  });

  test("becomes a voter when it is at most one append behind", () => {
    const lag = PROMOTION_LAG_ENTRIES_MAX;
    for (const [behind, refusal] of [
      [lag, null],
      [lag + 1, "not_caught_up"],
    ] as const) {
      const state = leading(members([1, 2, 3], [4]));
      const written = propose(state, new Array<string>(behind).fill("x"));
      settle(state, written, 2, 3);
      expect(change(state, members([1, 2, 3, 4])).refusal).toBe(refusal);
    }
  });

  test("does not become one while it is looked for, does not answer, or is no learner at all", () => {
    const wanted = members([1, 2, 3, 4]);
    const probed = leading(members([1, 2, 3], [4]));
    receive(probed, 4, conflict(1, 5, { index: 0, term: 0 }));
    leaderRole(probed).progress.get(4)!.kind = "probe";
    expect(change(probed, wanted).refusal).toBe("not_caught_up");
    const silent = leading(members([1, 2, 3], [4]));
    for (const id of [2, 3]) receive(silent, id, matched(1, 1), ELECTION_MS_MAX + 1);
    expect(change(silent, wanted, ELECTION_MS_MAX + 1).refusal).toBe("not_caught_up");
    expect(change(leading(members([1, 2, 3])), wanted).refusal).toBe("not_caught_up");
  });

  test("that leaves can not be made a voter on its way out", () => {
    const state = leading(members([1, 2, 3], [4]));
    leaderRole(state).progress.get(4)!.match = 0;
    settle(state, change(state, members([1, 2, 3])), 2, 3);
    expect([...leaderRole(state).progress.keys()]).toEqual([2, 3, 4]);
    expect(change(state, members([1, 2, 3, 4])).refusal).toBe("not_caught_up");
  });
});

describe("who counts for a change", () => {
  test("a promoted learner does, for the entry that promotes it and at once", () => {
    const state = leading(members([1, 2, 3], [4]));
    const output = change(state, members([1, 2, 3, 4]));
    settle(state, output, 2);
    expect(state.commit).toBe(1);
    receive(state, 4, matched(1, 2));
    expect(state.commit).toBe(2);
  });

  test("a removed voter does not, not even for its own removal", () => {
    const state = leading(members([1, 2, 3, 4]));
    settle(state, change(state, members([1, 2, 3])), 4);
    expect(state.commit).toBe(1);
    receive(state, 3, matched(1, 2));
    expect(state.commit).toBe(2);
  });

  test("when fewer voters agree already, what they hold is committed in the same step, and reads are answered", () => {
    const state = leading(members([1, 2]));
    stored(state, propose(state, ["x"]));
    expect(state.commit).toBe(1);
    happen(state, { kind: "read", context: 5 });
    const output = change(state, members([1]));
    expect(state.commit).toBe(2);
    expect(output.reads).toEqual([{ context: 5, index: 1 }]);
    stored(state, output);
    expect(state.commit).toBe(3);
  });

  test.each([1, 2, 3, 4, 5, 6])("a cluster grows from %i voters and shrinks back, writing all the while", (size) => {
    const cluster = new Cluster({ size: size + 1, voters: members([1, 2, 3, 4, 5, 6].slice(0, size)).voters });
    const { voters } = cluster.membership(1);
    cluster.elect(1);
    const write = () => {
      cluster.pass(2 * HEARTBEAT_MS);
      cluster.propose(1, "x");
      cluster.stabilize();
      expect(cluster.state(1).commit).toBe(cluster.state(1).log.lastIndex);
    };
    write();
    for (const step of [members(voters, [size + 1]), members([...voters, size + 1]), members(voters)]) {
      expect(cluster.change(1, step).refusal).toBeNull();
      write();
      expect(cluster.membership(size === 1 ? 1 : 2)).toEqual(step);
    }
    expect(cluster.state(1).term).toBe(1);
  });
});

describe("a single voter with learners", () => {
  test("sends nothing before its term is durable: it was elected in the turn that began it", () => {
    const state = raft({ base: positionOf(0, 0, members([1], [2])), terms: [] });
    const won = campaign(state, ELECTION_MS_MAX);
    expect(state.role.kind).toBe("leader");
    expect(won.sendEarly).toEqual([]);
    expect(won.sendLate.map(({ message, to: id }) => [message.kind, id])).toEqual([["append", 2]]);
    const written = propose(state, ["x"], ELECTION_MS_MAX);
    receive(state, 2, matched(1, 1), ELECTION_MS_MAX);
    expect(written.sendEarly).toEqual([]);
    stored(state, won, ELECTION_MS_MAX);
    expect(propose(state, ["y"], ELECTION_MS_MAX).sendEarly).toHaveLength(1);
  });

  test("commits alone, and survives the learner's silence", () => {
    const cluster = new Cluster({ size: 2, voters: [1], learners: [2] });
    cluster.crash(2);
    cluster.pass(10 * ELECTION_MS_MAX);
    cluster.propose(1, ...times(3, 1).map(String));
    cluster.stabilize();
    expect(cluster.state(1)).toMatchObject({ term: 1, commit: 4 });
  });
});
