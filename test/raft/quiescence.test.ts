/** Quiescence: falling asleep, waking up, and that nothing depends on either (design 02 §4). */
import { describe, expect, test } from "vitest";
import { isAsleep, laggingPeers, leaderOf, logTimeMs, type RaftState } from "../../src/raft/state.ts";
import type { Message, NodeId, Output } from "../../src/raft/types.ts";
import {
  append,
  campaign,
  conflict,
  ELECTION_MS_MAX,
  ELECTION_MS_MIN,
  electionAt,
  entriesOf,
  HEARTBEAT_MS,
  happen,
  lead,
  leaderRole,
  matched,
  type Of,
  preVote,
  propose,
  raft,
  receive,
  sent,
  stored,
  theOnly,
  tick,
  vote,
} from "./fixtures.ts";

const WAKE: Message = { kind: "wake", term: 1 };
const NOTHING = { persist: null, sendEarly: [], sendLate: [], reads: [] };

function quiesceMessage(changes: Partial<Of<"quiesce">> = {}): Of<"quiesce"> {
  return { kind: "quiesce", term: 1, index: 2, commit: 2, timeMs: 0, ...changes };
}

function quiesce(state: RaftState, nowMs = 0): Output {
  return happen(state, { kind: "quiesce" }, nowMs);
}

function wake(state: RaftState, nowMs = 0): Output {
  return happen(state, { kind: "wake" }, nowMs);
}

/** A leader of term 1 whose followers `held` have all its entries and know that they are committed. */
function idleLeader(
  options: { readonly size?: number; readonly held?: readonly NodeId[]; readonly fence?: boolean } = {},
) {
  const state = raft({ size: options.size ?? 3, fence: options.fence ?? false });
  stored(state, lead(state));
  for (const id of options.held ?? leaderRole(state).progress.keys()) receive(state, id, matched(1, 1));
  tick(state, HEARTBEAT_MS);
  return state;
}

function sleepingLeader(options: Parameters<typeof idleLeader>[0] = {}): RaftState {
  const state = idleLeader(options);
  quiesce(state, HEARTBEAT_MS);
  expect(isAsleep(state)).toBe(true);
  return state;
}

/** A leader that fell asleep at 1000 without node 3, from which it has heard nothing since the beginning. */
function leaderWithoutThree(): RaftState {
  const state = idleLeader({ held: [2] });
  receive(state, 2, matched(1, 1), 1000);
  quiesce(state, 1000);
  return state;
}

/** Node 2 follows node 1 with a log of two entries, both committed. */
function follower(changes: Partial<Of<"append">> = {}): RaftState {
  const state = raft({ id: 2 });
  receive(state, 1, append({ entries: entriesOf([1, 1]), commit: 2, ...changes }));
  return state;
}

function sleepingFollower(): RaftState {
  const state = follower();
  receive(state, 1, quiesceMessage());
  expect(isAsleep(state)).toBe(true);
  return state;
}

/** What is left of a leader of term 1 that lost its memory. */
function lastLeader(changes: Parameters<typeof raft>[0] = {}): RaftState {
  return raft({ terms: [1, 1], votedFor: 1, commit: 2, asleep: true, ...changes });
}

describe("a leader falls asleep (Q1)", () => {
  test("when its whole log is committed and durable and everybody has heard so", () => {
    const state = idleLeader();
    const output = quiesce(state, HEARTBEAT_MS);
    expect(isAsleep(state)).toBe(true);
    expect(output).toMatchObject({ persist: null, sendEarly: [], wakeAtMs: Number.POSITIVE_INFINITY });
    expect(output.sendLate.map(({ to }) => to)).toEqual([2, 3]);
    expect(sent(output, "quiesce")).toEqual([
      { kind: "quiesce", term: 1, index: 1, commit: 1, timeMs: logTimeMs(state, HEARTBEAT_MS) },
      { kind: "quiesce", term: 1, index: 1, commit: 1, timeMs: logTimeMs(state, HEARTBEAT_MS) },
    ]);
    expect(laggingPeers(state)).toEqual([]);
  });

  const obstacles: Record<string, (state: RaftState) => void> = {
    "an entry is not committed": (state) => {
      stored(state, propose(state, ["a"], HEARTBEAT_MS));
    },
    "an entry is committed by others, but not durable here": (state) => {
      propose(state, ["a"], HEARTBEAT_MS);
      for (const id of [2, 3]) receive(state, id, matched(1, 2), HEARTBEAT_MS);
      tick(state, 2 * HEARTBEAT_MS);
      expect(state.commit).toBe(2);
    },
    "a member that answers does not hold the last entry": (state) => {
      stored(state, propose(state, ["a"], HEARTBEAT_MS));
      receive(state, 2, matched(1, 2), HEARTBEAT_MS);
      tick(state, 2 * HEARTBEAT_MS);
      expect(state.commit).toBe(2);
    },
    "a member that answers has not been told what is committed": (state) => {
      stored(state, propose(state, ["a"], HEARTBEAT_MS));
      for (const id of [2, 3]) receive(state, id, matched(1, 2), HEARTBEAT_MS);
    },
    "a read waits for its round": (state) => {
      happen(state, { kind: "read", context: 1 }, HEARTBEAT_MS);
    },
    "it does not reach a majority": (state) => {
      for (const progress of leaderRole(state).progress.values()) progress.heardAtMs = -10 * ELECTION_MS_MAX;
    },
  };
  test.each(Object.entries(obstacles))("not while %s", (_name, hinder) => {
    const state = idleLeader();
    hinder(state);
    const { role } = state;
    expect(quiesce(state, 2 * HEARTBEAT_MS)).toMatchObject(NOTHING);
    expect(isAsleep(state)).toBe(false);
    expect(state.role).toBe(role);
  });

  test("not before an entry of its own term is committed", () => {
    const state = raft({ terms: [1, 1], commit: 2 });
    lead(state);
    expect(quiesce(state)).toMatchObject(NOTHING);
    expect(isAsleep(state)).toBe(false);
  });

  test("also with a member that it does not reach: that one is told nothing and is remembered", () => {
    const state = leaderWithoutThree();
    expect(isAsleep(state)).toBe(true);
    expect(laggingPeers(state)).toEqual([3]);
  });

  test("also with one that holds everything but is not heard any more: it is looked for as well", () => {
    const state = idleLeader();
    receive(state, 2, matched(1, 1), 2000);
    const output = quiesce(state, 2000);
    expect(output.sendLate.map(({ to }) => to)).toEqual([2]);
    expect(laggingPeers(state)).toEqual([3]);
  });

  test("alone, as a cluster of one", () => {
    const state = raft({ size: 1 });
    stored(state, campaign(state));
    expect(quiesce(state).wakeAtMs).toBe(Number.POSITIVE_INFINITY);
    expect(wake(state, 5000).wakeAtMs).toBe(5000 + HEARTBEAT_MS);
  });

  test("once: asked again it does nothing", () => {
    expect(quiesce(sleepingLeader(), 2 * HEARTBEAT_MS)).toMatchObject(NOTHING);
  });

  test("and nobody else does: followers and candidates that are asked do nothing", () => {
    const candidate = raft();
    tick(candidate, electionAt(candidate));
    for (const state of [follower(), raft(), candidate]) {
      expect(quiesce(state)).toMatchObject(NOTHING);
      expect(isAsleep(state)).toBe(false);
    }
  });

  test("asleep it sends nothing and judges no quorum, however late a tick comes", () => {
    const state = sleepingLeader();
    for (const nowMs of [100, 1000, 1_000_000]) expect(tick(state, nowMs)).toMatchObject(NOTHING);
    expect(isAsleep(state)).toBe(true);
  });

  test("the answers to its last heartbeat, which come when it sleeps, do not wake it", () => {
    const state = sleepingLeader();
    for (const id of [2, 3]) expect(receive(state, id, matched(1, 1), 60)).toMatchObject(NOTHING);
    expect(isAsleep(state)).toBe(true);
  });
});

describe("a follower falls asleep (Q2)", () => {
  test("when its log is its leader's and committed to the end: no timer is left", () => {
    const state = follower();
    const output = receive(state, 1, quiesceMessage(), 10);
    expect(output).toMatchObject({ ...NOTHING, wakeAtMs: Number.POSITIVE_INFINITY });
    expect(isAsleep(state)).toBe(true);
    expect(tick(state, 1_000_000)).toMatchObject(NOTHING);
  });

  test("its leader stays known, but not as one that is heard: votes are granted by the log alone", () => {
    const state = sleepingFollower();
    expect(leaderOf(state)).toBe(1);
    expect(theOnly(receive(state, 3, preVote(2, 2, 1), 1), "pre_vote_reply").granted).toBe(true);
    expect(theOnly(receive(state, 3, vote(2, 2, 1), 1), "vote_reply").granted).toBe(true);
    expect(theOnly(receive(sleepingFollower(), 3, preVote(2, 1, 1), 1), "pre_vote_reply").granted).toBe(false);
  });

  const refusals: Record<string, { readonly state: RaftState; readonly from?: NodeId; readonly message?: Message }> = {
    "it holds entries that the leader does not count": { state: follower({ entries: entriesOf([1, 1, 1]) }) },
    "its last entry is not known to be committed": { state: follower({ commit: 1 }) },
    "it is behind": { state: follower({ entries: entriesOf([1]), commit: 1 }) },
    "the leader has not committed its last entry": { state: follower(), message: quiesceMessage({ commit: 1 }) },
    "the leader's log is longer": { state: follower(), message: quiesceMessage({ index: 3, commit: 3 }) },
    "another than its leader says so": { state: follower(), from: 3 },
    "it does not know its leader": { state: raft({ id: 2, terms: [1, 1], commit: 2 }) },
  };
  test.each(Object.entries(refusals))("not when %s", (_name, { state, from = 1, message = quiesceMessage() }) => {
    const timer = electionAt(state);
    expect(receive(state, from, message, 10)).toMatchObject({ ...NOTHING, wakeAtMs: timer });
    expect(isAsleep(state)).toBe(false);
  });

  test("not for a leader of the past", () => {
    const state = follower();
    receive(state, 3, append({ term: 2, prevIndex: 2, prevTerm: 1, commit: 2 }));
    expect(receive(state, 1, quiesceMessage(), 10)).toMatchObject(NOTHING);
    expect(isAsleep(state)).toBe(false);
  });

  test("not for a leader of a later term that it has not heard: that term begins awake", () => {
    const state = sleepingFollower();
    receive(state, 3, quiesceMessage({ term: 2 }), 10);
    expect(isAsleep(state)).toBe(false);
    expect(state.term).toBe(2);
    expect(leaderOf(state)).toBeNull();
  });

  test("a repeated word of its leader leaves it asleep", () => {
    const state = sleepingFollower();
    receive(state, 1, quiesceMessage(), 10);
    expect(isAsleep(state)).toBe(true);
  });

  test("a refusal costs a pre-vote, which wakes the leader", () => {
    const state = follower({ commit: 1 });
    receive(state, 1, quiesceMessage());
    expect(sent(tick(state, electionAt(state)), "pre_vote")).toHaveLength(2);
  });
});

describe("a sleeping leader wakes up (Q3)", () => {
  const causes: Record<string, (state: RaftState) => Output> = {
    "something to do": (state) => wake(state, 5000),
    "a proposal": (state) => propose(state, ["a"], 5000),
    "a read": (state) => happen(state, { kind: "read", context: 1 }, 5000),
    "a call of another node": (state) => receive(state, 2, WAKE, 5000),
    "a pre-vote": (state) => receive(state, 2, preVote(2, 1, 1), 5000),
    "a vote request of a later term": (state) => receive(state, 2, vote(2, 1, 1), 5000),
    "a read of another node": (state) => receive(state, 2, { kind: "read_index", term: 1, context: 1 }, 5000),
    "a conflict": (state) => receive(state, 2, conflict(1, 2, { index: 0, term: 0 }), 5000),
  };
  test.each(Object.entries(causes))("by %s, and every follower hears it in the same step, once", (_name, cause) => {
    const state = sleepingLeader();
    const output = cause(state);
    expect(isAsleep(state)).toBe(false);
    expect(state.role.kind).toBe("leader");
    expect(sent(output, "append", 2).length).toBe(1);
    expect(sent(output, "append", 3).length).toBe(1);
    expect(output.wakeAtMs).toBe(5000 + HEARTBEAT_MS);
  });

  test("what it was asked for is done: the proposal is appended, the read has its round", () => {
    const state = sleepingLeader();
    const output = propose(state, ["a"], 5000);
    expect(output.proposed).toEqual({ firstIndex: 2, term: 1 });
    expect(theOnly(output, "append", 2).entries).toHaveLength(1);
    const reading = sleepingLeader();
    expect(theOnly(happen(reading, { kind: "read", context: 1 }, 5000), "append", 2).round).toBe(1);
  });

  test("a read is not answered before a majority has confirmed: the sleeper may be deposed", () => {
    const state = sleepingLeader();
    expect(happen(state, { kind: "read", context: 1 }, 5000).reads).toEqual([]);
    expect(receive(state, 2, matched(1, 1, 0), 5001).reads).toEqual([]);
    expect(receive(state, 2, matched(1, 1, 1), 5002).reads).toEqual([{ context: 1, index: 1 }]);
  });

  test("it has a full election timeout to be answered, and no more", () => {
    const state = sleepingLeader();
    wake(state, 5000);
    let nowMs = 5000;
    while (state.role.kind === "leader") {
      nowMs = state.role.heartbeatAtMs;
      tick(state, nowMs);
    }
    expect(nowMs).toBeGreaterThan(5000 + ELECTION_MS_MAX);
    expect(nowMs).toBeLessThanOrEqual(5000 + ELECTION_MS_MAX + HEARTBEAT_MS);
  });

  test("a timer that was late before the sleep counts for nothing after it", () => {
    const state = idleLeader();
    tick(state, 1000);
    expect(leaderRole(state).postponed).toBe(true);
    for (const id of [2, 3]) receive(state, id, matched(1, 1), 1000);
    quiesce(state, 1000);
    wake(state, 5000);
    tick(state, 60_000);
    expect(state.role.kind).toBe("leader");
  });

  test("deposed in its sleep it learns so from the first answer", () => {
    const state = sleepingLeader();
    wake(state, 5000);
    receive(state, 2, conflict(7, 0, { index: 0, term: 0 }), 5001);
    expect(state).toMatchObject({ term: 7, role: { kind: "follower", asleep: false } });
  });

  test.each([
    { name: "an append", message: append({ term: 7, prevIndex: 1, prevTerm: 1 }) },
    { name: "an acknowledgement", message: matched(7, 1) },
    { name: "a refused pre-vote", message: { kind: "pre_vote_reply", term: 7, granted: false } as const },
    { name: "a quiesce", message: quiesceMessage({ term: 7 }) },
  ])("$name of a later term ends its role, and it sends nothing in its old term (I3)", ({ message }) => {
    const state = sleepingLeader();
    const output = receive(state, 3, message, 5000);
    expect(output.sendEarly).toEqual([]);
    expect(state).toMatchObject({ term: 7, role: { kind: "follower", asleep: false } });
  });

  test("neither a quiesce of the past nor the end of an own write wakes it", () => {
    const state = raft({ term: 4 });
    const output = lead(state);
    stored(state, output);
    for (const id of [2, 3]) receive(state, id, matched(5, 1));
    tick(state, HEARTBEAT_MS);
    quiesce(state, HEARTBEAT_MS);
    expect(receive(state, 2, quiesceMessage({ term: 4 }), 100)).toMatchObject(NOTHING);
    expect(stored(state, output, 100)).toMatchObject(NOTHING);
    expect(isAsleep(state)).toBe(true);
  });

  test("outsiders wake nobody", () => {
    for (const state of [sleepingLeader(), sleepingFollower()]) {
      for (const from of [state.config.id, 9]) expect(receive(state, from, WAKE, 100)).toMatchObject(NOTHING);
      expect(isAsleep(state)).toBe(true);
    }
  });
});

describe("a sleeping follower wakes up", () => {
  test.each<{ readonly name: string; readonly message: Message }>([
    { name: "a call", message: WAKE },
    { name: "a pre-vote", message: preVote(2, 0, 0) },
    { name: "a vote request", message: vote(1, 0, 0) },
    { name: "a read", message: { kind: "read_index", term: 1, context: 1 } },
    { name: "an acknowledgement", message: matched(1, 1) },
    { name: "a heartbeat of the past", message: append({ term: 0 }) },
    { name: "another quiesce", message: quiesceMessage({ commit: 1 }) },
  ])("by $name: its election timer starts anew", ({ message }) => {
    const state = sleepingFollower();
    receive(state, 3, message, 5000);
    expect(isAsleep(state)).toBe(false);
    expect(electionAt(state)).toBeGreaterThanOrEqual(5000 + ELECTION_MS_MIN);
    expect(electionAt(state)).toBeLessThanOrEqual(5000 + ELECTION_MS_MAX);
  });

  test("the timers of woken followers differ", () => {
    const timers = new Set<number>();
    for (let seed = 1; seed <= 10; seed += 1) {
      const state = raft({ seed, asleep: true });
      receive(state, 3, WAKE, 0);
      timers.add(electionAt(state));
    }
    expect(timers.size).toBeGreaterThan(5);
  });

  test("by something to do: it calls everybody, with its log and term as they are", () => {
    const state = sleepingFollower();
    const output = wake(state, 5000);
    expect(output.sendLate).toEqual([
      { from: 2, to: 1, message: WAKE },
      { from: 2, to: 3, message: WAKE },
    ]);
    expect(output).toMatchObject({ persist: null, wakeAtMs: electionAt(state) });
    expect(electionAt(state)).toBeGreaterThanOrEqual(5000 + ELECTION_MS_MIN);
  });

  test("by a read, which goes to the leader that it knows; if that one is gone the timer finds another", () => {
    const state = sleepingFollower();
    const output = happen(state, { kind: "read", context: 7 }, 5000);
    expect(theOnly(output, "read_index", 1).context).toBe(7);
    expect(output.wakeAtMs).toBeGreaterThanOrEqual(5000 + ELECTION_MS_MIN);
  });

  test("not by a proposal, which it does not take", () => {
    const state = sleepingFollower();
    expect(propose(state, ["a"], 5000)).toMatchObject({ ...NOTHING, proposed: null });
    expect(isAsleep(state)).toBe(true);
  });

  test("a timer that was late before the sleep counts for nothing after it", () => {
    const state = follower();
    tick(state, 10_000);
    receive(state, 1, quiesceMessage(), 10_000);
    receive(state, 3, WAKE, 20_000);
    expect(tick(state, 40_000)).toMatchObject(NOTHING);
  });

  test("an unanswered call ends in a pre-vote", () => {
    const state = sleepingFollower();
    wake(state, 5000);
    expect(sent(tick(state, electionAt(state)), "pre_vote")).toHaveLength(2);
  });

  test("an answer settles it", () => {
    const state = sleepingFollower();
    wake(state, 5000);
    receive(state, 1, append({ prevIndex: 2, prevTerm: 1, commit: 2 }), 5001);
    expect(state.role).toMatchObject({ kind: "follower", leader: 1, heardLeaderAtMs: 5001, asleep: false });
  });
});

describe("an instance that starts asleep", () => {
  test("has no timer and does nothing by itself", () => {
    const state = raft({ terms: [1, 1], asleep: true });
    expect(isAsleep(state)).toBe(true);
    expect(leaderOf(state)).toBeNull();
    expect(tick(state, 1_000_000)).toMatchObject({ ...NOTHING, wakeAtMs: Number.POSITIVE_INFINITY });
  });

  test("with something to do calls the others and waits for its timer", () => {
    const state = raft({ terms: [1, 1], asleep: true });
    const output = wake(state, 5000);
    expect(output.sendLate.map(({ message }) => message.kind)).toEqual(["wake", "wake"]);
    expect(output.wakeAtMs).toBeGreaterThanOrEqual(5000 + ELECTION_MS_MIN);
  });

  test("campaigns at once if it was the last leader, by a pre-vote", () => {
    for (const output of [wake(lastLeader()), receive(lastLeader(), 2, WAKE)]) {
      expect(sent(output, "pre_vote")).toEqual([preVote(2, 2, 1), preVote(2, 2, 1)]);
      expect(output.persist).toBeNull();
    }
  });

  test.each([
    { name: "it voted for another in the last term", changes: { votedFor: 2 } },
    { name: "it voted for nobody", changes: { votedFor: null } },
    { name: "a later term has begun since the last entry", changes: { term: 3 } },
  ])("does not if $name", ({ changes }) => {
    for (const output of [wake(lastLeader(changes)), receive(lastLeader(changes), 2, WAKE)]) {
      expect(sent(output, "pre_vote")).toEqual([]);
    }
  });

  test("does not either if it knows that another leads: that its log looks so is a hint only", () => {
    // It voted for itself in term 1, and lost to node 2, whose entries it has.
    const state = lastLeader();
    receive(state, 2, append({ prevIndex: 2, prevTerm: 1, commit: 2 }));
    receive(state, 2, quiesceMessage());
    expect(isAsleep(state)).toBe(true);
    expect(sent(wake(state, 10), "pre_vote")).toEqual([]);
  });

  test("is woken by its leader's heartbeat as if it had been awake", () => {
    const state = raft({ id: 2, terms: [1, 1], asleep: true });
    receive(state, 1, append({ prevIndex: 2, prevTerm: 1, commit: 2 }), 100);
    expect(state.role).toMatchObject({ kind: "follower", leader: 1, heardLeaderAtMs: 100, asleep: false });
  });
});

describe("a call that was not needed is harmless", () => {
  test("a leader that is awake answers the caller, nobody else, and its term stays", () => {
    const state = idleLeader();
    const output = receive(state, 3, { kind: "wake", term: 9 }, 60);
    expect(output.sendEarly.map(({ to, message }) => [to, message.kind])).toEqual([[3, "append"]]);
    expect(output.sendLate).toEqual([]);
    expect(state.term).toBe(1);
  });

  test("a leader that is awake and has something to do does it without more ado", () => {
    expect(wake(idleLeader(), 60)).toMatchObject(NOTHING);
  });

  test("a follower with a leader does nothing, for its own wishes and for others'", () => {
    const state = follower();
    const timer = electionAt(state);
    expect(wake(state, 10)).toMatchObject({ ...NOTHING, wakeAtMs: timer });
    expect(receive(state, 3, { kind: "wake", term: 9 }, 10)).toMatchObject({ ...NOTHING, wakeAtMs: timer });
    expect(state.term).toBe(1);
  });

  test("a follower without a leader calls once, and its timer runs on", () => {
    const state = raft();
    const timer = electionAt(state);
    expect(sent(wake(state, 10), "wake")).toHaveLength(2);
    for (const nowMs of [20, 30, 40]) expect(wake(state, nowMs)).toMatchObject({ ...NOTHING, wakeAtMs: timer });
  });

  test("a former leader that is awake campaigns by its timer only", () => {
    const state = lastLeader({ asleep: false });
    expect(receive(state, 2, WAKE, 10)).toMatchObject({ ...NOTHING, wakeAtMs: electionAt(state) });
  });

  test("a node that campaigns goes on with it: its requests wake the others", () => {
    const state = raft();
    tick(state, electionAt(state));
    const timer = electionAt(state);
    expect(wake(state, timer - 1)).toMatchObject({ ...NOTHING, wakeAtMs: timer });
    expect(receive(state, 2, WAKE, timer - 1)).toMatchObject({ ...NOTHING, wakeAtMs: timer });
  });
});

describe("a sleeping leader looks for members that were behind", () => {
  test("a probe is one heartbeat to each of them, and it sleeps on", () => {
    const state = leaderWithoutThree();
    const output = happen(state, { kind: "probe" }, 2000);
    expect(output.sendEarly.map(({ to, message }) => [to, message.kind])).toEqual([[3, "append"]]);
    expect(output).toMatchObject({ sendLate: [], persist: null, wakeAtMs: Number.POSITIVE_INFINITY });
    expect(isAsleep(state)).toBe(true);
  });

  test("its answer, whatever it says, wakes the leader and so everybody", () => {
    for (const answer of [matched(1, 1), conflict(1, 1, { index: 0, term: 0 })]) {
      const state = leaderWithoutThree();
      happen(state, { kind: "probe" }, 2000);
      const output = receive(state, 3, answer, 2001);
      expect(isAsleep(state)).toBe(false);
      expect(sent(output, "append", 2)).toHaveLength(1);
      expect(sent(output, "append", 3)).toHaveLength(1);
    }
  });

  test("nobody is looked for when all followed, nor by nodes that do not lead or do not sleep", () => {
    for (const state of [sleepingLeader(), idleLeader(), follower(), sleepingFollower()]) {
      expect(happen(state, { kind: "probe" }, 100)).toMatchObject(NOTHING);
      expect(laggingPeers(state)).toEqual([]);
    }
  });
});
