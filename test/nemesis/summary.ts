/** What a run was, as text for people and as data. */
import type { RunResult } from "./run.ts";

export interface Summary {
  readonly seed: number;
  readonly violation: string | null;
  readonly folder: string | null;
  readonly seconds: number;
  readonly operations: Readonly<Record<string, Readonly<Record<string, number>>>>;
  readonly acknowledgedWrites: number;
  readonly faults: Readonly<Record<string, number>>;
  readonly faultsCount: number;
  readonly slowestRecovery: RunResult["nemesis"]["slowestRecovery"];
  readonly settledMs: number | null;
  readonly watchers: number;
  readonly eventsWatched: number;
  readonly resumptions: number;
  readonly checks: RunResult["checks"];
}

export function summaryOf(result: RunResult): Summary {
  const { records, nemesis } = result;
  const faults = Object.fromEntries([...nemesis.faults].sort());
  return {
    seed: result.seed,
    violation: result.violation,
    folder: result.folder,
    seconds: Math.round(result.seconds * 10) / 10,
    operations: Object.fromEntries(
      [...records.counts].sort().map(([kind, outcomes]) => [kind, Object.fromEntries([...outcomes].sort())]),
    ),
    acknowledgedWrites: records.writes.filter(({ end }) => end.kind === "answered").length,
    faults,
    faultsCount: Object.values(faults).reduce((sum, count) => sum + count, 0),
    slowestRecovery: nemesis.slowestRecovery,
    settledMs: result.settledMs,
    watchers: records.watchers.length,
    eventsWatched: records.watchers.reduce((sum, { texts }) => sum + texts.length, 0),
    resumptions: records.watchers.reduce((sum, { resumptions }) => sum + resumptions, 0),
    checks: result.checks,
  };
}

export function summaryText(summary: Summary): string {
  const { checks, slowestRecovery: slowest } = summary;
  const lines = [
    `seed ${summary.seed}, ${summary.seconds} s`,
    "operations:",
    ...Object.entries(summary.operations).map(([kind, outcomes]) => `  ${kind.padEnd(30)} ${pairsText(outcomes)}`),
    `acknowledged writes: ${summary.acknowledgedWrites}`,
    `faults: ${summary.faultsCount} (${pairsText(summary.faults)})`,
    `slowest recovery: a majority served ${slowest.ms} ms after the end of: ${slowest.faults}`,
    `all nodes equal: ${summary.settledMs === null ? "never" : `${summary.settledMs} ms`} after the healing`,
    `watchers: ${summary.watchers}, events: ${summary.eventsWatched}, resumptions: ${summary.resumptions}`,
  ];
  if (checks !== null) {
    const { registers, leases } = checks;
    lines.push(
      `checked: ${checks.revisions} revisions, ${checks.writes} writes, ${checks.reads} reads, ${checks.watchedEvents} watched events`,
      `  registers: ${registers.operations} operations on ${registers.keys} keys are linearizable, ${registers.undecided} keys undecided`,
      `  leases: ${leases.leases}, of which ${leases.ended} were seen to end; the earliest ${earlyText(leases.earliestMs)}`,
    );
  }
  if (summary.violation === null) lines.push("no violation");
  else lines.push(`VIOLATION: ${summary.violation}`, `seed ${summary.seed}; logs and evidence: ${summary.folder}`);
  return `${lines.join("\n")}\n`;
}

function pairsText(pairs: Readonly<Record<string, number>>): string {
  return Object.entries(pairs)
    .map(([name, count]) => `${name} ${count}`)
    .join(", ");
}

function earlyText(earlyMs: number | null): string {
  if (earlyMs === null) return "of none by itself";
  const ms = Math.abs(earlyMs).toFixed(0);
  return earlyMs > 0 ? `${ms} ms before its promise was over` : `${ms} ms after its promise was over`;
}
