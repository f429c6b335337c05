/**
 * Writes on their way through the cluster: routing, batching, forwarding, deadlines (design 02 §2, Requests).
 *
 * W1. Every call is answered exactly once, at the latest at its deadline; the deadline ends waiting, not the entry.
 * W2. A call that may have been appended anywhere ends with its outcome or `unknown`, never with a definite failure.
 * W3. A call without an idempotency key is handed to one leader of one term, once.
 */
import { utf8Length } from "../base/bytes.ts";
import type { ErrorBody } from "../base/errors.ts";
import { LOG_ROW_BYTES_MAX, PROPOSALS_IN_FLIGHT_BYTES_MAX, PROPOSALS_IN_FLIGHT_MAX } from "../base/limits.ts";
import type { Command, CommandResult, Outcome, Proposal } from "../kv/command.ts";
import { type Applied, evaluateQuery } from "../kv/machine.ts";
import { isGrowing } from "../kv/quota.ts";
import { ENTRY_OVERHEAD_BYTES, enqueue, isEmpty, isOverdue, removeCalls, takeAll, takeBatch } from "./call-queue.ts";
import {
  type Call,
  type CallReply,
  type Drive,
  isOut,
  type NodeState,
  nextId,
  type Running,
  routableLeader,
  sweepBy,
} from "./runtime-state.ts";

/** Batches under way at once: while they are, later proposals gather into the next (group commit). */
const BATCHES_IN_FLIGHT_MAX = 2;
const NO_SPACE: Outcome<CommandResult> = {
  ok: false,
  revision: 0,
  error: {
    code: "no_space",
    detail: "The storage quota of the cluster is used up; delete records, or compact history, and try again.",
  },
};

/** A client's write arrives at this node. */
export function openCall(
  state: NodeState,
  proposal: Proposal,
  timeoutMs: number,
  respond: (outcome: Outcome<CommandResult>) => void,
): void {
  const payload = JSON.stringify(proposal);
  const answer = (reply: CallReply) => respond(outcomeOf(state, reply));
  if (isOut(state)) {
    answer({ kind: "not_leader" });
    return;
  }
  const repeat = proposal.idempotency === undefined ? "once" : "keyed";
  admit(state, { payload, repeat, isUrgent: isUrgent(proposal.command) }, timeoutMs, answer);
}

/** A command of the leader's own: proposed here or not at all. `respond` says whether it was applied. */
export function proposeDuty(
  state: NodeState,
  command: Command,
  timeoutMs: number,
  respond: (applied: boolean) => void,
): void {
  const proposal: Proposal = { format: 1, command };
  const wish = { payload: JSON.stringify(proposal), repeat: "duty", isUrgent: true } as const;
  admit(state, wish, timeoutMs, (reply) => respond(reply.kind === "outcome"));
}

/** What goes before everything else that waits (call-queue.ts Q1). */
function isUrgent({ kind }: Command): boolean {
  return kind === "lease_keep_alive" || kind === "lease_revoke";
}

/** Takes a call on, or refuses it at once. */
export function admit(
  state: NodeState,
  wish: Pick<Call, "payload" | "repeat" | "isUrgent">,
  timeoutMs: number,
  respond: (reply: CallReply) => void,
): void {
  const { payload } = wish;
  const payloadBytes = utf8Length(payload);
  const { calls } = state;
  const full =
    calls.open.size >= PROPOSALS_IN_FLIGHT_MAX || calls.queuedBytes + payloadBytes > PROPOSALS_IN_FLIGHT_BYTES_MAX;
  if (full || payloadBytes + ENTRY_OVERHEAD_BYTES > LOG_ROW_BYTES_MAX) {
    respond({ kind: "overloaded" });
    return;
  }
  const deadlineMs = state.ports.clock.nowMs() + timeoutMs;
  const phase = { kind: "unrouted", retryAtMs: 0 } as const;
  const call: Call = {
    ...wish,
    id: nextId(state),
    payloadBytes,
    deadlineMs,
    respond,
    exposed: false,
    forwards: 0,
    phase,
  };
  calls.open.set(call.id, call);
  calls.queuedBytes += payloadBytes;
  sweepBy(state, deadlineMs);
  route(state, call);
}

/** Towards the leader: into the own queue, or into the one for the peer that leads. */
function route(state: NodeState, call: Call): void {
  const { running } = state;
  if (call.phase.kind === "forwarded") call.exposed = true; // nobody has said what became of that try
  const nowMs = state.ports.clock.nowMs();
  const leader = running === null ? null : routableLeader(running);
  if (call.repeat === "duty" && leader !== state.config.id) {
    close(state, call, { kind: "not_leader" });
    return;
  }
  if (running === null || leader === null) {
    const retryAtMs = nowMs + state.config.electionTimeoutMsMin;
    call.phase = { kind: "unrouted", retryAtMs };
    sweepBy(state, retryAtMs);
    return;
  }
  const { queue, outbound } = state.calls;
  const isHere = leader === state.config.id;
  if (isHere && isRefusedForSpace(state, running, call)) {
    close(state, call, { kind: "outcome", outcome: NO_SPACE });
    return;
  }
  const next = isHere ? queue : outbound;
  if (!call.isUrgent && isOverdue(next, nowMs)) close(state, call, { kind: "overloaded" });
  else enqueue(next, call, nowMs);
}

/** While the quota is used up only what does not grow the state goes on; a kept result is still told. */
function isRefusedForSpace(state: NodeState, running: Running, call: Call): boolean {
  if (running.machine.logicalBytes <= state.config.quotaBytes) return false;
  const { command, idempotency }: Proposal = JSON.parse(call.payload);
  if (!isGrowing(command)) return false;
  if (idempotency === undefined) return true;
  const query = { kind: "txn_result", scope: idempotency.scope, key: idempotency.key } as const;
  const known = evaluateQuery(running.machine, query, running.machine.timeMs);
  return !(known.ok && known.result.kind === "txn_result" && known.result.status === "known");
}

/** A node that should have led does not: asked again in a moment. */
export function routeLater(state: NodeState, call: Call): void {
  const retryAtMs = state.ports.clock.nowMs() + state.config.heartbeatMs;
  call.phase = { kind: "unrouted", retryAtMs };
  sweepBy(state, retryAtMs);
}

/** Proposes what has gathered, unless enough batches are under way. */
export function proposeQueued(state: NodeState, running: Running, drive: Drive): void {
  const { calls } = state;
  while (running.batches[0] !== undefined && running.batches[0] <= running.raft.commit) running.batches.shift();
  if (isEmpty(calls.queue) || running.raft.role.kind !== "leader") return;
  if (running.batches.length >= BATCHES_IN_FLIGHT_MAX) return;
  const batch = takeBatch(calls.queue);
  const { proposed } = drive(state, running, { kind: "propose", payloads: batch });
  if (proposed === null) {
    for (const call of batch) route(state, call);
    return;
  }
  batch.forEach((call, position) => {
    const index = proposed.firstIndex + position;
    call.phase = { kind: "proposed", index, term: proposed.term };
    calls.byIndex.set(index, call);
  });
  running.batches.push(proposed.firstIndex + batch.length - 1);
}

/** Entries were applied: whoever proposed them here is answered. */
export function onApplied(state: NodeState, applied: Applied, term: number): void {
  const call = state.calls.byIndex.get(applied.index);
  if (call === undefined || call.phase.kind !== "proposed") return;
  state.calls.byIndex.delete(applied.index);
  if (call.phase.term !== term || applied.outcome === null) {
    // Another leader's entry was committed in its place: this one never was, and never will be.
    route(state, call);
    return;
  }
  close(state, call, { kind: "outcome", outcome: applied.outcome });
}

/** The leader or the term changed: what waited is routed anew, what was handed over is repeated only if it may be. */
export function rerouteCalls(state: NodeState, running: Running): void {
  const leads = running.raft.role.kind === "leader";
  const nowMs = state.ports.clock.nowMs();
  running.batches.length = 0;
  state.calls.underWay = [];
  for (const call of [...takeAll(state.calls.queue), ...takeAll(state.calls.outbound)]) route(state, call);
  for (const call of [...state.calls.open.values()]) {
    if (call.phase.kind === "unrouted") route(state, call);
    else if (call.phase.kind === "forwarded" && call.repeat === "keyed") route(state, call);
    else if (call.phase.kind === "proposed" && !leads) {
      // Its fate is known soon or not at all here: the outcome if the entry is applied, else `unknown` (W2).
      call.deadlineMs = Math.min(call.deadlineMs, nowMs + 2 * state.config.electionTimeoutMsMax);
      sweepBy(state, call.deadlineMs);
    }
  }
}

/** The entries up to `index` were taken over whole, without being applied here: nobody can say what became of each. */
export function forgetProposals(state: NodeState, index: number): void {
  for (const [at, call] of state.calls.byIndex) {
    if (at <= index) close(state, call, { kind: "unknown" });
  }
}

/** Ends calls that are over time and repeats those that may be; returns when to look again. */
export function sweepCalls(state: NodeState, nowMs: number): number {
  const { open, queue, outbound } = state.calls;
  const over = new Set([...open.values()].filter((call) => nowMs >= call.deadlineMs));
  if (over.size > 0) for (const one of [queue, outbound]) removeCalls(one, over);
  for (const call of over) {
    const unsent = call.phase.kind === "unrouted" || call.phase.kind === "queued";
    close(state, call, unsent ? { kind: "not_leader" } : { kind: "unknown" });
  }
  let nextAtMs = Number.POSITIVE_INFINITY;
  for (const call of [...open.values()]) {
    if (call.phase.kind === "unrouted" && nowMs >= call.phase.retryAtMs) route(state, call);
    const { phase } = call;
    if (phase.kind === "forwarded" && nowMs >= phase.againAtMs) route(state, call);
    nextAtMs = Math.min(nextAtMs, call.deadlineMs, repeatAtMs(call));
  }
  return nextAtMs;
}

function repeatAtMs(call: Call): number {
  if (call.phase.kind === "unrouted") return call.phase.retryAtMs;
  if (call.phase.kind === "forwarded") return call.phase.againAtMs;
  return Number.POSITIVE_INFINITY;
}

/** Answers a call, which is in no queue any more. */
export function close(state: NodeState, call: Call, reply: CallReply): void {
  state.calls.open.delete(call.id);
  for (const { unanswered } of state.calls.underWay) unanswered.delete(call.id);
  if (call.phase.kind === "proposed" && state.calls.byIndex.get(call.phase.index) === call) {
    state.calls.byIndex.delete(call.phase.index);
  }
  state.calls.queuedBytes -= call.payloadBytes;
  // An earlier try may stand in a log, and be carried out yet, whatever the last one was answered.
  call.respond(call.exposed && isRefusal(reply) ? { kind: "unknown" } : reply);
}

/** Refused before it came to the log. */
function isRefusal(reply: CallReply): boolean {
  if (reply.kind !== "outcome") return reply.kind !== "unknown";
  return !reply.outcome.ok && reply.outcome.error.code === "no_space";
}

function outcomeOf(state: NodeState, reply: CallReply): Outcome<CommandResult> {
  if (reply.kind === "outcome") return reply.outcome;
  const revision = state.running?.machine.revision ?? 0;
  if (reply.kind === "not_leader") return { ok: false, revision, error: unavailable(state) };
  const overloaded = {
    code: "overloaded",
    detail: "Too many writes are in flight on this node; try again shortly.",
  } as const;
  const unknown = {
    code: "timeout",
    detail:
      "The write was not confirmed in time; it may still take effect. Repeat it only under the same Idempotency-Key.",
  } as const;
  return { ok: false, revision, error: reply.kind === "overloaded" ? overloaded : unknown };
}

/** Why this node cannot serve: nothing was proposed. */
export function unavailable(state: NodeState): ErrorBody {
  if (state.halted !== null)
    return { code: "node_halted", detail: `Node ${state.config.id} has halted: ${state.halted}.` };
  const { kind } = state.identity.membership;
  if (kind === "lost") {
    const detail = `Node ${state.config.id} has lost its storage and waits to be admitted again; ask another node.`;
    return { code: "cluster_not_ready", reason: "node_lost", detail };
  }
  if (kind !== "formed") {
    return {
      code: "cluster_not_ready",
      reason: kind,
      detail: "The cluster is not formed yet: every configured node must answer once.",
    };
  }
  if (isOut(state)) {
    const detail = `Node ${state.config.id} is no member of the cluster; ask another node.`;
    return { code: "cluster_not_ready", reason: "not_a_member", detail };
  }
  return { code: "no_leader", detail: "No leader was elected in time: a majority of the nodes must be reachable." };
}
