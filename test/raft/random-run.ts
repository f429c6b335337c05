/** What a run of random events knows and counts, and how its events are drawn (`random-events.test.ts`). */
import { nextFloat, nextInteger, type Random } from "../../src/base/random.ts";
import type { Envelope, NodeId, SnapshotPosition } from "../../src/raft/types.ts";
import type { Cluster } from "./cluster.ts";

const POOL_MESSAGES_MAX = 400;

export interface Run {
  readonly cluster: Cluster;
  readonly random: Random;
  /** Nodes, members or not. */
  readonly size: number;
  /** For each read, by context: how much was committed when it was asked for. */
  readonly floors: Map<number, number>;
  readonly readsSeen: number[];
  readonly counts: Counts;
  nextContext: number;
  /** Messages that are on their way for a long time. */
  parked: Envelope[];
  /** Snapshots that were offered to anybody: they may be staged much later. */
  readonly offers: SnapshotPosition[];
}

export const COUNTS = [
  "elections",
  "commits",
  "reads",
  "truncations",
  "crashes",
  // Leaders that fell asleep, and members that followed them.
  "sleeps",
  "followed",
  // Memberships that were committed; leaders that removed themselves; votes that ignored the lease.
  "changes",
  "retirements",
  "transfers",
  // Logs that were cut behind applied state; snapshots taken in, with and without the rest of the log.
  "drops",
  "installs",
  "suffixes",
] as const;

export type Counts = Record<(typeof COUNTS)[number], number>;

export function noCounts(): Counts {
  return Object.fromEntries(COUNTS.map((name) => [name, 0])) as Counts;
}

export type Action = (run: Run) => void;
export type Weighted = readonly (readonly [weight: number, action: Action])[];

export function anyNode(run: Run): NodeId {
  return nextInteger(run.random, 1, run.size);
}

export function running(run: Run): NodeId | null {
  const id = anyNode(run);
  return run.cluster.node(id).state === null ? null : id;
}

export function anyMessage(run: Run): number {
  return nextInteger(run.random, 0, run.cluster.pool.length - 1);
}

export function pick<T>({ random }: Run, choices: readonly T[]): T | undefined {
  return choices[nextInteger(random, 0, choices.length - 1)];
}

export function act(run: Run, actions: Weighted): void {
  let ticket = nextFloat(run.random) * actions.reduce((sum, [weight]) => sum + weight, 0);
  for (const [weight, action] of actions) {
    ticket -= weight;
    if (ticket < 0) {
      action(run);
      break;
    }
  }
  const { pool } = run.cluster;
  if (pool.length > POOL_MESSAGES_MAX) pool.splice(0, POOL_MESSAGES_MAX / 2);
  checkReads(run);
}

/** Linearizability of reads: an answer is never older than what was committed when the question was asked. */
export function checkReads(run: Run): void {
  run.cluster.nodes.forEach(({ id, reads }, position) => {
    for (const { context, index } of reads.slice(run.readsSeen[position])) {
      const floor = run.floors.get(context);
      if (floor === undefined) throw new Error(`node ${id} answers read ${context}, which nobody asked`);
      if (index < floor) throw new Error(`node ${id} answers read ${context} at ${index}, committed was ${floor}`);
      run.counts.reads += 1;
    }
    run.readsSeen[position] = reads.length;
  });
}
