/**
 * `npm run bench -- [--operations N] [--seconds S] [--target NAME] [--json FILE]`: put and get over HTTP with 1 and
 * with 64 clients, against `wrangler dev` and against one plain `workerd` process that runs the same bundle.
 *
 * Each server starts with empty storage, is warmed up, measured alone, checked (every acknowledged put is a revision,
 * all nodes have equal digests) and stopped. Any error ends the benchmark with exit code 1.
 */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { ROOT } from "../scripts/local-cluster/project.ts";
import { runLoad } from "./http-load.ts";
import { markdownOf, type Report, type Row, rowOf } from "./report.ts";
import { TARGETS, type Target } from "./targets.ts";
import { Workload } from "./workload.ts";

const CLIENTS = [1, 64] as const;
const OPERATIONS_DEFAULT = 5000;
const SECONDS_DEFAULT = 10;
const WARM_UP = { clientsCount: 16, operationsMax: 500, durationMsMax: 5000 } as const;
/** Followers may be a heartbeat behind when the last put is acknowledged. */
const SETTLE_MS_MAX = 5000;

interface Options {
  readonly operationsMax: number;
  readonly durationMsMax: number;
  readonly targets: readonly Target[];
  readonly jsonFile: string | undefined;
}

function readOptions(): Options {
  const { values } = parseArgs({
    options: {
      operations: { type: "string" },
      seconds: { type: "string" },
      target: { type: "string" },
      json: { type: "string" },
    },
  });
  const targets = TARGETS.filter((target) => values.target === undefined || target.name === values.target);
  if (targets.length === 0) {
    throw new Error(`--target is one of ${TARGETS.map((target) => JSON.stringify(target.name)).join(", ")}`);
  }
  return {
    operationsMax: count("operations", values.operations, OPERATIONS_DEFAULT),
    durationMsMax: count("seconds", values.seconds, SECONDS_DEFAULT) * 1000,
    targets,
    jsonFile: values.json === undefined ? undefined : resolve(process.env.INIT_CWD ?? process.cwd(), values.json),
  };
}

function count(name: string, text: string | undefined, fallback: number): number {
  const value = text === undefined ? fallback : Number(text);
  if (!Number.isInteger(value) || value < 1) throw new Error(`--${name} wants a whole number above 0`);
  return value;
}

async function measure(target: Target, folder: string, options: Options): Promise<Row[]> {
  say(`${target.name}: starting`);
  const server = await target.start(folder);
  try {
    const workload = new Workload("/bench");
    await runLoad({ url: server.url, ...WARM_UP, next: (client) => workload.put(client) });
    await runLoad({ url: server.url, ...WARM_UP, next: (client) => workload.get(client) });
    const rows: Row[] = [];
    for (const clientsCount of CLIENTS) {
      for (const operation of ["put", "get"] as const) {
        say(`${target.name}: ${operation}, ${clientsCount} client${clientsCount === 1 ? "" : "s"}`);
        const cpuBefore = server.cpuSeconds();
        const result = await runLoad({
          url: server.url,
          clientsCount,
          operationsMax: options.operationsMax,
          durationMsMax: options.durationMsMax,
          next: (client) => workload[operation](client),
        });
        const cpuAfter = server.cpuSeconds();
        const cpuSeconds = cpuBefore === null || cpuAfter === null ? null : cpuAfter - cpuBefore;
        rows.push(rowOf(target.name, operation, result, cpuSeconds));
      }
    }
    await checkCluster(server.url, workload.putsCount);
    return rows;
  } finally {
    await server.stop();
  }
}

/** @throws Error if the cluster's state does not fit what was acknowledged */
async function checkCluster(url: string, putsCount: number): Promise<void> {
  const deadlineMs = Date.now() + SETTLE_MS_MAX;
  for (;;) {
    const response = await fetch(`${url}/v1/cluster`);
    const status = (await response.json()) as { revision: number; digests: { equal: boolean } | null };
    if (status.revision === putsCount && status.digests?.equal === true) return;
    if (status.digests?.equal === false) throw new Error("the nodes' digests differ");
    if (Date.now() > deadlineMs) {
      throw new Error(`the cluster is at revision ${status.revision} after ${putsCount} acknowledged puts`);
    }
    await sleep(100);
  }
}

function machine(): Report["machine"] {
  const workerd = JSON.parse(readFileSync(join(ROOT, "node_modules", "workerd", "package.json"), "utf8")) as {
    version: string;
  };
  return {
    cpus: cpus().length,
    cpu: cpus()[0]?.model.trim() ?? "unknown",
    node: process.versions.node,
    workerd: workerd.version,
  };
}

function say(text: string): void {
  process.stderr.write(`${text}\n`);
}

const options = readOptions();
mkdirSync(join(ROOT, ".concord"), { recursive: true });
const folder = mkdtempSync(join(ROOT, ".concord", "bench-"));
try {
  const rows: Row[] = [];
  for (const [index, target] of options.targets.entries()) {
    rows.push(...(await measure(target, join(folder, String(index)), options)));
  }
  const report: Report = { machine: machine(), rows };
  process.stdout.write(`\n${markdownOf(report)}`);
  if (options.jsonFile === undefined) process.stdout.write(`\n${JSON.stringify(report)}\n`);
  else writeFileSync(options.jsonFile, `${JSON.stringify(report, null, 2)}\n`);
} catch (error) {
  say(`The benchmark failed: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 1;
} finally {
  rmSync(folder, { recursive: true, force: true });
}
