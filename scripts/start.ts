/**
 * `npm start -- [--port N] [--data DIR] [--verbose]`: the five-node cluster under one `wrangler dev` on 127.0.0.1.
 * Waits for a leader, prints the URLs, and stays until it is told to end.
 *
 * One data folder belongs to one running cluster: it is locked before anything touches it (wrangler-dev.ts W2).
 */
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { join, relative } from "node:path";
import { parseArgs, parseEnv } from "node:util";
import { acquireLock } from "./exclusive-lock.mjs";
import { folderOf, parsed, portOf, runCommand, UsageError } from "./local-cluster/command-line.ts";
import { HOST, isPortFree } from "./local-cluster/ports.ts";
import { DATA_FOLDER_DEFAULT, ROOT } from "./local-cluster/project.ts";
import { type ClusterView, waitForLeader } from "./local-cluster/readiness.ts";
import { startWranglerDev, type WranglerDev } from "./local-cluster/wrangler-dev.ts";

const PORT_DEFAULT = 8787;
const LEADER_WAIT_MS_MAX = 90_000;
const PROGRESS_EVERY_MS = 2000;
/** A signal that arrives twice (from the terminal and from npm) is one wish; a later one means "now". */
const SECOND_SIGNAL_AFTER_MS = 1000;

const USAGE = `Usage: npm start -- [--port N] [--data DIR] [--verbose]

  --port N     port on ${HOST} (default ${PORT_DEFAULT})
  --data DIR   data folder, made if absent (default .concord/data)
  --verbose    show every request and message of wrangler
`;

interface Options {
  readonly port: number;
  readonly dataFolder: string;
  readonly verbose: boolean;
}

function readOptions(args: readonly string[]): Options | null {
  const { values } = parsed(() =>
    parseArgs({
      args: [...args],
      options: {
        port: { type: "string" },
        data: { type: "string" },
        verbose: { type: "boolean" },
        help: { type: "boolean", short: "h" },
      },
    }),
  );
  if (values.help === true) return null;
  return {
    port: portOf(values.port, "--port", { byDefault: PORT_DEFAULT, max: 65_535 }),
    dataFolder: folderOf(values.data, DATA_FOLDER_DEFAULT),
    verbose: values.verbose === true,
  };
}

async function main(): Promise<void> {
  const options = readOptions(process.argv.slice(2));
  if (options === null) {
    process.stdout.write(USAGE);
    return;
  }
  rootToken();
  mkdirSync(options.dataFolder, { recursive: true });
  const lock = await acquireLock(join(options.dataFolder, "concord.lock"), {
    purpose: `npm start on port ${options.port}`,
  });
  try {
    if (!(await isPortFree(options.port))) {
      throw new Error(
        `Port ${options.port} of ${HOST} is in use by another program. ` +
          `Stop that program or choose another port: npm start -- --port ${options.port + 1}`,
      );
    }
    await serve(options, (groupId) => lock.setGroup(groupId));
  } finally {
    lock.release();
  }
}

async function serve(options: Options, onGroup: (groupId: number) => void): Promise<void> {
  const startedMs = Date.now();
  const stopping = new AbortController();
  let ready = false;
  const dev = startWranglerDev({
    port: options.port,
    dataFolder: options.dataFolder,
    verbose: options.verbose,
    onGroup,
    onLine: (line, stream) => process[stream].write(`${line}\n`),
    onRestart: (what) => {
      process.stderr.write(`Crash: ${what}. Starting again; the data is kept.\n`);
      if (ready) void sayReadyAgain(dev.url, stopping.signal);
    },
  });
  stopOnSignals(dev, stopping);
  // If wrangler fails for good while the leader is awaited, waiting ends with that reason.
  dev.ended.catch((error: unknown) => stopping.abort(error));
  try {
    process.stdout.write(`Starting five nodes on ${dev.url}, data in ${shortPath(options.dataFolder)}\n`);
    const view = await waitWithProgress(dev.url, startedMs, stopping.signal);
    ready = true;
    process.stdout.write(readyText(dev.url, view, Date.now() - startedMs));
  } catch (error) {
    if (!stopping.signal.aborted || stopping.signal.reason !== STOP) throw error;
  } finally {
    if (!ready) await dev.stop();
  }
  await dev.ended;
  // The keeper has ended by now; what it started may still be ending.
  await dev.stop();
  if (stopping.signal.reason === STOP) process.stdout.write("Stopped; the data is kept.\n");
}

const STOP = new Error("stopped by a signal");

function stopOnSignals(dev: WranglerDev, stopping: AbortController): void {
  let firstMs: number | null = null;
  const stop = (): void => {
    const nowMs = Date.now();
    if (firstMs === null) {
      firstMs = nowMs;
      stopping.abort(STOP);
      dev.stop().catch((error: unknown) => {
        process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
      });
    } else if (nowMs - firstMs > SECOND_SIGNAL_AFTER_MS) {
      dev.kill();
    }
  };
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, stop);
  // Set-up started this process and is its parent; without it nobody would pass on a signal.
  process.once("disconnect", stop);
  process.channel?.unref();
}

async function waitWithProgress(url: string, startedMs: number, signal: AbortSignal): Promise<ClusterView> {
  let state = "starting";
  const progress = setInterval(() => {
    process.stdout.write(`  ${Math.round((Date.now() - startedMs) / 1000)} s: ${state}\n`);
  }, PROGRESS_EVERY_MS);
  try {
    return await waitForLeader({
      url,
      waitMsMax: LEADER_WAIT_MS_MAX,
      token: rootToken(),
      signal,
      onState: (next) => {
        state = next;
      },
    });
  } finally {
    clearInterval(progress);
  }
}

/** The token that the Worker will ask for: wrangler gives it the secrets of `.dev.vars`, and none of the environment. */
function rootToken(): string | undefined {
  const path = join(ROOT, ".dev.vars");
  const token = existsSync(path) ? parseEnv(readFileSync(path, "utf8")).CONCORD_ROOT_TOKEN : undefined;
  if (token === undefined && (process.env.CONCORD_ROOT_TOKEN ?? "") !== "") {
    throw new UsageError("CONCORD_ROOT_TOKEN is set in the environment; npm start takes it from the file .dev.vars");
  }
  return token === "" ? undefined : token;
}

/** Behind a crash; nothing else waits for it, so a failure is only told. */
async function sayReadyAgain(url: string, signal: AbortSignal): Promise<void> {
  const startedMs = Date.now();
  try {
    const view = await waitWithProgress(url, startedMs, signal);
    const seconds = ((Date.now() - startedMs) / 1000).toFixed(1);
    process.stdout.write(`Ready again after ${seconds} s: node ${view.leader} leads ${view.nodesCount} nodes.\n`);
  } catch (error) {
    // Another crash has its own message, and a stop needs none.
    if (!signal.aborted) process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  }
}

function readyText(url: string, view: ClusterView, tookMs: number): string {
  return `
Ready after ${(tookMs / 1000).toFixed(1)} s: node ${view.leader} leads ${view.nodesCount} nodes.

  API      ${url}/v1
  Cluster  ${url}/v1/cluster
  Docs     README.md, docs/api.md, docs/architecture.md

Try it:
  curl -X PUT '${url}/v1/kv?key=/hello' -H 'content-type: application/json' -d '{"text":"world"}'
  curl -i '${url}/v1/kv?key=/hello'

Ctrl-C stops the cluster and keeps the data.
`;
}

function shortPath(path: string): string {
  const short = relative(process.cwd(), path);
  return short === "" || short.startsWith("..") ? path : short;
}

await runCommand(main, {
  usage: USAGE,
  elsewhere: "start this one elsewhere: npm start -- --port 8788 --data .concord/second",
});
