/**
 * A lock file that one process at a time can hold, and that the death of its holder frees. Plain JavaScript because
 * set-up uses it before anything is installed.
 *
 * X1. The file appears with its whole content or not at all (link of a finished file), and never over another one.
 * X2. A holder is alive only if a process of its id lives and started when the holder did: ids are reused.
 * X3. Processes that a dead holder left behind (its group) count as the holder until they have ended.
 */
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import {
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmdirSync,
  statSync,
  unlinkSync,
  writeFileSync,
} from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

const POLL_MS = 100;
/** How long processes of a dead holder may take to end before the lock counts as held. */
const LEFTOVER_WAIT_MS_MAX = 8000;
/** The takeover of a stale lock takes microseconds; a guard this old was left by a crash within them. */
const GUARD_AGE_MS_MAX = 10_000;

/**
 * @typedef {{ readonly pid: number, readonly identity: string }} ProcessMark
 * @typedef {ProcessMark & { readonly purpose: string, readonly group: ProcessMark | null }} LockRecord
 * @typedef {{ setGroup(pid: number | null): void, release(): void }} Lock `setGroup` names the process group that
 *   works on behalf of the holder.
 */

/** Somebody else holds the lock. */
export class LockHeldError extends Error {
  /**
   * @param {string} path
   * @param {readonly number[]} pids
   * @param {string} purpose
   */
  constructor(path, pids, purpose) {
    super(`process ${pids.join(", ")} holds ${path} (${purpose})`);
    this.name = "LockHeldError";
    this.path = path;
    this.pids = pids;
    this.purpose = purpose;
  }
}

/**
 * Takes the lock at `path`. The folder must exist.
 * @param {string} path
 * @param {{ readonly purpose: string, readonly waitMsMax?: number }} options `waitMsMax`: how long to wait for a
 *   living holder. Default 0.
 * @returns {Promise<Lock>}
 * @throws {LockHeldError}
 */
export async function acquireLock(path, options) {
  const own = { pid: process.pid, identity: processIdentity(process.pid) ?? "unknown" };
  /** @type {LockRecord} */
  let record = { ...own, purpose: options.purpose, group: null };
  const startedMs = Date.now();
  while (!createWhole(path, record)) {
    const text = readText(path);
    if (text === null) continue;
    const holder = parseRecord(text);
    const held = holder === null ? null : livingHolder(holder);
    if (held === null) {
      await removeStale(path, text);
      continue;
    }
    const waitMsMax = Math.max(options.waitMsMax ?? 0, held.leftover ? LEFTOVER_WAIT_MS_MAX : 0);
    if (Date.now() - startedMs >= waitMsMax) throw new LockHeldError(path, held.pids, held.purpose);
    await sleep(POLL_MS);
  }
  const ours = () => {
    const holder = parseRecord(readText(path) ?? "");
    return holder !== null && holder.pid === own.pid && holder.identity === own.identity;
  };
  return {
    setGroup(pid) {
      if (!ours()) throw new Error(`the lock ${path} was taken away while held`);
      record = { ...record, group: pid === null ? null : { pid, identity: processIdentity(pid) ?? "unknown" } };
      const draft = draftPath(path);
      writeFileSync(draft, JSON.stringify(record), { flag: "wx" });
      renameSync(draft, path);
    },
    release() {
      if (ours()) unlinkSync(path);
    },
  };
}

/**
 * Who keeps the lock; null if nobody who lives.
 * @param {LockRecord} record
 * @returns {{ pids: readonly number[], purpose: string, leftover: boolean } | null}
 */
function livingHolder(record) {
  if (processIdentity(record.pid) === record.identity) {
    return { pids: [record.pid], purpose: record.purpose, leftover: false };
  }
  if (record.group === null) return null;
  // A group id is not reused while the group has members. So either the leader is the one recorded, or it has died
  // and left members behind; a leader with another identity belongs to somebody else.
  const leader = processIdentity(record.group.pid);
  if (leader !== null && leader !== record.group.identity) return null;
  const members = groupMembers(record.group.pid);
  return members.length === 0 ? null : { pids: members, purpose: `left over: ${record.purpose}`, leftover: true };
}

/**
 * Ends what a dead holder has left behind (X3), of its group only what was started with `text` in its command line: of a group
 * whose leader is gone nothing else tells that it is the recorded one.
 * @param {string} path
 * @param {string} text
 */
export async function endLeftovers(path, text) {
  const holder = parseRecord(readText(path) ?? "");
  const held = holder === null ? null : livingHolder(holder);
  if (held === null || !held.leftover) return;
  const ours = held.pids.filter((pid) => commandOf(pid).includes(text));
  for (const pid of ours) {
    try {
      process.kill(pid, "SIGKILL");
    } catch (error) {
      if (errorCode(error) !== "ESRCH") throw error;
    }
  }
  // What they held, such as ports, is free once they have ended.
  const deadlineMs = Date.now() + LEFTOVER_WAIT_MS_MAX;
  while (ours.some((pid) => processIdentity(pid) !== null) && Date.now() < deadlineMs) await sleep(POLL_MS / 4);
}

/** @param {number} pid */
function commandOf(pid) {
  if (process.platform !== "linux") return ps(["-o", "command=", "-p", String(pid)]);
  return (readText(`/proc/${pid}/cmdline`) ?? "").replaceAll("\0", " ");
}

/**
 * Creates the file with its content unless it exists (X1).
 * @param {string} path
 * @param {LockRecord} record
 */
function createWhole(path, record) {
  const draft = draftPath(path);
  writeFileSync(draft, JSON.stringify(record), { flag: "wx" });
  try {
    linkSync(draft, path);
    return true;
  } catch (error) {
    if (errorCode(error) === "EEXIST") return false;
    throw error;
  } finally {
    unlinkSync(draft);
  }
}

/** @param {string} path */
function draftPath(path) {
  return `${path}.${process.pid}.${randomBytes(6).toString("hex")}.tmp`;
}

/**
 * Removes a lock whose holder is dead, if it still is the one that was read: two processes may find it stale at once.
 * @param {string} path
 * @param {string} staleText
 */
async function removeStale(path, staleText) {
  const guard = `${path}.takeover`;
  try {
    mkdirSync(guard);
  } catch (error) {
    if (errorCode(error) !== "EEXIST") throw error;
    await sleep(POLL_MS);
    if (ageMs(guard) > GUARD_AGE_MS_MAX) removeFolder(guard);
    return;
  }
  try {
    if (readText(path) === staleText) unlinkSync(path);
  } finally {
    removeFolder(guard);
  }
}

/**
 * @param {string} text
 * @returns {LockRecord | null} null for anything but a lock record, such as a file cut short by a power failure.
 */
function parseRecord(text) {
  try {
    const value = JSON.parse(text);
    return typeof value === "object" && value !== null && Number.isInteger(value.pid) ? value : null;
  } catch (error) {
    if (error instanceof SyntaxError) return null;
    throw error;
  }
}

/**
 * When and on which boot a process started; null if it does not live.
 * @param {number} pid
 * @returns {string | null}
 */
export function processIdentity(pid) {
  if (process.platform === "linux") {
    const stat = processStat(pid);
    if (stat === null || stat.ended) return null;
    return `${readText("/proc/sys/kernel/random/boot_id")?.trim() ?? ""}/${stat.startedTicks}`;
  }
  const started = ps(["-o", "lstart=", "-p", String(pid)]).trim();
  return started === "" ? null : started;
}

/**
 * Living processes of a process group.
 * @param {number} groupId
 * @returns {number[]}
 */
export function groupMembers(groupId) {
  if (process.platform === "linux") {
    return readdirSync("/proc")
      .filter((name) => /^\d+$/.test(name))
      .map(Number)
      .filter((pid) => {
        const stat = processStat(pid);
        return stat !== null && !stat.ended && stat.groupId === groupId;
      });
  }
  const rows = ps(["-A", "-o", "pid=,pgid=,stat="]).split("\n");
  return rows.flatMap((row) => {
    const [pid, group, state] = row.trim().split(/\s+/);
    return Number(group) === groupId && state !== undefined && !state.startsWith("Z") ? [Number(pid)] : [];
  });
}

/** @param {number} pid */
function processStat(pid) {
  const text = readText(`/proc/${pid}/stat`);
  if (text === null) return null;
  // The second field, the name, may hold blanks and brackets; fields are counted from behind it (proc(5)).
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  return {
    ended: fields[0] === "Z" || fields[0] === "X",
    groupId: Number(fields[2]),
    startedTicks: fields[19] ?? "",
  };
}

/** @param {readonly string[]} args */
function ps(args) {
  try {
    return execFileSync("ps", args, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
  } catch (error) {
    // ps answers 1 for "no such process"; a missing ps is another matter.
    if (errorCode(error) === "ENOENT") throw error;
    return "";
  }
}

/**
 * @param {string} path
 * @returns {string | null}
 */
function readText(path) {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    // ESRCH: the process ended while its entry in /proc was being read.
    if (errorCode(error) === "ENOENT" || errorCode(error) === "ESRCH") return null;
    throw error;
  }
}

/** @param {string} path */
function ageMs(path) {
  try {
    return Date.now() - statSync(path).mtimeMs;
  } catch (error) {
    if (errorCode(error) === "ENOENT") return 0;
    throw error;
  }
}

/** @param {string} path */
function removeFolder(path) {
  try {
    rmdirSync(path);
  } catch (error) {
    if (errorCode(error) !== "ENOENT") throw error;
  }
}

/** @param {unknown} error */
function errorCode(error) {
  return error instanceof Error ? /** @type {NodeJS.ErrnoException} */ (error).code : undefined;
}
