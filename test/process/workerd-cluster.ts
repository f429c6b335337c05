/** A cluster of five nodes in one plain `workerd` process for tests of real time, with what its nodes wrote to the log. */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { buildBundle } from "../../scripts/local-cluster/bundle.ts";
import { freePort } from "../../scripts/local-cluster/ports.ts";
import { waitForLeader } from "../../scripts/local-cluster/readiness.ts";
import { startWorkerd, type WorkerdProcess } from "../../scripts/local-cluster/workerd.ts";

/** One line of a node's log, and when it was seen. */
export interface LogLine {
  readonly atMs: number;
  readonly message: string;
  readonly object: string;
}

export interface WorkerdCluster {
  readonly url: string;
  readonly leader: number;
  /** Structured lines of the nodes, oldest first. */
  readonly log: readonly LogLine[];
  /** Lines with this message that were seen at or after `sinceMs`. */
  logged(message: string, sinceMs?: number): readonly LogLine[];
  stop(): Promise<void>;
}

export async function startWorkerdCluster(
  folder: string,
  variables: Readonly<Record<string, string>> = {},
): Promise<WorkerdCluster> {
  mkdirSync(folder, { recursive: true });
  const bundle = await buildBundle(join(folder, "build"));
  const log: LogLine[] = [];
  const workerd: WorkerdProcess = await startWorkerd({
    bundle,
    port: await freePort(),
    dataFolder: folder,
    variables,
    onLine: (line) => {
      const parsed = structured(line);
      if (parsed !== null) log.push({ atMs: Date.now(), ...parsed });
    },
  });
  try {
    const { url } = workerd;
    const signal = AbortSignal.timeout(60_000);
    const { leader } = await waitForLeader({ url, waitMsMax: 30_000, token: undefined, signal });
    const logged = (message: string, sinceMs = 0) =>
      log.filter((line) => line.message === message && line.atMs >= sinceMs);
    return { url, leader, log, logged, stop: () => workerd.stop() };
  } catch (error) {
    await workerd.stop();
    throw error;
  }
}

/** Of a line that a node wrote; null for anything else. */
export function structured(line: string): { message: string; object: string } | null {
  const start = line.indexOf("{");
  if (start < 0) return null;
  try {
    const { message, object } = JSON.parse(line.slice(start)) as Record<string, unknown>;
    return typeof message === "string" && typeof object === "string" ? { message, object } : null;
  } catch (error) {
    if (error instanceof SyntaxError) return null; // workerd writes lines of its own
    throw error;
  }
}
