/**
 * ReadIndex: linearizable reads without log entries (thesis section 6.4).
 *
 * R1. A read is served at the commit index of the moment its round began, confirmed by a majority afterwards.
 * R2. Only replies that carry the number of that round (or the same term's current one) count.
 * R3. No round begins before the leader has committed an entry of its own term (S03).
 * R4. With the fence on, the leader's own share counts only once a write of the round's first turn is durable (S01).
 */
import { broadcastHeartbeat } from "./replication.ts";
import {
  type Leader,
  leaderOf,
  leaderTimeMs,
  type MutableOutput,
  majority,
  type RaftState,
  type ReadRequest,
} from "./state.ts";
import type { Message, NodeId } from "./types.ts";

type Of<Kind extends Message["kind"]> = Extract<Message, { kind: Kind }>;

/** More read contexts than this wait for one round: the newest are dropped, their nodes ask again. */
const READS_WAITING_MAX = 4096;

/** A read of this node: confirmed here when leading, else forwarded; without a leader it is dropped (ask again). */
export function onRead(state: RaftState, context: number, nowMs: number, out: MutableOutput): void {
  if (state.role.kind === "leader") {
    waitForRound(state, state.role, { from: state.config.id, context }, nowMs, out);
    return;
  }
  const leader = leaderOf(state);
  if (leader === null) return;
  const message: Message = { kind: "read_index", term: state.term, context };
  out.sendLate.push({ from: state.config.id, to: leader, message });
}

export function onReadIndex(
  state: RaftState,
  from: NodeId,
  message: Of<"read_index">,
  nowMs: number,
  out: MutableOutput,
): void {
  if (state.role.kind === "leader") {
    waitForRound(state, state.role, { from, context: message.context }, nowMs, out);
    return;
  }
  const { term } = state;
  const reply: Message = { kind: "read_index_reply", term, context: message.context, index: null, timeMs: 0 };
  out.sendLate.push({ from: state.config.id, to: from, message: reply });
}

export function onReadIndexReply(message: Of<"read_index_reply">, out: MutableOutput): void {
  // An index confirmed in an earlier term is still a lower bound of what this read must see: it began after the call.
  if (message.index !== null) out.reads.push({ context: message.context, index: message.index });
}

function waitForRound(state: RaftState, role: Leader, request: ReadRequest, nowMs: number, out: MutableOutput): void {
  if (role.reads.waiting.length >= READS_WAITING_MAX) return;
  role.reads.waiting.push(request);
  startRound(state, nowMs, out);
}

/** Begins the next round for all reads that wait, unless one is under way or the term has committed nothing yet. */
export function startRound(state: RaftState, nowMs: number, out: MutableOutput): void {
  const { role } = state;
  if (role.kind !== "leader" || role.reads.round !== null || role.reads.waiting.length === 0) return;
  if (state.commit < role.startIndex) return;
  const { reads } = role;
  reads.lastRound += 1;
  reads.round = { id: reads.lastRound, index: state.commit, requests: reads.waiting, confirmed: new Set() };
  reads.waiting = [];
  if (state.config.fence) out.fence = reads.lastRound;
  broadcastHeartbeat(state, role, out);
  if (!state.config.fence) confirmRound(state, state.config.id, reads.lastRound, nowMs, out);
}

/** Counts a confirmation of the current term; a majority answers every read of the round and begins the next. */
export function confirmRound(state: RaftState, from: NodeId, round: number, nowMs: number, out: MutableOutput): void {
  if (state.role.kind !== "leader") return;
  const { reads } = state.role;
  if (reads.round === null || round !== reads.round.id) return;
  const { confirmed, requests, index } = reads.round;
  confirmed.add(from);
  if (confirmed.size < majority(state)) return;
  reads.round = null;
  const timeMs = leaderTimeMs(state.log, state.role, nowMs);
  for (const request of requests) answer(state, request, { index, timeMs }, out);
  startRound(state, nowMs, out);
}

function answer(
  state: RaftState,
  request: ReadRequest,
  { index, timeMs }: { readonly index: number; readonly timeMs: number },
  out: MutableOutput,
): void {
  if (request.from === state.config.id) {
    out.reads.push({ context: request.context, index });
    return;
  }
  const message: Message = { kind: "read_index_reply", term: state.term, context: request.context, index, timeMs };
  out.sendLate.push({ from: state.config.id, to: request.from, message });
}
