/** Clusters that sleep: lost messages, lost memories, absent members, storms of calls (design 02 §4). */
import { describe, expect, test } from "vitest";
import { isAsleep, laggingPeers, leaderOf } from "../../src/raft/state.ts";
import type { NodeId } from "../../src/raft/types.ts";
import { between, Cluster, from } from "./cluster.ts";
import { ELECTION_MS_MAX, ELECTION_MS_MIN, HEARTBEAT_MS } from "./fixtures.ts";

/** Node 1 leads, wrote something, and everybody sleeps. */
function sleeping(size = 5): Cluster {
  const cluster = new Cluster({ size });
  cluster.elect(1);
  cluster.propose(1, "x");
  cluster.stabilize();
  cluster.pass(2 * HEARTBEAT_MS);
  expect(cluster.quiesce(1)).toBe(true);
  cluster.stabilize();
  expect(sleepers(cluster)).toHaveLength(size);
  return cluster;
}

function sleepers(cluster: Cluster): NodeId[] {
  return cluster.nodes.filter(({ state }) => state !== null && isAsleep(state)).map(({ id }) => id);
}

/** One leader that is awake, whom all running nodes follow and who commits. */
function expectService(cluster: Cluster): NodeId {
  const leader = cluster.leader() ?? 0;
  const running = cluster.nodes.filter(({ state }) => state !== null).map(({ id }) => id);
  for (const id of running) expect([id, leaderOf(cluster.state(id))]).toEqual([id, leader]);
  cluster.propose(leader, "y");
  cluster.stabilize();
  cluster.pass(2 * HEARTBEAT_MS);
  for (const id of running) expect(cluster.state(id).commit).toBe(cluster.state(leader).log.lastIndex);
  expect(sleepers(cluster)).toEqual([]);
  return leader;
}

describe("a cluster that sleeps", () => {
  test("does nothing at all, for days", () => {
    const cluster = sleeping();
    let messages = 0;
    cluster.onDelivery = () => {
      messages += 1;
    };
    cluster.pass(2 * 86_400_000, 600_000);
    expect(messages).toBe(0);
    expect(sleepers(cluster)).toHaveLength(5);
  });

  test("is woken by one call at any node, and its leader goes on in its term", () => {
    for (const id of [1, 2, 3, 4, 5]) {
      const cluster = sleeping();
      cluster.advance(3_600_000);
      cluster.wake(id);
      cluster.stabilize();
      expect(expectService(cluster)).toBe(1);
      expect(cluster.state(1).term).toBe(1);
    }
  });

  test("falls asleep again when it is asked to", () => {
    const cluster = sleeping();
    for (let night = 0; night < 5; night += 1) {
      cluster.wake(3);
      cluster.pass(1000);
      expect(cluster.quiesce(1)).toBe(true);
      cluster.stabilize();
      expect(sleepers(cluster)).toHaveLength(5);
    }
    expect(cluster.state(1).term).toBe(1);
  });

  test("answers a read that any of its nodes forwards", () => {
    const cluster = sleeping();
    cluster.advance(3_600_000);
    cluster.read(4, 77);
    cluster.stabilize();
    expect(cluster.node(4).reads).toEqual([{ context: 77, index: 2 }]);
  });

  test("survives a storm of calls: everybody at once, again and again, in any order", () => {
    const cluster = sleeping();
    for (let round = 0; round < 20; round += 1) {
      for (const { id } of cluster.nodes) cluster.wake(id);
      cluster.pool.reverse();
      cluster.pool.push(...cluster.pool.filter(({ message }) => message.kind === "wake"));
      cluster.stabilize();
    }
    expect(expectService(cluster)).toBe(1);
    expect(cluster.state(1).term).toBe(1);
  });

  test("asks for few messages when each of a thousand requests calls", () => {
    const cluster = sleeping();
    cluster.crash(1);
    for (let request = 0; request < 1000; request += 1) cluster.wake(2);
    expect(cluster.pool).toHaveLength(4);
  });
});

describe("lost memories (eviction)", () => {
  test("the last leader, called by another node, leads again without waiting for a timer", () => {
    const cluster = sleeping();
    cluster.evict(1);
    cluster.wake(4);
    cluster.stabilize();
    expect(expectService(cluster)).toBe(1);
    expect(cluster.state(1).term).toBe(2);
  });

  test("the last leader, asked itself, does so too", () => {
    const cluster = sleeping();
    cluster.evict(1);
    cluster.wake(1);
    cluster.stabilize();
    expect(expectService(cluster)).toBe(1);
  });

  test("a follower finds its leader by its call", () => {
    const cluster = sleeping();
    cluster.evict(3);
    cluster.wake(3);
    cluster.stabilize();
    expect(expectService(cluster)).toBe(1);
    expect(cluster.state(1).term).toBe(1);
  });

  test("whoever is evicted, one call anywhere leads to a leader", () => {
    for (let mask = 0; mask < 32; mask += 1) {
      for (const id of [1, 2, 5]) {
        const cluster = sleeping();
        for (const node of cluster.nodes) if ((mask >> (node.id - 1)) & 1) cluster.evict(node.id);
        cluster.wake(id);
        cluster.pass(2 * ELECTION_MS_MAX);
        expectService(cluster);
      }
    }
  });

  test("when the leader is gone for good, a call leads to another within an election timeout or two", () => {
    const cluster = sleeping();
    cluster.crash(1);
    cluster.wake(2);
    cluster.stabilize();
    const tookMs = cluster.passUntil(() => cluster.leader() !== null, 2 * ELECTION_MS_MAX);
    expect(tookMs).toBeGreaterThanOrEqual(ELECTION_MS_MIN - HEARTBEAT_MS);
    expectService(cluster);
  });

  test("an entry that a new leader of a small majority wrote is not lost on the old leader, which has slept", () => {
    const cluster = sleeping();
    cluster.partition([1], [2, 3, 4], [5]);
    cluster.wake(2);
    cluster.passUntil(() => (cluster.leader() ?? 1) !== 1 && cluster.leader() !== null, 3 * ELECTION_MS_MAX);
    const leader = cluster.leader() ?? 0;
    cluster.propose(leader, "new");
    cluster.stabilize();
    cluster.heal();
    expect(isAsleep(cluster.state(1))).toBe(true);
    cluster.read(1, 5);
    cluster.propose(1, "old");
    cluster.stabilize();
    expect(cluster.node(1).reads).toEqual([]);
    expect(cluster.state(1).role.kind).toBe("follower");
    cluster.pass(2 * ELECTION_MS_MAX);
    expectService(cluster);
    expect(cluster.terms(1)).toEqual(cluster.terms(cluster.leader() ?? 0));
  });
});

describe("lost and refused messages", () => {
  test("a lost quiesce: the follower that missed it wakes the leader when its timer runs out", () => {
    const cluster = sleeping();
    cluster.wake(1);
    cluster.pass(2 * HEARTBEAT_MS);
    cluster.quiesce(1);
    cluster.take(between(1, 4, "quiesce"));
    cluster.stabilize();
    expect(sleepers(cluster)).toEqual([1, 2, 3, 5]);
    cluster.pass(2 * ELECTION_MS_MAX);
    expectService(cluster);
  });

  test("a lost call: the caller's timer does what the call would have done", () => {
    const cluster = sleeping();
    cluster.wake(3);
    cluster.take();
    cluster.pass(2 * ELECTION_MS_MAX);
    expectService(cluster);
  });

  test("a pre-vote that is granted before the leader's heartbeat arrives costs one election, nothing else", () => {
    const cluster = sleeping(3);
    cluster.advance(1000);
    cluster.campaign(3);
    cluster.deliver(between(3, 2));
    cluster.deliver(between(2, 3));
    expect(cluster.state(3).role.kind).toBe("candidate");
    cluster.pass(3 * ELECTION_MS_MAX);
    expectService(cluster);
  });

  test("a quiesce that arrives when the leader is awake again stops a follower for a heartbeat only", () => {
    const cluster = sleeping(3);
    cluster.wake(1);
    cluster.pass(2 * HEARTBEAT_MS);
    cluster.quiesce(1);
    const late = cluster.take(from(1, "quiesce"));
    cluster.wake(1);
    cluster.stabilize();
    for (const envelope of late) cluster.hand(envelope);
    expect(sleepers(cluster)).toEqual([2, 3]);
    cluster.pass(2 * HEARTBEAT_MS);
    expect(sleepers(cluster)).toEqual([]);
    expect(cluster.state(1).term).toBe(1);
  });
});

describe("absent members", () => {
  /** Node 5 is cut off, has missed a write, and the others sleep. */
  function withoutFive(): Cluster {
    const cluster = new Cluster({ size: 5 });
    cluster.elect(1);
    cluster.pass(HEARTBEAT_MS);
    cluster.partition([1, 2, 3, 4]);
    cluster.propose(1, "x");
    cluster.pass(ELECTION_MS_MAX + 2 * HEARTBEAT_MS);
    expect(cluster.quiesce(1)).toBe(true);
    cluster.stabilize();
    expect(sleepers(cluster)).toEqual([1, 2, 3, 4]);
    return cluster;
  }

  test("a member that stays away lets the others sleep, however often it is looked for", () => {
    const cluster = withoutFive();
    for (let count = 0; count < 10; count += 1) {
      cluster.pass(60_000, 100);
      cluster.probe(1);
      cluster.stabilize();
    }
    expect(sleepers(cluster)).toEqual([1, 2, 3, 4]);
    expect(laggingPeers(cluster.state(1))).toEqual([5]);
  });

  test("a probe reaches nobody else, and finds it when it is back", () => {
    const cluster = withoutFive();
    cluster.heal();
    cluster.probe(1);
    expect(cluster.pool.map(({ to }) => to)).toEqual([5]);
    cluster.stabilize();
    cluster.pass(2 * HEARTBEAT_MS);
    expect(cluster.state(5).commit).toBe(2);
    expect(cluster.state(1)).toMatchObject({ term: 1, role: { kind: "leader" } });
    expect(cluster.quiesce(1)).toBe(true);
    expect(laggingPeers(cluster.state(1))).toEqual([]);
  });

  test("one that returns by itself, with pre-votes, wakes the others and is served, in the same term", () => {
    const cluster = withoutFive();
    cluster.pass(5 * ELECTION_MS_MAX);
    cluster.heal();
    cluster.pass(2 * ELECTION_MS_MAX);
    expect(expectService(cluster)).toBe(1);
    expect(cluster.state(1).term).toBe(1);
  });
});
