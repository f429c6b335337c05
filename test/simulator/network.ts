/**
 * The network between nodes: which directions are cut, and how each message fares. In order by default, as one stream
 * is; reordering, loss, duplication and delay happen at the rates of the seed. A message is passed by reference.
 */
import { nextFloat, type Random } from "../../src/base/random.ts";
import type { NodeId } from "../../src/raft/types.ts";
import type { FaultCounts } from "./fault-kinds.ts";

export interface Network {
  /** How often a direction is cut, so that overlapping partitions heal one by one; index = from * STRIDE + to. */
  readonly cuts: Int32Array;
  /** Arrival time of the latest in-order message of a direction. */
  readonly latestAt: Float64Array;
  delayMsMin: number;
  delayMsMax: number;
  dropRate: number;
  /** Loss of messages that carry entries, beside `dropRate`: large messages are the first to be lost. */
  bulkDropRate: number;
  duplicateRate: number;
  reorderRate: number;
  slowRate: number;
  slowMsMax: number;
}

const STRIDE = 8;

export function createNetwork(): Network {
  return {
    cuts: new Int32Array(STRIDE * STRIDE),
    latestAt: new Float64Array(STRIDE * STRIDE),
    delayMsMin: 0.1,
    delayMsMax: 1,
    dropRate: 0,
    bulkDropRate: 0,
    duplicateRate: 0,
    reorderRate: 0,
    slowRate: 0,
    slowMsMax: 0,
  };
}

export function cut(network: Network, from: NodeId, to: NodeId): void {
  const link = from * STRIDE + to;
  network.cuts[link] = network.cuts[link]! + 1;
}

export function mend(network: Network, from: NodeId, to: NodeId): void {
  const link = from * STRIDE + to;
  network.cuts[link] = Math.max(0, network.cuts[link]! - 1);
}

export function mendAll(network: Network): void {
  network.cuts.fill(0);
}

export function isCut(network: Network, from: NodeId, to: NodeId): boolean {
  return network.cuts[from * STRIDE + to]! > 0;
}

/** Stops all random faults; cuts stay. */
export function calm(network: Network): void {
  network.dropRate = 0;
  network.bulkDropRate = 0;
  network.duplicateRate = 0;
  network.reorderRate = 0;
  network.slowRate = 0;
}

/** Arrival times of one message sent at `now`: none if it is lost, two if it is duplicated. */
export function routeMessage(
  network: Network,
  random: Random,
  from: NodeId,
  to: NodeId,
  now: number,
  counts: FaultCounts,
): readonly number[] {
  if (isCut(network, from, to)) return NONE;
  if (network.dropRate > 0 && nextFloat(random) < network.dropRate) {
    counts.add("drop");
    return NONE;
  }
  const first = arrival(network, random, from * STRIDE + to, now, counts);
  if (network.duplicateRate > 0 && nextFloat(random) < network.duplicateRate) {
    counts.add("duplicate");
    return [first, first + nextFloat(random) * 20];
  }
  return [first];
}

const NONE: readonly number[] = [];

function arrival(network: Network, random: Random, link: number, now: number, counts: FaultCounts): number {
  let at = now + network.delayMsMin + nextFloat(random) * (network.delayMsMax - network.delayMsMin);
  if (network.slowRate > 0 && nextFloat(random) < network.slowRate) {
    counts.add("delay");
    at += nextFloat(random) * network.slowMsMax;
  }
  const latest = network.latestAt[link]!;
  if (at >= latest) {
    network.latestAt[link] = at;
    return at;
  }
  // It would overtake the one before it: only a reordering network lets it.
  if (network.reorderRate > 0 && nextFloat(random) < network.reorderRate) {
    counts.add("reorder");
    return at;
  }
  return latest;
}
