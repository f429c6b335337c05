/**
 * What one seed is like: size and timing of the cluster, load, and which faults may happen. Every seed leaves about half
 * of the kinds out: some bugs show only where most things work, and all pairs still meet over a few hundred seeds.
 */
import { nextFloat, nextInteger, type Random } from "../../src/base/random.ts";
import type { CompactionPolicy } from "../../src/kv/history-marks.ts";
import type { HubLimits } from "../../src/watch/limits.ts";
import { FAULT_KINDS, type FaultKind } from "./fault-kinds.ts";

export interface Profile {
  /** Times the steps that the seed was asked for. */
  readonly stepsFactor: number;
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
  /** Infinite: the cluster never sleeps. */
  readonly quiesceAfterMs: number;
  /** Mean time between two rests of all clients; null = they never rest. */
  readonly restEveryMs: number | null;
  readonly restMs: number;
  /** How many nodes' wall clocks may jump. */
  readonly wrongClocks: number;
  /** Share of owners of leases that renew at the last moment, and of commands that have to do with leases. */
  readonly lateKeepers: number;
  readonly leaseShare: number;
  /** Share of writes among what clients do. */
  readonly writeShare: number;
  readonly watchers: number;
  readonly hubLimits: Partial<HubLimits>;
  readonly quotaBytes: number;
  /** Few: who is away for a while needs a snapshot. */
  readonly logKeepEntries: number;
  readonly chunkBytesMax: number;
  readonly compaction: CompactionPolicy;
}

export function chooseProfile(random: Random): Profile {
  const kinds = FAULT_KINDS.filter((kind) => nextFloat(random) < (LIKELY[kind] ?? 0.55));
  const has = (kind: FaultKind): boolean => kinds.includes(kind);
  const size = choose(random, SIZES);
  const [heartbeatMs, electionTimeoutMsMin, electionTimeoutMsMax] = choose(random, PACES);
  // So many writes that history marks are made, at which automatic compaction aims.
  const crowded = nextFloat(random) < 0.05;
  return {
    ...chooseWatching(random, size),
    stepsFactor: crowded ? 3 : 1,
    size,
    heartbeatMs,
    electionTimeoutMsMin,
    electionTimeoutMsMax,
    fence: true,
    clients: crowded ? 60 : nextInteger(random, 3, 10),
    thinkMsMax: crowded ? 20 : choose(random, [20, 60, 120]),
    timeoutMs: choose(random, [400, 1000, 2000]),
    kinds,
    faultEveryMs: crowded ? 1500 : choose(random, [80, 150, 400]),
    fromTheStart: nextFloat(random) < 0.3,
    amnesia: size > 1 && nextFloat(random) < 0.04,
    dropRate: has("drop") && !crowded ? choose(random, [0.005, 0.02, 0.1]) : 0,
    duplicateRate: has("duplicate") ? choose(random, [0.01, 0.05, 0.2]) : 0,
    reorderRate: has("reorder") ? choose(random, [0.1, 0.5]) : 0,
    slowRate: has("delay") && !crowded ? choose(random, [0.01, 0.05]) : 0,
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
    quiesceAfterMs: has("quiescence") ? choose(random, [600, 1000, 2000]) : Number.POSITIVE_INFINITY,
    restEveryMs: has("quiescence") ? choose(random, [2000, 4000, 8000]) : null,
    restMs: choose(random, [3000, 6000, 12_000]),
    wrongClocks: choose(random, [1, 1, size]),
    lateKeepers: 0.5,
    leaseShare: crowded ? 0.1 : 0.29,
    writeShare: crowded ? 0.95 : 0.7,
    logKeepEntries: has("snapshot_in_flight") ? choose(random, [10, 30, 100]) : 10_000,
    chunkBytesMax: choose(random, [500, 3000, 384 << 10]),
    quotaBytes: nextFloat(random) < 0.12 ? choose(random, [15_000, 40_000]) : QUOTA_BYTES,
    compaction: crowded ? { keepRevisions: 1, keepMs: 0, historyBytesMax: 0 } : NO_COMPACTION,
  };
}

function chooseWatching(random: Random, size: number): Pick<Profile, "watchers" | "hubLimits"> {
  return {
    watchers: nextFloat(random) < 0.8 ? size + nextInteger(random, 0, 2) : 0,
    hubLimits: nextFloat(random) < 0.7 ? NARROW : {},
  };
}

/** Short elections and many faults. */
export const STORMY = {
  faultEveryMs: 80,
  heartbeatMs: 30,
  electionTimeoutMsMin: 150,
  electionTimeoutMsMax: 300,
} as const;

const LIKELY: Partial<Record<FaultKind, number>> = { quiescence: 0.85, snapshot_in_flight: 0.75 };
const QUOTA_BYTES = 2 ** 32;
const NO_COMPACTION: CompactionPolicy = { keepRevisions: 0, keepMs: 0, historyBytesMax: 0 };

/** Limits of watches that a few hundred small events reach: parts of revisions, credit that runs out, slow consumers. */
const NARROW: Partial<HubLimits> = {
  frameBytesMax: 512,
  frameBytesTarget: 256,
  creditPerWatchBytes: 2048,
  creditPerNodeBytes: 8192,
  behindEventsMax: 12,
  behindBytesMax: 4096,
  silenceMsMax: 800,
  progressRevisions: 20,
  progressMs: 500,
  pumpRowsMax: 64,
  pumpBytesMax: 4096,
  sliceRowsMax: 16,
  nearRevisions: 32,
  freshEventsMax: 48,
};

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
