/**
 * A run: five processes, clients that load them, a nemesis that breaks them, then quiet, and the judgement of all that the
 * clients saw (design 06 §2).
 *
 * P1. Whatever happens, all processes are ended. The folder of a run that failed stays: logs of the nodes, what the nemesis
 *     did, what the clients saw.
 * P2. The seed decides what is done and when; what the machine makes of it differs from run to run.
 */
import {
  appendFileSync,
  createWriteStream,
  mkdirSync,
  mkdtempSync,
  rmSync,
  type WriteStream,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type Bundle, buildBundle } from "../../scripts/local-cluster/bundle.ts";
import { type FiveCluster, startFive } from "../../scripts/local-cluster/five.ts";
import { NODE_IDS } from "../../scripts/local-cluster/verbs.ts";
import { createRandom } from "../../src/base/random.ts";
import { Violation } from "../simulator/violation.ts";
import { type CheckCounts, checkEvidence } from "./checks.ts";
import { Crowd } from "./crowd.ts";
import type { Evidence } from "./evidence.ts";
import { readFeed } from "./feed.ts";
import { createReport, healAll, type NemesisReport, runNemesis } from "./nemesis.ts";
import { createRecords, type Records } from "./recorder.ts";
import { scheduleOf } from "./schedule.ts";
import { createWitness, type Witness } from "./witness.ts";

export interface RunOptions {
  readonly seed: number;
  /** How long there are faults. */
  readonly durationMs: number;
  readonly clients: number;
  /** Also wipes nodes, one after the other: each must have become a voter again before the next fault. */
  readonly wipes: boolean;
  readonly bundle?: Bundle;
  /** What happens, as it happens. */
  readonly onLine: (line: string) => void;
}

export interface RunResult {
  readonly seed: number;
  readonly violation: string | null;
  /** Absolute path; null if nothing was kept. */
  readonly folder: string | null;
  readonly seconds: number;
  readonly nemesis: NemesisReport;
  readonly records: Records;
  /** From the end of everything until all nodes held the same. */
  readonly settledMs: number | null;
  readonly checks: CheckCounts | null;
}

const SETTLE_MS_MAX = 60_000;
const CATCH_UP_MS_MAX = 60_000;
const FORM_MS_MAX = 60_000;

export async function runWithNemesis(options: RunOptions): Promise<RunResult> {
  const startedMs = performance.now();
  const folder = mkdtempSync(join(tmpdir(), "concord-nemesis-"));
  const run: Run = { options, folder, startedMs, records: createRecords(), nemesis: createReport(), settledMs: null };
  let checks: CheckCounts | null = null;
  let violation: string | null = null;
  try {
    const evidence = await gather(run);
    checks = checkEvidence(evidence);
    checkRun(run);
  } catch (error) {
    violation =
      error instanceof Violation ? error.message : `the run broke: ${String((error as Error).stack ?? error)}`;
    line(run, violation);
    keepEvidence(run);
  }
  if (violation === null) rmSync(folder, { recursive: true, force: true });
  const { records, nemesis, settledMs } = run;
  return {
    seed: options.seed,
    violation,
    folder: violation === null ? null : folder,
    seconds: (performance.now() - startedMs) / 1000,
    nemesis,
    records,
    settledMs,
    checks,
  };
}

interface Run {
  readonly options: RunOptions;
  readonly folder: string;
  readonly startedMs: number;
  readonly records: Records;
  readonly nemesis: NemesisReport;
  settledMs: number | null;
}

function line(run: Run, text: string): void {
  const stamped = `${((performance.now() - run.startedMs) / 1000).toFixed(2).padStart(7)} s  ${text}`;
  appendFileSync(join(run.folder, "nemesis.log"), `${stamped}\n`);
  run.options.onLine(stamped);
}

/** Everything up to the last answer. */
async function gather(run: Run): Promise<Evidence> {
  const { options, folder } = run;
  const logs = openLogs(join(folder, "logs"));
  const crashed: number[] = [];
  let five: FiveCluster | null = null;
  try {
    const bundle = options.bundle ?? (await buildBundle(join(folder, "build")));
    five = await startFive({
      folder: join(folder, "five"),
      bundle,
      // The feed is read from its beginning at the end.
      // A short log: who was away for a while, or wiped, takes in a snapshot.
      variables: { COMPACTION_KEEP_REVISIONS: "0", LOG_KEEP_ENTRIES: "200" },
      onLine: (node, text) => void logs.get(node)?.write(`${new Date().toISOString()} ${text}\n`),
      onCrash: (node) => void crashed.push(node),
    });
    const witness = createWitness(five.urls);
    await formed(witness);
    line(run, `five nodes serve; seed ${options.seed}, ${options.clients} clients`);
    const evidence = await loadAndBreak(run, five, witness);
    if (crashed.length > 0) throw new Violation("node never halts", `processes ended by themselves: ${crashed.join()}`);
    return evidence;
  } finally {
    // Not in an orderly way, which waits for every connection.
    await five?.kill(...NODE_IDS.filter((node) => five?.state(node) !== "down"));
    await five?.stop();
    for (const log of logs.values()) log.end();
  }
}

function openLogs(folder: string): ReadonlyMap<number, WriteStream> {
  mkdirSync(folder, { recursive: true });
  return new Map(NODE_IDS.map((node) => [node, createWriteStream(join(folder, `node-${node}.log`))]));
}

async function formed(witness: Witness): Promise<void> {
  const deadlineMs = performance.now() + FORM_MS_MAX;
  while ((await witness.serving()).length < NODE_IDS.length) {
    if (performance.now() > deadlineMs) throw new Error("the five nodes have not formed a cluster");
    await sleep(50);
  }
}

async function loadAndBreak(run: Run, five: FiveCluster, witness: Witness): Promise<Evidence> {
  const { options, records } = run;
  const random = createRandom(options.seed);
  const crowd = new Crowd({ urls: five.urls, clients: options.clients, random, records });
  try {
    await crowd.open();
    const over = AbortSignal.timeout(options.durationMs);
    const schedule = scheduleOf({ seed: options.seed, nodes: NODE_IDS, wipes: options.wipes });
    const onLine = (text: string): void => line(run, text);
    const progress = (): string => progressOf(run);
    const breaking = runNemesis({ five, witness, schedule, signal: over, onLine, progress, report: run.nemesis });
    // Whoever ends first by an exception ends the run; the load goes on until the nemesis is done.
    await Promise.race([breaking, crowd.failed]);
    await healAll(five);
    line(run, "everything is healed; the load ends");
    const healedMs = performance.now();
    await crowd.endLoad();
    run.settledMs = await settled(witness, healedMs);
    line(run, `all nodes hold the same ${run.settledMs} ms after the healing`);
    await crowd.leasesEnded();
    await crowd.caughtUp(CATCH_UP_MS_MAX);
    await settled(witness, performance.now());
  } finally {
    await crowd.close();
  }
  const feeds = await Promise.all(five.urls.map((url) => readFeed(url)));
  return { ...records, feeds };
}

function progressOf({ nemesis, records }: Run): string {
  const faults = [...nemesis.faults.values()].reduce((sum, count) => sum + count, 0);
  const events = records.watchers.reduce((sum, { texts }) => sum + texts.length, 0);
  return `${faults} faults, ${records.writes.length} writes, ${records.reads.length} reads, ${events} events so far`;
}

async function settled(witness: Witness, sinceMs: number): Promise<number> {
  for (;;) {
    const difference = await witness.difference();
    const ms = Math.round(performance.now() - sinceMs);
    if (difference === null) return ms;
    if (ms > SETTLE_MS_MAX) throw new Violation("digests are equal", `${ms} ms after the healing: ${difference}`);
    await sleep(50);
  }
}

/** That the load was one. */
function checkRun({ records, options, nemesis }: Run): void {
  const [error] = records.unexpected;
  if (error !== undefined) {
    throw new Violation("no uncaught exception", `${records.unexpected.length} calls were refused like this: ${error}`);
  }
  const acknowledged = records.writes.filter(({ end }) => end.kind === "answered").length;
  const wanted = Math.floor((options.durationMs / 1000) * WRITES_PER_S_MIN);
  if (acknowledged < wanted) {
    const detail = `${acknowledged} acknowledged writes under ${nemesis.rounds} rounds of faults; ${wanted} are wanted`;
    throw new Violation("progress after healing", detail);
  }
}

/** Far below what two busy cores do, far above what a cluster does that does not come back. */
const WRITES_PER_S_MIN = 2;

function keepEvidence({ folder, records }: Run): void {
  const { writes, reads, leases, watchers, clients } = records;
  const text = JSON.stringify({ writes, reads, leases, watchers, clients }, (_name, value) =>
    value instanceof Map ? [...value] : value,
  );
  writeFileSync(join(folder, "evidence.json"), text);
}
