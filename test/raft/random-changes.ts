/**
 * Random changes of membership, handovers, logs that are cut and snapshots that are offered, fetched and taken in, at
 * any moment and by anybody.
 */
import { nextFloat, nextInteger } from "../../src/base/random.ts";
import { positionAt } from "../../src/raft/log.ts";
import type { Membership, NodeId } from "../../src/raft/types.ts";
import { anyNode, pick, type Run, running, type Weighted } from "./random-run.ts";

export const CHANGES: Weighted = [
  [2.5, change],
  [0.8, handOver],
  [2.5, truncate],
  [3, serve],
  [3, stage],
  [0.7, stageAnything],
];

/** Mostly at the leader, and mostly one that may be accepted. */
function change(run: Run): void {
  const { cluster, random } = run;
  const leader = cluster.leader();
  const id = leader !== null && nextFloat(random) < 0.9 ? leader : running(run);
  if (id === null) return;
  const wanted = changeOf(run, cluster.membership(id));
  if (wanted !== null) cluster.change(id, nextFloat(random) < 0.9 ? wanted : (changeOf(run, wanted) ?? wanted));
}

function changeOf(run: Run, { voters, learners }: Membership): Membership | null {
  const without = (ids: readonly NodeId[], id: NodeId) => ids.filter((candidate) => candidate !== id);
  const outside = run.cluster.nodes.map(({ id }) => id).filter((id) => !voters.includes(id) && !learners.includes(id));
  const stranger = pick(run, outside);
  const learner = pick(run, learners);
  const voter = pick(run, voters);
  const ticket = nextFloat(run.random);
  if (ticket < 0.3) return stranger === undefined ? null : { voters, learners: [...learners, stranger] };
  if (ticket < 0.65) {
    return learner === undefined ? null : { voters: [...voters, learner], learners: without(learners, learner) };
  }
  if (ticket < 0.7) return learner === undefined ? null : { voters, learners: without(learners, learner) };
  if (voter === undefined) return null;
  if (ticket < 0.75) return { voters, learners, extra: `note ${run.random.state}` };
  if (ticket < 0.8) return { voters: without(voters, voter), learners: [...learners, voter] };
  return { voters: without(voters, voter), learners };
}

function handOver(run: Run): void {
  const { cluster, random } = run;
  const leader = cluster.leader();
  const id = leader !== null && nextFloat(random) < 0.9 ? leader : running(run);
  if (id !== null) cluster.transfer(id, anyNode(run));
}

/** Often all that is applied, so that whoever is behind needs a snapshot. */
function truncate(run: Run): void {
  const id = running(run);
  if (id === null) return;
  const applied = run.cluster.applied(id);
  run.cluster.truncate(id, nextFloat(run.random) < 0.5 ? applied : nextInteger(run.random, 0, applied));
}

function serve(run: Run): void {
  const { cluster, random } = run;
  for (const { id, state, snapshotWanted } of cluster.nodes) {
    if (state === null || !snapshotWanted || nextFloat(random) < 0.3) continue;
    if (nextFloat(random) < 0.9) cluster.snapshot(id);
    else cluster.step(id, { kind: "snapshot_ready", snapshot: null });
  }
}

function stage(run: Run): void {
  for (const node of run.cluster.nodes) {
    if (node.state === null || node.offered === null || nextFloat(run.random) < 0.5) continue;
    run.cluster.stage(node.id);
    if (nextFloat(run.random) < 0.7) node.offered = null;
  }
}

/** Any snapshot that was ever offered, however old, or could be by any node; on any node. */
function stageAnything(run: Run): void {
  const { cluster, random } = run;
  const id = running(run);
  const other = running(run);
  const offered = pick(run, run.offers);
  if (id === null) return;
  if (offered !== undefined && nextFloat(random) < 0.5) cluster.stage(id, offered);
  else if (other !== null && cluster.applied(other) > cluster.state(other).log.base.index) {
    const snapshot = positionAt(cluster.state(other).log, cluster.applied(other));
    if (snapshot.membership.voters.length > 0) cluster.stage(id, snapshot);
  }
}
