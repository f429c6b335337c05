/** One seed from beginning to end: form, load and break, heal, require progress, judge the history. */
import { createRandom } from "../../src/base/random.ts";
import type { FaultKind } from "./fault-kinds.ts";
import { createFaults, type Faults, heal, isFormed, isLost, startFaults } from "./faults.ts";
import { checkHistory } from "./history.ts";
import type { Mutation, World } from "./host.ts";
import { chooseProfile, type Profile } from "./profile.ts";
import { describeTrace } from "./trace.ts";
import { Violation } from "./violation.ts";
import { createWorkload, sendProbe, startClients, type Workload } from "./workload.ts";
import { advance, createWorld, scheduleAct, startInstance } from "./world.ts";

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
  readonly hash: number;
  readonly violation: Violation | null;
  /** The last events before the violation. */
  readonly trace: string;
}

/** Virtual time that a healed cluster has to answer everything and to agree. */
const QUIET_MS_MAX = 20_000;
/** A run that makes no progress in its steps for this long has stopped (all nodes asleep). */
const IDLE_MS_MAX = 120_000;
const PROBE_PAUSE_MS = 100;
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
    mutation: options.mutation ?? null,
    freeze: options.freeze ?? false,
    traceLines,
  });
  world.safety.direct = options.direct ?? true;
  const faults = createFaults(world, profile);
  const workload = createWorkload(world, profile);
  let violation: Violation | null = null;
  try {
    runPhases(faults, workload, options.steps, options.seed);
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
    hash: world.trace.hash,
    violation,
    trace: violation === null ? "" : describeTrace(world.trace, traceLines),
  };
}

function runPhases(faults: Faults, workload: Workload, steps: number, seed: number): void {
  const { world, profile } = faults;
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
  const majorityLost = world.hosts.filter(isLost).length * 2 > world.hosts.length;
  if (majorityLost) runUntilQuiet(world, workload);
  else requireProgress(world, workload);
  checkHistory(workload.history, world.safety.committed, { search: seed % 4 === 0 });
}

function runWhile(world: World, condition: () => boolean): void {
  while (condition()) if (!advance(world)) return;
}

function runUntilQuiet(world: World, workload: Workload): void {
  const deadline = world.now + QUIET_MS_MAX;
  runWhile(world, () => workload.open > 0 && world.now < deadline);
}

/** A leader, a fresh write through every node, the same state everywhere, and no caller left waiting. */
function requireProgress(world: World, workload: Workload): void {
  runUntilQuiet(world, workload);
  const members = world.hosts.filter((host) => !isLost(host));
  let answered = 0;
  const deadline = world.now + QUIET_MS_MAX;
  const probe = (node: number): void => {
    sendProbe(workload, node, (ok) => {
      if (ok) answered += 1;
      else scheduleAct(world, world.now + PROBE_PAUSE_MS, "probe again", () => probe(node));
    });
  };
  for (const { id } of members) probe(id);
  runWhile(world, () => answered < members.length && world.now < deadline);
  if (answered < members.length) {
    throw new Violation(
      "progress after healing",
      `${answered} of ${members.length} nodes took a write: ${statusText(world)}`,
    );
  }
  const agreed = (): boolean => {
    const { length } = world.safety.committed;
    return members.every(({ live }) => live?.runtime.status().applied_index === length);
  };
  const agreedBy = world.now + QUIET_MS_MAX;
  runWhile(world, () => !agreed() && world.now < agreedBy);
  if (!agreed()) throw new Violation("progress after healing", `not every node has applied all: ${statusText(world)}`);
  const waiting = (): string[] => members.flatMap(({ live }) => [...(live?.calls ?? [])].map((call) => call.label));
  const answeredBy = world.now + QUIET_MS_MAX;
  runWhile(world, () => waiting().length > 0 && world.now < answeredBy);
  if (waiting().length > 0) throw new Violation("answered exactly once", `never answered: ${waiting().join(", ")}`);
}

function statusText(world: World): string {
  return world.hosts
    .map(({ id, live }) => {
      if (live === null) return `n${id} off`;
      const { state, role, term, leader, last_index, commit_index, applied_index } = live.runtime.status();
      return `n${id} ${state} ${role} term ${term} leader ${leader} log ${last_index} commit ${commit_index} applied ${applied_index}`;
    })
    .join("; ");
}
