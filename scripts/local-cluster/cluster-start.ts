/**
 * `npm run cluster -- start`: runs five nodes in five processes until Ctrl-C or `npm run cluster -- stop`, and takes the other
 * verbs meanwhile. What a verb has ended stays ended until another verb starts it.
 */
import { serveControl } from "./cluster-control.ts";
import { type FiveCluster, startFive } from "./five.ts";
import { HOST } from "./ports.ts";
import { waitForLeader } from "./readiness.ts";
import { NODE_IDS } from "./verbs.ts";

const LEADER_WAIT_MS_MAX = 30_000;

export interface ClusterStartOptions {
  readonly folder: string;
  readonly basePort: number;
  readonly isPinned: boolean;
  readonly hasLinks: boolean;
  readonly isVerbose: boolean;
  /** Empty: none. */
  readonly rootToken: string;
}

/** Resolves when everything has ended. */
export async function runCluster(options: ClusterStartOptions): Promise<void> {
  const { folder, basePort, isPinned, hasLinks, rootToken } = options;
  const stopping = new AbortController();
  const stop = (): void => stopping.abort();
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, stop);
  // Set-up started this process and is its parent; without it nobody would pass on a signal.
  process.once("disconnect", stop);
  process.channel?.unref();
  say(`Starting five nodes on ports ${basePort + 1} to ${basePort + NODE_IDS.length} of ${HOST}, data in ${folder}`);
  const five = await startFive({
    folder,
    basePort,
    isPinned,
    hasLinks,
    variables: rootToken === "" ? {} : { CONCORD_ROOT_TOKEN: rootToken },
    onLine: (node, line, stream) => {
      const isRoutine = line.trim() === "" || line.includes('"level":"info"');
      if (options.isVerbose || !isRoutine) process[stream].write(`node ${node} | ${line}\n`);
    },
    onCrash: (node) => say(`Node ${node} ended, and nobody here has ended it. The data is kept: restart ${node}`),
  });
  try {
    const control = await serveControl(folder, five, stop);
    try {
      if (!stopping.signal.aborted) await sayReady(five, rootToken, stopping.signal);
      await untilAborted(stopping.signal);
    } finally {
      control.close();
    }
  } finally {
    await five.stop();
  }
  say("Stopped; the data is kept.");
}

/** A cluster without a leader is no reason to end: it may be what is to be looked at. */
async function sayReady(five: FiveCluster, rootToken: string, signal: AbortSignal): Promise<void> {
  const [url = ""] = five.urls;
  const token = rootToken === "" ? undefined : rootToken;
  try {
    const view = await waitForLeader({ url, waitMsMax: LEADER_WAIT_MS_MAX, token, signal });
    say(`Ready: node ${view.leader} leads ${view.nodesCount} nodes.\n`);
  } catch (error) {
    if (signal.aborted) return;
    say(`${error instanceof Error ? error.message : String(error)}\n`);
  }
  for (const [position, address] of five.urls.entries()) say(`  node ${position + 1}  ${address}/v1`);
  say(`
From another terminal, with the same --data if you gave one:
  npm run cluster -- status
  npm run cluster -- kill 3            then: restart 3
  npm run cluster -- partition 1,2/3,4,5    then: heal

Ctrl-C stops the cluster and keeps the data.`);
}

function untilAborted(signal: AbortSignal): Promise<void> {
  return new Promise((settle) => {
    if (signal.aborted) settle();
    else signal.addEventListener("abort", () => settle(), { once: true });
  });
}

function say(text: string): void {
  process.stdout.write(`${text}\n`);
}
