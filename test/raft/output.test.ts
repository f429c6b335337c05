/**
 * The rules of `Output` (design 02 section 1: the order is the durability rule) and the invariants that halt a node.
 * Every step of every cluster test is checked against the same rules in `safety.ts`; these are the plain cases.
 */
import { describe, expect, test } from "vitest";
import { AssertionError } from "../../src/base/assert.ts";
import { createProgress } from "../../src/raft/replication.ts";
import type { RaftState } from "../../src/raft/state.ts";
import { Cluster } from "./cluster.ts";
import {
  append,
  campaign,
  ELECTION_MS_MAX,
  electionAt,
  entriesOf,
  entry,
  happen,
  lead,
  leadAndCommit,
  leaderRole,
  matched,
  positionOf,
  propose,
  raft,
  receive,
  stored,
  tick,
  vote,
} from "./fixtures.ts";

describe("what leaves early", () => {
  test("only a leader's appends leave before the write (I3)", () => {
    const state = raft();
    const won = lead(state);
    expect(won.sendEarly.map(({ message }) => message.kind)).toEqual(["append", "append"]);
    expect(won.sendLate).toEqual([]);
    const kinds = new Set<string>();
    for (const output of [propose(state, ["a"]), receive(state, 2, matched(1, 1)), tick(state, 50)]) {
      for (const { message } of output.sendEarly) kinds.add(message.kind);
      expect(output.sendLate).toEqual([]);
    }
    expect([...kinds]).toEqual(["append"]);
  });

  test("the turn that wins an election leaves the hard state alone: the term was durable before the votes came", () => {
    const output = lead(raft());
    expect(output.persist?.hardState).toBeNull();
    expect(output.sendEarly).not.toEqual([]);
  });

  test("vote requests leave behind the write of the own vote", () => {
    const state = raft();
    campaign(state);
    const output = receive(state, 2, { kind: "pre_vote_reply", term: 1, granted: true });
    expect(output.persist?.hardState).toEqual({ term: 1, votedFor: 1 });
    expect(output.sendEarly).toEqual([]);
    expect(output.sendLate.map(({ message }) => message.kind)).toEqual(["vote", "vote"]);
  });

  test("a follower's answers leave behind its writes", () => {
    const state = raft();
    const outputs = [
      receive(state, 2, vote(1, 0, 0)),
      receive(state, 2, append({ entries: entriesOf([1]) })),
      receive(state, 3, append({ term: 7, prevIndex: 5, prevTerm: 7 })),
    ];
    for (const output of outputs) {
      expect(output.sendEarly).toEqual([]);
      expect(output.sendLate).toHaveLength(1);
      expect(output.persist).not.toBeNull();
    }
  });
});

describe("what is written", () => {
  test("a turn that changes nothing durable writes nothing", () => {
    const state = raft({ terms: [1], term: 1 });
    const outputs = [
      tick(state, 1),
      receive(state, 2, append({ prevIndex: 1, prevTerm: 1 })),
      receive(state, 2, append({ prevIndex: 1, prevTerm: 1, commit: 1 })),
      propose(state, ["x"]),
      tick(state, electionAt(state)),
    ];
    expect(outputs.map((output) => output.persist)).toEqual(outputs.map(() => null));
  });

  test("the receipt names the end of the log and the term as they are after the turn", () => {
    const state = raft({ terms: [1, 1, 1], term: 1 });
    const entries = entriesOf([3, 3], 2);
    const output = receive(state, 2, append({ term: 3, prevIndex: 1, prevTerm: 1, entries }));
    expect(output.persist).toEqual({
      receipt: { index: 3, indexTerm: 3, term: 3, round: 0 },
      hardState: { term: 3, votedFor: null },
      truncateFrom: 2,
      install: null,
      append: entries,
      dropThrough: null,
      fence: 0,
    });
  });

  test("an acknowledgement that is repeated has no write of its own: late sends wait for earlier writes too", () => {
    // This is why a caller must carry out outputs in order: the second reply promises what the first turn writes.
    const cluster = new Cluster({ size: 3 });
    const message = append({ entries: entriesOf([1]) });
    cluster.hold(3);
    cluster.step(3, { kind: "message", from: 1, message });
    const repeated = cluster.step(3, { kind: "message", from: 1, message });
    expect(repeated.persist).toBeNull();
    expect(repeated.sendLate).toHaveLength(1);
    expect(cluster.pool).toEqual([]);
    cluster.flush(3, 1);
    expect(cluster.pool).toHaveLength(1);
  });

  test("an append's commit index is told in the turn that writes the entries, after the write", () => {
    const output = receive(raft(), 2, append({ entries: entriesOf([1]), commit: 1 }));
    expect(output.persist?.append).toHaveLength(1);
    expect(output.commitIndex).toBe(1);
  });
});

describe("when to wake", () => {
  test("a follower wakes for its election, a leader for its heartbeat", () => {
    const state = raft();
    expect(tick(state, 1).wakeAtMs).toBe(electionAt(state));
    lead(state, 10);
    expect(tick(state, 11).wakeAtMs).toBe(leaderRole(state).heartbeatAtMs);
  });

  test("a tick before that time does nothing", () => {
    const state = raft();
    const output = tick(state, electionAt(state) - 1);
    expect(output).toMatchObject({ persist: null, sendEarly: [], sendLate: [] });
    expect(state.role.kind).toBe("follower");
  });

  test("time to wake always lies ahead once the tick is handled", () => {
    const cluster = new Cluster({ size: 3 });
    for (let passed = 0; passed < 5000; passed += 5) {
      cluster.pass(5);
      for (const { wakeAtMs, nowMs } of cluster.nodes) expect(wakeAtMs).toBeGreaterThan(nowMs);
    }
  });

  test("equal states and events give equal outputs", () => {
    const run = () => {
      const cluster = new Cluster({ size: 5, seed: 12 });
      cluster.pass(2 * ELECTION_MS_MAX);
      cluster.propose(cluster.leader() ?? 0, "x");
      cluster.pass(100);
      return JSON.stringify(cluster.nodes.map(({ disk, reads, wakeAtMs }) => ({ disk, reads, wakeAtMs })));
    };
    expect(run()).toBe(run());
  });
});

describe("a broken invariant throws, and the caller halts the node (I1, I2)", () => {
  test("two leaders of one term", () => {
    const state = raft();
    lead(state);
    expect(() => receive(state, 2, append({ term: 1 }))).toThrow(AssertionError);
  });

  test("a leader's entry that contradicts what is committed", () => {
    const state = raft({ terms: [1, 1], term: 1, commit: 2 });
    const message = append({ term: 2, prevIndex: 0, prevTerm: 0, entries: [entry(1, 2), entry(2, 2)] });
    expect(() => receive(state, 2, message)).toThrow(AssertionError);
  });

  test("a log whose entries leave a hole", () => {
    const state = raft({ terms: [1], term: 1 });
    const message = append({ prevIndex: 1, prevTerm: 1, entries: [entry(3, 1)] });
    expect(() => receive(state, 2, message)).toThrow(AssertionError);
  });

  test("entries whose terms fall", () => {
    const state = raft({ terms: [3], term: 3 });
    const message = append({ term: 4, prevIndex: 1, prevTerm: 3, entries: [entry(2, 2)] });
    expect(() => receive(state, 2, message)).toThrow(AssertionError);
  });

  test("entries whose time falls", () => {
    const state = raft({ terms: [1], term: 1 });
    const message = append({ prevIndex: 1, prevTerm: 1, entries: [entry(2, 1, { timeMs: 0 })] });
    expect(() => receive(state, 2, message)).toThrow(AssertionError);
  });

  test("an acknowledgement of what the leader never had", () => {
    const state = raft();
    lead(state);
    expect(() => receive(state, 2, matched(1, 99))).toThrow(AssertionError);
  });

  test("a commit index beyond the log", () => {
    const state = raft({ terms: [1], term: 1 });
    state.commit = 5;
    expect(() => tick(state, 1)).toThrow(AssertionError);
  });

  test("a durable log that has lost an entry", () => {
    const state = raft({ terms: [1], term: 1 });
    state.log.lastIndex = 3;
    expect(() => receive(state, 2, append({ prevIndex: 2, prevTerm: 1 }))).toThrow(AssertionError);
  });

  test("progress beyond the leader's own log", () => {
    const state = raft();
    leadAndCommit(state);
    const progress = leaderRole(state).progress.get(2);
    if (progress !== undefined) progress.next = 9;
    expect(() => tick(state, 1)).toThrow(AssertionError);
  });

  test("progress whose match reaches its next", () => {
    const state = raft();
    leadAndCommit(state);
    const progress = leaderRole(state).progress.get(2);
    if (progress !== undefined) progress.match = progress.next;
    expect(() => tick(state, 1)).toThrow(AssertionError);
  });

  const broken: Record<string, (state: RaftState) => void> = {
    "a base beyond the commit index": (state) => {
      state.log.base = positionOf(4, 2);
    },
    "a membership that is not the base's at the base": (state) => {
      state.log.memberships = [];
    },
    "a member that the leader does not follow up": (state) => {
      leaderRole(state).progress.delete(3);
    },
    "a stranger that it follows up as a member": (state) => {
      leaderRole(state).progress.set(9, createProgress(4, 0));
    },
    "a member that it takes for one that has left": (state) => {
      leaderRole(state).progress.set(3, { ...createProgress(4, 0), leftAt: 3 });
    },
    "progress at the base, where nothing is left to send": (state) => {
      leaderRole(state).progress.set(3, { ...createProgress(2, 0), match: 1 });
    },
    "a snapshot on offer from which the log does not go on": (state) => {
      leaderRole(state).snapshot = positionOf(1, 1);
      leaderRole(state).progress.set(3, { ...createProgress(3, 0), kind: "snapshot" });
    },
  };
  test.each(Object.entries(broken))("%s (I5, I6)", (_name, breakIt) => {
    const state = raft({ base: positionOf(2, 1) });
    leadAndCommit(state);
    expect(state).toMatchObject({ commit: 3, log: { lastIndex: 3 } });
    expect(() => happen(state, { kind: "probe" })).not.toThrow();
    breakIt(state);
    expect(() => happen(state, { kind: "probe" })).toThrow(AssertionError);
  });

  test("a leader that sleeps while it hands over", () => {
    const state = raft({ size: 1 });
    stored(state, lead(state));
    happen(state, { kind: "quiesce" });
    leaderRole(state).transfer = { to: 2, untilMs: 1, askedAtMs: 0 };
    expect(() => happen(state, { kind: "probe" })).toThrow(AssertionError);
  });

  test("a start with less committed than the log's base covers", () => {
    expect(() => raft({ base: positionOf(5, 1), commit: 4 })).toThrow(AssertionError);
  });

  test("a start with more applied than the log holds", () => {
    expect(() => raft({ terms: [1], commit: 2 })).toThrow(AssertionError);
  });

  test("a leader that did not vote for itself", () => {
    const state = raft();
    tick(state, electionAt(state));
    receive(state, 2, { kind: "pre_vote_reply", term: 1, granted: true });
    state.votedFor = 2;
    expect(() => receive(state, 2, { kind: "vote_reply", term: 1, granted: true, wallMs: 0 })).toThrow(AssertionError);
  });

  test("a receipt of an honest disk never throws, whatever has happened since", () => {
    const state = raft();
    const output = receive(state, 2, append({ entries: entriesOf([1, 1]) }));
    receive(state, 3, append({ term: 2, entries: entriesOf([2]) }));
    expect(() => stored(state, output)).not.toThrow();
  });
});
