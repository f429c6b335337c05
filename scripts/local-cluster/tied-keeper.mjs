/**
 * The keeper of a tied process (`tied-process.ts`): leads a process group, runs one program in it, and ends the whole
 * group when the program ends, when the parent says so, or when the channel to the parent closes. Has no other task, so that it can be trusted
 * to live as long as the program. Plain JavaScript: it starts in a third of the time.
 *
 * Usage: node tied-keeper.mjs <program> [arguments], started detached with an IPC channel.
 */
import { spawn } from "node:child_process";

const TERM_WAIT_MS_MAX = 5000;

const [program, ...args] = process.argv.slice(2);
if (program === undefined || process.send === undefined) {
  process.stderr.write("tied-keeper.mjs is started by tied-process.ts only\n");
  process.exit(2);
}

// A signal to the group is meant for the program; the keeper stays until the program has ended.
for (const signal of /** @type {const} */ (["SIGINT", "SIGTERM", "SIGHUP"])) process.on(signal, () => {});

const child = spawn(program, args, { stdio: ["ignore", "inherit", "inherit"] });
child.once("error", (error) => {
  process.stderr.write(`cannot start ${program}: ${error.message}\n`);
  finish({ code: 127, signal: null });
});
child.once("exit", (code, signal) => finish({ code, signal }));
process.once("disconnect", stop);
process.once("message", stop);

function stop() {
  child.kill("SIGTERM");
  // A program that was paused has to go on to end.
  child.kill("SIGCONT");
  setTimeout(endGroup, TERM_WAIT_MS_MAX);
}

/** @param {{ code: number | null, signal: string | null }} end */
function finish(end) {
  if (process.connected) process.send?.(end, endGroup);
  else endGroup();
}

/** Ends what the program left behind, and this process with it. */
function endGroup() {
  process.kill(-process.pid, "SIGKILL");
}
