/**
 * Falling asleep, waking, and the alarm (design 02 §3, §4). Whether the cluster may sleep is the core's decision; here is
 * when it is asked, what a sleeping node gives up, and who wakes it.
 *
 * S1. An instance starts asleep: a question about its health wakes nobody. A request that needs the cluster, its first
 *     new watch, an alarm or a Raft message wakes it.
 * S2. Awake, the alarm is the watchdog, 5 to 15 s ahead. Asleep it lies at the next due time of the log, by the leader's
 *     time; every other node waits 2 s longer for each place behind the leader, so that somebody wakes if it is gone.
 * S3. A leader that left a member behind looks for it again after 1, 2, 4 … 60 s: that member may hold watches. When its
 *     instance has gone meanwhile, the next one asks for that member as well, and wakes nobody until it is there.
 * S4. An instance that has just started leaves the alarm of its predecessor alone: moved, an overdue one would be lost.
 */
import { isAsleep, laggingPeers, leaderOf, logTimeMs } from "../raft/state.ts";
import type { NodeId } from "../raft/types.ts";
import { flush } from "./applying.ts";
import { ask } from "./hello.ts";
import { dutiesRest, nextWorkMs } from "./leader-duties.ts";
import type { SleepNote } from "./ports.ts";
import { readmissionRests } from "./readmission.ts";
import type { Drive, NodeState, Running } from "./runtime-state.ts";

const ALARM_AHEAD_MS_MIN = 5_000;
const ALARM_AHEAD_MS_MAX = 15_000;
/** Election timeouts for which a woken leader stays awake, whether it is asked for anything or not. */
const AWAKE_TIMEOUTS = 2;
/** By so much later does each further node wake for due work that the leader has not done. */
const RANK_DELAY_MS = 2_000;
const PROBE_AFTER_MS_MIN = 1_000;
export const PROBE_AFTER_MS_MAX = 60_000;
/** A node that is only now asked anything does due work that is this late: whoever should have done it has not. */
const OVERDUE_MS = 2 * RANK_DELAY_MS;

/** Something needs the cluster: a request of a client, or an alarm. */
export function wakeUp(state: NodeState, running: Running, drive: Drive): void {
  if (isAsleep(running.raft) || leaderOf(running.raft) === null) drive(state, running, { kind: "wake" });
}

/** A client asks for something that needs the cluster: it stays awake for a while. */
export function noticeRequest(state: NodeState, running: Running, drive: Drive): void {
  running.activeAtMs = state.ports.clock.nowMs();
  if (isAsleep(running.raft)) drive(state, running, { kind: "wake" });
}

/**
 * A client begins to watch. A node that fell asleep with the cluster has everything; an instance that has heard nobody yet
 * may lack what was acknowledged before it started, and would say nothing until the watchdog fires.
 */
export function noticeWatch(state: NodeState, running: Running, drive: Drive): void {
  if (leaderOf(running.raft) === null) noticeRequest(state, running, drive);
}

/** The leader asks the core to let the cluster sleep, when nobody has wanted anything for a while. */
export function quiesceIfIdle(state: NodeState, running: Running, nowMs: number, drive: Drive): void {
  const { raft } = running;
  if (raft.role.kind !== "leader" || isAsleep(raft)) return;
  if (running.asleep) return; // woken in this very turn
  if (nowMs < running.activeAtMs + state.config.quiesceAfterMs) return;
  if (state.calls.open.size > 0 || !dutiesRest(state, running, nowMs)) return;
  if (!readmissionRests(state, running, raft.role, nowMs)) return;
  if (running.machine.appliedIndex < raft.log.lastIndex) return;
  drive(state, running, { kind: "quiesce" });
}

/** Draws the consequences of the core's falling asleep or waking in this turn. */
export function followSleep(state: NodeState, running: Running, nowMs: number): void {
  const asleep = isAsleep(running.raft);
  if (asleep === running.asleep) return;
  running.asleep = asleep;
  state.ports.log("info", asleep ? "asleep" : "awake", { term: running.raft.term });
  state.ports.transport.setResting(asleep);
  if (!asleep) {
    // Long enough for whoever called to be served: a leader that nods off at once would be called again.
    const awakeMs = AWAKE_TIMEOUTS * state.config.electionTimeoutMsMax;
    running.activeAtMs = Math.max(running.activeAtMs, nowMs - state.config.quiesceAfterMs + awakeMs);
    noteMissed(state, running, null);
    return;
  }
  // A later instance starts asleep at what is durable: nobody would wake it for the rest.
  flush(state, running);
  const logNowMs = logTimeMs(running.raft, nowMs);
  if (logNowMs !== null) running.clockOffsetMs = logNowMs - state.ports.clock.wallMs();
  armSleepAlarm(state, running);
}

function armSleepAlarm(state: NodeState, running: Running): void {
  const wallMs = state.ports.clock.wallMs();
  running.dueAtWallMs = dueAtWallMs(state, running, wallMs + running.clockOffsetMs);
  const missed = running.raft.role.kind === "leader" ? laggingPeers(running.raft) : [];
  const lagging = missed.length > 0;
  const probeAtMs = lagging ? wallMs + running.probeAfterMs : Number.POSITIVE_INFINITY;
  if (!lagging) running.probeAfterMs = PROBE_AFTER_MS_MIN;
  const dueMs = running.dueAtWallMs === Number.POSITIVE_INFINITY ? null : running.dueAtWallMs;
  const note = { missed, probeAfterMs: running.probeAfterMs, dueAtWallMs: dueMs };
  noteMissed(state, running, lagging ? note : null);
  setAlarm(state, Math.max(wallMs + 1, Math.min(running.dueAtWallMs, probeAtMs)));
}

/** One row, and only while it differs: most sleeps leave nobody behind. */
function noteMissed(state: NodeState, running: Running, note: SleepNote | null): void {
  if (note === null && running.missed === null) return;
  running.missed = note;
  state.ports.storage.write({ sleep: note });
}

/** When this node should see to the work of the log, by its own wall clock; Infinity = there is none. */
function dueAtWallMs(state: NodeState, running: Running, logNowMs: number): number {
  const dueMs = nextWorkMs(running.machine, logNowMs);
  if (dueMs === null) return Number.POSITIVE_INFINITY;
  return dueMs - running.clockOffsetMs + rankOf(state, running) * RANK_DELAY_MS;
}

/** Places behind the leader, in order of id. */
function rankOf(state: NodeState, running: Running): number {
  const { members, id } = state.config;
  const leader = leaderOf(running.raft);
  if (leader === null) return 0;
  const place = (node: number) => members.indexOf(node);
  return (place(id) - place(leader) + members.length) % members.length;
}

/** The alarm has fired: the node wakes, or a sleeping leader looks for a member that was behind and sleeps on. */
export function onAlarmFired(state: NodeState, running: Running, drive: Drive): void {
  const { raft } = running;
  const wallMs = state.ports.clock.wallMs();
  if (running.asleep && raft.role.kind !== "leader" && running.missed !== null) {
    const { missed, probeAfterMs, dueAtWallMs } = running.missed;
    if (dueAtWallMs === null || wallMs < dueAtWallMs) {
      const afterMs = Math.min(2 * probeAfterMs, PROBE_AFTER_MS_MAX);
      noteMissed(state, running, { missed, probeAfterMs: afterMs, dueAtWallMs });
      for (const id of missed) ask(state, id, 0);
      setAlarm(state, Math.max(wallMs + 1, Math.min(dueAtWallMs ?? Number.POSITIVE_INFINITY, wallMs + afterMs)));
      return;
    }
  }
  const isProbe = running.asleep && raft.role.kind === "leader" && wallMs < running.dueAtWallMs;
  if (!isProbe || laggingPeers(raft).length === 0) {
    wakeUp(state, running, drive);
    return;
  }
  running.probeAfterMs = Math.min(2 * running.probeAfterMs, PROBE_AFTER_MS_MAX);
  drive(state, running, { kind: "probe" });
  armSleepAlarm(state, running);
}

/** A member has answered: one that was left behind is there again. */
export function noticeAnswer(state: NodeState, running: Running, from: NodeId, drive: Drive): void {
  if (running.asleep && running.missed?.missed.includes(from) === true) wakeUp(state, running, drive);
}

/** A new instance that is asked about its health: should it rather see to work that nobody has done (S37)? */
export function isOverdue(state: NodeState, running: Running): boolean {
  const wallMs = state.ports.clock.wallMs();
  const dueMs = nextWorkMs(running.machine, wallMs);
  const patienceMs = state.config.members.length * RANK_DELAY_MS + OVERDUE_MS;
  return dueMs !== null && dueMs + patienceMs < wallMs;
}

/** Arms the watchdog of an awake node, late and seldom: it is a storage write. */
export function armWatchdog(state: NodeState): void {
  const wallMs = state.ports.clock.wallMs();
  const ahead = (state.alarmAtWallMs ?? 0) - wallMs;
  if (ahead < ALARM_AHEAD_MS_MIN || ahead > ALARM_AHEAD_MS_MAX) setAlarm(state, wallMs + ALARM_AHEAD_MS_MAX);
}

function setAlarm(state: NodeState, atWallMs: number): void {
  const wanted = atWallMs === Number.POSITIVE_INFINITY ? null : Math.ceil(atWallMs);
  if (wanted === state.alarmAtWallMs) return;
  state.alarmAtWallMs = wanted;
  state.ports.wake.setAlarm(wanted);
}
