/**
 * One `wrangler dev` on the loopback interface, restarted when it crashes.
 *
 * W1. CONCORD_LOOPBACK_DEV is set here and only together with a loopback address: it opens the cluster to everybody
 *     who reaches the port.
 * W2. The data folder must be locked by the caller: two processes on one folder corrupt it.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { HOST } from "./ports.ts";
import { executable, ROOT } from "./project.ts";
import { startTied, type TiedEnd, type TiedProcess } from "./tied-process.ts";
import { toolEnvironment } from "./tool-environment.ts";

/** A crash costs nothing but time, but one that repeats this often within the window will not go away. */
const CRASHES_MAX = 5;
const CRASH_WINDOW_MS = 60_000;
const RESTART_AFTER_MS = 500;
/**
 * What wrangler says when workerd has died. It starts workerd again itself, but then answers no request any more
 * (4.156.2, tested by killing workerd), so this counts as a crash of the whole.
 */
const RUNTIME_CRASHED = "The Workers runtime crashed unexpectedly";

export interface WranglerDevOptions {
  readonly port: number;
  readonly dataFolder: string;
  /** A built module to serve as it is. Absent: the source, built again at each change. */
  readonly modulePath?: string;
  /** Lines that wrangler or the worker writes, at warning level and above unless `verbose`. */
  readonly onLine: (line: string, stream: "stdout" | "stderr") => void;
  readonly verbose?: boolean;
  /** Called for each process group that starts, before it has touched the data folder. */
  readonly onGroup?: (groupId: number) => void;
  /** Called with what happened, as a clause, before wrangler is started again. */
  readonly onRestart?: (what: string) => void;
}

export interface WranglerDev {
  readonly url: string;
  /** Resolves after `stop`, rejects when crashes have used up the restarts. */
  readonly ended: Promise<void>;
  stop(): Promise<void>;
  kill(): void;
}

export function startWranglerDev(options: WranglerDevOptions): WranglerDev {
  let stopped = false;
  // What wrangler and its tools complain of while they are being ended is of no interest.
  const onLine: WranglerDevOptions["onLine"] = (line, stream) => {
    if (!stopped) options.onLine(line, stream);
  };
  let current = launch({ ...options, onLine });
  const supervise = async (): Promise<void> => {
    const crashes: number[] = [];
    for (;;) {
      const { tied, hasRuntimeCrashed } = current;
      const end = await tied.ended;
      if (end.wanted || stopped) return;
      const what = hasRuntimeCrashed() ? "the Workers runtime crashed" : `wrangler dev ${describe(end)}`;
      const nowMs = Date.now();
      crashes.push(nowMs);
      const recent = crashes.filter((atMs) => atMs > nowMs - CRASH_WINDOW_MS).length;
      if (recent > CRASHES_MAX) {
        throw new Error(`${recent} crashes within a minute, at last: ${what}`);
      }
      options.onRestart?.(what);
      await sleep(RESTART_AFTER_MS);
      if (stopped) return;
      current = launch({ ...options, onLine });
    }
  };
  return {
    url: `http://${HOST}:${options.port}`,
    ended: supervise(),
    stop(): Promise<void> {
      stopped = true;
      return current.tied.stop();
    },
    kill(): void {
      stopped = true;
      current.tied.kill();
    },
  };
}

function describe(end: TiedEnd): string {
  if (end.signal !== null) return `was ended by ${end.signal}`;
  // Its keeper was killed with it and could not tell.
  return end.code === null ? "was killed" : `ended with exit code ${end.code}`;
}

interface Launched {
  readonly tied: TiedProcess;
  hasRuntimeCrashed(): boolean;
}

function launch(options: WranglerDevOptions): Launched {
  let hasCrashed = false;
  const tied = startTied({
    program: executable("wrangler"),
    args: [
      "dev",
      ...(options.modulePath === undefined ? [] : [options.modulePath, "--no-bundle"]),
      ...["--config", "wrangler.toml"],
      ...["--ip", HOST],
      ...["--port", String(options.port)],
      // Zero: any free port, so that two clusters do not meet at the default one.
      ...["--inspector-ip", HOST, "--inspector-port", "0"],
      ...["--persist-to", options.dataFolder],
      ...["--var", "CONCORD_LOOPBACK_DEV:1"],
      ...["--log-level", options.verbose === true ? "log" : "warn"],
      "--show-interactive-dev-session=false",
    ],
    cwd: ROOT,
    env: toolEnvironment(),
    onLine: (line, stream) => {
      options.onLine(line, stream);
      if (!line.includes(RUNTIME_CRASHED)) return;
      hasCrashed = true;
      tied.kill(false);
    },
  });
  options.onGroup?.(tied.groupId);
  return { tied, hasRuntimeCrashed: () => hasCrashed };
}
