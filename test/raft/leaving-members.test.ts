/** Leaders that remove themselves, and nodes that have left (thesis 4.2.2; S57). */
import { describe, expect, test } from "vitest";
import { isAsleep, membershipOf } from "../../src/raft/state.ts";
import { Cluster, to } from "./cluster.ts";
import {
  change,
  conflict,
  ELECTION_MS_MAX,
  followerOf,
  HEARTBEAT_MS,
  leadAndCommit,
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
  tick,
} from "./fixtures.ts";

describe("a leader that removes itself (thesis 4.2.2; S57)", () => {
  test.each([
    { size: 2, needed: [2] },
    { size: 3, needed: [2, 3] },
    { size: 4, needed: [2, 3] },
    { size: 5, needed: [2, 3, 4] },
  ])("of $size voters waits for $needed, does not count itself, and steps down", ({ size, needed }) => {
    const voters = [1, 2, 3, 4, 5].slice(0, size);
    const state = leading(members(voters));
    stored(state, change(state, members(voters.slice(1))));
    for (const id of needed) {
      expect(state.role.kind).toBe("leader");
      receive(state, id, matched(1, 2));
    }
    expect(state.commit).toBe(2);
    expect(followerOf(state)).toBeNull();
  });

  test("goes on serving until then", () => {
    const state = leading(members([1, 2, 3]));
    stored(state, change(state, members([2, 3])));
    expect(propose(state, ["x"])).toMatchObject({ proposed: { firstIndex: 3, term: 1 } });
    receive(state, 2, matched(1, 3));
    receive(state, 3, matched(1, 2));
    expect(state.commit).toBe(2);
    expect(state.role.kind).toBe("follower");
  });

  test("does not hear itself: the majority that must answer is the others'", () => {
    const state = leading(members([1, 2, 3]));
    change(state, members([2, 3]));
    for (let nowMs = HEARTBEAT_MS; nowMs <= ELECTION_MS_MAX + 2 * HEARTBEAT_MS; nowMs += HEARTBEAT_MS) {
      tick(state, nowMs);
      if (state.role.kind === "leader") receive(state, 2, matched(1, 1), nowMs);
    }
    expect(state.role.kind).toBe("follower");
  });

  test("tells the others that it is committed and asks the one that holds everything to campaign", () => {
    const state = leading(members([1, 2, 3]));
    stored(state, change(state, members([2, 3])));
    receive(state, 2, matched(1, 1));
    receive(state, 3, matched(1, 2));
    const output = receive(state, 2, matched(1, 2));
    expect(sent(output, "append").map(({ commit }) => commit)).toEqual([2, 2]);
    expect(sent(output, "timeout_now")).toHaveLength(1);
  });

  test("and crashes before anybody has its entry: it may still be needed, and leads without being a voter (4.2.2)", () => {
    const cluster = new Cluster({ size: 2 });
    cluster.elect(1);
    cluster.pass(2 * HEARTBEAT_MS);
    cluster.change(1, members([2]));
    cluster.take();
    cluster.crash(1);
    cluster.restart(1);
    cluster.advance(ELECTION_MS_MAX);
    // Node 2 can not win: node 1 has the longer log, and its vote is needed in the membership that node 2 knows.
    cluster.campaign(2);
    cluster.stabilize();
    expect(cluster.leader()).toBeNull();
    cluster.advance(ELECTION_MS_MAX);
    cluster.campaign(1);
    cluster.stabilize();
    expect(cluster.leader()).toBe(2);
    expect(cluster.membership(2)).toEqual(members([2]));
    expect(cluster.safety.leaders.get(2)).toBe(1);
  });

  test("does not campaign any more once it knows that it has left", () => {
    const state = leading(members([1, 2, 3]));
    stored(state, change(state, members([2, 3])));
    for (const id of [2, 3]) receive(state, id, matched(1, 2));
    const output = tick(state, 10 * ELECTION_MS_MAX);
    tick(state, 10 * ELECTION_MS_MAX + HEARTBEAT_MS);
    expect([...output.sendLate, ...output.sendEarly]).toEqual([]);
    expect(isAsleep(state)).toBe(true);
  });

  test("as the only voter it can not, but it can hand the cluster to another one first", () => {
    const cluster = new Cluster({ size: 2 });
    cluster.elect(1);
    cluster.pass(2 * HEARTBEAT_MS);
    expect(cluster.change(1, members([2])).refusal).toBeNull();
    cluster.pass(2 * HEARTBEAT_MS);
    expect(cluster.leader()).toBe(2);
    expect(cluster.change(2, members([], [2])).refusal).toBe("invalid_membership");
  });

  test("steps down as well when it becomes a learner", () => {
    const cluster = new Cluster({ size: 3 });
    cluster.elect(1);
    cluster.pass(2 * HEARTBEAT_MS);
    cluster.change(1, members([2, 3], [1]));
    cluster.pass(2 * HEARTBEAT_MS);
    expect(cluster.leader()).toBe(2);
    expect(followerOf(cluster.state(1))).toBe(2);
  });
});

describe("who has left", () => {
  test("hears of the entry and that it is committed, and nothing after that", () => {
    const cluster = new Cluster({ size: 4 });
    cluster.elect(1);
    cluster.pass(2 * HEARTBEAT_MS);
    cluster.change(1, members([1, 2, 3]));
    cluster.stabilize();
    expect(cluster.state(4)).toMatchObject({ commit: 2 });
    expect([...leaderRole(cluster.state(1)).progress.keys()]).toEqual([2, 3]);
    cluster.propose(1, "x");
    expect(cluster.pool.filter(to(4))).toEqual([]);
  });

  test("is given up after an election timeout without an answer, and at once if it needs a snapshot", () => {
    const silent = leading(members([1, 2, 3, 4]));
    settle(silent, change(silent, members([1, 2, 3])), 2, 3);
    expect(leaderRole(silent).progress.has(4)).toBe(true);
    for (const id of [2, 3]) receive(silent, id, matched(1, 2), ELECTION_MS_MAX);
    tick(silent, ELECTION_MS_MAX + 1);
    expect(leaderRole(silent).progress.has(4)).toBe(false);
    const behind = raft({ base: positionOf(5, 1, members([1, 2, 3], [4])) });
    leadAndCommit(behind);
    receive(behind, 4, conflict(2, 5, { index: 2, term: 1 }));
    expect(leaderRole(behind).progress.get(4)?.kind).toBe("snapshot");
    change(behind, members([1, 2, 3]));
    expect(leaderRole(behind).progress.has(4)).toBe(false);
  });

  test("does not count while it hears of it, whatever it answers", () => {
    const state = leading(members([1, 2, 3, 4], [5]));
    settle(state, change(state, members([1, 2, 3])), 4);
    receive(state, 5, matched(1, 2));
    expect(state.commit).toBe(1);
    expect(membershipOf(state).voters).toEqual([1, 2, 3]);
  });

  test("and comes back is another node for all the leader knows: what it held is forgotten", () => {
    const state = leading(members([1, 2, 3, 4]));
    settle(state, change(state, members([1, 2, 3])), 2, 3);
    const back = change(state, members([1, 2, 3], [4]));
    expect(leaderRole(state).progress.get(4)).toMatchObject({ kind: "probe", match: 0, leftAt: null });
    settle(state, back, 2, 3);
  });

  test.each([
    {
      claim: "a voter that becomes a learner",
      before: members([1, 2, 3, 4]),
      after: members([1, 2, 3], [4]),
      match: 0,
    },
    {
      claim: "a learner with another note",
      before: members([1, 2, 3], [4]),
      after: members([1, 2, 3], [4], "n"),
      match: 0,
    },
    { claim: "a learner beside others", before: members([1, 2, 3], [4]), after: members([1, 2, 3], [4, 5]), match: 1 },
    {
      claim: "a learner that becomes a voter",
      before: members([1, 2, 3], [4]),
      after: members([1, 2, 3, 4]),
      match: 1,
    },
    { claim: "a voter beside others", before: members([1, 2, 4]), after: members([1, 2, 4], [], "n"), match: 1 },
  ])("what is known of $claim: match $match", ({ before, after, match }) => {
    const state = leading(before);
    expect(change(state, after).refusal).toBeNull();
    expect(leaderRole(state).progress.get(4)?.match).toBe(match);
  });
});
