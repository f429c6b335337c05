/**
 * Who sleeps (design 02 §4), and what a sleeping cluster must not do: nobody may send a word because some timer ran out.
 * Only something from outside (a request, an alarm, a message under way, a start) ends a sleep.
 */
import type { PeerEnvelope } from "../../src/node-object/ports.ts";
import { isAsleep } from "../../src/raft/state.ts";
import type { Host, Instance, SimEvent, World } from "./host.ts";
import { Violation } from "./violation.ts";

export interface Sleep {
  /** Every member sleeps, or has no instance. */
  cluster: boolean;
  sinceMs: number;
  /** What the turn under way was begun by. */
  cause: SimEvent["kind"];
  clusterSleeps: number;
  nodeSleeps: number;
  /** Messages between nodes so far. */
  messages: number;
}

export function createSleep(): Sleep {
  return { cluster: false, sinceMs: 0, cause: "start", clusterSleeps: 0, nodeSleeps: 0, messages: 0 };
}

/** After each turn. */
export function observeSleep(world: World, instance: Instance): void {
  const asleep = isInstanceAsleep(instance);
  if (asleep === instance.asleep) return;
  instance.asleep = asleep;
  if (asleep) world.sleep.nodeSleeps += 1;
  noticeSleep(world);
}

/** Somebody fell asleep, woke, started or ended. */
export function noticeSleep(world: World): void {
  const { sleep, now } = world;
  const cluster = world.hosts.every(isHostAsleep);
  if (cluster === sleep.cluster) return;
  sleep.cluster = cluster;
  if (!cluster) return;
  sleep.sinceMs = now;
  // A cluster whose nodes are all down is not meant.
  if (!world.hosts.some(({ live }) => live?.raft?.role.kind === "leader")) return;
  sleep.clusterSleeps += 1;
  world.counts.add("quiescence");
}

function isInstanceAsleep(instance: Instance): boolean {
  if (instance.raft !== null) return isAsleep(instance.raft);
  return isFormedHost(instance.host);
}

function isFormedHost({ disk }: Host): boolean {
  return disk.identity?.membership.kind === "formed";
}

/** A node that has lost its storage is no member: it asks around now and then. */
function isHostAsleep(host: Host): boolean {
  if (isLost(host)) return true;
  if (host.zombie !== null || !isFormedHost(host)) return false;
  return host.live === null || isInstanceAsleep(host.live);
}

/** Wiped, and not a member again: it neither counts nor serves until it is re-admitted. */
export function isLost(host: Host): boolean {
  return host.disk.serial % 1000 > 0 && !isFormedHost(host);
}

const CAUSES_WITHIN: ReadonlySet<SimEvent["kind"]> = new Set(["timer", "synced", "socket"]);

/** Whenever a node sends something to another, in the turn in which it does. */
export function checkSilence(world: World, sender: Instance, { body }: PeerEnvelope): void {
  const { sleep } = world;
  sleep.messages += 1;
  // A late word about a client's request wakes nobody.
  if (!sleep.cluster || !CAUSES_WITHIN.has(sleep.cause) || body.kind !== "raft" || isLost(sender.host)) return;
  const detail = `node ${sender.host.id} sends ${body.message.kind} because of a ${sleep.cause}`;
  world.violation ??= new Violation("a sleeping cluster is silent", detail);
}
