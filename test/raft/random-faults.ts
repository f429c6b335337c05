/**
 * Random events of every cluster: deliveries in any order, losses, repeats, slow disks, crashes, cut links, stalled
 * clocks, and a cluster that is told to sleep and is woken at any moment (design 02 §4).
 */
import { nextFloat, nextInteger } from "../../src/base/random.ts";
import { isAsleep } from "../../src/raft/state.ts";
import type { NodeId } from "../../src/raft/types.ts";
import { ELECTION_MS_MAX, ELECTION_MS_MIN, HEARTBEAT_MS } from "./fixtures.ts";
import { anyMessage, anyNode, type Run, running, type Weighted } from "./random-run.ts";

export const FAULTS: Weighted = [
  [60, deliver],
  [2, drop],
  [3, repeat],
  [22, passTime],
  [9, propose],
  [5, read],
  [12, writeOne],
  [2, holdOrRelease],
  [2, park],
  [0.7, unpark],
  [0.6, newWeather],
  [0.8, crash],
  [3, restart],
  [0.5, cut],
  [0.4, partition],
  [0.7, silenceLeader],
  [1, heal],
  [0.6, campaign],
  [1.2, usurp],
  [0.6, stall],
  [2, quiesce],
  [2.5, lull],
  [2, wake],
  [1, probe],
  [1, evict],
];

function deliver(run: Run): void {
  const { cluster, random } = run;
  // Mostly in order, as a stream would; often enough not.
  for (let count = nextInteger(random, 1, run.size); count > 0 && cluster.pool.length > 0; count -= 1) {
    cluster.deliverAt(nextFloat(random) < 0.6 ? 0 : anyMessage(run));
  }
}

function drop(run: Run): void {
  if (run.cluster.pool.length > 0) run.cluster.pool.splice(anyMessage(run), 1);
}

function repeat(run: Run): void {
  const envelope = run.cluster.pool[anyMessage(run)];
  if (envelope !== undefined) run.cluster.pool.push(envelope);
}

function passTime(run: Run): void {
  const { cluster, random } = run;
  for (const node of cluster.nodes) {
    // Clocks of different speed; timers that fire late.
    node.nowMs += nextFloat(random) * 50;
    if (node.state !== null && node.wakeAtMs <= node.nowMs && nextFloat(random) < 0.8) cluster.tick(node.id);
  }
}

function propose(run: Run): void {
  const leader = run.cluster.leader();
  const id = leader !== null && nextFloat(run.random) < 0.8 ? leader : running(run);
  if (id === null) return;
  const texts = Array.from({ length: nextInteger(run.random, 1, 3) }, () => `p${run.random.state}`);
  run.cluster.propose(id, ...texts);
}

function read(run: Run): void {
  const id = running(run);
  if (id !== null) readOn(run, id);
}

export function readOn(run: Run, id: NodeId): void {
  run.nextContext += 1;
  run.floors.set(run.nextContext, run.cluster.safety.committed.length);
  run.cluster.read(id, run.nextContext);
}

function writeOne(run: Run): void {
  const id = running(run);
  if (id !== null) run.cluster.flush(id, 1);
}

function holdOrRelease(run: Run): void {
  const id = running(run);
  if (id === null) return;
  if (run.cluster.node(id).held) run.cluster.release(id);
  else if (nextFloat(run.random) < 0.5) run.cluster.hold(id);
}

/** Everything that is under way comes much later. */
function park(run: Run): void {
  const { cluster, random } = run;
  const delayed = cluster.take(() => nextFloat(random) < 0.3);
  run.parked.push(...delayed);
}

function unpark(run: Run): void {
  run.cluster.pool.push(...run.parked.splice(0, nextInteger(run.random, 0, run.parked.length)));
}

/** Faults come together: some disks stop, the others work, the network falls apart, several nodes die at once. */
function newWeather(run: Run): void {
  const { cluster, random } = run;
  const storm = nextFloat(random);
  for (const node of cluster.nodes) node.wallOffsetMs = nextInteger(random, -5000, 5000);
  for (const { id, state, turns } of cluster.nodes) {
    if (state === null) {
      if (nextFloat(random) < 0.7) cluster.restart(id);
    } else if (nextFloat(random) < 0.3 * storm) cluster.crash(id, nextInteger(random, 0, turns.length));
    else if (nextFloat(random) < 0.5 * storm) cluster.hold(id);
    else cluster.release(id);
  }
  if (nextFloat(random) < storm) partition(run);
  else cluster.heal();
  // Elections at once, rather than after a silence that lets everybody agree.
  for (const node of cluster.nodes) {
    if (nextFloat(random) < storm) node.nowMs += ELECTION_MS_MIN;
    if (node.state !== null && nextFloat(random) < 0.5 * storm) cluster.campaign(node.id);
  }
}

function crash(run: Run): void {
  const id = running(run);
  if (id === null) return;
  run.counts.crashes += 1;
  run.cluster.crash(id, nextInteger(run.random, 0, run.cluster.node(id).turns.length));
}

function restart(run: Run): void {
  const node = run.cluster.node(anyNode(run));
  const asleep = nextFloat(run.random) < 0.3;
  if (node.state !== null) return;
  run.cluster.restart(node.id, { applied: nextInteger(run.random, 0, node.disk.applied), asleep });
}

function cut(run: Run): void {
  const [left, right] = [anyNode(run), anyNode(run)];
  if (left !== right) run.cluster.cutOneWay(left, right);
}

function partition(run: Run): void {
  const groups: [NodeId[], NodeId[]] = [[], []];
  for (const { id } of run.cluster.nodes) groups[nextFloat(run.random) < 0.5 ? 0 : 1].push(id);
  run.cluster.partition(...groups);
}

/** Nobody hears the leader any more; what it takes on alone must go when it returns. */
function silenceLeader(run: Run): void {
  const leader = run.cluster.leader();
  if (leader === null) return;
  for (const { id } of run.cluster.nodes) if (id !== leader) run.cluster.cutOneWay(leader, id);
  run.cluster.propose(leader, "alone");
}

function heal(run: Run): void {
  run.cluster.heal();
}

function campaign(run: Run): void {
  const id = running(run);
  if (id !== null) run.cluster.campaign(id);
}

/**
 * Another node takes over while the old leader, cut off or not, does not know it yet and goes on serving. A pre-vote
 * promises nothing, so safety may not depend on it: this one is won without asking.
 */
function usurp(run: Run): void {
  const { cluster, random } = run;
  const leader = cluster.leader();
  const id = running(run);
  if (id === null || id === leader) return;
  const silent = nextFloat(random) < 0.6;
  for (const node of cluster.nodes) {
    if (node.id === leader) continue;
    if (nextFloat(random) < 0.8) node.nowMs += ELECTION_MS_MIN;
    if (leader !== null && silent) cluster.cut(leader, node.id);
  }
  // What is on its way to either of them arrives when everything is over.
  const late = nextFloat(random) < 0.7 ? cluster.take(({ to }) => to === leader || to === id) : [];
  cluster.campaign(id);
  const term = cluster.state(id).term + 1;
  for (const { id: from } of cluster.nodes) {
    cluster.step(id, { kind: "message", from, message: { kind: "pre_vote_reply", term, granted: true } });
  }
  for (let count = nextInteger(random, 0, 4); count > 0; count -= 1) {
    for (let burst = 0; burst < 2 * run.size; burst += 1) deliver(run);
    if (cluster.node(id).state !== null) cluster.propose(id, `usurped${random.state}`);
    for (const node of cluster.nodes) if (node.state !== null && nextFloat(random) < 0.5) readOn(run, node.id);
  }
  if (silent && nextFloat(random) < 0.7) cluster.heal();
  for (const envelope of late) cluster.hand(envelope);
}

function stall(run: Run): void {
  run.cluster.advance(nextFloat(run.random) * 3 * ELECTION_MS_MAX, [anyNode(run)]);
}

function quiesce(run: Run): void {
  const leader = run.cluster.leader();
  const id = leader !== null && nextFloat(run.random) < 0.9 ? leader : running(run);
  if (id !== null) run.cluster.quiesce(id);
}

/** Who is there comes to rest and falls asleep; the rest of the night is left to chance. */
function lull(run: Run): void {
  const { cluster, random } = run;
  const leader = cluster.leader();
  if (leader === null) return;
  if (nextFloat(random) < 0.5) cluster.heal();
  for (const { id, state } of cluster.nodes) if (state !== null) cluster.release(id);
  for (let heartbeats = nextInteger(random, 1, 3); heartbeats > 0; heartbeats -= 1) {
    cluster.stabilize();
    if (cluster.node(leader).state === null) return;
    cluster.node(leader).nowMs += HEARTBEAT_MS;
    cluster.tick(leader);
  }
  cluster.stabilize();
  cluster.quiesce(leader);
}

function wake(run: Run): void {
  const id = running(run);
  if (id !== null) run.cluster.wake(id);
}

function probe(run: Run): void {
  const id = running(run);
  if (id !== null) run.cluster.probe(id);
}

/** Sleeping nodes lose their memory. */
function evict(run: Run): void {
  for (const { id, state } of run.cluster.nodes) {
    if (state !== null && isAsleep(state) && nextFloat(run.random) < 0.4) run.cluster.evict(id);
  }
}
