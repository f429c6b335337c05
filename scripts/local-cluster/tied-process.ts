/**
 * A program that never outlives this process: it runs in a process group of its own under a keeper
 * (`tied-keeper.mjs`), which ends the whole group when this process ends it or is gone, however that came about.
 *
 * T1. After `stop` has resolved no process of the group lives.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { groupMembers } from "../exclusive-lock.mjs";

const KEEPER = fileURLToPath(new URL("./tied-keeper.mjs", import.meta.url));
const GROUP_POLL_MS = 20;
/** Above the keeper's own patience with its program. */
const STOP_WAIT_MS_MAX = 10_000;

export interface TiedProcess {
  /** Id of the process group, which is the keeper's process id. */
  readonly groupId: number;
  /** Resolves when the program has ended by itself or was stopped. */
  readonly ended: Promise<TiedEnd>;
  /** Asks the program to end (SIGTERM), kills it after a while, and resolves when nothing of it is left. */
  stop(): Promise<void>;
  /** Stands still (SIGSTOP) until `resume`. The keeper does not: it has to notice when this process is gone. */
  pause(): void;
  resume(): void;
  /** Kills the whole group at once. `wanted` false: it is to look like the crash that it is. Default true. */
  kill(wanted?: boolean): void;
}

export interface TiedEnd {
  readonly code: number | null;
  readonly signal: string | null;
  /** Whether `stop` or `kill` was called before. */
  readonly wanted: boolean;
}

export interface TiedOptions {
  readonly program: string;
  readonly args: readonly string[];
  readonly cwd: string;
  readonly env: NodeJS.ProcessEnv;
  /** Called with each line of output, without its end. */
  readonly onLine: (line: string, stream: "stdout" | "stderr") => void;
}

export function startTied(options: TiedOptions): TiedProcess {
  const keeper = spawn(process.execPath, [KEEPER, options.program, ...options.args], {
    cwd: options.cwd,
    env: options.env,
    detached: true,
    stdio: ["ignore", "pipe", "pipe", "ipc"],
  });
  const groupId = keeper.pid;
  if (groupId === undefined) throw new Error(`cannot start ${options.program}`);
  readLines(keeper, options.onLine);

  let wanted = false;
  let end: { readonly code: number | null; readonly signal: string | null } | null = null;
  keeper.on("message", (message) => {
    end = message as { code: number | null; signal: string | null };
  });
  const closed = once(keeper, "close");
  const ended = once(keeper, "exit").then(async (): Promise<TiedEnd> => {
    // The keeper takes the group with it, unless it was killed alone: then this does (T1), and the output closes.
    killGroup(groupId);
    await closed;
    return { code: end?.code ?? null, signal: end?.signal ?? null, wanted };
  });
  const kill = (isWanted = true): void => {
    wanted ||= isWanted;
    killGroup(groupId);
  };
  const signalProgram = (signal: "SIGSTOP" | "SIGCONT"): void => {
    for (const pid of groupMembers(groupId)) if (pid !== groupId) signalProcess(pid, signal);
  };
  return {
    groupId,
    ended,
    kill,
    pause: () => signalProgram("SIGSTOP"),
    resume: () => signalProgram("SIGCONT"),
    async stop(): Promise<void> {
      wanted = true;
      // A message, not a disconnect: after a disconnect of our own, Node never reports the child closed.
      if (keeper.connected) keeper.send("stop", () => {});
      const deadlineMs = Date.now() + STOP_WAIT_MS_MAX;
      while (groupMembers(groupId).length > 0) {
        if (Date.now() > deadlineMs) kill();
        await new Promise((settle) => setTimeout(settle, GROUP_POLL_MS));
      }
    },
  };
}

function killGroup(groupId: number): void {
  signalProcess(-groupId, "SIGKILL");
}

/** A negative id is a group. That nothing is left to be signalled is no error. */
function signalProcess(id: number, signal: NodeJS.Signals): void {
  try {
    process.kill(id, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

function readLines(child: ChildProcess, onLine: TiedOptions["onLine"]): void {
  for (const stream of ["stdout", "stderr"] as const) {
    let rest = "";
    child[stream]?.setEncoding("utf8");
    child[stream]?.on("data", (text: string) => {
      const lines = (rest + text).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) onLine(line, stream);
    });
    child[stream]?.on("end", () => {
      if (rest !== "") onLine(rest, stream);
    });
  }
}
