/**
 * Elections while the membership changes (thesis 4.2.1 to 4.2.3; S56, S57): whose votes count, who may ask, and that
 * nobody from outside unseats a leader. A node decides by its own log, which may be older or newer than the others'.
 */
import { describe, expect, test } from "vitest";
import { isAsleep, leaderOf, mayCampaign } from "../../src/raft/state.ts";
import type { Membership, Message } from "../../src/raft/types.ts";
import { Cluster, from, to } from "./cluster.ts";
import {
  append,
  campaign,
  ELECTION_MS_MAX,
  ELECTION_MS_MIN,
  entriesOf,
  entry,
  followerOf,
  HEARTBEAT_MS,
  happen,
  leading,
  members,
  membershipEntry,
  positionOf,
  preVote,
  raft,
  receive,
  sent,
  theOnly,
  vote,
} from "./fixtures.ts";

const granted = (term: number): Message => ({ kind: "pre_vote_reply", term, granted: true });
const voted = (term: number): Message => ({ kind: "vote_reply", term, granted: true, wallMs: 0 });

describe("the votes that count are those of the candidate's own voters", () => {
  test("neither learners nor strangers elect anybody", () => {
    const state = raft({ base: positionOf(0, 0, members([1, 2, 3], [4, 5])) });
    campaign(state);
    for (const id of [4, 5, 6, 7]) receive(state, id, granted(1));
    expect(state.role.kind).toBe("pre_candidate");
    receive(state, 2, granted(1));
    expect(state.role.kind).toBe("candidate");
    for (const id of [4, 5, 6, 7]) receive(state, id, voted(1));
    expect(state.role.kind).toBe("candidate");
    receive(state, 3, voted(1));
    expect(state.role.kind).toBe("leader");
  });

  test("only voters are asked", () => {
    const state = raft({ base: positionOf(0, 0, members([1, 2, 3], [4, 5])) });
    const asked = (kind: "pre_vote" | "vote", output: ReturnType<typeof campaign>) => {
      return output.sendLate.filter(({ message }) => message.kind === kind).map((envelope) => envelope.to);
    };
    expect(asked("pre_vote", campaign(state))).toEqual([2, 3]);
    expect(asked("vote", receive(state, 2, granted(1)))).toEqual([2, 3]);
  });

  test.each([
    { size: 2, needed: 1 },
    { size: 4, needed: 2 },
    { size: 6, needed: 3 },
  ])("of $size voters, $needed others must agree", ({ size, needed }) => {
    const state = raft({ size });
    campaign(state);
    for (let id = 2; id < 2 + needed; id += 1) {
      expect(state.role.kind).toBe("pre_candidate");
      receive(state, id, granted(1));
    }
    expect(state.role.kind).toBe("candidate");
  });

  test("an uncommitted membership is the one that counts", () => {
    const state = raft({ entries: [entry(1, 1), membershipEntry(2, 1, members([1, 2, 3, 4]))] });
    campaign(state);
    receive(state, 2, granted(2));
    expect(state.role.kind).toBe("pre_candidate");
    receive(state, 4, granted(2));
    expect(state.role.kind).toBe("candidate");
  });
});

describe("who votes asks neither whether the candidate is a member, nor whether it is one itself (thesis 4.2.1)", () => {
  test("a voter that has not heard of the candidate votes for it", () => {
    const state = raft({ id: 3, terms: [1] });
    expect(theOnly(receive(state, 9, preVote(2, 1, 1)), "pre_vote_reply").granted).toBe(true);
    expect(theOnly(receive(state, 9, vote(2, 1, 1)), "vote_reply").granted).toBe(true);
  });

  test.each([
    { claim: "a learner that does not know that it was promoted", membership: members([1, 2, 3], [4]) },
    { claim: "a node that knows nobody", membership: members([], []) },
  ])("so does $claim", ({ membership }) => {
    const state = raft({ id: 4, base: positionOf(0, 0, membership) });
    expect(theOnly(receive(state, 1, vote(2, 1, 1)), "vote_reply").granted).toBe(true);
  });

  test("or the cluster would stand still: node 4 alone can lead, and node 3 has not heard that it votes", () => {
    // Nodes 1, 2 and 4 have the entry that makes 4 a voter, 1 and 4 one more. Three of four must agree, and 1 is gone.
    const cluster = new Cluster({ size: 4, voters: [1, 2, 3], learners: [4] });
    cluster.elect(1);
    cluster.pass(2 * HEARTBEAT_MS);
    cluster.cut(1, 3);
    cluster.change(1, members([1, 2, 3, 4]));
    cluster.stabilize();
    cluster.cut(1, 2);
    cluster.propose(1, "x");
    cluster.stabilize();
    cluster.crash(1);
    expect([2, 3, 4].map((id) => cluster.state(id).log.lastIndex)).toEqual([2, 1, 3]);
    expect(cluster.membership(3)).toEqual(members([1, 2, 3], [4]));
    cluster.passUntil(() => cluster.leader() !== null, 20 * ELECTION_MS_MAX);
    expect(cluster.leader()).toBe(4);
    cluster.pass(2 * HEARTBEAT_MS);
    expect(cluster.membership(3)).toEqual(members([1, 2, 3, 4]));
  });

  test("a leader from outside is followed: the entry that took it in comes later", () => {
    const state = raft({ id: 3, terms: [1] });
    const entries = [membershipEntry(2, 2, members([1, 2, 3, 4]))];
    const output = receive(state, 4, append({ term: 2, prevIndex: 1, prevTerm: 1, entries }));
    expect(theOnly(output, "append_reply").result).toEqual({ kind: "matched", index: 2 });
    expect(followerOf(state)).toBe(4);
  });

  test("and its reads and its call to campaign are heard", () => {
    const state = raft({ id: 3, terms: [1] });
    receive(state, 4, append({ term: 2, prevIndex: 1, prevTerm: 1 }));
    const reply = { kind: "read_index_reply", term: 2, context: 8, index: 1, timeMs: 0 } as const;
    expect(receive(state, 4, reply).reads).toEqual([{ context: 8, index: 1 }]);
    receive(state, 4, { kind: "timeout_now", term: 2 });
    expect(state.role.kind).toBe("candidate");
  });
});

describe("who may campaign", () => {
  const node = (options: { commit?: number; later: readonly Membership[] }, first = members([1, 2, 3])) => {
    const entries = options.later.map((membership, position) => membershipEntry(position + 1, 1, membership));
    return raft({ base: positionOf(0, 0, first), entries, commit: options.commit ?? 0 });
  };

  test("a voter, and one whose removal is not known to be committed (thesis 4.2.2)", () => {
    expect(mayCampaign(node({ later: [] }))).toBe(true);
    expect(mayCampaign(node({ later: [members([2, 3])] }))).toBe(true);
    expect(mayCampaign(node({ later: [members([2, 3])], commit: 1 }))).toBe(false);
  });

  test("not one that left before the last change: that change proves that the earlier one is committed", () => {
    expect(mayCampaign(node({ later: [members([2, 3]), members([2, 3], [1])] }))).toBe(false);
  });

  test("neither a learner nor whoever knows nobody, also not when it is asked to", () => {
    for (const first of [members([2, 3], [1]), members([], [])]) {
      const state = node({ later: [] }, first);
      expect(mayCampaign(state)).toBe(false);
      expect(sent(campaign(state), "pre_vote")).toEqual([]);
      receive(state, 2, { kind: "timeout_now", term: 1 });
      expect(state.role.kind).toBe("follower");
    }
  });

  test("a node that is no voter is not elected by its own vote", () => {
    const state = node({ later: [members([2])] }, members([1, 2]));
    campaign(state);
    expect(state.role.kind).toBe("pre_candidate");
    receive(state, 2, granted(2));
    expect(state.role.kind).toBe("candidate");
    receive(state, 2, voted(2));
    expect(state.role.kind).toBe("leader");
  });

  test("a last leader that has become a learner does not take its lead up again when it wakes", () => {
    const state = raft({
      base: positionOf(0, 0, members([2, 3], [1])),
      terms: [1],
      votedFor: 1,
      commit: 1,
      asleep: true,
    });
    const output = happen(state, { kind: "wake" });
    expect(sent(output, "pre_vote")).toEqual([]);
    expect(sent(output, "wake")).toHaveLength(2);
  });
});

describe("a removed or returning node with a huge term disturbs nobody (thesis 4.2.3; S56)", () => {
  /** Node 4 was cut off and removed; then it counted a hundred elections. */
  function removed(): Cluster {
    const cluster = new Cluster({ size: 4, terms: { 4: 0 } });
    cluster.elect(1);
    cluster.pass(2 * HEARTBEAT_MS);
    cluster.partition([1, 2, 3]);
    cluster.change(1, members([1, 2, 3]));
    cluster.pass(100 * ELECTION_MS_MAX);
    cluster.heal();
    return cluster;
  }

  const undisturbed = (cluster: Cluster) => {
    expect(cluster.leader()).toBe(1);
    for (const id of [1, 2, 3]) expect([cluster.state(id).term, leaderOf(cluster.state(id))]).toEqual([1, 1]);
  };

  test("it asks again and again, and the leader stays", () => {
    const cluster = removed();
    let asked = 0;
    cluster.onDelivery = ({ from: sender, message }) => {
      if (sender === 4 && message.kind === "pre_vote") asked += 1;
    };
    cluster.pass(20 * ELECTION_MS_MAX);
    expect(asked).toBeGreaterThan(30);
    undisturbed(cluster);
    expect(cluster.state(4).term).toBe(1);
  });

  test("real votes of whatever term change nothing either, at the leader or at its followers", () => {
    const cluster = removed();
    cluster.pass(2 * HEARTBEAT_MS);
    for (const id of [1, 2, 3]) {
      const output = cluster.step(id, { kind: "message", from: 4, message: vote(100, 9, 9) });
      expect(output).toMatchObject({ persist: null, sendLate: [] });
    }
    undisturbed(cluster);
  });

  test.each([
    { kind: "append_reply", term: 100, result: { kind: "matched", index: 1 }, round: 0, wallMs: 0 },
    { kind: "vote_reply", term: 100, granted: false, wallMs: 0 },
    { kind: "pre_vote_reply", term: 100, granted: false },
    { kind: "read_index", term: 100, context: 1 },
    { kind: "wake", term: 100 },
    { kind: "timeout_now", term: 100 },
    { kind: "quiesce", term: 100, index: 2, commit: 2, timeMs: 0 },
  ] as const)("nor does its $kind", (message) => {
    const cluster = removed();
    for (const id of [1, 2, 3]) {
      expect(cluster.step(id, { kind: "message", from: 4, message })).toMatchObject({ persist: null, sendLate: [] });
    }
    undisturbed(cluster);
  });

  test("it does not wake a cluster that sleeps", () => {
    const cluster = removed();
    cluster.pass(4 * HEARTBEAT_MS);
    expect(cluster.quiesce(1)).toBe(true);
    cluster.deliver(from(1, "quiesce"));
    cluster.campaign(4);
    cluster.stabilize();
    for (const id of [1, 2, 3]) expect(isAsleep(cluster.state(id))).toBe(true);
  });

  test("taken in again it catches up without an election, and may vote again", () => {
    const cluster = removed();
    cluster.change(1, members([1, 2, 3], [4]));
    cluster.pass(2 * HEARTBEAT_MS);
    undisturbed(cluster);
    expect(cluster.change(1, members([1, 2, 3, 4])).refusal).toBeNull();
    cluster.pass(2 * HEARTBEAT_MS);
    undisturbed(cluster);
    expect(cluster.state(4)).toMatchObject({ term: 1, commit: 4 });
  });

  test("when the leader is gone, it can not win: those who removed it know more", () => {
    const cluster = removed();
    cluster.crash(1);
    cluster.advance(ELECTION_MS_MAX);
    for (let tries = 0; tries < 10; tries += 1) {
      cluster.campaign(4);
      cluster.stabilize();
      expect(cluster.state(4).role.kind).toBe("pre_candidate");
    }
    cluster.passUntil(() => cluster.leader() !== null, 10 * ELECTION_MS_MAX);
    expect([2, 3]).toContain(cluster.leader());
  });
});

describe("votes while a leader is heard (thesis 4.2.3)", () => {
  test("are refused to members and strangers alike, until an election timeout has passed", () => {
    for (const candidate of [3, 9]) {
      const state = raft({ id: 2, terms: [1] });
      receive(state, 1, append({ prevIndex: 1, prevTerm: 1 }), 1000);
      expect(receive(state, candidate, vote(5, 9, 9), 1000 + ELECTION_MS_MIN - 1).sendLate).toEqual([]);
      expect(theOnly(receive(state, candidate, vote(5, 9, 9), 1000 + ELECTION_MS_MIN), "vote_reply").granted).toBe(
        true,
      );
    }
  });

  test("a leader that removes itself is protected too while it leads", () => {
    const state = leading(members([1, 2, 3]));
    happen(state, { kind: "change_membership", membership: members([2, 3]) });
    expect(receive(state, 2, vote(5, 9, 9)).sendLate).toEqual([]);
    expect(state.role.kind).toBe("leader");
  });
});

describe("a node whose id once stood for another storage (S08)", () => {
  const isSelf = ({ extra }: Membership) => extra === "new";
  const old = members([1, 2, 3], [], "old");

  test("campaigns neither by its timer nor when it is asked to, as long as its log names that one", () => {
    const state = raft({ base: positionOf(0, 0, old), isSelf });
    expect(mayCampaign(state)).toBe(false);
    expect(campaign(state).sendLate.filter(({ message }) => message.kind !== "wake")).toEqual([]);
    receive(state, 2, append({ term: 1 }));
    receive(state, 2, { kind: "timeout_now", term: 1 });
    expect(state).toMatchObject({ term: 1, role: { kind: "follower" } });
  });

  test("may as soon as its log names it, and may not when that entry goes again", () => {
    const state = raft({ base: positionOf(0, 0, old), isSelf });
    receive(state, 2, append({ term: 1, entries: [membershipEntry(1, 1, members([2, 3], [1], "new"))] }));
    expect(mayCampaign(state)).toBe(false);
    receive(state, 2, append({ term: 1, prevIndex: 1, prevTerm: 1, commit: 1 }));
    receive(
      state,
      2,
      append({ term: 1, prevIndex: 1, prevTerm: 1, entries: [membershipEntry(2, 1, members([1, 2, 3], [], "new"))] }),
    );
    expect(mayCampaign(state)).toBe(true);
    receive(state, 3, append({ term: 2, prevIndex: 1, prevTerm: 1, entries: entriesOf([2], 2) }));
    expect(mayCampaign(state)).toBe(false);
  });

  test("a removal of that one that is not committed is none of its own", () => {
    const entries = [membershipEntry(1, 1, members([2, 3], [], "old"))];
    expect(mayCampaign(raft({ base: positionOf(0, 0, old), entries, isSelf }))).toBe(false);
    expect(mayCampaign(raft({ base: positionOf(0, 0, old), entries }))).toBe(true);
  });
});

describe("an abandoned membership (S57)", () => {
  test("counts only until another entry takes its place", () => {
    const entries = [...entriesOf([1]), membershipEntry(2, 4, members([1, 2]))];
    const state = raft({ id: 2, entries, term: 4 });
    receive(state, 3, append({ term: 5, prevIndex: 1, prevTerm: 1, entries: entriesOf([5], 2) }));
    const output = campaign(state, 2 * ELECTION_MS_MAX);
    expect(sent(output, "pre_vote")).toHaveLength(2);
  });

  test("and a snapshot of a higher term: the node campaigns by the snapshot's membership", () => {
    const entries = [...entriesOf([1]), membershipEntry(2, 4, members([1, 2]))];
    const state = raft({ id: 2, entries, term: 4 });
    const snapshot = positionOf(2, 5, members([2, 3, 4, 5, 6, 7]));
    receive(state, 3, append({ term: 5, prevIndex: 2, prevTerm: 5 }));
    happen(state, { kind: "snapshot_staged", snapshot });
    const output = campaign(state, 2 * ELECTION_MS_MAX);
    expect(sent(output, "pre_vote")).toHaveLength(5);
    for (const id of [1, 3, 4]) receive(state, id, granted(6), 2 * ELECTION_MS_MAX);
    expect(state.role.kind).toBe("pre_candidate");
    receive(state, 5, granted(6), 2 * ELECTION_MS_MAX);
    expect(state.role.kind).toBe("candidate");
  });

  test("lies in the pool for long and arrives late: nothing comes of it", () => {
    const cluster = new Cluster({ size: 5 });
    cluster.elect(1);
    cluster.pass(2 * HEARTBEAT_MS);
    cluster.change(1, members([1, 2, 3, 4]));
    const late = cluster.take(to(3));
    cluster.partition([1], [2, 3, 4, 5]);
    cluster.advance(ELECTION_MS_MAX);
    cluster.elect(2);
    for (const envelope of late) cluster.hand(envelope);
    cluster.heal();
    cluster.pass(2 * ELECTION_MS_MAX);
    for (const { id } of cluster.nodes) expect(cluster.membership(id).voters).toHaveLength(5);
  });
});
