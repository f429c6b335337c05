/**
 * Read barriers: a linearizable read waits here until this node has applied what the leader had committed when the
 * read began (ReadIndex, thesis section 6.4), then it is served from the node's own state.
 *
 * B1. A barrier joins only a context that is asked for after the barrier arrived.
 * B2. Contexts are never reused, also not by a later instance (`nextId` starts at random).
 */

import type { ErrorBody } from "../base/errors.ts";
import { PROPOSALS_IN_FLIGHT_MAX } from "../base/limits.ts";
import { leaderOf } from "../raft/state.ts";
import {
  type Barrier,
  type Drive,
  isOut,
  type NodeState,
  nextId,
  type Running,
  routableLeader,
  sweepBy,
} from "./runtime-state.ts";
import { unavailable } from "./waiters.ts";

const OVERLOADED: ErrorBody = { code: "overloaded", detail: "Too many reads wait on this node; try again shortly." };

const UNCONFIRMED: ErrorBody = {
  code: "timeout",
  reason: "read_not_confirmed",
  detail: "A leader is known, but the read was not confirmed in time; nothing was changed, repeat it.",
};

export function openBarrier(state: NodeState, timeoutMs: number, respond: (error: ErrorBody | null) => void): void {
  if (isOut(state)) {
    respond(unavailable(state));
    return;
  }
  if (state.reads.waiting.length >= PROPOSALS_IN_FLIGHT_MAX) {
    respond(OVERLOADED);
    return;
  }
  const deadlineMs = state.ports.clock.nowMs() + timeoutMs;
  state.reads.waiting.push({ deadlineMs, respond });
  sweepBy(state, deadlineMs);
}

export function waitForRevision(
  state: NodeState,
  revision: number,
  timeoutMs: number,
  respond: (error: ErrorBody | null) => void,
): void {
  if (isOut(state)) {
    respond(unavailable(state));
    return;
  }
  if (state.running !== null && state.running.machine.revision >= revision) {
    respond(null);
    return;
  }
  if (state.reads.revisions.length >= PROPOSALS_IN_FLIGHT_MAX) {
    respond(OVERLOADED);
    return;
  }
  const deadlineMs = state.ports.clock.nowMs() + timeoutMs;
  state.reads.revisions.push({ revision, deadlineMs, respond });
  sweepBy(state, deadlineMs);
}

/** Asks for one context on behalf of every barrier that waits, unless one is under way or nobody leads. */
export function askForContext(state: NodeState, running: Running, drive: Drive): void {
  const { reads } = state;
  if (reads.asked !== null || reads.waiting.length === 0 || routableLeader(running) === null) return;
  const nowMs = state.ports.clock.nowMs();
  const context = nextId(state);
  reads.asked = { context, sentAtMs: nowMs, barriers: reads.waiting };
  reads.waiting = [];
  sweepBy(state, nowMs + state.config.electionTimeoutMsMin);
  drive(state, running, { kind: "read", context });
}

/** The leader confirmed `context`: its barriers wait for `index` to be applied here. */
export function onReadIndex(state: NodeState, context: number, index: number): void {
  const { asked } = state.reads;
  if (asked === null || asked.context !== context) return;
  state.reads.asked = null;
  state.reads.confirmed.push({ index, barriers: asked.barriers });
}

/** Answers what the applied state now allows. */
export function serveReads(state: NodeState, running: Running): void {
  const { reads } = state;
  const { appliedIndex, revision } = running.machine;
  if (reads.confirmed.length > 0) {
    const served = reads.confirmed.filter((group) => group.index <= appliedIndex);
    if (served.length > 0) {
      reads.confirmed = reads.confirmed.filter((group) => group.index > appliedIndex);
      for (const group of served) for (const barrier of group.barriers) barrier.respond(null);
    }
  }
  if (reads.revisions.some((wait) => wait.revision <= revision)) {
    const served = reads.revisions.filter((wait) => wait.revision <= revision);
    reads.revisions = reads.revisions.filter((wait) => wait.revision > revision);
    for (const wait of served) wait.respond(null);
  }
}

/** The leader changed, or did not answer: its barriers are asked for again under a new context. */
export function askAgain(state: NodeState): void {
  const { asked } = state.reads;
  if (asked === null) return;
  state.reads.asked = null;
  state.reads.waiting = [...asked.barriers, ...state.reads.waiting];
}

/** Ends reads that are over time; returns when to look again. */
export function sweepReads(state: NodeState, nowMs: number): number {
  const { reads } = state;
  if (reads.asked !== null && nowMs >= reads.asked.sentAtMs + state.config.electionTimeoutMsMin) askAgain(state);
  let nextAtMs = reads.waiting.length > 0 ? nowMs + state.config.heartbeatMs : Number.POSITIVE_INFINITY;
  if (reads.asked !== null) nextAtMs = Math.min(nextAtMs, reads.asked.sentAtMs + state.config.electionTimeoutMsMin);
  const expired: Barrier[] = [];
  const alive = (barrier: Barrier) => {
    if (nowMs >= barrier.deadlineMs) {
      expired.push(barrier);
      return false;
    }
    nextAtMs = Math.min(nextAtMs, barrier.deadlineMs);
    return true;
  };
  reads.waiting = reads.waiting.filter(alive);
  if (reads.asked !== null) reads.asked = { ...reads.asked, barriers: reads.asked.barriers.filter(alive) };
  reads.confirmed = reads.confirmed.map(({ index, barriers }) => ({ index, barriers: barriers.filter(alive) }));
  const behind = reads.revisions.filter((wait) => nowMs >= wait.deadlineMs);
  reads.revisions = reads.revisions.filter((wait) => nowMs < wait.deadlineMs);
  for (const wait of reads.revisions) nextAtMs = Math.min(nextAtMs, wait.deadlineMs);
  const known = state.running !== null && leaderOf(state.running.raft) !== null;
  for (const barrier of expired) barrier.respond(known ? UNCONFIRMED : unavailable(state));
  for (const wait of behind) {
    const revision = state.running?.machine.revision ?? 0;
    const detail = `This node has applied revision ${revision}, not yet ${wait.revision}; wait, or ask another node.`;
    wait.respond({ code: "behind", detail, revision });
  }
  return nextAtMs;
}
