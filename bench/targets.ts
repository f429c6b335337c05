/** The servers that the benchmark measures: the same Worker under `wrangler dev` and under plain `workerd`. */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { acquireLock } from "../scripts/exclusive-lock.mjs";
import { buildBundle } from "../scripts/local-cluster/bundle.ts";
import { groupCpuSeconds } from "../scripts/local-cluster/cpu-time.ts";
import { freePort } from "../scripts/local-cluster/ports.ts";
import { waitForLeader } from "../scripts/local-cluster/readiness.ts";
import { startWorkerd } from "../scripts/local-cluster/workerd.ts";
import { startWranglerDev } from "../scripts/local-cluster/wrangler-dev.ts";

const LEADER_WAIT_MS_MAX = 60_000;

export interface Target {
  readonly name: string;
  /** Starts with empty storage in `folder` and resolves when a leader is known. */
  start(folder: string): Promise<RunningTarget>;
}

export interface RunningTarget {
  readonly url: string;
  /** CPU time of the server's processes so far, in seconds; null if the system does not tell. */
  cpuSeconds(): number | null;
  stop(): Promise<void>;
}

export const TARGETS: readonly Target[] = [
  { name: "wrangler dev", start: startUnderWrangler },
  { name: "workerd", start: startUnderWorkerd },
];

async function startUnderWrangler(folder: string): Promise<RunningTarget> {
  mkdirSync(folder, { recursive: true });
  const bundle = await buildBundle(join(folder, "build"));
  const lock = await acquireLock(join(folder, "concord.lock"), { purpose: "npm run bench" });
  let group = 0;
  const dev = startWranglerDev({
    port: await freePort(),
    dataFolder: join(folder, "data"),
    modulePath: bundle.modulePath,
    onGroup: (groupId) => {
      group = groupId;
      lock.setGroup(groupId);
    },
    onLine: show,
  });
  const stop = async (): Promise<void> => {
    await dev.stop();
    lock.release();
  };
  return await ready({ url: dev.url, cpuSeconds: () => groupCpuSeconds(group), stop }, dev.ended);
}

async function startUnderWorkerd(folder: string): Promise<RunningTarget> {
  const bundle = await buildBundle(join(folder, "build"));
  const workerd = await startWorkerd({ bundle, port: await freePort(), dataFolder: folder, onLine: show });
  const { url, groupId } = workerd;
  return await ready({ url, cpuSeconds: () => groupCpuSeconds(groupId), stop: () => workerd.stop() }, workerd.ended);
}

async function ready(server: RunningTarget, ended: Promise<unknown>): Promise<RunningTarget> {
  const { url } = server;
  const starting = new AbortController();
  const gone = (): void => starting.abort(new Error(`the server at ${url} ended`));
  ended.then(gone, gone);
  try {
    await waitForLeader({ url, waitMsMax: LEADER_WAIT_MS_MAX, token: undefined, signal: starting.signal });
    return server;
  } catch (error) {
    await server.stop();
    throw error;
  }
}

/** The nodes' log lines of level info are of no interest here; all else is. */
function show(line: string): void {
  if (line.trim() !== "" && !line.includes('"level":"info"')) process.stderr.write(`  | ${line}\n`);
}
