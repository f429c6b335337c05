/**
 * Deterministic simulation of the cluster (test/simulator): `npm run sim -- --seeds N [--seed S] [--steps K]`.
 * Runs seeds S … S+N-1 on all cores, prints what was injected and how fast, and for each broken rule the command that
 * replays it. `--threads T`, `--mutant NAME` (a deliberate bug), `--trace LINES` for looking closer.
 */
import { availableParallelism } from "node:os";
import { parseArgs } from "node:util";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import { MUTANTS } from "../test/simulator/mutants.ts";
import {
  addSeed,
  createReport,
  formatReport,
  missingFaults,
  replayCommand,
  SEEDS_FOR_COVERAGE,
  type SeedSummary,
  summarize,
} from "../test/simulator/report.ts";
import { runSeed, STEPS_DEFAULT } from "../test/simulator/simulation.ts";

interface Options {
  readonly seeds: number;
  readonly seed: number;
  readonly steps: number;
  readonly threads: number;
  readonly mutant: string | null;
  readonly traceLines: number;
}

const SHOWN_FAILURES_MAX = 10;
const PROGRESS_EVERY_MS = 10_000;

if (isMainThread) await main(readOptions());
else serve(workerData as Options);

function readOptions(): Options {
  const { values } = parseArgs({
    options: {
      seeds: { type: "string", default: "200" },
      seed: { type: "string", default: "1" },
      steps: { type: "string", default: String(STEPS_DEFAULT) },
      threads: { type: "string", default: String(availableParallelism()) },
      mutant: { type: "string" },
      trace: { type: "string", default: "60" },
    },
  });
  const seeds = counter("seeds", values.seeds);
  if (values.mutant !== undefined && !MUTANTS.some(({ name }) => name === values.mutant)) {
    console.error(`no mutant "${values.mutant}"; there are:\n${MUTANTS.map(({ name }) => `  ${name}`).join("\n")}`);
    process.exit(2);
  }
  return {
    seeds,
    seed: counter("seed", values.seed),
    steps: counter("steps", values.steps),
    threads: Math.min(seeds, counter("threads", values.threads)),
    mutant: values.mutant ?? null,
    traceLines: counter("trace", values.trace),
  };
}

function counter(name: string, text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value) || value < 1) {
    console.error(`--${name} must be a whole number above 0, is ${text}`);
    process.exit(2);
  }
  return value;
}

function simulate(options: Options, seed: number): SeedSummary {
  const mutant = MUTANTS.find(({ name }) => name === options.mutant);
  const { steps, traceLines } = options;
  const changes = mutant === undefined ? {} : { mutation: mutant.mutation, profile: mutant.profile };
  return summarize(runSeed({ seed, steps, traceLines, ...changes }));
}

/** A worker asks for a seed, runs it, hands the summary back, until there are none left. */
function serve(options: Options): void {
  parentPort?.on("message", (seed: number) => parentPort?.postMessage(simulate(options, seed)));
}

async function main(options: Options): Promise<void> {
  const report = createReport();
  const startedMs = performance.now();
  let shownMs = startedMs;
  await runAll(options, (summary) => {
    addSeed(report, summary);
    if (summary.violation !== null && report.failures.length <= SHOWN_FAILURES_MAX) show(summary, options);
    if (performance.now() - shownMs > PROGRESS_EVERY_MS) {
      shownMs = performance.now();
      console.log(`… ${report.seeds} of ${options.seeds} seeds`);
    }
  });
  const cpu = process.cpuUsage();
  console.log(formatReport(report, performance.now() - startedMs, (cpu.user + cpu.system) / 1000));
  const missing = options.seeds >= SEEDS_FOR_COVERAGE && options.mutant === null ? missingFaults(report) : [];
  if (missing.length > 0) console.error(`\nnever happened: ${missing.join(", ")}`);
  if (report.failures.length > 0) {
    console.error(
      `\n${report.failures.length} seeds broke a rule: ${report.failures.map(({ seed }) => seed).join(" ")}`,
    );
  } else console.log("\nno violation");
  process.exitCode = missing.length > 0 || report.failures.length > 0 ? 1 : 0;
}

function show(summary: SeedSummary, options: Options): void {
  console.error(`\nseed ${summary.seed}: ${summary.violation}`);
  if (summary.trace !== "") console.error(summary.trace);
  const mutant = options.mutant === null ? "" : ` --mutant "${options.mutant}"`;
  console.error(`replay: ${replayCommand(summary.seed, options.steps)}${mutant}\n`);
}

async function runAll(options: Options, done: (summary: SeedSummary) => void): Promise<void> {
  let next = options.seed;
  const end = options.seed + options.seeds;
  if (options.threads === 1) {
    for (; next < end; next += 1) done(simulate(options, next));
    return;
  }
  const workers = Array.from({ length: options.threads }, () => {
    const worker = new Worker(new URL(import.meta.url), { workerData: options });
    return new Promise<void>((resolve, reject) => {
      const hand = (): void => {
        if (next < end) {
          worker.postMessage(next);
          next += 1;
        } else void worker.terminate().then(() => resolve());
      };
      worker.on("message", (summary: SeedSummary) => {
        done(summary);
        hand();
      });
      worker.on("error", reject);
      hand();
    });
  });
  await Promise.all(workers);
}
