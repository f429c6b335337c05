/**
 * Nodes that speak under an incarnation which the newest membership here does not name: one that has lost its storage, or
 * one that was taken in by entries which have not arrived yet.
 *
 * S1. Nothing is believed of a stranger but its answer to a question of this instance: whatever else may be a late word of
 *     a storage that is gone (S08).
 * S2. An answer holds until the membership changes: since then its storage may have been taken in, and lost again.
 */
import { membershipOf } from "../raft/state.ts";
import type { Membership, NodeId } from "../raft/types.ts";
import { ask } from "./hello.ts";
import { incarnationsOf } from "./members.ts";
import type { PeerBody, PeerEnvelope } from "./ports.ts";
import { type NodeState, nextId, type Running } from "./runtime-state.ts";

export interface Stranger {
  readonly incarnation: number;
  /** In force when it was asked. */
  readonly under: Membership;
  readonly question: number;
  heardAtMs: number;
  /** It says that it has lost its storage. */
  lost: boolean;
  answered: boolean;
}

/** True unless the newest membership names this very incarnation. */
export function isStranger({ raft }: Running, id: NodeId, incarnation: number): boolean {
  return incarnationsOf(membershipOf(raft)).get(id) !== incarnation;
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
  const stranger = strangerOf(state, running, from, fromIncarnation);
  if (reply && question === stranger.question) Object.assign(stranger, { lost, answered: true });
  else if (lost) stranger.lost = true;
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
  const known = knownStranger(state, running, id);
  if (known?.incarnation === incarnation) {
    known.heardAtMs = heardAtMs;
    return known;
  }
  return note(state, running, id, { incarnation, heardAtMs, lost: false });
}

/** The incarnation of a node that has left or was never here, if it has said so itself; else it is asked now. */
export function askedIncarnation(state: NodeState, running: Running, id: NodeId): number | null {
  const stranger = knownStranger(state, running, id);
  if (stranger?.answered === true) return stranger.incarnation;
  ask(state, id, stranger?.question ?? 0);
  return null;
}

/** Undefined also for one that has become a member. */
export function knownStranger(state: NodeState, running: Running, id: NodeId): Stranger | undefined {
  const known = running.strangers.get(id);
  if (known === undefined || known.under === membershipOf(running.raft)) return known;
  running.strangers.delete(id);
  return isStranger(running, id, known.incarnation) ? note(state, running, id, known) : undefined;
}

/** S2. */
function note(
  state: NodeState,
  running: Running,
  id: NodeId,
  { incarnation, heardAtMs, lost }: Pick<Stranger, "incarnation" | "heardAtMs" | "lost">,
): Stranger {
  const under = membershipOf(running.raft);
  const stranger = { incarnation, under, question: nextId(state), heardAtMs, lost, answered: false };
  running.strangers.set(id, stranger);
  return stranger;
}
