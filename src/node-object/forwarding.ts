/**
 * Calls handed over to the leader by one hop, and their answers (design 02 §2, Requests).
 *
 * F1. While messages are under way, later calls gather into the next one, which the leader proposes as one batch: so a
 *     follower's writes share commits as a leader's do, however the platform delivers.
 * F2. Each message says how much of its caller's patience is left, and a call that is over is proposed no more.
 * F3. What may be forwarded again, and when a call that was forwarded may be answered definitely: waiters.ts W2, W3.
 */
import { unreachable } from "../base/assert.ts";
import { APPEND_BYTES_MAX } from "../base/limits.ts";
import { leaderOf } from "../raft/state.ts";
import type { NodeId } from "../raft/types.ts";
import { isEmpty, takeBatch } from "./call-queue.ts";
import type { ForwardedCall, ForwardOutcome, ForwardReply, PeerBody } from "./ports.ts";
import {
  type Call,
  type CallReply,
  type NodeState,
  nextId,
  type Running,
  routableLeader,
  sendPeer,
  sweepBy,
} from "./runtime-state.ts";
import { admit, close, routeLater } from "./waiters.ts";

/** Messages under way at once, as with batches of proposals. */
const MESSAGES_UNDER_WAY_MAX = 2;
/** Forward ids remembered per peer. */
const TAKEN_IDS_MAX = 65_536;

/** Hands over what has gathered, unless enough is under way (F1). */
export function forwardQueued(state: NodeState, running: Running): void {
  const { calls, config } = state;
  const leader = routableLeader(running);
  if (leader === null || leader === config.id || isEmpty(calls.outbound)) return;
  const nowMs = state.ports.clock.nowMs();
  // A message that got lost must not stand in the way of those behind it.
  const lostAtMs = ({ sentAtMs }: { readonly sentAtMs: number }) => sentAtMs + config.electionTimeoutMsMin;
  calls.underWay = calls.underWay.filter((batch) => batch.unanswered.size > 0 && nowMs < lostAtMs(batch));
  while (calls.underWay.length < MESSAGES_UNDER_WAY_MAX && !isEmpty(calls.outbound)) {
    const batch = takeBatch(calls.outbound).map((call) => handOver(state, call, leader, nowMs));
    calls.underWay.push({ sentAtMs: nowMs, unanswered: new Set(batch.map(({ id }) => id)) });
    sendPeer(state, leader, { kind: "forward", term: running.raft.term, calls: batch });
  }
  const [oldest] = calls.underWay;
  if (!isEmpty(calls.outbound) && oldest !== undefined) sweepBy(state, lostAtMs(oldest));
}

function handOver(state: NodeState, call: Call, leader: NodeId, nowMs: number): ForwardedCall {
  const { open } = state.calls;
  // A new id for each try: a late reply to an earlier one matches nothing.
  open.delete(call.id);
  call.id = nextId(state);
  open.set(call.id, call);
  const againAtMs =
    call.repeat === "keyed" ? nowMs + resendAfterMs(state) * 2 ** call.forwards : Number.POSITIVE_INFINITY;
  call.forwards += 1;
  call.phase = { kind: "forwarded", leader, againAtMs };
  sweepBy(state, againAtMs);
  const timeoutMs = Math.max(1, Math.floor(call.deadlineMs - nowMs));
  return { id: call.id, payload: call.payload, timeoutMs, isUrgent: call.isUrgent };
}

/** Longer than an election: a leader that is gone is noticed by then, and its calls are routed anew at once. */
function resendAfterMs(state: NodeState): number {
  return 4 * state.config.electionTimeoutMsMax;
}

/**
 * A peer hands over calls of its clients. `not_leader` promises that no copy of this message was proposed: what this
 * instance took it remembers, and for a term that another instance of this node led it cannot promise anything.
 */
export function onForward(
  state: NodeState,
  running: Running,
  from: NodeId,
  { term, calls }: Extract<PeerBody, { kind: "forward" }>,
): void {
  const taken = running.taken.get(from) ?? new Set();
  running.taken.set(from, taken);
  for (const { id, payload, timeoutMs, isUrgent } of calls) {
    if (taken.has(id)) continue; // a repeated message: the first one is answered
    const reply = (outcome: ForwardOutcome) => keepReply(running, from, { id, outcome });
    if (running.raft.role.kind !== "leader" || term !== running.raft.term) {
      // Terms up to the start may have been led by an earlier instance, terms above our own by a later one.
      const mayHaveLed = term <= running.startTerm || term > running.raft.term;
      reply(mayHaveLed ? { kind: "unknown" } : { kind: "not_leader", leader: leaderOf(running.raft) });
      continue;
    }
    taken.add(id);
    admit(state, { payload, repeat: "once", isUrgent }, timeoutMs, (answer) => reply(forwardOutcome(answer)));
  }
  let excess = taken.size - TAKEN_IDS_MAX;
  for (const oldest of taken) {
    if (excess <= 0) break;
    taken.delete(oldest);
    excess -= 1;
  }
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

function keepReply(running: Running, to: NodeId, reply: ForwardReply): void {
  const replies = running.replies.get(to);
  if (replies === undefined) running.replies.set(to, [reply]);
  else replies.push(reply);
}

/** Sends the answers that this turn has brought. */
export function sendReplies(state: NodeState, running: Running): void {
  for (const [to, replies] of running.replies) {
    let bytes = 0;
    let message: ForwardReply[] = [];
    for (const reply of replies) {
      const replyBytes = reply.outcome.kind === "outcome" ? reply.outcome.outcome.length : 0;
      if (message.length > 0 && bytes + replyBytes > APPEND_BYTES_MAX) {
        sendPeer(state, to, { kind: "forward_reply", replies: message });
        message = [];
        bytes = 0;
      }
      message.push(reply);
      bytes += replyBytes;
    }
    sendPeer(state, to, { kind: "forward_reply", replies: message });
  }
  running.replies.clear();
}

export function onForwardReply(state: NodeState, { id, outcome }: ForwardReply): void {
  const call = state.calls.open.get(id);
  if (call === undefined || call.phase.kind !== "forwarded") return; // answered, or sent again under another id
  for (const { unanswered } of state.calls.underWay) unanswered.delete(id);
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
