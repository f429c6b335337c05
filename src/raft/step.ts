/**
 * The core's one entry point: state + event → output (design 02 §1). Pure: no I/O, no clock, no randomness of its own.
 *
 * I1. term, commit and the vote within a term never fall or change back.
 * I2. commit <= lastIndex; nothing at or below commit is truncated; match < next <= lastIndex + 1.
 * I3. Early sends are a leader's appends only, in a turn that does not change the hard state.
 * I4. An awake node has a timer; a sleeping one has none, and a sleeping leader has nothing left to do.
 * A broken invariant throws; the caller discards the output and halts the node, never the data.
 */
import { assert, unreachable } from "../base/assert.ts";
import { onElectionTimer, onPreVote, onPreVoteReply, onVote, onVoteReply } from "./elections.ts";
import { termAt, trimCache } from "./log.ts";
import {
  assertSleep,
  greetFollowers,
  isEcho,
  onProbe,
  onQuiesce,
  onQuiesceMessage,
  onWake,
  onWakeMessage,
  rouse,
} from "./quiescence.ts";
import { confirmRound, onRead, onReadIndex, onReadIndexReply, startRound } from "./reads.ts";
import { advanceCommit, onAppend, onAppendReply, onLeaderTick, onPropose } from "./replication.ts";
import { becomeFollower, emptyOutput, isAsleep, type MutableOutput, type RaftState } from "./state.ts";
import type { Event, Message, NodeId, Output, Persist, Receipt } from "./types.ts";

/** Handles one event. `nowMs` is monotonic, `wallMs` is the wall clock of this node. */
export function step(state: RaftState, event: Event, nowMs: number, wallMs: number): Output {
  const { term, votedFor, commit } = state;
  const slept = isAsleep(state);
  const out = emptyOutput();
  dispatch(state, event, nowMs, wallMs, out);
  startRound(state, nowMs, out);
  if (slept && !isAsleep(state)) greetFollowers(state, out);
  const hardStateChanged = state.term !== term || state.votedFor !== votedFor;
  assert(state.term >= term, `term fell from ${term} to ${state.term}`);
  assert(state.term > term || votedFor === null || state.votedFor === votedFor, `second vote in term ${term}`);
  assert(state.commit >= commit, `commit fell from ${commit} to ${state.commit}`);
  assert(state.commit <= state.log.lastIndex, `commit ${state.commit} beyond ${state.log.lastIndex}`);
  assert(out.truncateFrom === null || out.truncateFrom > commit, `truncation at ${out.truncateFrom}, commit ${commit}`);
  assertProgress(state);
  assertSleep(state);
  assert(out.sendEarly.length === 0 || !hardStateChanged, "early sends in a turn that changes the hard state");
  trimCache(state.log, Math.min(state.durableIndex, state.commit));
  return seal(state, out, hardStateChanged);
}

function dispatch(state: RaftState, event: Event, nowMs: number, wallMs: number, out: MutableOutput): void {
  switch (event.kind) {
    case "tick":
      onTick(state, nowMs, wallMs, out);
      return;
    case "message":
      onMessage(state, event.from, event.message, nowMs, wallMs, out);
      return;
    case "propose":
      if (state.role.kind === "leader") rouse(state, nowMs);
      onPropose(state, event.payloads, nowMs, out);
      return;
    case "read":
      rouse(state, nowMs);
      onRead(state, event.context, nowMs, out);
      return;
    case "stored":
      onStored(state, event.receipt, nowMs, out);
      return;
    case "quiesce":
      onQuiesce(state, nowMs, out);
      return;
    case "wake":
      onWake(state, nowMs, wallMs, out);
      return;
    case "probe":
      onProbe(state, out);
      return;
    default:
      unreachable(event);
  }
}

function onTick(state: RaftState, nowMs: number, wallMs: number, out: MutableOutput): void {
  if (state.role.kind === "leader") onLeaderTick(state, state.role, nowMs, out);
  else if (nowMs >= state.role.electionAtMs) onElectionTimer(state, nowMs, wallMs, out);
}

function onMessage(
  state: RaftState,
  from: NodeId,
  message: Message,
  nowMs: number,
  wallMs: number,
  out: MutableOutput,
): void {
  if (from === state.config.id || !state.config.voters.includes(from)) return;
  if (message.kind === "wake") {
    onWakeMessage(state, from, nowMs, wallMs, out);
    return;
  }
  if (!isEcho(state, from, message)) rouse(state, nowMs);
  switch (message.kind) {
    case "pre_vote":
      onPreVote(state, from, message, nowMs, out);
      return;
    case "pre_vote_reply":
      onPreVoteReply(state, from, message, nowMs, wallMs, out);
      return;
    case "vote":
      onVote(state, from, message, nowMs, wallMs, out);
      return;
    case "append":
      onAppend(state, from, message, nowMs, wallMs, out);
      return;
  }
  // Whatever else carries a higher term ends this node's role in the older one (paper 5.1).
  if (message.term > state.term) becomeFollower(state, message.term, null, nowMs);
  switch (message.kind) {
    case "vote_reply":
      onVoteReply(state, from, message, nowMs, out);
      return;
    case "append_reply":
      onAppendReply(state, from, message, nowMs, out);
      if (message.term === state.term) confirmRound(state, from, message.round, nowMs, out);
      return;
    case "read_index":
      onReadIndex(state, from, message, nowMs, out);
      return;
    case "read_index_reply":
      onReadIndexReply(message, out);
      return;
    case "quiesce":
      onQuiesceMessage(state, from, message);
      return;
    default:
      unreachable(message);
  }
}

/** Own writes are durable: (index, term) guards against an entry that was overwritten meanwhile (S09). */
function onStored(state: RaftState, receipt: Receipt, nowMs: number, out: MutableOutput): void {
  const { index, indexTerm, term, round } = receipt;
  if (index > state.durableIndex && termAt(state.log, index) === indexTerm) state.durableIndex = index;
  if (state.role.kind !== "leader") return;
  advanceCommit(state, state.role, nowMs);
  if (round > 0 && term === state.term) confirmRound(state, state.config.id, round, nowMs, out);
}

function assertProgress(state: RaftState): void {
  if (state.role.kind !== "leader") return;
  for (const [id, { match, next }] of state.role.progress) {
    assert(match < next, `match ${match} of node ${id} is not below next ${next}`);
    assert(next <= state.log.lastIndex + 1, `next ${next} of node ${id} beyond ${state.log.lastIndex}`);
  }
}

function seal(state: RaftState, out: MutableOutput, hardStateChanged: boolean): Output {
  const writes = hardStateChanged || out.truncateFrom !== null || out.append.length > 0 || out.fence > 0;
  const persist: Persist | null = writes
    ? {
        receipt: { index: state.log.lastIndex, indexTerm: state.log.lastTerm, term: state.term, round: out.fence },
        hardState: hardStateChanged ? { term: state.term, votedFor: state.votedFor } : null,
        truncateFrom: out.truncateFrom,
        append: out.append,
        fence: out.fence,
      }
    : null;
  return {
    sendEarly: out.sendEarly,
    persist,
    sendLate: out.sendLate,
    commitIndex: state.commit,
    reads: out.reads,
    proposed: out.proposed,
    wakeAtMs: wakeTime(state),
  };
}

function wakeTime(state: RaftState): number {
  if (state.role.kind === "leader") return Math.min(state.role.heartbeatAtMs, state.role.commitNoticeAtMs);
  return state.role.electionAtMs;
}
