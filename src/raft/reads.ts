/**
 * ReadIndex: linearizable reads without log entries (thesis section 6.4).
 *
 * R1. A read is served at the commit index of the moment its round began, confirmed by a majority of the voters
 *     afterwards. Learners ask like everybody, but do not confirm.
 * R2. Only replies that carry the number of that round (or the same term's current one) count.
 * R3. No round begins before the leader has committed an entry of its own term (S03).
 * R4. With the fence on, the leader's own share counts only once a write of the round's first turn is durable (S01).
 */
import { broadcastHeartbeat } from "./replication.ts";
import {
  isQuorum,
  type Leader,
  leaderOf,
  leaderTimeMs,
  type MutableOutput,
  type RaftState,
  type ReadRequest,
  send,
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
  send(state, leader, { kind: "read_index", term: state.term, context }, out);
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
  send(state, from, { kind: "read_index_reply", term, context: message.context, index: null, timeMs: 0 }, out);
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

/** Counts a confirmation of the current term; a majority of the voters ends the round and begins the next. */
export function confirmRound(state: RaftState, from: NodeId, round: number, nowMs: number, out: MutableOutput): void {
  if (state.role.kind !== "leader") return;
  const { reads } = state.role;
  if (reads.round === null || round !== reads.round.id) return;
  reads.round.confirmed.add(from);
  endRound(state, state.role, nowMs, out);
}

/** Answers the round's reads if a majority of those who vote now has confirmed it. */
export function endRound(state: RaftState, role: Leader, nowMs: number, out: MutableOutput): void {
  const { reads } = role;
  if (reads.round === null) return;
  const { confirmed, requests, index } = reads.round;
  if (!isQuorum(state, (id) => confirmed.has(id))) return;
  reads.round = null;
  const timeMs = leaderTimeMs(state.log, role, nowMs);
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
  const { context } = request;
  send(state, request.from, { kind: "read_index_reply", term: state.term, context, index, timeMs }, out);
}
