/** Clusters whose logs are cut, and nodes that come back to them (thesis 5; S52, S53). */
import { describe, expect, test } from "vitest";
import { Cluster, from, to } from "./cluster.ts";
import { ELECTION_MS_MAX, HEARTBEAT_MS, members } from "./fixtures.ts";

describe("a cluster whose log is cut", () => {
  /** Node 3 is away while 20 entries are written and dropped everywhere. */
  function late(size = 3): Cluster {
    const cluster = new Cluster({ size });
    cluster.elect(1);
    cluster.pass(2 * HEARTBEAT_MS);
    cluster.crash(3);
    for (let count = 0; count < 20; count += 1) cluster.propose(1, `w${count}`);
    cluster.pass(2 * HEARTBEAT_MS);
    for (const { id } of cluster.nodes) if (id !== 3) cluster.truncate(id);
    return cluster;
  }

  const caughtUp = (cluster: Cluster, id: number) => {
    const leader = cluster.leader() ?? 0;
    expect(cluster.state(id).commit).toBe(cluster.state(leader).log.lastIndex);
    expect(cluster.state(id).term).toBe(cluster.state(leader).term);
  };

  test("brings a late follower up to date by a snapshot, while it goes on writing", () => {
    const cluster = late();
    cluster.restart(3);
    for (let count = 0; count < 10; count += 1) {
      cluster.propose(1, "more");
      cluster.pass(20);
    }
    cluster.pass(2 * HEARTBEAT_MS);
    caughtUp(cluster, 3);
    expect(cluster.state(3).log.base.index).toBeGreaterThanOrEqual(21);
    expect(cluster.state(1).term).toBe(1);
  });

  test("and one that knows nothing at all", () => {
    const cluster = new Cluster({ size: 4, voters: [1, 2, 3] });
    cluster.elect(1);
    cluster.propose(1, "x");
    cluster.pass(2 * HEARTBEAT_MS);
    cluster.truncate(1);
    cluster.change(1, members([1, 2, 3], [4]));
    cluster.pass(4 * HEARTBEAT_MS);
    caughtUp(cluster, 4);
    expect(cluster.membership(4)).toEqual(members([1, 2, 3], [4]));
  });

  test("also if every offer but the last one is lost, and acknowledgements too", () => {
    const cluster = late();
    cluster.restart(3);
    for (let lost = 0; lost < 5; lost += 1) {
      cluster.advance(HEARTBEAT_MS);
      cluster.tick(1);
      cluster.take(to(3, "snapshot_offer"));
      cluster.stabilize();
      if (cluster.node(1).snapshotWanted) cluster.snapshot(1);
      cluster.take(to(3, "snapshot_offer"));
    }
    expect(cluster.state(3).commit).toBe(1);
    cluster.advance(HEARTBEAT_MS);
    cluster.tick(1);
    cluster.stabilize();
    cluster.stage(3);
    cluster.take(from(3));
    cluster.pass(2 * HEARTBEAT_MS);
    caughtUp(cluster, 3);
  });

  test.each([0, 1])(
    "a crash in the turn that takes it in leaves the old state or the new one (%i turns kept)",
    (kept) => {
      const cluster = late();
      cluster.restart(3);
      cluster.advance(HEARTBEAT_MS);
      cluster.tick(1);
      cluster.stabilize();
      cluster.snapshot(1);
      cluster.stabilize();
      cluster.hold(3);
      cluster.stage(3);
      expect(cluster.pool.filter(from(3))).toEqual([]);
      cluster.crash(3, kept);
      const { disk } = cluster.node(3);
      expect([disk.base.index, disk.entries.length, disk.applied]).toEqual(kept === 0 ? [0, 1, 1] : [21, 0, 21]);
      cluster.restart(3);
      cluster.pass(4 * HEARTBEAT_MS);
      caughtUp(cluster, 3);
    },
  );

  test("a node that took in a snapshot can lead, and serve it on", () => {
    const cluster = late(5);
    cluster.restart(3);
    cluster.pass(4 * HEARTBEAT_MS);
    cluster.crash(4);
    cluster.propose(1, "x");
    cluster.pass(2 * HEARTBEAT_MS);
    cluster.crash(1);
    cluster.advance(ELECTION_MS_MAX);
    cluster.elect(3);
    cluster.pass(2 * HEARTBEAT_MS);
    cluster.truncate(3);
    cluster.restart(4);
    cluster.pass(4 * HEARTBEAT_MS);
    caughtUp(cluster, 4);
  });

  test("a leader that changes in the middle makes its own snapshot, and the old one, fetched late, still helps", () => {
    const cluster = late(5);
    cluster.restart(3);
    cluster.advance(HEARTBEAT_MS);
    cluster.tick(1);
    cluster.stabilize();
    const old = cluster.snapshot(1);
    cluster.crash(1);
    cluster.advance(ELECTION_MS_MAX);
    cluster.elect(2);
    cluster.truncate(2);
    expect(cluster.stage(3, old).persist?.install?.snapshot).toEqual(old);
    cluster.pass(4 * HEARTBEAT_MS);
    caughtUp(cluster, 3);
  });
});
