/**
 * A leader whose log time is far from the members' clocks (design 02 §3): leases would end too early or too late by it.
 * It cannot correct itself, for time never falls and advances by its own clock; a new term begins at the median again.
 *
 * K1. Clocks come with acknowledgements. A delay makes a clock look slow, never fast: within an election timeout the
 *     sample that is furthest ahead is the best one.
 * K2. Judged by the median of a majority's clocks, own included, once it has stood for a whole election timeout in which
 *     this node's own timers were on time: after a stall the samples are as late as everything else.
 * K3. What a term has inherited is not its leader's fault and no other leader's remedy: a log that stands in the future
 *     stays there. Only what has been added since counts, or leadership would go round for ever.
 */
import { SKEW_MS_MAX } from "../base/limits.ts";
import {
  isReachable,
  type Leader,
  leaderTimeMs,
  medianClock,
  membershipOf,
  type Progress,
  type RaftState,
} from "./state.ts";
import type { NodeId } from "./types.ts";

/** K1. */
export function noteClock(state: RaftState, progress: Progress, wallMs: number, nowMs: number): void {
  const { clock } = progress;
  const offsetMs = wallMs - nowMs;
  const replaces = clock === null || offsetMs >= clock.offsetMs || !isFresh(state, clock.atMs, nowMs, 1);
  if (replaces) progress.clock = { offsetMs, atMs: nowMs };
}

/** Who should lead instead, once the skew has stood long enough (K2); null while there is none, or nobody better. */
export function skewSuccessor(state: RaftState, role: Leader, nowMs: number, wallMs: number): NodeId | null {
  const median = memberClock(state, role, nowMs, wallMs);
  const sound = role.asleep === null && !role.postponed && role.transfer === null;
  if (!sound || median === null || !isSkewed(state, role, median, nowMs)) {
    role.skewedSinceMs = Number.POSITIVE_INFINITY;
    return null;
  }
  role.skewedSinceMs = Math.min(role.skewedSinceMs, nowMs);
  if (nowMs < role.skewedSinceMs + state.config.electionTimeoutMsMax) return null;
  role.skewedSinceMs = nowMs; // the next try comes no sooner than this one
  return nearestVoter(state, role, median, nowMs);
}

/** What the median of the members' clocks shows now; null unless a majority of the voters is known. */
function memberClock(state: RaftState, role: Leader, nowMs: number, wallMs: number): number | null {
  const { voters } = membershipOf(state);
  const clocks: number[] = [];
  for (const id of voters) {
    const clock = id === state.config.id ? { offsetMs: wallMs - nowMs, atMs: nowMs } : role.progress.get(id)?.clock;
    if (clock != null && isFresh(state, clock.atMs, nowMs, 2)) clocks.push(clock.offsetMs + nowMs);
  }
  return clocks.length > voters.length / 2 ? medianClock(clocks) : null;
}

/** A sample is replaced after one election timeout, and trusted for two. */
function isFresh(state: RaftState, atMs: number, nowMs: number, timeouts: number): boolean {
  return atMs + timeouts * state.config.electionTimeoutMsMax >= nowMs;
}

function isSkewed(state: RaftState, role: Leader, medianMs: number, nowMs: number): boolean {
  const aheadMs = leaderTimeMs(state.log, role, nowMs) - medianMs;
  return aheadMs < -SKEW_MS_MAX || aheadMs > role.inheritedSkewMs + SKEW_MS_MAX;
}

/** The voter whose clock is nearest to the median, within the bound, if it keeps up with the log. */
function nearestVoter(state: RaftState, role: Leader, medianMs: number, nowMs: number): NodeId | null {
  let nearest: { readonly id: NodeId; readonly distanceMs: number } | null = null;
  for (const id of membershipOf(state).voters) {
    const progress = role.progress.get(id);
    if (progress?.kind !== "replicate" || progress.clock === null || !isReachable(state, progress, nowMs)) continue;
    const distanceMs = Math.abs(progress.clock.offsetMs + nowMs - medianMs);
    if (distanceMs <= SKEW_MS_MAX && distanceMs < (nearest?.distanceMs ?? Number.POSITIVE_INFINITY)) {
      nearest = { id, distanceMs };
    }
  }
  return nearest?.id ?? null;
}
