/** Log replication: paper section 5.3; pipelining: thesis section 10.2.1. */
import { describe, expect, test } from "vitest";
import { APPEND_BYTES_MAX, APPEND_ENTRIES_MAX, APPENDS_IN_FLIGHT_MAX } from "../../src/base/limits.ts";
import type { Progress, RaftState } from "../../src/raft/state.ts";
import { between, Cluster, from, to } from "./cluster.ts";
import {
  append,
  conflict,
  ELECTION_MS_MAX,
  entriesOf,
  HEARTBEAT_MS,
  lead,
  leadAndCommit,
  leaderRole,
  logTerms,
  matched,
  propose,
  raft,
  receive,
  sent,
  stored,
  theOnly,
  tick,
  times,
} from "./fixtures.ts";

function progressOf(state: RaftState, id: number): Progress {
  const progress = leaderRole(state).progress.get(id);
  if (progress === undefined) throw new Error(`no progress of ${id}`);
  return progress;
}

/** A leader of three with `replicate` progress for node 2. */
function streaming(terms: readonly number[] = []): RaftState {
  const state = raft({ terms });
  leadAndCommit(state);
  expect(progressOf(state, 2).kind).toBe("replicate");
  return state;
}

describe("a follower takes entries (paper 5.3)", () => {
  test("entries behind a matching position are written before they are acknowledged", () => {
    const state = raft({ terms: [1], term: 1 });
    const output = receive(state, 2, append({ prevIndex: 1, prevTerm: 1, entries: entriesOf([1, 1], 2) }));
    expect(output.persist?.append.map((appended) => appended.index)).toEqual([2, 3]);
    expect(output.sendEarly).toEqual([]);
    expect(theOnly(output, "append_reply").result).toEqual({ kind: "matched", index: 3 });
  });

  test("a missing position is a conflict that names the follower's last entry", () => {
    const state = raft({ terms: [1, 1], term: 1 });
    const output = receive(state, 2, append({ prevIndex: 9, prevTerm: 1 }));
    expect(theOnly(output, "append_reply").result).toEqual({ kind: "conflict", prevIndex: 9, index: 2, term: 1 });
    expect(output.persist).toBeNull();
  });

  test("a conflict skips every entry whose term is higher than the leader's at that position", () => {
    const state = raft({ terms: [1, 1, 3, 3, 4, 4], term: 4 });
    const output = receive(state, 2, append({ term: 5, prevIndex: 6, prevTerm: 2 }));
    expect(theOnly(output, "append_reply").result).toEqual({ kind: "conflict", prevIndex: 6, index: 2, term: 1 });
  });

  test("an entry of another term and all that follow it are replaced", () => {
    const state = raft({ terms: [1, 2, 2, 2], term: 2 });
    const entries = entriesOf([3], 3);
    const output = receive(state, 2, append({ term: 3, prevIndex: 2, prevTerm: 2, entries }));
    expect(output.persist).toMatchObject({ truncateFrom: 3, append: entries });
    expect(logTerms(state)).toEqual([1, 2, 3]);
    expect(state.durableIndex).toBe(2);
  });

  test("an append of an older term is refused with the current term and changes nothing", () => {
    const state = raft({ terms: [1], term: 5 });
    const output = receive(
      state,
      2,
      append({ term: 4, prevIndex: 1, prevTerm: 1, entries: entriesOf([4], 2), commit: 1 }),
    );
    expect(theOnly(output, "append_reply")).toMatchObject({ term: 5, result: { kind: "conflict", index: 0, term: 0 } });
    expect(output.persist).toBeNull();
    expect(state).toMatchObject({ commit: 0, role: { kind: "follower", leader: null } });
  });
});

describe("stale, repeated, reordered and empty messages are harmless (S04)", () => {
  test("a delayed append of a prefix truncates nothing (S04 a)", () => {
    const state = raft({ terms: [1, 1, 1, 1, 1], term: 1 });
    const output = receive(state, 2, append({ prevIndex: 2, prevTerm: 1, entries: entriesOf([1], 3) }));
    expect(output.persist).toBeNull();
    expect(state.log.lastIndex).toBe(5);
    expect(theOnly(output, "append_reply").result).toEqual({ kind: "matched", index: 3 });
  });

  test("a heartbeat behind the log truncates nothing and acknowledges only its own position", () => {
    const state = raft({ terms: [1, 1, 2], term: 2 });
    const output = receive(state, 2, append({ term: 3, prevIndex: 2, prevTerm: 1 }));
    expect(output.persist?.truncateFrom).toBeNull();
    expect(state.log.lastIndex).toBe(3);
    expect(theOnly(output, "append_reply").result).toEqual({ kind: "matched", index: 2 });
  });

  test("a repeated append writes nothing and is acknowledged again", () => {
    const state = raft({ terms: [1], term: 1 });
    const message = append({ prevIndex: 1, prevTerm: 1, entries: entriesOf([1, 1], 2) });
    receive(state, 2, message);
    const output = receive(state, 2, message);
    expect(output.persist).toBeNull();
    expect(theOnly(output, "append_reply").result).toEqual({ kind: "matched", index: 3 });
  });

  test("an append that overlaps the log writes only what is new", () => {
    const state = raft({ terms: [1, 1, 1], term: 1 });
    const output = receive(state, 2, append({ prevIndex: 1, prevTerm: 1, entries: entriesOf([1, 1, 1, 1], 2) }));
    expect(output.persist).toMatchObject({ truncateFrom: null, append: [{ index: 4 }, { index: 5 }] });
  });

  test("an append that lies below the commit index is answered with the commit index", () => {
    const state = raft({ terms: [1, 1, 2, 2], term: 2, commit: 3 });
    const output = receive(state, 2, append({ term: 2, prevIndex: 0, prevTerm: 0, entries: entriesOf([1, 1], 1) }));
    expect(output.persist).toBeNull();
    expect(theOnly(output, "append_reply").result).toEqual({ kind: "matched", index: 3 });
  });

  test("an append that reaches over the commit index adds what lies above it", () => {
    const state = raft({ terms: [1, 1], term: 1, commit: 2 });
    const output = receive(state, 2, append({ prevIndex: 0, prevTerm: 0, entries: entriesOf([1, 1, 1]) }));
    expect(output.persist?.append).toMatchObject([{ index: 3 }]);
    expect(theOnly(output, "append_reply").result).toEqual({ kind: "matched", index: 3 });
  });

  test("appends that arrive in the wrong order end in the same log", () => {
    const cluster = new Cluster({ size: 3 });
    cluster.elect(1);
    cluster.take();
    for (const text of ["a", "b", "c", "d"]) cluster.propose(1, text);
    const appends = cluster.take(to(2)).reverse();
    cluster.take();
    for (const envelope of [...appends, ...appends]) cluster.hand(envelope);
    cluster.stabilize();
    expect(cluster.state(2).log.lastIndex).toBe(5);
    expect(cluster.terms(2)).toEqual(cluster.terms(1));
  });

  test("old acknowledgements do not move the leader's knowledge back", () => {
    const state = streaming();
    propose(state, ["a"]);
    propose(state, ["b"]);
    receive(state, 2, matched(1, 3));
    receive(state, 2, matched(1, 1));
    expect(progressOf(state, 2)).toMatchObject({ match: 3, next: 4, inFlight: [] });
  });

  test("a conflict that is older than what is known changes nothing", () => {
    const state = streaming();
    propose(state, ["a"]);
    receive(state, 2, matched(1, 2));
    const output = receive(state, 2, conflict(1, 2, { index: 0, term: 0 }));
    expect(progressOf(state, 2)).toMatchObject({ kind: "replicate", match: 2, next: 3 });
    expect(sent(output, "append")).toEqual([]);
  });

  test("a conflict that answers another probe changes nothing", () => {
    const state = raft({ terms: times(9, 1), term: 1 });
    lead(state);
    receive(state, 2, conflict(2, 9, { index: 4, term: 1 }));
    expect(progressOf(state, 2).next).toBe(5);
    receive(state, 2, conflict(2, 9, { index: 2, term: 1 }));
    expect(progressOf(state, 2).next).toBe(5);
  });

  test("a reordered conflict in the stream never takes `next` below what is matched", () => {
    const state = streaming();
    for (const text of ["a", "b", "c"]) propose(state, [text]);
    receive(state, 2, matched(1, 2));
    receive(state, 2, conflict(1, 3, { index: 1, term: 1 }));
    expect(progressOf(state, 2)).toMatchObject({ kind: "probe", match: 2, next: 3, inFlight: [] });
    receive(state, 2, matched(1, 4));
    expect(progressOf(state, 2)).toMatchObject({ kind: "replicate", match: 4, next: 5 });
  });

  test("an old acknowledgement that ends a probe does not take `next` below what is matched", () => {
    const state = streaming();
    for (const text of ["a", "b", "c"]) propose(state, [text]);
    receive(state, 2, matched(1, 3));
    receive(state, 2, conflict(1, 4, { index: 3, term: 1 }));
    expect(progressOf(state, 2)).toMatchObject({ kind: "probe", match: 3, next: 4 });
    const output = receive(state, 2, matched(1, 2));
    expect(theOnly(output, "append", 2).prevIndex).toBe(3);
    expect(progressOf(state, 2)).toMatchObject({ kind: "replicate", match: 3, next: 5 });
  });

  test("the refusal of an old message moves no probe, though it names the term in which the sender leads again", () => {
    // Node 1 led term 1, lost it, and leads term 2 now: its probe stands where a message of term 1 stood.
    const leader = raft({ terms: times(9, 1), term: 1 });
    lead(leader);
    expect(progressOf(leader, 3)).toMatchObject({ kind: "probe", next: 10 });
    const follower = raft({ id: 3, terms: times(9, 1), term: 2 });
    const refused = receive(follower, 1, append({ term: 1, prevIndex: 9, prevTerm: 1 }));
    receive(leader, 3, theOnly(refused, "append_reply"));
    expect(progressOf(leader, 3)).toMatchObject({ kind: "probe", next: 10 });
  });

  test("acknowledgements of an earlier term say nothing (S09)", () => {
    const state = raft({ terms: [1, 1], term: 1 });
    lead(state);
    receive(state, 2, matched(1, 2));
    expect(progressOf(state, 2)).toMatchObject({ kind: "probe", match: 0 });
  });

  test("acknowledgements change nothing for a leader of the past (S09)", () => {
    const state = streaming();
    const output = propose(state, ["a"]);
    receive(state, 3, append({ term: 2, prevIndex: 1, prevTerm: 1, entries: entriesOf([2], 2) }));
    receive(state, 2, matched(1, 2));
    stored(state, output);
    expect(state).toMatchObject({ commit: 1, role: { kind: "follower", leader: 3 } });
    expect(logTerms(state)).toEqual([1, 2]);
  });
});

describe("a leader brings a follower to its log (paper 5.3, figure 7)", () => {
  test("a new leader probes behind the end of its log with one message at a time", () => {
    const state = raft({ terms: [1, 1, 1], term: 1 });
    const output = lead(state);
    expect(theOnly(output, "append", 2)).toMatchObject({ prevIndex: 3, prevTerm: 1, entries: [{ index: 4 }] });
    expect(sent(propose(state, ["a"]), "append")).toEqual([]);
    expect(sent(propose(state, ["b"]), "append")).toEqual([]);
  });

  test("the first acknowledgement opens the stream", () => {
    const state = raft();
    lead(state);
    propose(state, ["a", "b"]);
    const output = receive(state, 2, matched(1, 1));
    expect(progressOf(state, 2)).toMatchObject({ kind: "replicate", match: 1, next: 4, inFlight: [3] });
    expect(theOnly(output, "append", 2).entries).toHaveLength(2);
  });

  test("a conflict moves the probe to the hint, or to the leader's own last entry of no higher term", () => {
    const state = raft({ terms: [1, 1, 4, 4, 5, 5, 6, 6, 6], term: 7 });
    lead(state);
    receive(state, 2, conflict(8, 9, { index: 9, term: 3 }));
    expect(progressOf(state, 2)).toMatchObject({ kind: "probe", next: 3 });
    receive(state, 3, conflict(8, 9, { index: 4, term: 4 }));
    expect(progressOf(state, 3)).toMatchObject({ kind: "probe", next: 5 });
  });

  test("a conflict at an empty log goes back to the first entry", () => {
    const state = raft({ terms: times(5, 1), term: 1 });
    lead(state);
    const output = receive(state, 2, conflict(2, 5, { index: 0, term: 0 }));
    expect(theOnly(output, "append", 2)).toMatchObject({ prevIndex: 0, prevTerm: 0 });
    expect(theOnly(output, "append", 2).entries).toHaveLength(5);
  });

  const leaderLog = [1, 1, 1, 4, 4, 5, 5, 6, 6, 6];
  test.each([
    { name: "a", log: [1, 1, 1, 4, 4, 5, 5, 6, 6] },
    { name: "b", log: [1, 1, 1, 4] },
    { name: "c", log: [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6] },
    { name: "d", log: [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7] },
    { name: "e", log: [1, 1, 1, 4, 4, 4, 4] },
    { name: "f", log: [1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3] },
  ])("follower ($name) of figure 7 ends with the leader's log", ({ log }) => {
    const cluster = new Cluster({ size: 3, logs: { 1: leaderLog, 2: log, 3: [1, 1, 1, 4] }, terms: { 1: 7, 2: 7 } });
    cluster.elect(1);
    expect(cluster.terms(2)).toEqual([...leaderLog, 8]);
    expect(cluster.terms(3)).toEqual([...leaderLog, 8]);
    expect(cluster.state(1).commit).toBe(11);
  });

  test.each([
    { name: "one long foreign term", leader: [1, ...times(900, 5)], follower: [1, ...times(700, 4)] },
    {
      name: "a foreign tail longer than the leader's log",
      leader: [1, ...times(9, 5)],
      follower: [1, ...times(900, 4)],
    },
    {
      name: "many foreign terms",
      leader: [1, ...times(500, 9)],
      follower: [1, ...[2, 3, 4, 5, 6].flatMap((t) => times(90, t))],
    },
    {
      name: "many terms of the leader",
      leader: [1, ...[3, 4, 5, 6, 7].flatMap((t) => times(90, t))],
      follower: [1, ...times(400, 2)],
    },
    { name: "a follower that has nothing", leader: times(900, 1), follower: [] },
  ])("a long divergence is found in few round trips: $name", ({ leader, follower }) => {
    const cluster = new Cluster({ size: 3, logs: { 1: leader, 2: follower, 3: leader } });
    cluster.cut(2, 3);
    let conflicts = 0;
    cluster.onDelivery = ({ message, from: sender }) => {
      if (sender === 2 && message.kind === "append_reply" && message.result.kind === "conflict") conflicts += 1;
    };
    cluster.elect(1);
    expect(cluster.terms(2)).toEqual(cluster.terms(1));
    expect(conflicts).toBeLessThanOrEqual(3);
  });

  test("logs whose terms alternate need one round trip for each foreign term at most", () => {
    // The worst case: leader and follower have never shared a term since the first entry.
    const leader = [1, ...[3, 5, 7, 9, 11].flatMap((term) => times(50, term))];
    const follower = [1, ...[2, 4, 6, 8, 10].flatMap((term) => times(50, term))];
    const cluster = new Cluster({ size: 3, logs: { 1: leader, 2: follower, 3: leader } });
    let conflicts = 0;
    cluster.onDelivery = ({ message, from: sender }) => {
      if (sender === 2 && message.kind === "append_reply" && message.result.kind === "conflict") conflicts += 1;
    };
    cluster.elect(1);
    expect(cluster.terms(2)).toEqual(cluster.terms(1));
    expect(conflicts).toBeLessThanOrEqual(6);
  });
});

describe("pipelining (thesis 10.2.1)", () => {
  test("proposals leave at once while earlier ones are unanswered", () => {
    const state = streaming();
    for (const text of ["a", "b", "c"]) expect(sent(propose(state, [text]), "append", 2)).toHaveLength(1);
    expect(progressOf(state, 2)).toMatchObject({ match: 1, next: 5, inFlight: [2, 3, 4] });
  });

  test("proposals of one turn are one append", () => {
    const state = streaming();
    const output = propose(state, ["a", "b", "c"]);
    expect(output.proposed).toEqual({ firstIndex: 2, term: 1 });
    expect(theOnly(output, "append", 2).entries.map((sentEntry) => sentEntry.payload)).toEqual(["a", "b", "c"]);
  });

  test("the window is bounded, and an acknowledgement opens it", () => {
    const state = streaming();
    for (let count = 0; count < 3 * APPENDS_IN_FLIGHT_MAX; count += 1) propose(state, [`p${count}`]);
    expect(progressOf(state, 2).inFlight).toHaveLength(APPENDS_IN_FLIGHT_MAX);
    expect(sent(propose(state, ["more"]), "append", 2)).toEqual([]);
    const output = receive(state, 2, matched(1, 2));
    const [next] = sent(output, "append", 2);
    expect(next?.prevIndex).toBe(APPENDS_IN_FLIGHT_MAX + 1);
    expect(progressOf(state, 2).inFlight.length).toBeLessThanOrEqual(APPENDS_IN_FLIGHT_MAX);
  });

  test("what gathered behind a full window leaves as one message", () => {
    const state = streaming();
    for (let count = 0; count < 100; count += 1) propose(state, [`p${count}`]);
    const output = receive(state, 2, matched(1, 1 + APPENDS_IN_FLIGHT_MAX));
    expect(theOnly(output, "append", 2).entries).toHaveLength(100 - APPENDS_IN_FLIGHT_MAX);
  });

  test("one acknowledgement answers all messages up to it", () => {
    const state = streaming();
    for (let count = 0; count < 5; count += 1) propose(state, [`p${count}`]);
    receive(state, 2, matched(1, 4));
    expect(progressOf(state, 2)).toMatchObject({ match: 4, inFlight: [5, 6] });
  });

  test("an append carries no more than the allowed number of entries", () => {
    const state = raft({ terms: times(2 * APPEND_ENTRIES_MAX + 5, 1), term: 1 });
    lead(state);
    const output = receive(state, 2, conflict(2, 2 * APPEND_ENTRIES_MAX + 5, { index: 0, term: 0 }));
    expect(theOnly(output, "append", 2).entries).toHaveLength(APPEND_ENTRIES_MAX);
    const more = sent(receive(state, 2, matched(2, APPEND_ENTRIES_MAX)), "append", 2);
    // The last entry lies in the cache, the others before it: a message never reaches over that edge.
    expect(more.map((message) => message.entries.length)).toEqual([APPEND_ENTRIES_MAX, 5, 1]);
  });

  test("an append carries no more than the allowed bytes, but always one entry", () => {
    const third = Math.floor(APPEND_BYTES_MAX / 3);
    const state = streaming();
    propose(state, ["x".repeat(third), "y".repeat(third), "z".repeat(third), "w".repeat(third)]);
    propose(state, ["h".repeat(APPEND_BYTES_MAX + 100)]);
    const counts = [...progressOf(state, 2).inFlight];
    expect(counts).toEqual([4, 5, 6]);
  });

  test("a commit that is known by acknowledgement reaches the stream with the next append", () => {
    const state = streaming();
    const output = propose(state, ["a"]);
    stored(state, output);
    receive(state, 2, matched(1, 2));
    expect(state.commit).toBe(2);
    expect(theOnly(propose(state, ["b"]), "append", 2).commit).toBe(2);
  });
});

describe("heartbeats repair what was lost (S11)", () => {
  test("a heartbeat verifies the position behind all that was sent", () => {
    const state = streaming();
    propose(state, ["a"]);
    const output = tick(state, HEARTBEAT_MS);
    expect(theOnly(output, "append", 2)).toMatchObject({ prevIndex: 2, entries: [] });
    expect(theOnly(output, "append", 3)).toMatchObject({ prevIndex: 0, entries: [] });
  });

  test("one write whose appends were dropped commits by heartbeats alone", () => {
    const cluster = new Cluster({ size: 3 });
    cluster.elect(1);
    cluster.propose(1, "x");
    cluster.take();
    cluster.pass(3 * HEARTBEAT_MS);
    expect(cluster.state(1).commit).toBe(2);
    expect(cluster.state(2).commit).toBe(2);
    expect(cluster.state(3).commit).toBe(2);
  });

  test("a write whose acknowledgements were dropped commits by heartbeats alone", () => {
    const cluster = new Cluster({ size: 3 });
    cluster.elect(1);
    cluster.propose(1, "x");
    cluster.deliver(from(1));
    cluster.take();
    expect(cluster.state(1).commit).toBe(1);
    cluster.pass(3 * HEARTBEAT_MS);
    expect(cluster.state(1).commit).toBe(2);
  });

  test("a follower that was down catches up without new traffic", () => {
    const cluster = new Cluster({ size: 3 });
    cluster.elect(1);
    cluster.crash(3);
    for (const text of ["a", "b", "c"]) cluster.propose(1, text);
    cluster.pass(HEARTBEAT_MS);
    cluster.restart(3);
    cluster.pass(4 * HEARTBEAT_MS);
    expect(cluster.state(3)).toMatchObject({ commit: 4 });
    expect(cluster.terms(3)).toEqual(cluster.terms(1));
  });

  test("a hole in the middle of the stream is filled when the next append meets it", () => {
    const cluster = new Cluster({ size: 3 });
    cluster.elect(1);
    cluster.propose(1, "a");
    cluster.take(to(2));
    cluster.propose(1, "b");
    cluster.stabilize();
    expect(cluster.terms(2)).toEqual([1, 1, 1]);
  });

  test("a lost probe is asked again at the next heartbeat, not before", () => {
    const state = raft({ terms: [1], term: 1 });
    lead(state);
    expect(sent(propose(state, ["a"], 10), "append", 2)).toEqual([]);
    expect(sent(tick(state, HEARTBEAT_MS - 1), "append")).toEqual([]);
    expect(sent(tick(state, HEARTBEAT_MS), "append", 2)).toHaveLength(1);
    const output = receive(state, 2, matched(2, 1), HEARTBEAT_MS + 1);
    expect(theOnly(output, "append", 2).entries).toHaveLength(2);
  });

  test("a follower that does not answer gets heartbeats only, however much is proposed", () => {
    const state = streaming();
    let bytes = 0;
    for (let beat = 1; beat <= 10; beat += 1) {
      tick(state, beat * HEARTBEAT_MS);
      receive(state, 2, matched(1, state.log.lastIndex), beat * HEARTBEAT_MS);
      const output = propose(state, ["x".repeat(1000)], beat * HEARTBEAT_MS + 1);
      for (const message of sent(output, "append", 3))
        for (const { payloadBytes } of message.entries) bytes += payloadBytes;
    }
    expect(progressOf(state, 3)).toMatchObject({ kind: "probe", probing: true });
    expect(bytes).toBe(0);
  });

  test("a stream whose acknowledgements were all lost moves on with the heartbeat's", () => {
    const state = streaming();
    for (let count = 0; count < 2 * APPENDS_IN_FLIGHT_MAX; count += 1) propose(state, [`p${count}`]);
    tick(state, HEARTBEAT_MS);
    const { next } = progressOf(state, 2);
    const output = receive(state, 2, matched(1, next - 1), HEARTBEAT_MS);
    expect(theOnly(output, "append", 2).entries).toHaveLength(APPENDS_IN_FLIGHT_MAX);
  });

  test("a heartbeat that overtakes the appends before it costs a resend, not correctness", () => {
    const cluster = new Cluster({ size: 3 });
    cluster.elect(1);
    cluster.take();
    cluster.propose(1, "a");
    cluster.propose(1, "b");
    const appends = cluster.take(between(1, 2));
    cluster.advance(HEARTBEAT_MS);
    cluster.tick(1);
    cluster.stabilize();
    for (const envelope of appends) cluster.hand(envelope);
    cluster.stabilize();
    expect(cluster.terms(2)).toEqual([1, 1, 1]);
    expect(cluster.state(1).commit).toBe(3);
  });

  test("heartbeats come at the configured interval, whatever else is sent", () => {
    const state = streaming();
    expect(propose(state, ["a"], 30).wakeAtMs).toBeLessThanOrEqual(HEARTBEAT_MS);
    for (let beat = 1; beat <= 5; beat += 1) {
      const output = tick(state, beat * HEARTBEAT_MS);
      expect(sent(output, "append")).toHaveLength(2);
      expect(output.wakeAtMs).toBe((beat + 1) * HEARTBEAT_MS);
    }
  });
});

describe("proposals", () => {
  test("a node that does not lead appends nothing and says so", () => {
    const state = raft({ term: 1 });
    const output = propose(state, ["a"]);
    expect(output).toMatchObject({ proposed: null, persist: null, sendEarly: [] });
    expect(state.log.lastIndex).toBe(0);
  });

  test("a proposal leaves early: before the leader's own write", () => {
    const state = streaming();
    const output = propose(state, ["a"]);
    expect(output.sendEarly).toHaveLength(1);
    expect(output.sendLate).toEqual([]);
    expect(output.persist?.append).toHaveLength(1);
  });

  test("payloads travel unchanged, whatever they hold", () => {
    const cluster = new Cluster({ size: 3 });
    cluster.elect(1);
    const texts = ["", "\u0000", "\ud83d\ude00", '{"a":[1]}', "x".repeat(5000)];
    cluster.propose(1, ...texts);
    cluster.stabilize();
    const taken = cluster
      .node(3)
      .disk.entries.slice(1)
      .map((kept) => kept.payload);
    expect(taken).toEqual(texts);
  });

  test("an entry keeps its kind and its time on every node", () => {
    const cluster = new Cluster({ size: 3 });
    cluster.elect(1);
    cluster.propose(1, "x");
    cluster.stabilize();
    expect(cluster.node(3).disk.entries).toEqual(cluster.node(1).disk.entries);
    expect(cluster.node(3).disk.entries.map((kept) => kept.kind)).toEqual(["leader_start", "command"]);
  });

  test("entries of a crashed leader that nobody has are gone, those that left early may live (paper 5.4)", () => {
    const cluster = new Cluster({ size: 3 });
    cluster.elect(1);
    cluster.hold(1);
    cluster.propose(1, "lives");
    cluster.stabilize();
    cluster.propose(1, "dies");
    cluster.take();
    cluster.crash(1);
    cluster.restart(1);
    expect(cluster.terms(1)).toEqual([1]);
    cluster.advance(ELECTION_MS_MAX);
    cluster.elect(2);
    expect(cluster.node(1).disk.entries.map((kept) => kept.payload)).toEqual(["", "lives", ""]);
  });

  test("a leader that has lost its unwritten entries leads only a later term: no (index, term) is filled twice", () => {
    const cluster = new Cluster({ size: 3 });
    cluster.elect(1);
    cluster.hold(1);
    cluster.propose(1, "x");
    const early = cluster.take(to(2));
    cluster.take();
    cluster.crash(1);
    cluster.restart(1);
    cluster.advance(ELECTION_MS_MAX);
    cluster.elect(1);
    expect(cluster.terms(1)).toEqual([1, 2]);
    for (const envelope of early) cluster.hand(envelope);
    cluster.stabilize();
    expect(cluster.terms(2)).toEqual([1, 2]);
  });
});
