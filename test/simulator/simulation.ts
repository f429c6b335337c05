/** One seed from beginning to end: form, load and break, heal, require progress, judge the history. */
import { LOG_KEEP_BYTES_DEFAULT } from "../../src/base/limits.ts";
import { createRandom } from "../../src/base/random.ts";
import { requireProgress } from "./ending.ts";
import type { FaultKind } from "./fault-kinds.ts";
import { createFaults, type Faults, heal, isFormed, startFaults } from "./faults.ts";
import { checkHistory } from "./history-check.ts";
import type { Mutation } from "./host.ts";
import { checkPromises } from "./lease-check.ts";
import { canElect } from "./membership.ts";
import { chooseProfile, type Profile } from "./profile.ts";
import { checkQuota } from "./quota-check.ts";
import { runUntilQuiet, runWhile } from "./settling.ts";
import { describeTrace } from "./trace.ts";
import { Violation } from "./violation.ts";
import { startWatchClients, type WatchClients, type WatchCounts } from "./watch-clients.ts";
import { createWorkload, startClients, type Workload } from "./workload.ts";
import { createWorld, startInstance } from "./world.ts";

/** Often, so that a run reads all of a state several times. */
const HOUSEKEEPING_MS = 200;

export const STEPS_DEFAULT = 5000;

export interface SeedOptions {
  readonly seed: number;
  readonly steps: number;
  readonly mutation?: Mutation | null;
  /** Replaces parts of the profile that the seed would choose. */
  readonly profile?: Partial<Profile>;
  /** Off: only what clients and operators could notice is judged (safety.ts S1, S2 are left out). */
  readonly direct?: boolean;
  readonly freeze?: boolean;
  /** Events kept for the report of a violation. */
  readonly traceLines?: number;
}

export interface SeedResult {
  readonly seed: number;
  readonly steps: number;
  readonly virtualMs: number;
  readonly acknowledgedWrites: number;
  readonly faults: ReadonlyMap<FaultKind, number>;
  readonly faultsInFlight: ReadonlyMap<FaultKind, number>;
  readonly counts: SeedCounts;
  readonly hash: number;
  readonly violation: Violation | null;
  /** The last events before the violation. */
  readonly trace: string;
}

/** What the seed had to do with: a part of the workload that never happens proves nothing. */
export interface SeedCounts extends WatchCounts {
  clusterSleeps: number;
  nodeSleeps: number;
  /** Leases that ended by their time, and those of them whose owner had been promised when. */
  expiries: number;
  promises: number;
  compactions: number;
  /** Those that the leader proposed of its own accord. */
  automatic: number;
  /** Writes that were refused for want of space. */
  noSpace: number;
  /** Snapshots on their way to a node, and what became of them. */
  transfersBegun: number;
  transfersFinished: number;
  transfersAbandoned: number;
  installs: number;
  /** Nodes that halted over a corrupt row and were repaired. */
  halts: number;
}

/** A run that makes no progress in its steps for this long has stopped (all nodes asleep). */
const IDLE_MS_MAX = 120_000;
const TRACE_LINES_DEFAULT = 60;

export function runSeed(options: SeedOptions): SeedResult {
  const traceLines = options.traceLines ?? TRACE_LINES_DEFAULT;
  const profile: Profile = { ...chooseProfile(createRandom(Math.imul(options.seed, 0x9e3779b1))), ...options.profile };
  const world = createWorld({
    // Apart from the profile's own draws: a profile that is changed by hand leaves the rest of the seed as it is.
    seed: Math.imul(options.seed, 0x85ebca6b) ^ 0x5bd1e995,
    size: profile.size,
    heartbeatMs: profile.heartbeatMs,
    electionTimeoutMsMin: profile.electionTimeoutMsMin,
    electionTimeoutMsMax: profile.electionTimeoutMsMax,
    fence: profile.fence,
    quiesceAfterMs: profile.quiesceAfterMs,
    quotaBytes: profile.quotaBytes,
    logKeepEntries: profile.logKeepEntries,
    logKeepBytes: LOG_KEEP_BYTES_DEFAULT,
    housekeepingMs: HOUSEKEEPING_MS,
    chunkBytesMax: profile.chunkBytesMax,
    compaction: profile.compaction,
    hubLimits: profile.hubLimits,
    mutation: options.mutation ?? null,
    freeze: options.freeze ?? false,
    traceLines,
  });
  world.safety.direct = options.direct ?? true;
  const faults = createFaults(world, profile);
  const workload = createWorkload(world, profile);
  const watching = startWatchClients(workload, profile.watchers);
  let violation: Violation | null = null;
  let promises = 0;
  try {
    runPhases(faults, workload, watching, options);
    promises = checkPromises(world, profile, workload.history);
  } catch (error) {
    if (!(error instanceof Violation)) throw error;
    violation = error;
  }
  return {
    seed: options.seed,
    steps: world.steps,
    virtualMs: world.now,
    acknowledgedWrites: workload.acknowledgedWrites,
    faults: world.counts.byKind,
    faultsInFlight: world.counts.inFlight,
    counts: countsOf(workload, watching, promises),
    hash: world.trace.hash,
    violation,
    trace: violation === null ? "" : describeTrace(world.trace, traceLines),
  };
}

function runPhases(faults: Faults, workload: Workload, watching: WatchClients, options: SeedOptions): void {
  const { world, profile } = faults;
  const { seed } = options;
  const steps = options.steps * profile.stepsFactor;
  if (profile.fromTheStart) startFaults(faults);
  for (const host of world.hosts) startInstance(world, host);
  startClients(workload);
  if (!profile.fromTheStart) {
    runWhile(world, () => !isFormed(world) && world.steps < steps);
    startFaults(faults);
  }
  runWhile(world, () => world.steps < steps && world.now < IDLE_MS_MAX);
  heal(faults);
  workload.stopped = true;
  // After a majority has been wiped nothing can go on; what was acknowledged must still not be contradicted.
  if (canElect(world)) requireProgress(faults, workload, watching);
  else runUntilQuiet(world, workload);
  checkHistory(workload.history, world.safety.committed, { search: seed % 4 === 0 });
  checkQuota(world);
}

function countsOf({ world, history }: Workload, watching: WatchClients, promises: number): SeedCounts {
  const { clusterSleeps, nodeSleeps } = world.sleep;
  let expiries = 0;
  let compactions = 0;
  let automatic = 0;
  for (const { entry, outcome } of world.safety.committed) {
    if (outcome?.ok !== true) continue;
    if (outcome.result.kind === "lease_expire") expiries += outcome.result.expired.length;
    if (outcome.result.kind !== "compact") continue;
    compactions += 1;
    if (!entry.payload.includes("idempotency")) automatic += 1;
  }
  const noSpace = history.writes.filter(({ refusedForSpace }) => refusedForSpace).length;
  const { begun, finished, abandoned, installs } = world.transfers;
  const transfers = { transfersBegun: begun, transfersFinished: finished, transfersAbandoned: abandoned, installs };
  const { halts } = world;
  const log = { expiries, promises, compactions, automatic, noSpace };
  return { ...watching.counts, clusterSleeps, nodeSleeps, ...log, ...transfers, halts };
}
