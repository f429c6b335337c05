/** ReadIndex: linearizable reads without log entries (thesis section 6.4; S01 and S03). */
import { describe, expect, test } from "vitest";
import type { RaftState } from "../../src/raft/state.ts";
import type { Output } from "../../src/raft/types.ts";
import { between, Cluster, from, to } from "./cluster.ts";
import {
  append,
  campaign,
  conflict,
  ELECTION_MS_MAX,
  entriesOf,
  HEARTBEAT_MS,
  happen,
  lead,
  leadAndCommit,
  leaderRole,
  matched,
  propose,
  raft,
  receive,
  sent,
  stored,
  theOnly,
  tick,
} from "./fixtures.ts";

function read(state: RaftState, context: number): Output {
  return happen(state, { kind: "read", context });
}

/** A leader that has committed its `leader_start` (index 1, term 1). */
function readyLeader(options: { readonly size?: number; readonly fence?: boolean } = {}): RaftState {
  const state = raft(options);
  leadAndCommit(state);
  return state;
}

describe("confirmation rounds (thesis 6.4)", () => {
  test("a read is answered with the commit index once a majority has confirmed its round", () => {
    const state = readyLeader();
    const asked = read(state, 7);
    expect(asked.reads).toEqual([]);
    expect(sent(asked, "append").map(({ round, entries }) => [round, entries.length])).toEqual([
      [1, 0],
      [1, 0],
    ]);
    expect(receive(state, 2, matched(1, 1, 1)).reads).toEqual([{ context: 7, index: 1 }]);
  });

  test("a follower is told the leader's log time with the index, however wrong its own clock is (design 02 section 3)", () => {
    const state = readyLeader();
    const ofLeader = HEARTBEAT_MS + 7;
    receive(state, 2, { kind: "read_index", term: 1, context: 9 }, ofLeader);
    // The follower's clock is of no account: the reply carries what an entry of this moment would.
    const output = receive(state, 3, matched(1, 1, 1), ofLeader, 0);
    expect(theOnly(output, "read_index_reply", 2).timeMs).toBe(leaderRole(state).termWallMs + ofLeader);
  });

  test("five nodes need two confirmations besides the leader's own", () => {
    const state = readyLeader({ size: 5 });
    read(state, 7);
    for (let copy = 0; copy < 3; copy += 1) expect(receive(state, 2, matched(1, 1, 1)).reads).toEqual([]);
    expect(receive(state, 3, matched(1, 1, 1)).reads).toHaveLength(1);
  });

  test("reads that arrive during a round share the next one", () => {
    const state = readyLeader();
    read(state, 1);
    for (const context of [2, 3, 4]) expect(read(state, context).sendEarly).toEqual([]);
    const first = receive(state, 2, matched(1, 1, 1));
    expect(first.reads).toEqual([{ context: 1, index: 1 }]);
    expect(sent(first, "append").map((message) => message.round)).toEqual([2, 2]);
    const second = receive(state, 3, matched(1, 1, 2));
    expect(second.reads.map((answer) => answer.context)).toEqual([2, 3, 4]);
  });

  test("replies without a round, of an earlier round or of an earlier term do not count", () => {
    const state = raft({ term: 1 });
    leadAndCommit(state);
    read(state, 1);
    receive(state, 2, matched(2, 1, 1));
    read(state, 2);
    for (const stale of [matched(2, 1, 0), matched(2, 1, 1), matched(1, 1, 2), matched(2, 1, 3)]) {
      expect(receive(state, 3, stale).reads).toEqual([]);
    }
    expect(receive(state, 3, matched(2, 1, 2)).reads).toEqual([{ context: 2, index: 1 }]);
  });

  test("a conflict of this term confirms as well: it follows this leader", () => {
    const state = readyLeader();
    read(state, 1);
    const reply = { ...conflict(1, 1, { index: 0, term: 0 }), round: 1 };
    expect(receive(state, 3, reply).reads).toEqual([{ context: 1, index: 1 }]);
  });

  test("the answer is the commit index of the round's beginning, whatever commits meanwhile", () => {
    const state = readyLeader();
    stored(state, propose(state, ["a"]));
    read(state, 1);
    receive(state, 2, matched(1, 2));
    expect(state.commit).toBe(2);
    expect(receive(state, 2, matched(1, 2, 1)).reads).toEqual([{ context: 1, index: 1 }]);
  });

  test("heartbeats and appends carry the round that is under way, so a lost message does not lose the read", () => {
    const state = readyLeader();
    read(state, 1);
    receive(state, 3, matched(1, 1));
    expect(theOnly(propose(state, ["a"]), "append", 3).round).toBe(1);
    expect(theOnly(tick(state, HEARTBEAT_MS), "append", 2).round).toBe(1);
    receive(state, 2, matched(1, 1, 1), HEARTBEAT_MS);
    expect(theOnly(tick(state, 2 * HEARTBEAT_MS), "append", 2).round).toBe(0);
  });

  test("without reads no message carries a round", () => {
    const state = readyLeader();
    expect(sent(propose(state, ["a"]), "append").every((message) => message.round === 0)).toBe(true);
  });

  test("a single node answers at once", () => {
    const state = raft({ size: 1 });
    stored(state, campaign(state));
    expect(read(state, 5).reads).toEqual([{ context: 5, index: 1 }]);
  });

  test("waiting reads are bounded: the newest are dropped, the others answered", () => {
    const state = readyLeader();
    read(state, 0);
    for (let context = 1; context <= 5000; context += 1) read(state, context);
    expect(leaderRole(state).reads.waiting).toHaveLength(4096);
    receive(state, 2, matched(1, 1, 1));
    const { reads } = receive(state, 2, matched(1, 1, 2));
    expect(reads).toHaveLength(4096);
    expect(reads.at(-1)?.context).toBe(4096);
  });

  test("reads that wait when the leader steps down are never answered by it", () => {
    const state = readyLeader();
    read(state, 1);
    read(state, 2);
    receive(state, 3, append({ term: 2, prevIndex: 1, prevTerm: 1 }));
    const late = receive(state, 2, matched(1, 1, 1));
    expect(late.reads).toEqual([]);
    expect(late.sendLate).toEqual([]);
  });

  test("rounds of an earlier term do not confirm those of a later one with the same number", () => {
    const cluster = new Cluster({ size: 3 });
    cluster.elect(1);
    cluster.read(1, 11);
    cluster.deliver(from(1));
    const old = cluster.take(to(1));
    expect(old).toHaveLength(2);
    cluster.advance(ELECTION_MS_MAX);
    cluster.elect(2);
    cluster.advance(ELECTION_MS_MAX);
    cluster.elect(1);
    cluster.read(1, 12);
    cluster.take();
    for (const envelope of old) cluster.hand(envelope);
    expect(cluster.node(1).reads).toEqual([]);
  });
});

describe("a new leader knows what is committed before it serves (thesis 6.4; S03)", () => {
  test("reads wait until an entry of the leader's own term is committed", () => {
    const state = raft({ terms: [1, 1], term: 1, commit: 1 });
    const output = lead(state);
    expect(read(state, 1).sendEarly).toEqual([]);
    stored(state, output);
    const committed = receive(state, 2, matched(2, 3));
    expect(committed.commitIndex).toBe(3);
    expect(sent(committed, "append", 3).map((message) => message.round)).toContain(1);
    expect(receive(state, 3, matched(2, 3, 1)).reads).toEqual([{ context: 1, index: 3 }]);
  });

  test("a successor that did not know of an acknowledged write serves it all the same", () => {
    const cluster = new Cluster({ size: 3 });
    cluster.elect(1);
    cluster.propose(1, "x");
    cluster.deliver(from(1));
    cluster.deliver(to(1));
    expect(cluster.state(1).commit).toBe(2);
    expect(cluster.state(2).commit).toBeLessThan(2);
    cluster.take();
    cluster.crash(1);
    cluster.advance(ELECTION_MS_MAX);
    cluster.campaign(2);
    cluster.deliver(to(3));
    cluster.deliver(to(2));
    cluster.deliver(to(3));
    cluster.deliver(to(2));
    expect(cluster.state(2).role.kind).toBe("leader");
    cluster.read(2, 1);
    expect(cluster.node(2).reads).toEqual([]);
    cluster.stabilize();
    expect(cluster.node(2).reads).toEqual([{ context: 1, index: 3 }]);
  });
});

describe("followers forward their reads", () => {
  test("a follower asks its leader and serves at the index that comes back", () => {
    const cluster = new Cluster({ size: 3 });
    cluster.elect(1);
    cluster.pass(HEARTBEAT_MS);
    cluster.read(3, 42);
    expect(cluster.pool).toMatchObject([{ from: 3, to: 1, message: { kind: "read_index", context: 42 } }]);
    cluster.stabilize();
    expect(cluster.node(3).reads).toEqual([{ context: 42, index: 1 }]);
    expect(cluster.node(1).reads).toEqual([]);
  });

  test("reads of several nodes share one round", () => {
    const cluster = new Cluster({ size: 5 });
    cluster.elect(1);
    cluster.pass(HEARTBEAT_MS);
    cluster.read(1, 1);
    for (const id of [2, 3, 4, 5]) cluster.read(id, 10 * id);
    cluster.deliver((envelope) => envelope.message.kind === "read_index");
    cluster.stabilize();
    for (const id of [2, 3, 4, 5]) expect(cluster.node(id).reads).toEqual([{ context: 10 * id, index: 1 }]);
    expect(leaderRole(cluster.state(1)).reads.lastRound).toBe(2);
  });

  test("equal contexts of different nodes do not meet", () => {
    const cluster = new Cluster({ size: 3 });
    cluster.elect(1);
    cluster.pass(HEARTBEAT_MS);
    for (const id of [1, 2, 3]) cluster.read(id, 5);
    cluster.stabilize();
    for (const id of [1, 2, 3]) expect(cluster.node(id).reads).toEqual([{ context: 5, index: 1 }]);
  });

  test("a node that knows no leader drops the read", () => {
    const output = read(raft({ term: 1 }), 1);
    expect(output).toMatchObject({ sendEarly: [], sendLate: [], reads: [], persist: null });
  });

  test("a node that is asked but does not lead says so, and that is no answer", () => {
    const state = raft({ term: 4 });
    const output = receive(state, 2, { kind: "read_index", term: 4, context: 9 });
    expect(theOnly(output, "read_index_reply", 2)).toEqual({
      kind: "read_index_reply",
      term: 4,
      context: 9,
      index: null,
      timeMs: 0,
    });
    const asker = raft({ id: 2, term: 4 });
    expect(receive(asker, 1, theOnly(output, "read_index_reply", 2)).reads).toEqual([]);
  });

  test("an answer of an earlier term still counts: the round it stands for began after the question", () => {
    const state = raft({ term: 5 });
    const output = receive(state, 2, { kind: "read_index_reply", term: 4, context: 9, index: 3, timeMs: 0 });
    expect(output.reads).toEqual([{ context: 9, index: 3 }]);
  });

  test("an answer is matched by its context alone, so the caller must never use one again, not even after a restart", () => {
    const cluster = new Cluster({ size: 3 });
    cluster.elect(1);
    cluster.pass(HEARTBEAT_MS);
    cluster.read(3, 1);
    cluster.deliver((envelope) => envelope.message.kind === "read_index");
    cluster.deliver(from(1));
    cluster.deliver(to(1));
    const late = cluster.take(between(1, 3, "read_index_reply"));
    expect(late).toHaveLength(1);
    cluster.stabilize();
    cluster.crash(3);
    cluster.propose(1, "x");
    cluster.stabilize();
    cluster.restart(3);
    for (const envelope of late) cluster.hand(envelope);
    expect(cluster.node(3).reads).toEqual([{ context: 1, index: 1 }]);
    expect(cluster.state(1).commit).toBe(2);
  });
});

describe("an isolated leader serves nothing (thesis 6.4)", () => {
  test("a leader without a majority does not answer, before or after it learns of its successor", () => {
    const cluster = new Cluster({ size: 5 });
    cluster.elect(1);
    cluster.partition([1, 2], [3, 4, 5]);
    cluster.read(1, 1);
    cluster.stabilize();
    cluster.passUntil(() => cluster.leader() !== 1, 4 * ELECTION_MS_MAX);
    cluster.pass(4 * ELECTION_MS_MAX);
    const leader = cluster.leader() ?? 0;
    expect([3, 4, 5]).toContain(leader);
    cluster.propose(leader, "k=2");
    cluster.stabilize();
    cluster.heal();
    cluster.pass(4 * HEARTBEAT_MS);
    expect(cluster.node(1).reads).toEqual([]);
  });

  test("an old message that is refused confirms no round of the later term with the same number", () => {
    const cluster = new Cluster({ size: 3 });
    cluster.elect(1);
    cluster.read(1, 1);
    const old = cluster.take(between(1, 3));
    cluster.stabilize();
    for (const id of [2, 1]) {
      cluster.advance(ELECTION_MS_MAX);
      cluster.elect(id);
    }
    expect(cluster.state(1)).toMatchObject({ term: 3, role: { kind: "leader" } });
    // Node 3 refuses the message of term 1 in term 3; its reply is on its way while the others move on to term 4.
    for (const envelope of old) cluster.hand(envelope);
    const refusals = cluster.take(between(3, 1));
    expect(refusals).toMatchObject([{ message: { kind: "append_reply", term: 3 } }]);
    cluster.partition([2, 3]);
    cluster.advance(ELECTION_MS_MAX, [2, 3]);
    cluster.elect(2);
    cluster.propose(2, "k=2");
    cluster.stabilize();
    cluster.node(1).reads.length = 0;
    cluster.read(1, 2);
    cluster.heal();
    for (const envelope of refusals) cluster.hand(envelope);
    expect(cluster.node(1).reads).toEqual([]);
  });

  test("replies that were under way when the others moved on do not confirm a later read", () => {
    const cluster = new Cluster({ size: 3 });
    cluster.elect(1);
    cluster.read(1, 1);
    cluster.deliver(from(1));
    const replies = cluster.take(to(1));
    cluster.partition([2, 3]);
    cluster.advance(ELECTION_MS_MAX, [2, 3]);
    cluster.campaign(2);
    cluster.stabilize();
    cluster.propose(2, "k=2");
    cluster.stabilize();
    cluster.read(1, 2);
    cluster.heal();
    for (const envelope of replies) cluster.hand(envelope);
    // Read 1 began before the other leader's write and may be answered; read 2 began after it.
    expect(cluster.node(1).reads).toEqual([{ context: 1, index: 1 }]);
    cluster.stabilize();
    expect(cluster.node(1).reads).toHaveLength(1);
  });
});

describe("the fence: confirmations stand behind a write of the same turn (S01)", () => {
  test("a round begins with a write at the leader, whose own share counts only once it is told", () => {
    const state = readyLeader({ fence: true });
    const asked = read(state, 1);
    expect(asked.persist).toMatchObject({ hardState: null, truncateFrom: null, append: [], fence: 1 });
    expect(receive(state, 2, matched(1, 1, 1)).reads).toEqual([]);
    expect(stored(state, asked).reads).toEqual([{ context: 1, index: 1 }]);
  });

  test("the leader's own write does not confirm alone", () => {
    const state = readyLeader({ fence: true });
    expect(stored(state, read(state, 1)).reads).toEqual([]);
    expect(receive(state, 3, matched(1, 1, 1)).reads).toHaveLength(1);
  });

  test("a majority of others confirms without the leader's own share", () => {
    const state = readyLeader({ fence: true });
    read(state, 1);
    receive(state, 2, matched(1, 1, 1));
    expect(receive(state, 3, matched(1, 1, 1)).reads).toHaveLength(1);
  });

  test("receipts of another round or term do not confirm", () => {
    const state = readyLeader({ fence: true });
    const first = read(state, 1);
    read(state, 2);
    receive(state, 2, matched(1, 1, 1));
    receive(state, 3, matched(1, 1, 1));
    stored(state, first);
    receive(state, 2, matched(1, 1, 2));
    const receipt = { index: 1, indexTerm: 1, term: 0, round: 2 };
    expect(happen(state, { kind: "stored", receipt }).reads).toEqual([]);
    expect(happen(state, { kind: "stored", receipt: { ...receipt, term: 1 } }).reads).toHaveLength(1);
  });

  test("a follower confirms a round behind a write, one for each message of the round", () => {
    const state = raft({ terms: [1], term: 1, fence: true });
    for (let copy = 0; copy < 2; copy += 1) {
      const output = receive(state, 2, append({ prevIndex: 1, prevTerm: 1, round: 3 }));
      expect(output.persist).toMatchObject({ hardState: null, append: [], fence: 3 });
      expect(theOnly(output, "append_reply").round).toBe(3);
      expect(output.sendEarly).toEqual([]);
    }
  });

  test("a heartbeat without a round needs no write", () => {
    const output = receive(raft({ terms: [1], term: 1, fence: true }), 2, append({ prevIndex: 1, prevTerm: 1 }));
    expect(output.persist).toBeNull();
  });

  test("the round of a new term is confirmed in the same write as the term", () => {
    const state = raft({ terms: [1], term: 1, fence: true });
    const output = receive(state, 2, append({ term: 2, prevIndex: 1, prevTerm: 1, round: 1 }));
    expect(output.persist).toMatchObject({ hardState: { term: 2, votedFor: null }, fence: 1 });
  });

  test("a round that begins when the previous one ends has a write of its own", () => {
    const state = readyLeader({ fence: true });
    stored(state, read(state, 1));
    read(state, 2);
    const output = receive(state, 2, matched(1, 1, 1));
    expect(output.reads).toHaveLength(1);
    expect(output.persist).toMatchObject({ fence: 2 });
  });

  test("a single node answers once its fence is written", () => {
    const state = raft({ size: 1, fence: true });
    stored(state, campaign(state));
    const asked = read(state, 1);
    expect(asked.reads).toEqual([]);
    expect(stored(state, asked).reads).toEqual([{ context: 1, index: 1 }]);
  });

  test("with the fence off no round writes anything, on either side", () => {
    const state = readyLeader();
    expect(read(state, 1).persist).toBeNull();
    const follower = raft({ terms: [1], term: 1 });
    expect(receive(follower, 2, append({ prevIndex: 1, prevTerm: 1, round: 1 })).persist).toBeNull();
  });

  test("an instance whose writes never come through neither serves nor confirms", () => {
    // Node 1 leads, node 2 follows; both have been replaced without knowing and their writes no longer arrive.
    const cluster = new Cluster({ size: 3, fence: true });
    cluster.elect(1);
    cluster.hold(1);
    cluster.hold(2);
    cluster.cut(1, 3);
    cluster.read(1, 1);
    cluster.stabilize();
    expect(cluster.node(1).reads).toEqual([]);
    expect(cluster.pool).toEqual([]);
  });

  test("a follower's append of entries is its fence", () => {
    const state = raft({ terms: [1], term: 1, fence: true });
    const output = receive(state, 2, append({ prevIndex: 1, prevTerm: 1, entries: entriesOf([1], 2), round: 4 }));
    expect(output.persist?.append).toHaveLength(1);
    expect(theOnly(output, "append_reply").round).toBe(4);
  });
});
