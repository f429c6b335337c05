/**
 * Writes on their way through the cluster: routing, batching, forwarding, deadlines (design 02 §2, Requests).
 *
 * W1. Every call is answered exactly once, at the latest at its deadline; the deadline ends waiting, not the entry.
 * W2. A call that may have been appended anywhere ends with its outcome or `unknown`, never with a definite failure.
 * W3. A call without an idempotency key is handed to one leader of one term, once.
 */
import { unreachable } from "../base/assert.ts";
import { utf8Length } from "../base/bytes.ts";
import type { ErrorBody } from "../base/errors.ts";
import { LOG_ROW_BYTES_MAX, PROPOSALS_IN_FLIGHT_BYTES_MAX, PROPOSALS_IN_FLIGHT_MAX } from "../base/limits.ts";
import type { Command, CommandResult, Outcome, Proposal } from "../kv/command.ts";
import { type Applied, evaluateQuery } from "../kv/machine.ts";
import { isGrowing } from "../kv/quota.ts";
import { leaderOf } from "../raft/state.ts";
import type { NodeId } from "../raft/types.ts";
import type { ForwardOutcome, PeerBody } from "./ports.ts";
import {
  type Call,
  type CallReply,
  type Drive,
  type NodeState,
  nextId,
  type Running,
  routableLeader,
  sendPeer,
  sweepBy,
} from "./runtime-state.ts";

/** Batches under way at once: while they are, later proposals gather into the next (group commit). */
const BATCHES_IN_FLIGHT_MAX = 2;
const BATCH_ENTRIES_MAX = 1024;
/** Forward ids remembered per peer. */
const TAKEN_IDS_MAX = 65_536;
/** JSON around the payload in a log row. */
const ENTRY_OVERHEAD_BYTES = 256;
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
  if (state.halted !== null || state.identity.membership.kind === "lost") {
    answer({ kind: "not_leader" });
    return;
  }
  admit(state, payload, proposal.idempotency === undefined ? "once" : "keyed", timeoutMs, answer);
}

/** A command of the leader's own: proposed here or not at all. `respond` says whether it was applied. */
export function proposeDuty(
  state: NodeState,
  command: Command,
  timeoutMs: number,
  respond: (applied: boolean) => void,
): void {
  const proposal: Proposal = { format: 1, command };
  admit(state, JSON.stringify(proposal), "duty", timeoutMs, (reply) => respond(reply.kind === "outcome"));
}

/**
 * A peer hands over a call of one of its clients. `not_leader` promises that no copy of this message was proposed: what
 * this instance took it remembers, and for a term that another instance of this node led it cannot promise anything.
 */
export function onForward(
  state: NodeState,
  running: Running,
  from: NodeId,
  body: Extract<PeerBody, { kind: "forward" }>,
): void {
  const reply = (outcome: ForwardOutcome) => sendPeer(state, from, { kind: "forward_reply", id: body.id, outcome });
  const taken = running.taken.get(from) ?? new Set();
  running.taken.set(from, taken);
  if (taken.has(body.id)) return; // a repeated message: the first one is answered
  if (running.raft.role.kind !== "leader" || body.term !== running.raft.term) {
    // Terms up to the start may have been led by an earlier instance, terms above our own by a later one.
    const mayHaveLed = body.term <= running.startTerm || body.term > running.raft.term;
    reply(mayHaveLed ? { kind: "unknown" } : { kind: "not_leader", leader: leaderOf(running.raft) });
    return;
  }
  taken.add(body.id);
  if (taken.size > TAKEN_IDS_MAX) {
    for (const oldest of taken) {
      taken.delete(oldest);
      break;
    }
  }
  admit(state, body.payload, "once", body.timeoutMs, (answer) => reply(forwardOutcome(answer)));
}

function forwardOutcome(reply: CallReply): ForwardOutcome {
  switch (reply.kind) {
    case "outcome":
      return { kind: "outcome", outcome: JSON.stringify(reply.outcome) };
    case "not_leader":
      return { kind: "not_leader", leader: null };
    default:
      return reply;
  }
}

function admit(
  state: NodeState,
  payload: string,
  repeat: Call["repeat"],
  timeoutMs: number,
  respond: (reply: CallReply) => void,
): void {
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
    id: nextId(state),
    payload,
    payloadBytes,
    repeat,
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

/** Towards the leader: into the own queue, or by one hop to the peer that leads. */
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
  if (leader === state.config.id) {
    if (isRefusedForSpace(state, running, call)) {
      close(state, call, call.exposed ? { kind: "unknown" } : { kind: "outcome", outcome: NO_SPACE });
      return;
    }
    call.phase = { kind: "queued" };
    state.calls.queue.push(call);
    return;
  }
  // A new id for each try: a late reply to an earlier one matches nothing.
  state.calls.open.delete(call.id);
  call.id = nextId(state);
  state.calls.open.set(call.id, call);
  const againAtMs =
    call.repeat === "keyed" ? nowMs + resendAfterMs(state) * 2 ** call.forwards : Number.POSITIVE_INFINITY;
  call.forwards += 1;
  call.phase = { kind: "forwarded", leader, againAtMs };
  const timeoutMs = Math.max(1, Math.floor(call.deadlineMs - nowMs));
  sendPeer(state, leader, {
    kind: "forward",
    id: call.id,
    term: running.raft.term,
    payload: call.payload,
    timeoutMs,
  });
  sweepBy(state, againAtMs);
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

/** Longer than an election: a leader that is gone is noticed by then, and its calls are routed anew at once. */
function resendAfterMs(state: NodeState): number {
  return 4 * state.config.electionTimeoutMsMax;
}

export function onForwardReply(state: NodeState, id: number, outcome: ForwardOutcome): void {
  const call = state.calls.open.get(id);
  if (call === undefined || call.phase.kind !== "forwarded") return; // answered, or sent again under another id
  switch (outcome.kind) {
    case "outcome":
      close(state, call, { kind: "outcome", outcome: JSON.parse(outcome.outcome) });
      return;
    case "not_leader":
      routeLater(state, call);
      return;
    case "unknown":
      // Under its key it may be asked again, as long as its caller waits: most outcomes are known a moment later.
      if (call.repeat !== "keyed") close(state, call, outcome);
      else {
        call.exposed = true;
        routeLater(state, call);
      }
      return;
    case "overloaded":
      close(state, call, outcome);
      return;
    default:
      unreachable(outcome);
  }
}

function routeLater(state: NodeState, call: Call): void {
  const retryAtMs = state.ports.clock.nowMs() + state.config.heartbeatMs;
  call.phase = { kind: "unrouted", retryAtMs };
  sweepBy(state, retryAtMs);
}

/** Proposes what has gathered, unless enough batches are under way. */
export function proposeQueued(state: NodeState, running: Running, drive: Drive): void {
  const { calls } = state;
  while (running.batches[0] !== undefined && running.batches[0] <= running.raft.commit) running.batches.shift();
  if (calls.queue.length === 0 || running.raft.role.kind !== "leader") return;
  if (running.batches.length >= BATCHES_IN_FLIGHT_MAX) return;
  let bytes = 0;
  let count = 0;
  for (const call of calls.queue) {
    bytes += call.payloadBytes + ENTRY_OVERHEAD_BYTES;
    if (count > 0 && (bytes > LOG_ROW_BYTES_MAX || count >= BATCH_ENTRIES_MAX)) break;
    count += 1;
  }
  const batch = calls.queue.splice(0, count);
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
  running.batches.push(proposed.firstIndex + count - 1);
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
  const queued = state.calls.queue;
  state.calls.queue = [];
  for (const call of queued) route(state, call);
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

/** Ends calls that are over time and repeats those that may be; returns when to look again. */
export function sweepCalls(state: NodeState, nowMs: number): number {
  let nextAtMs = Number.POSITIVE_INFINITY;
  for (const call of [...state.calls.open.values()]) {
    if (nowMs >= call.deadlineMs) {
      const unsent = call.phase.kind === "unrouted" || call.phase.kind === "queued";
      if (call.phase.kind === "queued") state.calls.queue = state.calls.queue.filter((queued) => queued !== call);
      close(state, call, unsent ? { kind: "not_leader" } : { kind: "unknown" });
      continue;
    }
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

function close(state: NodeState, call: Call, reply: CallReply): void {
  state.calls.open.delete(call.id);
  if (call.phase.kind === "proposed" && state.calls.byIndex.get(call.phase.index) === call) {
    state.calls.byIndex.delete(call.phase.index);
  }
  state.calls.queuedBytes -= call.payloadBytes;
  const definite = reply.kind === "not_leader" || reply.kind === "overloaded";
  call.respond(call.exposed && definite ? { kind: "unknown" } : reply);
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
  return { code: "no_leader", detail: "No leader was elected in time: a majority of the nodes must be reachable." };
}
