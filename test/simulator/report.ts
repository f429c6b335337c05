/** Adds up many seeds: how much ran, what was injected together, what broke. */
import { FAULT_KINDS, type FaultKind } from "./fault-kinds.ts";
import type { SeedCounts, SeedResult } from "./simulation.ts";

/** A seed's result as plain data: it crosses threads. */
export interface SeedSummary {
  readonly seed: number;
  readonly steps: number;
  readonly virtualMs: number;
  readonly acknowledgedWrites: number;
  readonly faults: readonly (readonly [FaultKind, number])[];
  readonly faultsInFlight: readonly (readonly [FaultKind, number])[];
  readonly counts: SeedCounts;
  readonly violation: string | null;
  readonly trace: string;
}

export interface Report {
  seeds: number;
  steps: number;
  virtualMs: number;
  acknowledgedWrites: number;
  readonly injected: Map<FaultKind, number>;
  /** Of those the ones that struck while a snapshot was on its way. */
  readonly inFlight: Map<FaultKind, number>;
  /** Seeds in which both kinds of a pair were injected; key "a b", a before b in FAULT_KINDS. */
  readonly together: Map<string, number>;
  /** What the workload had to do with, over all seeds. */
  readonly happened: Map<keyof SeedCounts, number>;
  readonly failures: SeedSummary[];
}

/** Below this many seeds a kind or pair may be missing by chance. */
export const SEEDS_FOR_COVERAGE = 200;
/** Fewer have a few hundred transfers of snapshots, each hit by one kind of fault: a rare kind may be missing by chance. */
const SEEDS_FOR_COVERAGE_IN_FLIGHT = 1000;

export function createReport(): Report {
  return {
    seeds: 0,
    steps: 0,
    virtualMs: 0,
    acknowledgedWrites: 0,
    injected: new Map(),
    inFlight: new Map(),
    together: new Map(),
    happened: new Map(),
    failures: [],
  };
}

export function summarize(result: SeedResult): SeedSummary {
  const { seed, steps, virtualMs, acknowledgedWrites, faults, faultsInFlight, counts, violation, trace } = result;
  return {
    seed,
    steps,
    virtualMs,
    acknowledgedWrites,
    faults: [...faults],
    faultsInFlight: [...faultsInFlight],
    counts,
    violation: violation?.message ?? null,
    trace,
  };
}

export function addSeed(report: Report, summary: SeedSummary): void {
  report.seeds += 1;
  report.steps += summary.steps;
  report.virtualMs += summary.virtualMs;
  report.acknowledgedWrites += summary.acknowledgedWrites;
  const kinds = new Set(summary.faults.map(([kind]) => kind));
  for (const [name, count] of Object.entries(summary.counts) as [keyof SeedCounts, number][]) {
    report.happened.set(name, (report.happened.get(name) ?? 0) + count);
  }
  for (const [kind, count] of summary.faults) report.injected.set(kind, (report.injected.get(kind) ?? 0) + count);
  for (const [kind, count] of summary.faultsInFlight) {
    report.inFlight.set(kind, (report.inFlight.get(kind) ?? 0) + count);
  }
  for (const pair of allPairs()) {
    if (kinds.has(pair[0]) && kinds.has(pair[1])) {
      const name = pair.join(" ");
      report.together.set(name, (report.together.get(name) ?? 0) + 1);
    }
  }
  if (summary.violation !== null) report.failures.push(summary);
}

/** Alarms ring where nothing else is under way, and no snapshot is served while a member of an older version is heard. */
const APART_FROM_SNAPSHOTS: ReadonlySet<FaultKind> = new Set([
  "alarm_late",
  "alarm_repeated",
  "quiescence",
  "version_mix",
]);

/** Kinds and pairs that were never injected, in a soak also not while a snapshot was on its way, and what else never happened. */
export function missingFaults(report: Report): string[] {
  const kinds = FAULT_KINDS.filter((kind) => !report.injected.has(kind));
  const pairs = allPairs().map((pair) => pair.join(" "));
  const never = [...report.happened].filter(([, count]) => count === 0).map(([name]) => name);
  const isSoak = report.seeds >= SEEDS_FOR_COVERAGE_IN_FLIGHT;
  const missed = (kind: FaultKind) => isSoak && !APART_FROM_SNAPSHOTS.has(kind) && !report.inFlight.has(kind);
  const inFlight = FAULT_KINDS.filter(missed).map((kind) => `${kind} during a snapshot`);
  return [...kinds, ...inFlight, ...pairs.filter((pair) => !report.together.has(pair)), ...never];
}

function allPairs(): (readonly [FaultKind, FaultKind])[] {
  return FAULT_KINDS.flatMap((first, position) =>
    FAULT_KINDS.slice(position + 1).map((second) => [first, second] as const),
  );
}

/** On a shared machine the CPU time says more about speed than the clock does. */
export function formatReport(report: Report, elapsedMs: number, cpuMs: number): string {
  const { seeds, steps, acknowledgedWrites, injected, together } = report;
  const perSecond = Math.round(steps / (elapsedMs / 1000));
  const perCpuSecond = Math.round(steps / (cpuMs / 1000));
  const lines = [
    `${seeds} seeds, ${steps} steps, ${Math.round(report.virtualMs / 1000)} s of virtual time`,
    `${perSecond} steps/s, ${perCpuSecond} steps per second of CPU time`,
    `acknowledged writes per seed: ${(acknowledgedWrites / Math.max(1, seeds)).toFixed(1)}`,
  ];
  const happened = [...report.happened].map(([name, count]) => `${HAPPENED[name]} ${count}`);
  lines.push(happened.join(", "));
  if (seeds === 1) return lines.join("\n");
  lines.push("", "faults injected (count; then seeds that also had each other kind, in the order of this list)");
  const width = Math.max(...FAULT_KINDS.map((kind) => kind.length));
  const cell = String(seeds).length + 1;
  for (const kind of FAULT_KINDS) {
    const row = FAULT_KINDS.map((other) => {
      if (kind === other) return "-".padStart(cell);
      const pair = FAULT_KINDS.indexOf(kind) < FAULT_KINDS.indexOf(other) ? `${kind} ${other}` : `${other} ${kind}`;
      return String(together.get(pair) ?? 0).padStart(cell);
    });
    lines.push(`  ${kind.padEnd(width)} ${String(injected.get(kind) ?? 0).padStart(9)} ${row.join("")}`);
  }
  const during = FAULT_KINDS.map((kind) => `${kind} ${report.inFlight.get(kind) ?? 0}`);
  lines.push("", `while a snapshot was on its way: ${during.join(", ")}`);
  return lines.join("\n");
}

const HAPPENED: Readonly<Record<keyof SeedCounts, string>> = {
  clusterSleeps: "sleeps of a cluster",
  nodeSleeps: "of a node",
  expiries: "leases ended by time",
  promises: "of them promised",
  compactions: "compactions",
  automatic: "automatic ones",
  noSpace: "writes without space",
  transfersBegun: "snapshot transfers begun",
  transfersFinished: "finished",
  transfersAbandoned: "abandoned",
  installs: "snapshots installed",
  halts: "nodes halted and repaired",
  events: "events to watchers",
  parts: "in parts of a revision",
  resumed: "watches resumed",
  compacted: "compacted away",
  slow: "too slow",
};

export function replayCommand(seed: number, steps: number): string {
  return `npm run sim -- --seeds 1 --seed ${seed} --steps ${steps}`;
}
