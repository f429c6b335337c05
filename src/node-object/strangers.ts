/**
 * Nodes that speak under an incarnation which the newest membership here does not name: one that has lost its storage, or
 * one that was taken in by entries which have not arrived yet.
 *
 * S1. Nothing is believed of a stranger but its answer to a question of this instance: whatever else may be a late word of
 *     a storage that is gone (S08).
 */
import { newestMembership } from "../raft/log.ts";
import type { NodeId } from "../raft/types.ts";
import { ask } from "./hello.ts";
import { incarnationsOf } from "./members.ts";
import type { PeerBody, PeerEnvelope } from "./ports.ts";
import { type NodeState, nextId, type Running } from "./runtime-state.ts";

export interface Stranger {
  readonly incarnation: number;
  readonly question: number;
  heardAtMs: number;
  /** It says that it has lost its storage. */
  lost: boolean;
  answered: boolean;
}

/** True unless the newest membership names this very incarnation. */
export function isStranger({ raft }: Running, id: NodeId, incarnation: number): boolean {
  return incarnationsOf(newestMembership(raft.log).membership).get(id) !== incarnation;
}

/** True if this greeting says anything new about a lost node. */
export function noticeHello(
  state: NodeState,
  running: Running,
  { from, fromIncarnation }: PeerEnvelope,
  { membership, reply, question }: Extract<PeerBody, { kind: "hello" }>,
): boolean {
  if (membership.kind !== "lost" && membership.kind !== "formed") return false;
  if (membership.clusterId !== running.clusterId || !isStranger(running, from, fromIncarnation)) return false;
  const lost = membership.kind === "lost";
  if (reply) {
    const stranger = running.strangers.get(from);
    if (stranger?.incarnation !== fromIncarnation || stranger.question !== question) return false;
    Object.assign(stranger, { lost, answered: true, heardAtMs: state.ports.clock.nowMs() });
    return lost;
  }
  if (lost) strangerOf(state, running, from, fromIncarnation).lost = true;
  return lost;
}

/**
 * Somebody that the log does not know, and that may be a leader or a candidate all the same. True once it has answered
 * that it is a member: until then it is asked, and says again whatever is still true by then.
 */
export function isMet(state: NodeState, running: Running, { from, fromIncarnation }: PeerEnvelope): boolean {
  const stranger = strangerOf(state, running, from, fromIncarnation);
  if (!stranger.answered) ask(state, from, stranger.question);
  return stranger.answered && !stranger.lost;
}

function strangerOf(state: NodeState, running: Running, id: NodeId, incarnation: number): Stranger {
  const heardAtMs = state.ports.clock.nowMs();
  const known = running.strangers.get(id);
  if (known?.incarnation === incarnation) {
    known.heardAtMs = heardAtMs;
    return known;
  }
  const stranger = { incarnation, question: nextId(state), heardAtMs, lost: false, answered: false };
  running.strangers.set(id, stranger);
  return stranger;
}
