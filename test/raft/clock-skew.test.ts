/** A leader whose log time is far from the members' clocks hands over (design 02 §3); the bound is SKEW_MS_MAX. */
import { describe, expect, test } from "vitest";
import { SKEW_MS_MAX } from "../../src/base/limits.ts";
import { logTimeMs, type RaftState } from "../../src/raft/state.ts";
import type { NodeId } from "../../src/raft/types.ts";
import { Cluster } from "./cluster.ts";
import {
  ELECTION_MS_MAX,
  entry,
  HEARTBEAT_MS,
  happen,
  lead,
  leaderRole,
  matched,
  members,
  positionOf,
  raft,
  receive,
  stored,
  tick,
} from "./fixtures.ts";

interface Clocks {
  /** How far each node's wall clock is ahead of the leader's log time; a missing one does not answer. */
  readonly [id: NodeId]: number;
}

/** Node 1 leads from 0, its log time is what its monotonic clock shows. */
function leader(options: Parameters<typeof raft>[0] = {}): RaftState {
  const state = raft({ size: 3, ...options });
  lead(state, 0, [0, 0, 0, 0]);
  return state;
}

/** Heartbeats on time, answered by whoever has a clock; when the leader asks for whom to campaign, or null. */
function watch(state: RaftState, clocks: Clocks, untilMs: number, fromMs = 0): { atMs: number; to: NodeId } | null {
  for (let nowMs = fromMs + HEARTBEAT_MS; nowMs <= untilMs; nowMs += HEARTBEAT_MS) {
    happen(state, { kind: "tick" }, nowMs, nowMs + (clocks[1] ?? 0));
    const { role } = state;
    if (role.kind !== "leader") throw new Error(`it stepped down at ${nowMs}`);
    if (role.transfer !== null) return { atMs: nowMs, to: role.transfer.to };
    for (const [id, aheadMs] of Object.entries(clocks)) {
      if (Number(id) === 1) continue;
      receive(state, Number(id), matched(state.term, 1, 0, nowMs + aheadMs), nowMs, nowMs + (clocks[1] ?? 0));
    }
  }
  return null;
}

describe("a leader hands over", () => {
  test.each([
    { claim: "when all others are ahead of it", clocks: { 2: 1001, 3: 1001 }, to: 2 },
    { claim: "when all others are behind it", clocks: { 2: -1001, 3: -1001 }, to: 2 },
    { claim: "to the one nearest to the median", clocks: { 1: 1500, 2: 1600, 3: 1400, 4: 1510, 5: 1520 }, to: 4 },
  ])("$claim", ({ clocks, to }) => {
    const state = leader({ size: Math.max(3, Object.keys(clocks).length) });
    expect(watch(state, clocks, 3000)).toMatchObject({ to });
  });

  test("only once it has stood for an election timeout", () => {
    const handed = watch(leader(), { 2: 5000, 3: 5000 }, 3000);
    expect(handed?.atMs).toBeGreaterThanOrEqual(ELECTION_MS_MAX + HEARTBEAT_MS);
    expect(handed?.atMs).toBeLessThanOrEqual(ELECTION_MS_MAX + 3 * HEARTBEAT_MS);
  });

  test.each([
    { claim: "within the bound", clocks: { 2: SKEW_MS_MAX, 3: -SKEW_MS_MAX } },
    { claim: "at the bound", clocks: { 2: SKEW_MS_MAX, 3: SKEW_MS_MAX } },
    { claim: "for a single clock that is wrong, whatever it shows", clocks: { 2: 0, 3: 3_600_000 } },
    { claim: "for its own wall clock: the log's time does not follow it", clocks: { 1: 3_600_000, 2: 0, 3: 0 } },
  ])("not $claim", ({ clocks }) => {
    const state = leader();
    for (let nowMs = HEARTBEAT_MS; nowMs <= 4000; nowMs += HEARTBEAT_MS) {
      tick(state, nowMs);
      expect(leaderRole(state).transfer).toBeNull();
      for (const [id, aheadMs] of Object.entries(clocks)) {
        if (id !== "1") receive(state, Number(id), matched(1, 1, 0, nowMs + aheadMs), nowMs, nowMs);
      }
    }
  });

  test("not without the clocks of a majority, its own included", () => {
    const state = raft({ size: 5 });
    lead(state, 0, [0, 0, 0]);
    // Two of five are known beside its own one, and then only one of them.
    expect(watch(state, { 2: 5000, 3: 5000 }, 3000)).not.toBeNull();
    const other = raft({ size: 5 });
    lead(other, 0, [0, 0, 0]);
    for (let nowMs = HEARTBEAT_MS; nowMs <= 2000; nowMs += HEARTBEAT_MS) {
      tick(other, nowMs);
      for (const progress of leaderRole(other).progress.values()) progress.heardAtMs = nowMs;
      receive(other, 2, matched(1, 1, 0, nowMs - 5000), nowMs, nowMs);
      expect(leaderRole(other).transfer).toBeNull();
    }
  });

  test("learners' clocks say nothing, and none of them is asked to lead", () => {
    const state = raft({ base: positionOf(0, 0, members([1, 2, 3], [4, 5, 6])) });
    lead(state, 0, [0, 0]);
    expect(watch(state, { 2: 0, 3: 10, 4: 5000, 5: 5000, 6: 5000 }, 3000)).toBeNull();
    const skewed = raft({ base: positionOf(0, 0, members([1, 2, 3], [4, 5, 6])) });
    lead(skewed, 0, [0, 0]);
    expect(watch(skewed, { 2: 5900, 3: 5000, 4: 5000 }, 3000)?.to).toBe(3);
  });

  test("not to a voter that is far from the median itself, nor to one that is behind", () => {
    const state = leader({ size: 3 });
    expect(watch(state, { 1: 2000, 2: 4000, 3: -2000 }, 3000)).toBeNull();
    const behind = raft({ size: 3 });
    lead(behind, 0, [0, 0]);
    for (const id of [2, 3]) {
      const progress = leaderRole(behind).progress.get(id);
      if (progress !== undefined) progress.kind = "snapshot";
    }
    for (let nowMs = HEARTBEAT_MS; nowMs <= 3000; nowMs += HEARTBEAT_MS) {
      tick(behind, nowMs);
      expect(leaderRole(behind).transfer).toBeNull();
      for (const progress of leaderRole(behind).progress.values()) {
        progress.heardAtMs = nowMs;
        progress.clock = { offsetMs: 5000, atMs: nowMs };
      }
    }
  });

  test("not to a voter that has just fallen silent, though its clock is the nearest", () => {
    const state = raft({ size: 5 });
    lead(state, 0, [0, 0, 0]);
    const untilMs = ELECTION_MS_MAX - HEARTBEAT_MS;
    expect(watch(state, { 2: 5000, 3: 5400, 4: 5300, 5: 5200 }, untilMs)).toBeNull();
    const silentMs = ELECTION_MS_MAX + 2 * HEARTBEAT_MS;
    const progress = leaderRole(state).progress.get(5);
    if (progress !== undefined) progress.heardAtMs = untilMs - silentMs;
    expect(watch(state, { 2: 5000, 3: 5400, 4: 5300 }, 3000, untilMs)?.to).toBe(4);
  });

  test("clocks of voters that have been silent for long do not count", () => {
    const state = raft({ size: 5 });
    lead(state, 0, [0, 0, 0]);
    watch(state, { 2: -5000, 3: 0, 4: -5000, 5: -5000 }, 300);
    leaderRole(state).skewedSinceMs = Number.POSITIVE_INFINITY;
    for (let nowMs = 350; nowMs <= 300 + 2 * ELECTION_MS_MAX; nowMs += HEARTBEAT_MS) {
      tick(state, nowMs);
      leaderRole(state).skewedSinceMs = Number.POSITIVE_INFINITY;
      receive(state, 2, matched(1, 1, 0, nowMs - 5000), nowMs, nowMs);
      receive(state, 3, matched(1, 1, 0, nowMs), nowMs, nowMs);
    }
    expect(watch(state, { 2: -5000, 3: 0 }, 5000, 300 + 2 * ELECTION_MS_MAX)).toBeNull();
    expect(leaderRole(state).skewedSinceMs).toBe(Number.POSITIVE_INFINITY);
  });

  test("a single voter has nobody to hand over to, however wrong its time is", () => {
    const state = raft({ size: 1, entries: [entry(1, 1, { timeMs: 0 })] });
    lead(state, 0, [0]);
    for (let nowMs = HEARTBEAT_MS; nowMs <= 3000; nowMs += HEARTBEAT_MS) {
      tick(state, nowMs);
      expect(leaderRole(state).transfer).toBeNull();
    }
  });
});

describe("a skew that the term has inherited", () => {
  test("is no reason: time never falls, so nobody could take it back", () => {
    const state = leader({ entries: [entry(1, 1, { timeMs: 90_000 })], term: 1 });
    expect(logTimeMs(state, 0)).toBe(90_000);
    expect(leaderRole(state).inheritedSkewMs).toBe(90_000);
    expect(watch(state, { 1: 0, 2: 0, 3: 0 }, 4000)).toBeNull();
  });

  test("but what comes on top of it is", () => {
    const state = leader({ entries: [entry(1, 1, { timeMs: 90_000 })], term: 1 });
    expect(watch(state, { 2: -1200, 3: -1200 }, 4000)).not.toBeNull();
  });

  test("leadership does not go round: after one handover it stays where it is", () => {
    const cluster = new Cluster({ size: 5 });
    for (const node of cluster.nodes) node.wallOffsetMs = 1_000_000;
    cluster.elect(1);
    cluster.pass(1000);
    // The clocks of all but the leader are set back by a minute: the log is ahead of them from now on.
    for (const { id } of cluster.nodes) cluster.node(id).wallOffsetMs = 940_000;
    cluster.propose(1, "x");
    cluster.pass(30 * ELECTION_MS_MAX);
    expect(cluster.safety.leaders.size).toBe(2);
    expect(cluster.leader()).not.toBe(1);
  });
});

describe("samples of clocks", () => {
  test("delay makes a clock look slow: the sample that is furthest ahead is kept for an election timeout", () => {
    const state = leader();
    const offset = () => leaderRole(state).progress.get(2)?.clock?.offsetMs;
    receive(state, 2, matched(1, 1, 0, 990), 1000);
    expect(offset()).toBe(-10);
    receive(state, 2, matched(1, 1, 0, 995), 1400);
    expect(offset()).toBe(-10);
    receive(state, 2, matched(1, 1, 0, 1495), 1500);
    expect(offset()).toBe(-5);
    receive(state, 2, matched(1, 1, 0, 1995), 1500 + ELECTION_MS_MAX);
    expect(offset()).toBe(-5);
    receive(state, 2, matched(1, 1, 0, 2000), 1501 + ELECTION_MS_MAX);
    expect(offset()).toBe(-101);
  });

  test("after a stall of the leader's own the replies that had queued up do not make it hand over", () => {
    const state = leader();
    expect(watch(state, { 1: 0, 2: 0, 3: 0 }, 1000)).toBeNull();
    // Ten seconds are lost; then come a late tick, and what was said ten seconds ago.
    const lateMs = 11_000;
    tick(state, lateMs);
    for (const id of [2, 3]) receive(state, id, matched(1, 1, 0, 1000), lateMs, lateMs);
    tick(state, lateMs + 1);
    expect(leaderRole(state).skewedSinceMs).toBe(Number.POSITIVE_INFINITY);
    tick(state, lateMs + HEARTBEAT_MS);
    expect(leaderRole(state).skewedSinceMs).toBe(lateMs + HEARTBEAT_MS);
    expect(watch(state, { 1: 0, 2: 0, 3: 0 }, lateMs + 3000, lateMs + HEARTBEAT_MS)).toBeNull();
    expect(leaderRole(state).skewedSinceMs).toBe(Number.POSITIVE_INFINITY);
  });
});

describe("a leader that has slept", () => {
  test("begins to judge anew", () => {
    const state = raft({ size: 3 });
    stored(state, lead(state, 0, [0, 0]));
    for (const id of [2, 3]) receive(state, id, matched(1, 1, 0, 5000), 0);
    tick(state, HEARTBEAT_MS);
    for (const id of [2, 3]) receive(state, id, matched(1, 1, 0, 5050), HEARTBEAT_MS);
    expect(leaderRole(state).skewedSinceMs).toBe(HEARTBEAT_MS);
    happen(state, { kind: "quiesce" }, HEARTBEAT_MS);
    happen(state, { kind: "wake" }, 10_000);
    for (const id of [2, 3]) receive(state, id, matched(1, 1, 0, 15_000), 10_000);
    tick(state, 10_000 + HEARTBEAT_MS);
    expect(leaderRole(state)).toMatchObject({ transfer: null, skewedSinceMs: 10_000 + HEARTBEAT_MS });
  });
});

describe("a cluster in which one node's clock is wrong", () => {
  test.each([3_600_000, -3_600_000])("by %i ms keeps its time near the others' clocks", (offsetMs) => {
    for (const wrong of [1, 2, 3, 4, 5]) {
      const cluster = new Cluster({ size: 5, seed: wrong });
      for (const node of cluster.nodes) node.wallOffsetMs = 1_000_000 + (node.id === wrong ? offsetMs : 0);
      cluster.elect(1);
      cluster.pass(10 * ELECTION_MS_MAX);
      const leaderId = cluster.leader() ?? 0;
      const { nowMs } = cluster.node(leaderId);
      const timeMs = logTimeMs(cluster.state(leaderId), nowMs) ?? 0;
      expect(Math.abs(timeMs - nowMs - 1_000_000)).toBeLessThanOrEqual(SKEW_MS_MAX);
    }
  });

  test("two wrong clocks among three votes make a wrong term; the next one, with other votes, is right", () => {
    const cluster = new Cluster({ size: 5 });
    for (const node of cluster.nodes) node.wallOffsetMs = 10_000_000 + (node.id <= 2 ? -3_600_000 : 0);
    cluster.elect(3); // votes arrive in the order of ids
    expect(logTimeMs(cluster.state(3), 0)).toBe(6_400_000);
    cluster.onDelivery = ({ message }) => {
      if (message.kind === "timeout_now") for (const id of [3, 4, 5]) cluster.cut(1, id);
    };
    cluster.passUntil(() => cluster.leader() !== 3, 4 * ELECTION_MS_MAX);
    const leaderId = cluster.leader() ?? 0;
    expect([4, 5]).toContain(leaderId);
    const { nowMs } = cluster.node(leaderId);
    expect(logTimeMs(cluster.state(leaderId), nowMs)).toBe(nowMs + 10_000_000);
    cluster.heal();
    cluster.pass(20 * ELECTION_MS_MAX);
    expect(cluster.leader()).toBe(leaderId);
  });

  test("a leader whose own clock runs too fast is replaced, and its successor stays", () => {
    const cluster = new Cluster({ size: 3 });
    for (const node of cluster.nodes) node.wallOffsetMs = 1_000_000;
    cluster.elect(1);
    for (let step = 0; step < 2000 && cluster.leader() === 1; step += 1) {
      cluster.pass(HEARTBEAT_MS);
      // By a tenth: its monotonic clock, and the log's time with it; its wall clock is set right again and again.
      cluster.advance(5, [1]);
      cluster.node(1).wallOffsetMs -= 5;
    }
    const successor = cluster.leader();
    expect([2, 3]).toContain(successor);
    cluster.pass(20 * ELECTION_MS_MAX);
    expect(cluster.leader()).toBe(successor);
  });
});
