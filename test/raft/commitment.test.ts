/** Commitment: paper sections 5.3, 5.4.2 (figure 8) and 5.4.3; who counts, and when. */
import { describe, expect, test } from "vitest";
import { Cluster, from, to } from "./cluster.ts";
import {
  append,
  campaign,
  conflict,
  ELECTION_MS_MAX,
  entriesOf,
  entry,
  HEARTBEAT_MS,
  lead,
  leadAndCommit,
  matched,
  propose,
  raft,
  receive,
  sent,
  stored,
  theOnly,
  tick,
  vote,
} from "./fixtures.ts";

describe("a leader commits what a majority has written (paper 5.3)", () => {
  test("an entry is committed once a majority has acknowledged it, the leader's own write included", () => {
    const state = raft({ size: 5 });
    leadAndCommit(state);
    const output = propose(state, ["a"]);
    stored(state, output);
    receive(state, 2, matched(1, 2));
    expect(state.commit).toBe(1);
    receive(state, 3, matched(1, 2));
    expect(state.commit).toBe(2);
  });

  test("the leader's own entry counts only after its write is told", () => {
    const state = raft();
    leadAndCommit(state);
    const output = propose(state, ["a"]);
    receive(state, 2, matched(1, 2));
    expect(state.commit).toBe(1);
    expect(stored(state, output).commitIndex).toBe(2);
  });

  test("a majority of others commits without the leader's own write", () => {
    const state = raft();
    leadAndCommit(state);
    propose(state, ["a"]);
    receive(state, 2, matched(1, 2));
    receive(state, 3, matched(1, 2));
    expect(state.commit).toBe(2);
    expect(state.durableIndex).toBe(1);
  });

  test("one follower's acknowledgement counts once, however often it arrives", () => {
    const state = raft({ size: 5 });
    leadAndCommit(state);
    stored(state, propose(state, ["a"]));
    for (let copy = 0; copy < 5; copy += 1) receive(state, 2, matched(1, 2));
    expect(state.commit).toBe(1);
  });

  test("a conflict counts for nothing", () => {
    const state = raft({ size: 3 });
    leadAndCommit(state);
    stored(state, propose(state, ["a"]));
    receive(state, 2, conflict(1, 2, { index: 2, term: 1 }));
    receive(state, 3, conflict(1, 0, { index: 2, term: 1 }));
    expect(state.commit).toBe(1);
  });

  test("the commit index follows the majority, not the fastest", () => {
    const state = raft({ size: 5 });
    leadAndCommit(state);
    for (let count = 0; count < 5; count += 1) stored(state, propose(state, [`p${count}`]));
    receive(state, 2, matched(1, 6));
    receive(state, 3, matched(1, 3));
    receive(state, 4, matched(1, 4));
    expect(state.commit).toBe(4);
    receive(state, 5, matched(1, 5));
    expect(state.commit).toBe(5);
  });

  test("a single node commits when its own write is told, not before", () => {
    const state = raft({ size: 1 });
    const output = campaign(state);
    expect(state.commit).toBe(0);
    expect(stored(state, output).commitIndex).toBe(1);
  });
});

describe("entries of earlier terms are not committed by counting (paper 5.4.2, figure 8)", () => {
  test("an old entry on a majority waits for an entry of the leader's own term", () => {
    const state = raft({ size: 5, terms: [1, 2], term: 3 });
    const output = lead(state);
    stored(state, output);
    receive(state, 2, matched(4, 2));
    receive(state, 3, matched(4, 2));
    receive(state, 4, matched(4, 2));
    expect(state.commit).toBe(0);
    receive(state, 2, matched(4, 3));
    receive(state, 3, matched(4, 3));
    expect(state.commit).toBe(3);
  });

  test("figure 8 (d): S5 may still win and overwrite entry 2, because S1 never counted it as committed", () => {
    const cluster = new Cluster({
      size: 5,
      logs: { 1: [1, 2], 2: [1, 2], 3: [1, 2], 4: [1], 5: [1, 3] },
      terms: { 1: 4, 2: 4, 3: 4, 4: 3, 5: 3 },
    });
    cluster.crash(1);
    cluster.campaign(5);
    cluster.stabilize();
    // The others' refusals have brought S5 to term 4; now it asks for term 5.
    cluster.elect(5);
    expect(cluster.state(5).term).toBe(5);
    cluster.restart(1);
    cluster.pass(3 * HEARTBEAT_MS);
    for (const { id } of cluster.nodes) expect(cluster.terms(id)).toEqual([1, 3, 5]);
    expect(cluster.state(1).commit).toBe(3);
  });

  test("figure 8 (e): once an entry of term 4 is on a majority, S5 cannot win", () => {
    const cluster = new Cluster({
      size: 5,
      logs: { 1: [1, 2], 2: [1, 2], 3: [1, 2], 4: [1], 5: [1, 3] },
      terms: { 1: 3, 2: 3, 3: 3, 4: 3, 5: 3 },
    });
    cluster.partition([1, 2, 3]);
    cluster.elect(1);
    expect(cluster.state(1).commit).toBe(3);
    cluster.crash(1);
    cluster.heal();
    cluster.advance(ELECTION_MS_MAX);
    for (let attempt = 0; attempt < 3; attempt += 1) {
      cluster.campaign(5);
      cluster.stabilize();
      expect(cluster.leader()).toBeNull();
    }
    cluster.elect(2);
    expect(cluster.terms(5)).toEqual([1, 2, 4, cluster.state(2).term]);
  });

  test("a leader without entries of its own term commits nothing, even if everybody has everything", () => {
    const cluster = new Cluster({ size: 3, logs: { 1: [1, 1], 2: [1, 1], 3: [1, 1] } });
    cluster.campaign(1);
    cluster.deliver(from(1));
    cluster.deliver(to(1));
    cluster.deliver(from(1));
    cluster.hold(1);
    cluster.deliver(to(1));
    expect(cluster.state(1)).toMatchObject({ role: { kind: "leader" }, commit: 0 });
    cluster.release(1);
    cluster.stabilize();
    expect(cluster.state(1).commit).toBe(3);
  });
});

describe("a follower commits only what the message verified (S04 b)", () => {
  test("a heartbeat's commit index does not reach its own divergent entry", () => {
    const state = raft({ terms: [1, 1, 1, 1, 1], term: 1 });
    receive(state, 2, append({ term: 2, prevIndex: 4, prevTerm: 1, commit: 5 }));
    expect(state.commit).toBe(4);
  });

  test("an append's commit index does not pass its last entry", () => {
    const state = raft({ terms: [1, 1, 1], term: 1 });
    receive(state, 2, append({ term: 2, prevIndex: 1, prevTerm: 1, entries: entriesOf([1], 2), commit: 9 }));
    expect(state.commit).toBe(2);
  });

  test("a conflict commits nothing", () => {
    const state = raft({ terms: [1, 1], term: 1 });
    receive(state, 2, append({ term: 2, prevIndex: 2, prevTerm: 2, commit: 2 }));
    expect(state.commit).toBe(0);
  });

  test("an older message does not take the commit index back", () => {
    const state = raft({ terms: [1, 1, 1], term: 1 });
    receive(state, 2, append({ prevIndex: 3, prevTerm: 1, commit: 3 }));
    receive(state, 2, append({ prevIndex: 3, prevTerm: 1, commit: 1 }));
    receive(state, 2, append({ prevIndex: 0, prevTerm: 0, commit: 0 }));
    expect(state.commit).toBe(3);
  });

  test("entries and their commit index may come in one message", () => {
    const state = raft();
    const output = receive(state, 2, append({ entries: entriesOf([1, 1]), commit: 2 }));
    expect(output.commitIndex).toBe(2);
    expect(output.persist?.append).toHaveLength(2);
  });

  test("a restarted node knows as committed only what it has applied", () => {
    const cluster = new Cluster({ size: 3 });
    cluster.elect(1);
    cluster.propose(1, "a");
    cluster.stabilize();
    cluster.crash(1);
    cluster.restart(1, { applied: 0 });
    expect(cluster.state(1).commit).toBe(0);
  });
});

describe("followers without traffic hear of a commit soon", () => {
  test("a commit is told within a fifth of a heartbeat to those whom no later append told", () => {
    const state = raft();
    leadAndCommit(state);
    receive(state, 3, matched(1, 1));
    tick(state, HEARTBEAT_MS);
    const output = propose(state, ["a"], 60);
    stored(state, output, 61);
    const committed = receive(state, 2, matched(1, 2), 62);
    expect(committed.wakeAtMs).toBe(62 + HEARTBEAT_MS / 5);
    const notice = tick(state, committed.wakeAtMs);
    expect(sent(notice, "append").map(({ commit, entries }) => [commit, entries.length])).toEqual([
      [2, 0],
      [2, 0],
    ]);
    expect(tick(state, committed.wakeAtMs + 1).sendEarly).toEqual([]);
  });

  test("a follower that got the commit index with its next append is not told again", () => {
    const state = raft();
    leadAndCommit(state);
    receive(state, 3, matched(1, 1));
    tick(state, HEARTBEAT_MS);
    stored(state, propose(state, ["a"], 60), 61);
    const committed = receive(state, 2, matched(1, 2), 62);
    propose(state, ["b"], 63);
    expect(tick(state, committed.wakeAtMs).sendEarly).toEqual([]);
  });

  test("a follower that still probes is not told: it hears it with the next heartbeat", () => {
    const state = raft();
    leadAndCommit(state);
    tick(state, HEARTBEAT_MS);
    stored(state, propose(state, ["a"], 60), 61);
    const committed = receive(state, 2, matched(1, 2), 62);
    expect(tick(state, committed.wakeAtMs).sendEarly.map((envelope) => envelope.to)).toEqual([2]);
    expect(theOnly(tick(state, 2 * HEARTBEAT_MS), "append", 3).commit).toBe(2);
  });

  test("several commits in a row are told together, counted from the first", () => {
    const state = raft();
    leadAndCommit(state);
    tick(state, HEARTBEAT_MS);
    for (let count = 0; count < 5; count += 1) {
      stored(state, propose(state, [`p${count}`], 60 + count), 60 + count);
      receive(state, 2, matched(1, 2 + count), 60 + count);
    }
    expect(tick(state, 61).wakeAtMs).toBe(60 + HEARTBEAT_MS / 5);
  });

  test("the last write of a burst is applied everywhere without waiting for a heartbeat", () => {
    const cluster = new Cluster({ size: 5 });
    cluster.elect(1);
    cluster.pass(HEARTBEAT_MS);
    cluster.propose(1, "x");
    cluster.stabilize();
    cluster.pass(HEARTBEAT_MS / 5 + 5);
    for (const { state } of cluster.nodes) expect(state?.commit).toBe(2);
  });
});

describe("receipts of writes (S09)", () => {
  test("a receipt for an entry that was overwritten meanwhile says nothing", () => {
    const state = raft({ terms: [1], term: 1 });
    const old = receive(state, 2, append({ term: 3, prevIndex: 1, prevTerm: 1, entries: entriesOf([3], 2) }));
    receive(state, 3, append({ term: 4, prevIndex: 1, prevTerm: 1, entries: entriesOf([4], 2) }));
    stored(state, old);
    expect(state.durableIndex).toBe(1);
  });

  test("the receipt of the entry that stands there does", () => {
    const state = raft({ terms: [1], term: 1 });
    receive(state, 2, append({ term: 3, prevIndex: 1, prevTerm: 1, entries: entriesOf([3], 2) }));
    const now = receive(state, 3, append({ term: 4, prevIndex: 1, prevTerm: 1, entries: entriesOf([4], 2) }));
    stored(state, now);
    expect(state.durableIndex).toBe(2);
  });

  test("a receipt beyond a log that was cut back says nothing", () => {
    const state = raft({ terms: [1], term: 1 });
    const old = receive(state, 2, append({ term: 3, prevIndex: 1, prevTerm: 1, entries: entriesOf([3, 3, 3], 2) }));
    receive(state, 3, append({ term: 4, prevIndex: 1, prevTerm: 1, entries: entriesOf([4], 2) }));
    stored(state, old);
    expect(state.durableIndex).toBe(1);
  });

  test("an entry that comes back after it was overwritten never counts as the leader's own before it is written again", () => {
    // (2, term 3) is written, overwritten by (2, term 4), and brought back by the leader of term 5.
    const state = raft({ terms: [1], term: 1 });
    const first = receive(state, 2, append({ term: 3, prevIndex: 1, prevTerm: 1, entries: entriesOf([3], 2) }));
    receive(state, 3, append({ term: 4, prevIndex: 1, prevTerm: 1, entries: entriesOf([4], 2) }));
    receive(state, 2, append({ term: 5, prevIndex: 1, prevTerm: 1, entries: [entry(2, 3), entry(3, 5)] }));
    stored(state, first);
    // The core may believe that (2, term 3) is written; nothing is counted by it, since only own terms are counted.
    const output = lead(state, ELECTION_MS_MAX);
    expect(state.term).toBe(6);
    receive(state, 2, matched(6, 2), ELECTION_MS_MAX);
    receive(state, 2, matched(6, 3), ELECTION_MS_MAX);
    expect(state.commit).toBe(0);
    receive(state, 2, matched(6, 4), ELECTION_MS_MAX);
    expect(state.commit).toBe(0);
    expect(stored(state, output, ELECTION_MS_MAX).commitIndex).toBe(4);
  });

  test("receipts that arrive in the wrong order do not move the durable index back", () => {
    const state = raft();
    leadAndCommit(state);
    const first = propose(state, ["a"]);
    const second = propose(state, ["b"]);
    stored(state, second);
    stored(state, first);
    expect(state.durableIndex).toBe(3);
  });

  test("a follower's receipts from before its election count when it leads: they name what is on its disk", () => {
    const state = raft();
    const taken = receive(state, 2, append({ entries: entriesOf([1, 1]) }));
    const won = lead(state, ELECTION_MS_MAX);
    expect(state.durableIndex).toBe(0);
    stored(state, taken, ELECTION_MS_MAX);
    expect(state.durableIndex).toBe(2);
    receive(state, 2, matched(2, 3), ELECTION_MS_MAX);
    expect(state.commit).toBe(0);
    stored(state, won, ELECTION_MS_MAX);
    expect(state.commit).toBe(3);
  });

  test("a write of the hard state alone vouches for the whole log before it: writes are made in order", () => {
    const state = raft();
    receive(state, 2, append({ entries: entriesOf([1, 1]) }));
    const voted = receive(state, 3, vote(5, 9, 4), ELECTION_MS_MAX);
    expect(voted.persist?.append).toEqual([]);
    stored(state, voted, ELECTION_MS_MAX);
    expect(state.durableIndex).toBe(2);
  });
});
