/** Clusters of 1, 3, 5 and 7 nodes: what a majority is, and that it suffices. */
import { describe, expect, test } from "vitest";
import { majority } from "../../src/raft/state.ts";
import { Cluster } from "./cluster.ts";
import { ELECTION_MS_MAX, HEARTBEAT_MS, raft } from "./fixtures.ts";

const SIZES = [
  { size: 1, needed: 1 },
  { size: 3, needed: 2 },
  { size: 5, needed: 3 },
  { size: 7, needed: 4 },
];

describe.each(SIZES)("a cluster of $size", ({ size, needed }) => {
  const spare = size - needed;

  test(`needs ${needed} for a majority`, () => {
    expect(majority(raft({ size }))).toBe(needed);
  });

  test.each([{ fence: false }, { fence: true }])(
    "elects, commits and reads on every node (fence $fence)",
    ({ fence }) => {
      const cluster = new Cluster({ size, fence });
      cluster.passUntil(() => cluster.leader() !== null, 3 * ELECTION_MS_MAX);
      const leader = cluster.leader() ?? 0;
      cluster.propose(leader, "a", "b");
      cluster.pass(2 * HEARTBEAT_MS);
      for (const { id } of cluster.nodes) cluster.read(id, 1);
      cluster.stabilize();
      for (const { id, reads } of cluster.nodes) {
        expect(cluster.state(id).commit).toBe(3);
        expect(reads).toEqual([{ context: 1, index: 3 }]);
      }
    },
  );

  test(`goes on with ${spare} of its nodes down`, () => {
    const cluster = new Cluster({ size, seed: 5 });
    for (let id = 1; id <= spare; id += 1) cluster.crash(id);
    cluster.passUntil(() => cluster.leader() !== null, 6 * ELECTION_MS_MAX);
    const leader = cluster.leader() ?? 0;
    cluster.propose(leader, "x");
    cluster.stabilize();
    expect(cluster.state(leader).commit).toBe(cluster.state(leader).log.lastIndex);
    cluster.read(leader, 1);
    cluster.stabilize();
    expect(cluster.node(leader).reads).toHaveLength(1);
  });

  test(`stands still with ${spare + 1} of its nodes down, and goes on when one returns`, () => {
    const cluster = new Cluster({ size, seed: 6 });
    for (let id = 1; id <= spare + 1; id += 1) cluster.crash(id);
    cluster.pass(10 * ELECTION_MS_MAX);
    expect(cluster.leader()).toBeNull();
    for (const { disk } of cluster.nodes) expect(disk.term).toBe(0);
    cluster.restart(1);
    cluster.passUntil(() => cluster.leader() !== null, 6 * ELECTION_MS_MAX);
  });

  test("survives the crash and restart of everybody with all that was committed", () => {
    const cluster = new Cluster({ size });
    cluster.elect(1);
    cluster.propose(1, "x");
    cluster.stabilize();
    for (const { id } of cluster.nodes) cluster.crash(id);
    for (const { id } of cluster.nodes) cluster.restart(id, { applied: 0 });
    cluster.passUntil(() => cluster.leader() !== null, 4 * ELECTION_MS_MAX);
    cluster.pass(2 * HEARTBEAT_MS);
    for (const { id, disk } of cluster.nodes) {
      expect(disk.entries[1]?.payload).toBe("x");
      expect(cluster.state(id).commit).toBeGreaterThanOrEqual(3);
    }
  });
});
