/**
 * What the leader does of its own accord: ends leases that are due, gives them grace after a change of leader, compacts
 * (design 01 §1, §3). Each duty is a command in the log like any other, decided again by apply on every node.
 *
 * L1. No expiry is proposed in a term before that term's floor is applied, nor after a stall of the leader before another
 *     one is: an outage must not end the leases of owners who could not reach anybody.
 * L2. A duty is proposed by the leader alone and dropped with its leadership, never forwarded (S29).
 * L3. One command of each duty is under way at a time; between checks a turn costs two comparisons.
 * L4. "Now" is the time that an entry proposed now would carry, never this node's own clock.
 *
 * Must not: wait, or keep anything that its term does not need.
 */
import { COMPACT_REMOVE_ROWS_MAX } from "../base/limits.ts";
import type { Command } from "../kv/command.ts";
import { nextDue } from "../kv/due-index.ts";
import { compactionTarget } from "../kv/history-marks.ts";
import { expiredLeases, nextLeaseExpiry } from "../kv/lease-expiry.ts";
import type { Machine } from "../kv/machine.ts";
import { isAsleep, logTimeMs } from "../raft/state.ts";
import type { NodeState, Running } from "./runtime-state.ts";
import { holdsRows } from "./snapshot-source.ts";
import { proposeDuty } from "./waiters.ts";

export interface Duties {
  /** The term that the rest is about. */
  readonly term: number;
  /** The grace of this term is in force, or there was no lease to give it to. */
  floorSettled: boolean;
  /** A command of ours is not applied yet. */
  busy: boolean;
  /** Not looked at before (monotonic ms). */
  checkAtMs: number;
  /** When this leader last had a turn: a long gap is an outage of its own. */
  seenAtMs: number;
}

/** Leases end in steps of this: many that are due about the same time share an entry. */
const EXPIRY_STEP_MS = 1000;
/** The state may have changed without our knowing what is due now: looked at this often while entries come in. */
const CHECK_MS = 1000;
/** Pause between two chunks of removal, so that they do not crowd out the writes of clients. */
const REMOVAL_PAUSE_MS = 10;
/** Election timeouts of grace after a change of leader (design 01 §3). */
const GRACE_TIMEOUTS = 2;
const DUTY_TIMEOUT_MS = 5000;

export const NO_DUTIES: Duties = {
  term: 0,
  floorSettled: true,
  busy: false,
  checkAtMs: Number.POSITIVE_INFINITY,
  seenAtMs: Number.POSITIVE_INFINITY,
};

/** Entries were applied: what they changed is looked at soon. */
export function noticeChange(running: Running, nowMs: number): void {
  const { duties } = running;
  if (running.raft.role.kind === "leader") duties.checkAtMs = Math.min(duties.checkAtMs, nowMs + CHECK_MS);
}

/** Proposes what is due. Called in every turn, when all that is committed is applied. */
export function runDuties(state: NodeState, running: Running, nowMs: number): void {
  const { raft, machine } = running;
  const { role } = raft;
  if (role.kind !== "leader" || isAsleep(raft)) return;
  // Stalled for longer than an election: owners could reach nobody, and their keep-alives wait behind this very turn. As
  // after a change of leader all begins anew: a floor that was under way is of before the stall, and settles nothing.
  const stalled = !running.asleep && nowMs - running.duties.seenAtMs > state.config.electionTimeoutMsMax;
  if (running.duties.term !== raft.term || stalled) {
    running.duties = { term: raft.term, floorSettled: false, busy: false, checkAtMs: nowMs, seenAtMs: nowMs };
  }
  const { duties } = running;
  duties.seenAtMs = nowMs;
  // Before the first entry of its own term is applied a leader does not know what is committed.
  if (duties.busy || nowMs < duties.checkAtMs || machine.appliedIndex < role.startIndex) return;
  const logNowMs = logTimeMs(raft, nowMs);
  if (logNowMs === null) return;
  duties.checkAtMs = Number.POSITIVE_INFINITY;
  const command = nextDuty(state, running, duties, logNowMs);
  if (command !== null) {
    duties.busy = true;
    const pauseMs = command.kind === "compact_remove" ? REMOVAL_PAUSE_MS : 0;
    proposeDuty(state, command, DUTY_TIMEOUT_MS, (done) => {
      duties.busy = false;
      if (done && command.kind === "lease_floor") duties.floorSettled = true;
      duties.checkAtMs = state.ports.clock.nowMs() + (done ? pauseMs : CHECK_MS);
    });
    return;
  }
  const expiryMs = nextLeaseExpiry(machine, EXPIRY_STEP_MS);
  if (expiryMs !== null) duties.checkAtMs = nowMs + Math.max(1, expiryMs - logNowMs);
}

function nextDuty(state: NodeState, running: Running, duties: Duties, logNowMs: number): Command | null {
  const { machine } = running;
  const expiryMs = nextLeaseExpiry(machine, EXPIRY_STEP_MS);
  if (!duties.floorSettled) {
    const graceMs = GRACE_TIMEOUTS * state.config.electionTimeoutMsMax;
    if (expiryMs !== null) return { kind: "lease_floor", floor_ms: logNowMs + graceMs };
    duties.floorSettled = true;
  }
  if (expiryMs !== null && logNowMs >= expiryMs) {
    const leases = expiredLeases(machine, logNowMs);
    if (leases.length > 0) return { kind: "lease_expire", leases };
  }
  const holds = holdsRows(running, state.ports.clock.nowMs());
  if (machine.removalPending && !holds) return { kind: "compact_remove", rows_max: COMPACT_REMOVE_ROWS_MAX };
  const target = compactionTarget(machine, state.config.compaction);
  return target === null ? null : { kind: "compact", revision: target };
}

/** When a leader has something to do by the log's time: the next end of leases or the next due entry; null = never. */
export function nextWorkMs(machine: Machine, logNowMs: number): number | null {
  return nextDue(machine, logNowMs, EXPIRY_STEP_MS);
}

/**
 * When duties want a turn of their own. Not while they wait for a command of ours, or for the first entry of the term:
 * those come in turns of their own, and until then a timer would only spin.
 */
export function dutiesAtMs({ duties, raft, machine }: Running): number {
  const { role } = raft;
  const isWaiting = role.kind !== "leader" || duties.busy || machine.appliedIndex < role.startIndex;
  return isWaiting ? Number.POSITIVE_INFINITY : duties.checkAtMs;
}

/** Nothing of ours is under way or could be proposed at once: what is due is not slept over. */
export function dutiesRest(state: NodeState, running: Running, nowMs: number): boolean {
  const { duties, raft } = running;
  const logNowMs = logTimeMs(raft, nowMs);
  if (duties.term !== raft.term || duties.busy || logNowMs === null) return false;
  if (nextDuty(state, running, duties, logNowMs) === null) return true;
  duties.checkAtMs = Math.min(duties.checkAtMs, nowMs);
  return false;
}
