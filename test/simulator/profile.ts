/**
 * What one seed is like: size and timing of the cluster, load, and which faults may happen. Every seed leaves about half
 * of the kinds out: some bugs show only where most things work, and all pairs still meet over a few hundred seeds.
 */
import { nextFloat, nextInteger, type Random } from "../../src/base/random.ts";
import { FAULT_KINDS, type FaultKind } from "./fault-kinds.ts";

export interface Profile {
  readonly size: number;
  readonly heartbeatMs: number;
  readonly electionTimeoutMsMin: number;
  readonly electionTimeoutMsMax: number;
  readonly fence: boolean;
  readonly clients: number;
  readonly thinkMsMax: number;
  readonly timeoutMs: number;
  readonly kinds: readonly FaultKind[];
  /** Mean time between two faults that are events. */
  readonly faultEveryMs: number;
  /** Faults may begin before the cluster is formed. */
  readonly fromTheStart: boolean;
  /** A majority may be wiped: then nothing may ever be acknowledged again, and nothing wrong either. */
  readonly amnesia: boolean;
  readonly dropRate: number;
  readonly duplicateRate: number;
  readonly reorderRate: number;
  readonly slowRate: number;
  readonly slowMsMax: number;
  readonly networkMsMax: number;
  readonly syncMsMax: number;
  readonly slowSyncRate: number;
  readonly slowSyncMsMax: number;
  /** With two live instances: the chance that the older one gets what an older one, a newer one or a client sends. */
  readonly oldToOld: number;
  readonly newToOld: number;
  readonly readToOld: number;
  readonly writeToOld: number;
  readonly bulkDropRate: number;
}

export function chooseProfile(random: Random): Profile {
  const kinds = FAULT_KINDS.filter(() => nextFloat(random) < 0.55);
  const has = (kind: FaultKind): boolean => kinds.includes(kind);
  const size = choose(random, SIZES);
  const [heartbeatMs, electionTimeoutMsMin, electionTimeoutMsMax] = choose(random, PACES);
  return {
    size,
    heartbeatMs,
    electionTimeoutMsMin,
    electionTimeoutMsMax,
    fence: true,
    clients: nextInteger(random, 3, 10),
    thinkMsMax: choose(random, [20, 60, 120]),
    timeoutMs: choose(random, [400, 1000, 2000]),
    kinds,
    faultEveryMs: choose(random, [80, 150, 400]),
    fromTheStart: nextFloat(random) < 0.3,
    amnesia: size > 1 && nextFloat(random) < 0.04,
    dropRate: has("drop") ? choose(random, [0.005, 0.02, 0.1]) : 0,
    duplicateRate: has("duplicate") ? choose(random, [0.01, 0.05, 0.2]) : 0,
    reorderRate: has("reorder") ? choose(random, [0.1, 0.5]) : 0,
    slowRate: has("delay") ? choose(random, [0.01, 0.05]) : 0,
    slowMsMax: choose(random, [20, 100, 500]),
    networkMsMax: choose(random, [1, 2, 10]),
    syncMsMax: choose(random, [1, 2, 8]),
    slowSyncRate: choose(random, [0, 0.02, 0.1]),
    slowSyncMsMax: choose(random, [20, 100]),
    oldToOld: choose(random, [0.8, 1]),
    newToOld: choose(random, [0, 0.2]),
    readToOld: choose(random, [0.2, 0.5]),
    writeToOld: choose(random, [0.01, 0.3]),
    bulkDropRate: has("drop") ? choose(random, [0, 0, 0.1, 0.5]) : 0,
  };
}

/** Heartbeat and election timeouts: as configured by default, and faster, so that a seed sees more elections. */
const PACES = [
  [50, 300, 600],
  [30, 150, 300],
  [20, 60, 120],
] as const;
const SIZES = [5, 5, 5, 5, 5, 5, 3, 3, 7, 1] as const;

function choose<T>(random: Random, choices: readonly T[]): T {
  return choices[nextInteger(random, 0, choices.length - 1)]!;
}
