/** Elections: paper sections 5.1, 5.2 and 5.4.1; thesis sections 4.2.3, 6.2 and 9.6. */
import { describe, expect, test } from "vitest";
import { between, Cluster, from, to } from "./cluster.ts";
import {
  append,
  campaign,
  conflict,
  ELECTION_MS_MAX,
  ELECTION_MS_MIN,
  electionAt,
  followerOf,
  HEARTBEAT_MS,
  lead,
  matched,
  preVote,
  raft,
  receive,
  sent,
  theOnly,
  tick,
  vote,
} from "./fixtures.ts";

describe("pre-vote (thesis 9.6)", () => {
  test("a follower whose election timer runs out asks for pre-votes and leaves its term alone", () => {
    const state = raft({ terms: [1, 2], term: 4 });
    const output = tick(state, electionAt(state));
    expect(state.term).toBe(4);
    expect(state.votedFor).toBeNull();
    expect(output.persist).toBeNull();
    expect(sent(output, "pre_vote", 2)).toEqual([preVote(5, 2, 2)]);
    expect(sent(output, "pre_vote", 3)).toHaveLength(1);
  });

  test("a granted pre-vote changes nothing at the voter: no term, no vote, no write, no timer", () => {
    const state = raft({ terms: [1], term: 3 });
    const timer = electionAt(state);
    const output = receive(state, 2, preVote(4, 1, 1));
    expect(theOnly(output, "pre_vote_reply")).toEqual({ kind: "pre_vote_reply", term: 4, granted: true });
    expect(state.term).toBe(3);
    expect(state.votedFor).toBeNull();
    expect(output.persist).toBeNull();
    expect(electionAt(state)).toBe(timer);
  });

  test("any number of nodes may get the pre-vote of one voter", () => {
    const state = raft({ size: 5 });
    for (const candidate of [2, 3, 4]) {
      expect(theOnly(receive(state, candidate, preVote(1, 0, 0)), "pre_vote_reply").granted).toBe(true);
    }
  });

  test("a majority of pre-votes begins the election in the next term", () => {
    const state = raft({ size: 5, terms: [1], term: 1 });
    tick(state, electionAt(state));
    receive(state, 2, { kind: "pre_vote_reply", term: 2, granted: true });
    expect(state.role.kind).toBe("pre_candidate");
    const output = receive(state, 3, { kind: "pre_vote_reply", term: 2, granted: true });
    expect(state.role.kind).toBe("candidate");
    expect(state.term).toBe(2);
    expect(sent(output, "vote")).toHaveLength(4);
    expect(sent(output, "vote", 4)).toEqual([vote(2, 1, 1)]);
  });

  test("one voter's pre-vote counts once, however often it arrives", () => {
    const state = raft({ size: 5 });
    tick(state, electionAt(state));
    for (let copy = 0; copy < 4; copy += 1) receive(state, 2, { kind: "pre_vote_reply", term: 1, granted: true });
    expect(state.role.kind).toBe("pre_candidate");
  });

  test("a pre-vote for another term counts nothing", () => {
    const state = raft({ terms: [1], term: 5 });
    tick(state, electionAt(state));
    for (const term of [1, 5, 7]) receive(state, 2, { kind: "pre_vote_reply", term, granted: true });
    expect(state.role.kind).toBe("pre_candidate");
    expect(state.term).toBe(5);
  });

  test("a pre-vote is refused to a log that is behind (paper 5.4.1)", () => {
    const state = raft({ terms: [1, 2, 2], term: 2 });
    expect(theOnly(receive(state, 2, preVote(3, 2, 2)), "pre_vote_reply").granted).toBe(false);
    expect(theOnly(receive(state, 2, preVote(3, 9, 1)), "pre_vote_reply").granted).toBe(false);
    expect(theOnly(receive(state, 2, preVote(3, 3, 2)), "pre_vote_reply").granted).toBe(true);
  });

  test("a refusal that names a higher term brings the asking node to that term, and its next question goes beyond", () => {
    const state = raft({ terms: [1], term: 1 });
    tick(state, electionAt(state));
    const output = receive(state, 2, { kind: "pre_vote_reply", term: 7, granted: false }, 10);
    expect(state.term).toBe(7);
    expect(output.persist?.hardState).toEqual({ term: 7, votedFor: null });
    expect(theOnly(tick(state, electionAt(state)), "pre_vote", 2).term).toBe(8);
  });

  test("a candidate without a majority asks for pre-votes again and does not raise its term", () => {
    const state = raft({ size: 5 });
    tick(state, electionAt(state));
    for (const voter of [2, 3]) receive(state, voter, { kind: "pre_vote_reply", term: 1, granted: true });
    expect(state.role.kind).toBe("candidate");
    for (let round = 0; round < 10; round += 1) tick(state, electionAt(state));
    expect(state.term).toBe(1);
    expect(state.role.kind).toBe("pre_candidate");
  });

  test("an isolated node keeps its term for ever, and nobody notices its return", () => {
    const cluster = new Cluster({ size: 3 });
    cluster.elect(1);
    const { term } = cluster.state(1);
    cluster.partition([1, 2]);
    cluster.pass(20 * ELECTION_MS_MAX);
    expect(cluster.state(3).term).toBe(term);
    expect(cluster.state(3).role.kind).toBe("pre_candidate");
    cluster.heal();
    cluster.pass(2 * HEARTBEAT_MS);
    expect(cluster.leader()).toBe(1);
    expect(cluster.state(1).term).toBe(term);
    expect(followerOf(cluster.state(3))).toBe(1);
  });

  test("a node that only one voter can hear does not unseat the leader that others hear", () => {
    const cluster = new Cluster({ size: 3 });
    cluster.elect(1);
    cluster.cut(1, 3);
    cluster.pass(20 * ELECTION_MS_MAX);
    expect(cluster.leader()).toBe(1);
    expect(cluster.state(1).term).toBe(1);
    cluster.propose(1, "x");
    cluster.stabilize();
    expect(cluster.state(1).commit).toBe(2);
  });
});

describe("votes (paper 5.2 and 5.4.1)", () => {
  test("a node votes for the first candidate of a term and refuses the others", () => {
    const state = raft({ size: 5 });
    expect(theOnly(receive(state, 2, vote(1, 0, 0)), "vote_reply")).toMatchObject({ term: 1, granted: true });
    expect(theOnly(receive(state, 3, vote(1, 0, 0)), "vote_reply")).toMatchObject({ term: 1, granted: false });
    expect(state.votedFor).toBe(2);
  });

  test("the vote is written in the turn that grants it", () => {
    const output = receive(raft({ terms: [1] }), 2, vote(3, 1, 1));
    expect(output.persist?.hardState).toEqual({ term: 3, votedFor: 2 });
    expect(output.sendEarly).toEqual([]);
    expect(output.sendLate).toHaveLength(1);
  });

  test("a repeated request of the same candidate is granted again, without another write", () => {
    const state = raft();
    receive(state, 2, vote(1, 0, 0));
    const output = receive(state, 2, vote(1, 0, 0));
    expect(theOnly(output, "vote_reply").granted).toBe(true);
    expect(output.persist).toBeNull();
  });

  test("the vote survives a restart", () => {
    const cluster = new Cluster({ size: 3 });
    cluster.step(3, { kind: "message", from: 1, message: vote(1, 0, 0) });
    cluster.crash(3);
    cluster.restart(3);
    const refused = cluster.step(3, { kind: "message", from: 2, message: vote(1, 0, 0) });
    expect(theOnly(refused, "vote_reply").granted).toBe(false);
    const repeated = cluster.step(3, { kind: "message", from: 1, message: vote(1, 0, 0) });
    expect(theOnly(repeated, "vote_reply").granted).toBe(true);
  });

  test("a vote that was not written before a crash was never heard of", () => {
    const cluster = new Cluster({ size: 3 });
    cluster.hold(3);
    cluster.step(3, { kind: "message", from: 1, message: vote(1, 0, 0) });
    expect(cluster.pool).toEqual([]);
    cluster.crash(3);
    cluster.restart(3);
    cluster.step(3, { kind: "message", from: 2, message: vote(1, 0, 0) });
    expect(cluster.pool).toMatchObject([{ to: 2, message: { kind: "vote_reply", granted: true } }]);
  });

  test.each([
    { claim: "a log that ends in a lower term is refused, however long", last: [9, 2], granted: false },
    { claim: "a log that ends in the same term but is shorter is refused", last: [2, 3], granted: false },
    { claim: "an equal log is granted", last: [3, 3], granted: true },
    { claim: "a longer log of the same last term is granted", last: [4, 3], granted: true },
    { claim: "a shorter log that ends in a higher term is granted", last: [1, 4], granted: true },
    { claim: "an empty log is refused", last: [0, 0], granted: false },
  ])("up to date: $claim (paper 5.4.1)", ({ last, granted }) => {
    const state = raft({ terms: [1, 3, 3], term: 5 });
    const reply = theOnly(receive(state, 2, vote(6, last[0] ?? 0, last[1] ?? 0)), "vote_reply");
    expect(reply).toMatchObject({ term: 6, granted });
    expect(state.votedFor).toBe(granted ? 2 : null);
  });

  test("a refusal for the log's sake still takes over the higher term", () => {
    const state = raft({ terms: [1, 1], term: 1 });
    const output = receive(state, 2, vote(8, 1, 1));
    expect(state.term).toBe(8);
    expect(output.persist?.hardState).toEqual({ term: 8, votedFor: null });
  });

  test("a candidate of an older term is refused and learns the current one", () => {
    const state = raft({ term: 6 });
    const output = receive(state, 2, vote(5, 9, 5));
    expect(theOnly(output, "vote_reply")).toMatchObject({ term: 6, granted: false });
    expect(output.persist).toBeNull();
  });

  test("granting a vote puts off the voter's own candidacy; refusing one does not (paper 5.2)", () => {
    const state = raft({ term: 1, seed: 3 });
    const before = electionAt(state);
    receive(state, 2, vote(1, 0, 0), 250);
    expect(electionAt(state)).toBeGreaterThanOrEqual(250 + ELECTION_MS_MIN);
    const after = electionAt(state);
    expect(after).not.toBe(before);
    receive(state, 3, vote(1, 0, 0), 400);
    expect(electionAt(state)).toBe(after);
  });

  test("a node that waits for pre-votes gives up its own candidacy when it votes for another", () => {
    const state = raft({ term: 3 });
    campaign(state);
    expect(theOnly(receive(state, 2, vote(3, 0, 0)), "vote_reply").granted).toBe(true);
    receive(state, 3, { kind: "pre_vote_reply", term: 4, granted: true });
    expect(state.role.kind).toBe("follower");
    expect(state.term).toBe(3);
  });

  test("a node's own message that comes back to it is ignored", () => {
    const state = raft();
    expect(receive(state, 1, vote(9, 9, 9))).toMatchObject({ persist: null, sendEarly: [], sendLate: [] });
    expect(state.term).toBe(0);
  });
});

describe("a heard leader protects its term (thesis 4.2.3)", () => {
  test("a vote is refused within the minimum election timeout of the leader's last message: not even the term is taken", () => {
    const state = raft({ term: 1 });
    receive(state, 2, append({ term: 1 }), 1000);
    const output = receive(state, 3, vote(9, 9, 9), 1000 + ELECTION_MS_MIN - 1);
    expect(output.sendLate).toEqual([]);
    expect(output.persist).toBeNull();
    expect(state.term).toBe(1);
  });

  test("after that time the vote is granted", () => {
    const state = raft({ term: 1 });
    receive(state, 2, append({ term: 1 }), 1000);
    const output = receive(state, 3, vote(9, 9, 9), 1000 + ELECTION_MS_MIN);
    expect(theOnly(output, "vote_reply")).toMatchObject({ term: 9, granted: true });
  });

  test("a pre-vote is refused in the same time", () => {
    const state = raft({ term: 1 });
    receive(state, 2, append({ term: 1 }), 1000);
    const early = receive(state, 3, preVote(2, 9, 9), 1000 + ELECTION_MS_MIN - 1);
    expect(theOnly(early, "pre_vote_reply")).toEqual({ kind: "pre_vote_reply", term: 1, granted: false });
    const later = receive(state, 3, preVote(2, 9, 9), 1000 + ELECTION_MS_MIN);
    expect(theOnly(later, "pre_vote_reply").granted).toBe(true);
  });

  test("a leader ignores the votes and refuses the pre-votes of others", () => {
    const state = raft();
    lead(state);
    const { term } = state;
    expect(receive(state, 3, vote(9, 9, 9)).sendLate).toEqual([]);
    expect(theOnly(receive(state, 3, preVote(9, 9, 9)), "pre_vote_reply").granted).toBe(false);
    expect(state.role.kind).toBe("leader");
    expect(state.term).toBe(term);
  });

  test("a node that has just started protects no leader", () => {
    expect(theOnly(receive(raft({ term: 4 }), 2, preVote(5, 0, 0)), "pre_vote_reply").granted).toBe(true);
  });

  test("a vote request alone is no sign of a leader: the next candidate is not kept waiting", () => {
    const state = raft({ size: 5 });
    receive(state, 2, vote(1, 0, 0), 0);
    expect(theOnly(receive(state, 3, vote(2, 0, 0), 1), "vote_reply").granted).toBe(true);
  });
});

describe("timers (paper 5.2)", () => {
  test("election timeouts are spread over the whole configured range", () => {
    const timeouts = Array.from({ length: 400 }, (_, seed) => electionAt(raft({ seed })));
    expect(Math.min(...timeouts)).toBeGreaterThanOrEqual(ELECTION_MS_MIN);
    expect(Math.max(...timeouts)).toBeLessThanOrEqual(ELECTION_MS_MAX);
    const span = (ELECTION_MS_MAX - ELECTION_MS_MIN) / 10;
    const filled = new Set(timeouts.map((timeout) => Math.floor((timeout - ELECTION_MS_MIN) / span)));
    expect(filled.size).toBeGreaterThanOrEqual(10);
  });

  test("a node draws a new timeout each time", () => {
    const state = raft({ term: 1 });
    const drawn = new Set<number>();
    for (let count = 0; count < 50; count += 1) {
      receive(state, 2, append({ term: 1 }), 0);
      drawn.add(electionAt(state));
    }
    expect(drawn.size).toBeGreaterThan(20);
  });

  test("equal seeds and events give equal timeouts", () => {
    expect(electionAt(raft({ seed: 9 }))).toBe(electionAt(raft({ seed: 9 })));
  });

  test("the leader's message puts off the election", () => {
    const state = raft({ term: 1 });
    receive(state, 2, append({ term: 1 }), 250);
    expect(electionAt(state)).toBeGreaterThanOrEqual(250 + ELECTION_MS_MIN);
    expect(sent(tick(state, 250 + ELECTION_MS_MIN - 1), "pre_vote")).toEqual([]);
  });

  test("a timer that is late by more than a heartbeat first waits one heartbeat", () => {
    const state = raft();
    const late = electionAt(state) + HEARTBEAT_MS + 1;
    const output = tick(state, late);
    expect(sent(output, "pre_vote")).toEqual([]);
    expect(output.wakeAtMs).toBe(late + HEARTBEAT_MS);
  });

  test("it waits only once, however late the next timer is", () => {
    const state = raft();
    tick(state, electionAt(state) + HEARTBEAT_MS + 1);
    expect(sent(tick(state, electionAt(state) + 10 * HEARTBEAT_MS), "pre_vote")).toHaveLength(2);
  });

  test("a timer that is late by a heartbeat or less asks at once", () => {
    const state = raft();
    expect(sent(tick(state, electionAt(state) + HEARTBEAT_MS), "pre_vote")).toHaveLength(2);
  });

  test("a message of the leader that was queued behind the late timer calls the election off", () => {
    const state = raft({ term: 1 });
    const late = electionAt(state) + 5 * ELECTION_MS_MAX;
    tick(state, late);
    receive(state, 2, append({ term: 1 }), late + 1);
    expect(sent(tick(state, late + HEARTBEAT_MS), "pre_vote")).toEqual([]);
    expect(followerOf(state)).toBe(2);
  });

  test("a cluster whose threads all stalled together keeps its leader", () => {
    const cluster = new Cluster({ size: 5 });
    cluster.elect(2);
    cluster.pass(100);
    cluster.advance(60_000);
    cluster.pass(2 * ELECTION_MS_MAX);
    expect(cluster.leader()).toBe(2);
    expect(cluster.state(2).term).toBe(1);
  });
});

describe("changes of role", () => {
  test("a majority of votes makes the leader, who starts its term with an entry and tells everybody (paper 5.2)", () => {
    const state = raft({ size: 5, terms: [1], term: 1 });
    const output = lead(state);
    expect(state.term).toBe(2);
    expect(output.persist?.append).toMatchObject([{ index: 2, term: 2, kind: "leader_start" }]);
    for (const peer of [2, 3, 4, 5]) {
      expect(theOnly(output, "append", peer)).toMatchObject({ term: 2, prevIndex: 1, prevTerm: 1 });
    }
  });

  test("votes of an earlier candidacy do not count (S09)", () => {
    const state = raft({ size: 5 });
    tick(state, electionAt(state));
    for (const voter of [2, 3]) receive(state, voter, { kind: "pre_vote_reply", term: 1, granted: true });
    receive(state, 2, { kind: "vote_reply", term: 1, granted: true, wallMs: 0 });
    tick(state, electionAt(state));
    for (const voter of [2, 3]) receive(state, voter, { kind: "pre_vote_reply", term: 2, granted: true });
    expect(state.term).toBe(2);
    for (const voter of [3, 4, 5]) receive(state, voter, { kind: "vote_reply", term: 1, granted: true, wallMs: 0 });
    expect(state.role.kind).toBe("candidate");
  });

  test("one voter's vote counts once, and refusals count nothing", () => {
    const state = raft({ size: 5 });
    tick(state, electionAt(state));
    for (const voter of [2, 3]) receive(state, voter, { kind: "pre_vote_reply", term: 1, granted: true });
    for (let copy = 0; copy < 4; copy += 1) {
      receive(state, 2, { kind: "vote_reply", term: 1, granted: true, wallMs: 0 });
      receive(state, 3, { kind: "vote_reply", term: 1, granted: false, wallMs: 0 });
    }
    expect(state.role.kind).toBe("candidate");
  });

  test("late votes change nothing for a leader or for one that has stepped down (S09)", () => {
    const state = raft();
    lead(state);
    const { role } = state;
    receive(state, 3, { kind: "vote_reply", term: 1, granted: true, wallMs: 0 });
    expect(state.role).toBe(role);
    receive(state, 3, append({ term: 2 }));
    receive(state, 2, { kind: "vote_reply", term: 1, granted: true, wallMs: 0 });
    expect(followerOf(state)).toBe(3);
    expect(state.term).toBe(2);
  });

  test("a candidate that hears the leader of its term follows it and keeps its vote (paper 5.2)", () => {
    const state = raft();
    tick(state, electionAt(state));
    receive(state, 2, { kind: "pre_vote_reply", term: 1, granted: true });
    expect(state.role.kind).toBe("candidate");
    receive(state, 3, append({ term: 1 }));
    expect(followerOf(state)).toBe(3);
    expect(state.votedFor).toBe(1);
  });

  test("a node that waits for pre-votes follows the leader it hears", () => {
    const state = raft({ term: 1 });
    tick(state, electionAt(state));
    receive(state, 2, append({ term: 1 }));
    expect(followerOf(state)).toBe(2);
  });

  test("a candidate does not follow a leader of an older term", () => {
    const state = raft({ term: 1 });
    tick(state, electionAt(state));
    receive(state, 2, { kind: "pre_vote_reply", term: 2, granted: true });
    const output = receive(state, 3, append({ term: 1 }));
    expect(state.role.kind).toBe("candidate");
    expect(theOnly(output, "append_reply", 3).term).toBe(2);
  });

  test.each([
    { name: "vote reply", message: { kind: "vote_reply", term: 9, granted: false, wallMs: 0 } as const },
    { name: "pre-vote reply", message: { kind: "pre_vote_reply", term: 9, granted: false } as const },
    { name: "acknowledgement", message: matched(9, 0) },
    { name: "conflict", message: conflict(9, 0, { index: 0, term: 0 }) },
    { name: "read request", message: { kind: "read_index", term: 9, context: 1 } as const },
    { name: "read reply", message: { kind: "read_index_reply", term: 9, context: 1, index: null, timeMs: 0 } as const },
    { name: "append", message: append({ term: 9 }) },
    { name: "quiesce", message: { kind: "quiesce", term: 9, index: 0, commit: 0, timeMs: 0 } as const },
  ])("a $name with a higher term ends a leader's and a candidate's role (paper 5.1)", ({ message }) => {
    const leader = raft();
    lead(leader);
    const candidate = raft();
    tick(candidate, electionAt(candidate));
    receive(candidate, 2, { kind: "pre_vote_reply", term: 1, granted: true });
    for (const state of [leader, candidate]) {
      const output = receive(state, 3, message);
      expect(state.role.kind).toBe("follower");
      expect(output.persist?.hardState).toEqual({ term: 9, votedFor: null });
    }
  });
});

describe("elections of a cluster", () => {
  test("a single node leads alone, once its own vote and entry are written", () => {
    const cluster = new Cluster({ size: 1 });
    cluster.hold(1);
    cluster.pass(ELECTION_MS_MAX);
    expect(cluster.state(1)).toMatchObject({ term: 1, votedFor: 1, commit: 0, role: { kind: "leader" } });
    cluster.release(1);
    expect(cluster.state(1).commit).toBe(1);
  });

  test("a split vote leaves the term without a leader and the next one has one (paper 5.2)", () => {
    const cluster = new Cluster({ size: 3 });
    cluster.campaign(1);
    cluster.campaign(2);
    cluster.cut(1, 2);
    cluster.take(to(3, "pre_vote")).forEach((envelope) => {
      cluster.hand(envelope);
    });
    cluster.deliver(from(3));
    expect(cluster.state(1).role.kind).toBe("candidate");
    expect(cluster.state(2).role.kind).toBe("candidate");
    cluster.take(to(3));
    cluster.heal();
    cluster.passUntil(() => cluster.leader() !== null, 3 * ELECTION_MS_MAX);
    expect(cluster.state(cluster.leader() ?? 0).term).toBe(2);
  });

  test("a leader that is gone is followed by another within two election timeouts", () => {
    for (let seed = 1; seed <= 20; seed += 1) {
      const cluster = new Cluster({ size: 5, seed });
      cluster.elect(1);
      cluster.crash(1);
      const tookMs = cluster.passUntil(() => cluster.leader() !== null, 2 * ELECTION_MS_MAX);
      expect(tookMs).toBeGreaterThanOrEqual(ELECTION_MS_MIN - HEARTBEAT_MS);
    }
  });

  test("a candidate whose log lacks a committed entry cannot win, the others can (paper 5.4.1)", () => {
    const cluster = new Cluster({ size: 3 });
    cluster.elect(1);
    cluster.partition([1, 2]);
    cluster.propose(1, "x");
    cluster.stabilize();
    expect(cluster.state(1).commit).toBe(2);
    cluster.crash(1);
    cluster.heal();
    cluster.advance(ELECTION_MS_MAX);
    cluster.campaign(3);
    cluster.stabilize();
    expect(cluster.leader()).toBeNull();
    cluster.elect(2);
  });

  test("a node that stands at a higher term than its leader is freed: the leader's term moves past it", () => {
    // Node 3 won the pre-votes, wrote term 2 and lost its vote requests; meanwhile the old leader was heard again.
    const cluster = new Cluster({ size: 3 });
    cluster.elect(1);
    cluster.advance(ELECTION_MS_MAX, [2, 3]);
    cluster.campaign(3);
    cluster.deliver(between(3, 2));
    cluster.deliver(between(2, 3));
    expect(cluster.state(3)).toMatchObject({ term: 2, role: { kind: "candidate" } });
    cluster.take();
    cluster.pass(3 * ELECTION_MS_MAX);
    const leader = cluster.leader();
    expect(leader).not.toBeNull();
    for (const { id } of cluster.nodes) expect(cluster.state(id).term).toBe(cluster.state(leader ?? 0).term);
    expect(cluster.state(1).term).toBeLessThanOrEqual(4);
    cluster.propose(leader ?? 0, "x");
    cluster.stabilize();
    expect(cluster.state(leader ?? 0).commit).toBe(cluster.state(leader ?? 0).log.lastIndex);
  });

  test("of two nodes at different terms and logs the one that may win does win", () => {
    // The longest log stands at the lowest term.
    const cluster = new Cluster({ size: 3, logs: { 1: [1, 1, 2], 2: [1], 3: [1, 1] }, terms: { 1: 2, 2: 8, 3: 5 } });
    cluster.crash(3);
    cluster.passUntil(() => cluster.leader() === 1, 4 * ELECTION_MS_MAX);
    expect(cluster.state(1).term).toBe(9);
  });
});
