/**
 * The core's one entry point: state + event → output (design 02 §1). Pure: no I/O, no clock, no randomness of its own.
 *
 * I1. term, commit and the vote within a term never fall or change back.
 * I2. commit <= lastIndex; nothing at or below commit is truncated; match < next <= lastIndex + 1.
 * I3. Early sends are a leader's appends only, in a term that is durable. Whoever was elected by others has one; a single
 *     voter wins in the turn that begins its term, so its appends to learners wait like all else until it is written.
 * I4. An awake node has a timer; a sleeping one has none, and a sleeping leader has nothing left to do.
 * I5. base <= commit, and the base never falls; base < next, so nothing is asked of the log that is gone (`snapshots.ts`).
 * I6. Consecutive memberships are at most one voter apart (`log.ts`); a leader follows up exactly the other members.
 * A broken invariant throws; the caller discards the output and halts the node, never the data.
 */
import { assert, unreachable } from "../base/assert.ts";
import { skewSuccessor } from "./clock-skew.ts";
import { onElectionTimer, onPreVote, onPreVoteReply, onVote, onVoteReply } from "./elections.ts";
import { termAt, trimCache } from "./log.ts";
import { assertFollowers, dismiss, onChangeMembership } from "./membership-changes.ts";
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
import {
  assertBase,
  isSnapshotWanted,
  onSnapshotOffer,
  onSnapshotReady,
  onSnapshotStaged,
  onTruncateLog,
  releaseSnapshot,
} from "./snapshots.ts";
import {
  becomeFollower,
  emptyOutput,
  isAsleep,
  isMember,
  leaderOf,
  type MutableOutput,
  type RaftState,
} from "./state.ts";
import { beginTransfer, continueTransfer, onTimeoutNow, onTransfer } from "./transfer.ts";
import type { Event, Message, NodeId, Output, Persist, Receipt } from "./types.ts";

/** Handles one event. `nowMs` is monotonic, `wallMs` is the wall clock of this node. */
export function step(state: RaftState, event: Event, nowMs: number, wallMs: number): Output {
  const { term, votedFor, commit } = state;
  const baseIndex = state.log.base.index;
  const slept = isAsleep(state);
  const out = emptyOutput();
  dispatch(state, event, nowMs, wallMs, out);
  startRound(state, nowMs, out);
  if (slept && !isAsleep(state)) greetFollowers(state, out);
  dismiss(state, nowMs, out);
  releaseSnapshot(state);
  const hardStateChanged = state.term !== term || state.votedFor !== votedFor;
  assert(state.term >= term, `term fell from ${term} to ${state.term}`);
  assert(state.term > term || votedFor === null || state.votedFor === votedFor, `second vote in term ${term}`);
  assert(state.commit >= commit, `commit fell from ${commit} to ${state.commit}`);
  assert(state.commit <= state.log.lastIndex, `commit ${state.commit} beyond ${state.log.lastIndex}`);
  assert(out.truncateFrom === null || out.truncateFrom > commit, `truncation at ${out.truncateFrom}, commit ${commit}`);
  assert(state.log.base.index >= baseIndex, `the log's base fell from ${baseIndex} to ${state.log.base.index}`);
  assertProgress(state);
  assertFollowers(state);
  assertBase(state);
  assertSleep(state);
  trimCache(state.log, Math.min(state.durableIndex, state.commit));
  return seal(state, out, hardStateChanged, nowMs);
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
    case "change_membership":
      if (state.role.kind === "leader") rouse(state, nowMs);
      onChangeMembership(state, event, nowMs, out);
      return;
    case "transfer":
      if (state.role.kind === "leader") rouse(state, nowMs);
      onTransfer(state, event.to, nowMs, out);
      return;
    case "truncate_log":
      onTruncateLog(state, event.index, out);
      return;
    case "snapshot_ready":
      onSnapshotReady(state, event.snapshot, out);
      return;
    case "snapshot_staged":
      if (state.role.kind === "follower") rouse(state, nowMs);
      onSnapshotStaged(state, event.snapshot, nowMs, wallMs, out);
      return;
    default:
      unreachable(event);
  }
}

function onTick(state: RaftState, nowMs: number, wallMs: number, out: MutableOutput): void {
  if (state.role.kind !== "leader") {
    if (nowMs >= state.role.electionAtMs) onElectionTimer(state, nowMs, wallMs, out);
    return;
  }
  onLeaderTick(state, state.role, nowMs, out);
  if (state.role.kind !== "leader") return; // it has stepped down
  continueTransfer(state, state.role, nowMs, out);
  const successor = skewSuccessor(state, state.role, nowMs, wallMs);
  if (successor !== null) beginTransfer(state, state.role, successor, nowMs, out);
}

/**
 * What a node may say that is not a member here. A leader or a candidate may have been taken in by an entry that has not
 * arrived yet (thesis 4.2.1); elections protect themselves (`elections.ts`, E2). All else of a stranger is ignored.
 */
function isHeard(state: RaftState, from: NodeId, { kind }: Message): boolean {
  if (isMember(state, from) || leaderOf(state) === from) return true;
  if (state.role.kind === "leader" && state.role.progress.has(from)) return true;
  return isForStrangers(kind);
}

/** What any node may say to any other one, whatever the log of the receiver tells of the sender. */
export function isForStrangers(kind: Message["kind"]): boolean {
  return kind === "append" || kind === "snapshot_offer" || kind === "pre_vote" || kind === "vote";
}

function onMessage(
  state: RaftState,
  from: NodeId,
  message: Message,
  nowMs: number,
  wallMs: number,
  out: MutableOutput,
): void {
  if (from === state.config.id || !isHeard(state, from, message)) return;
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
    case "snapshot_offer":
      onSnapshotOffer(state, from, message, nowMs, wallMs, out);
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
      if (state.role.kind === "leader") continueTransfer(state, state.role, nowMs, out);
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
    case "timeout_now":
      onTimeoutNow(state, message, nowMs, wallMs, out);
      return;
    default:
      unreachable(message);
  }
}

/** Own writes are durable: (index, term) guards against an entry that was overwritten meanwhile (S09). */
function onStored(state: RaftState, receipt: Receipt, nowMs: number, out: MutableOutput): void {
  const { index, indexTerm, term, round } = receipt;
  state.durableTerm = Math.max(state.durableTerm, term);
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

function seal(state: RaftState, out: MutableOutput, hardStateChanged: boolean, nowMs: number): Output {
  const logChanged = out.truncateFrom !== null || out.append.length > 0;
  const writes = hardStateChanged || logChanged || out.install !== null || out.dropThrough !== null || out.fence > 0;
  const persist: Persist | null = writes
    ? {
        receipt: { index: state.log.lastIndex, indexTerm: state.log.lastTerm, term: state.term, round: out.fence },
        hardState: hardStateChanged ? { term: state.term, votedFor: state.votedFor } : null,
        truncateFrom: out.truncateFrom,
        install: out.install,
        append: out.append,
        dropThrough: out.dropThrough,
        fence: out.fence,
      }
    : null;
  const isTermDurable = state.durableTerm === state.term;
  return {
    sendEarly: isTermDurable ? out.sendEarly : [],
    persist,
    sendLate: isTermDurable ? out.sendLate : [...out.sendEarly, ...out.sendLate],
    commitIndex: state.commit,
    reads: out.reads,
    proposed: out.proposed,
    refusal: out.refusal,
    snapshotWanted: isSnapshotWanted(state, nowMs),
    snapshotOffer: out.snapshotOffer,
    wakeAtMs: wakeTime(state),
  };
}

function wakeTime({ role }: RaftState): number {
  if (role.kind !== "leader") return role.electionAtMs;
  return Math.min(role.heartbeatAtMs, role.commitNoticeAtMs, role.transfer?.untilMs ?? Number.POSITIVE_INFINITY);
}
