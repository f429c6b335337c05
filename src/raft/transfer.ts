/**
 * Leader transfer (thesis 3.10): the leader takes nothing more on, brings its successor to the end of its log, and asks
 * it to campaign at once.
 *
 * F1. The successor skips the pre-vote and its voters do not protect the old leader; else it is an election like any
 *     other, so nothing about safety depends on the transfer.
 * F2. A transfer that has not succeeded within an election timeout is given up: the leader goes on. Its successor may
 *     still campaign, which costs an election and nothing else.
 */
import { startElection } from "./elections.ts";
import { isVoter, type Leader, type MutableOutput, mayCampaign, type RaftState, send } from "./state.ts";
import type { Message, NodeId, Refusal } from "./types.ts";

type Of<Kind extends Message["kind"]> = Extract<Message, { kind: Kind }>;

export function onTransfer(state: RaftState, to: NodeId, nowMs: number, out: MutableOutput): void {
  const { role } = state;
  out.refusal = refusalOf(state, to);
  if (role.kind === "leader" && out.refusal === null) beginTransfer(state, role, to, nowMs, out);
}

function refusalOf(state: RaftState, to: NodeId): Refusal | null {
  const { role } = state;
  if (role.kind !== "leader") return "not_leader";
  if (to === state.config.id) return "already_leader";
  if (!isVoter(state, to)) return "not_a_voter";
  return role.transfer === null ? null : "transferring";
}

export function beginTransfer(state: RaftState, role: Leader, to: NodeId, nowMs: number, out: MutableOutput): void {
  const untilMs = nowMs + state.config.electionTimeoutMsMax;
  role.transfer = { to, untilMs, askedAtMs: Number.NEGATIVE_INFINITY };
  continueTransfer(state, role, nowMs, out);
}

/** After anything that may have brought the successor forward, and at every tick. */
export function continueTransfer(state: RaftState, role: Leader, nowMs: number, out: MutableOutput): void {
  const { transfer } = role;
  if (transfer === null) return;
  if (nowMs >= transfer.untilMs || !isVoter(state, transfer.to)) {
    role.transfer = null; // F2
    return;
  }
  if (role.progress.get(transfer.to)?.match !== state.log.lastIndex) return;
  if (nowMs < transfer.askedAtMs + state.config.heartbeatMs) return;
  transfer.askedAtMs = nowMs;
  askToCampaign(state, transfer.to, out);
}

export function askToCampaign(state: RaftState, to: NodeId, out: MutableOutput): void {
  send(state, to, { kind: "timeout_now", term: state.term }, out);
}

/** F1. A request of an earlier term is over; whoever leads needs none. */
export function onTimeoutNow(
  state: RaftState,
  message: Of<"timeout_now">,
  nowMs: number,
  wallMs: number,
  out: MutableOutput,
): void {
  if (message.term < state.term || state.role.kind === "leader" || !mayCampaign(state)) return;
  startElection(state, { transfer: true }, nowMs, wallMs, out);
}
