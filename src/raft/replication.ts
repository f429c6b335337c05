/**
 * Log replication and commitment (paper sections 5.3 and 5.4.2; thesis 10.2.1 for the pipeline).
 *
 * P1. An acknowledgement names only what its message verified, and leaves only behind the follower's own write.
 * P2. The log is truncated only where an entry of another term stands, never at or below the commit index.
 * P3. Only entries of the leader's own term are committed by counting, and only voters count (thesis 4.2.1).
 * P4. A follower's commit index never passes what the message verified.
 * P5. Nothing is asked of the log below its base: a follower that needs it needs a snapshot (`snapshots.ts`).
 */
import { assert } from "../base/assert.ts";
import { APPEND_BYTES_MAX, APPEND_ENTRIES_MAX, APPENDS_IN_FLIGHT_MAX } from "../base/limits.ts";
import { noteClock } from "./clock-skew.ts";
import { appendEntries, entriesFrom, termAt, truncateLog } from "./log.ts";
import { awaitSnapshot, offerSnapshot } from "./snapshots.ts";
import {
  becomeFollower,
  isQuorum,
  isReachable,
  type Leader,
  leaderTimeMs,
  type MutableOutput,
  majority,
  membershipOf,
  type Progress,
  type RaftState,
  send,
} from "./state.ts";
import type { AppendResult, Entry, Message, NodeId, ProposalPayload } from "./types.ts";

type Of<Kind extends Message["kind"]> = Extract<Message, { kind: Kind }>;

/** Followers that get no entries hear of a new commit index within this share of a heartbeat. */
const COMMIT_NOTICE_SHARE = 5;

export function createProgress(next: number, nowMs: number): Progress {
  return {
    kind: "probe",
    match: 0,
    next,
    inFlight: [],
    probing: false,
    heardAtMs: nowMs,
    repliedAtMs: Number.NEGATIVE_INFINITY,
    sentCommit: 0,
    clock: null,
    leftAt: null,
  };
}

/** Appends entries of the leader's own term to its log and to the output; the caller sends them. */
export function appendOwn(
  state: RaftState,
  role: Leader,
  kind: Entry["kind"],
  payloads: readonly ProposalPayload[],
  nowMs: number,
  out: MutableOutput,
): void {
  const timeMs = leaderTimeMs(state.log, role, nowMs);
  const first = state.log.lastIndex + 1;
  const entries = payloads.map((proposal, position) => ({
    index: first + position,
    term: state.term,
    timeMs,
    kind,
    ...proposal,
  }));
  appendEntries(state.log, entries);
  out.append.push(...entries);
}

export function onPropose(
  state: RaftState,
  payloads: readonly ProposalPayload[],
  nowMs: number,
  out: MutableOutput,
): void {
  const { role } = state;
  if (role.kind !== "leader" || role.transfer !== null) {
    // While it hands over, a leader takes on nothing: the one that takes over must reach its end (thesis 3.10).
    out.refusal = role.kind === "leader" ? "transferring" : "not_leader";
    return;
  }
  out.proposed = { firstIndex: state.log.lastIndex + 1, term: state.term };
  appendOwn(state, role, "command", payloads, nowMs, out);
  broadcastAppend(state, role, out);
}

export function broadcastAppend(state: RaftState, role: Leader, out: MutableOutput): void {
  for (const [to, progress] of role.progress) sendAppends(state, role, to, progress, out);
}

/** Sends what the follower's window allows. */
function sendAppends(state: RaftState, role: Leader, to: NodeId, progress: Progress, out: MutableOutput): void {
  if (progress.kind === "snapshot") return;
  if (progress.kind === "probe") {
    if (progress.probing || progress.next > state.log.lastIndex) return;
    sendAppend(state, role, to, progress, true, out);
    progress.probing = true;
    return;
  }
  while (progress.next <= state.log.lastIndex && progress.inFlight.length < APPENDS_IN_FLIGHT_MAX) {
    const count = sendAppend(state, role, to, progress, true, out);
    assert(count > 0, `no entry at ${progress.next} of ${state.log.lastIndex}`);
    progress.next += count;
    progress.inFlight.push(progress.next - 1);
  }
}

/** One append behind `next - 1`; without entries it is a heartbeat that verifies the same position. */
function sendAppend(
  state: RaftState,
  role: Leader,
  to: NodeId,
  progress: Progress,
  withEntries: boolean,
  out: MutableOutput,
): number {
  const prevIndex = progress.next - 1;
  const prevTerm = termAt(state.log, prevIndex);
  assert(prevTerm !== undefined, `no term at ${prevIndex} of ${state.log.lastIndex}`);
  const entries = withEntries ? entriesFrom(state.log, progress.next, APPEND_ENTRIES_MAX, APPEND_BYTES_MAX) : [];
  const round = role.reads.round?.id ?? 0;
  const message: Message = {
    kind: "append",
    term: state.term,
    prevIndex,
    prevTerm,
    commit: state.commit,
    round,
    entries,
  };
  // Appends of a durable term may leave before the leader's own write: it replicates beside its own commit.
  out.sendEarly.push({ from: state.config.id, to, message });
  progress.sentCommit = state.commit;
  return entries.length;
}

/** Verifies every follower's position, carries commit index and round, and so repairs whatever was lost (S11). */
export function broadcastHeartbeat(state: RaftState, role: Leader, out: MutableOutput): void {
  for (const to of role.progress.keys()) sendHeartbeat(state, role, to, out);
}

export function sendHeartbeat(state: RaftState, role: Leader, to: NodeId, out: MutableOutput): void {
  const progress = role.progress.get(to);
  assert(progress !== undefined, `node ${to} is not a follower of ${state.config.id}`);
  // A probe stays out: the answer to the heartbeat ends it, and a peer that does not answer gets no entries meanwhile.
  sendAppend(state, role, to, progress, false, out);
  if (progress.kind === "snapshot") offerSnapshot(state, role, to, out);
}

export function onLeaderTick(state: RaftState, role: Leader, nowMs: number, out: MutableOutput): void {
  if (nowMs >= role.heartbeatAtMs) {
    // After a stall of our own thread the replies may be queued behind this timer: judge at the next heartbeat.
    const late = nowMs > role.heartbeatAtMs + state.config.heartbeatMs;
    const judged = !late || role.postponed;
    if (judged && !hearsMajority(state, role, nowMs)) {
      becomeFollower(state, state.term, null, nowMs);
      return;
    }
    role.postponed = !judged;
    role.heartbeatAtMs = nowMs + state.config.heartbeatMs;
    role.commitNoticeAtMs = Number.POSITIVE_INFINITY;
    broadcastHeartbeat(state, role, out);
  } else if (nowMs >= role.commitNoticeAtMs) {
    role.commitNoticeAtMs = Number.POSITIVE_INFINITY;
    for (const [to, progress] of role.progress) {
      if (progress.kind === "replicate" && progress.sentCommit < state.commit)
        sendAppend(state, role, to, progress, false, out);
    }
  }
}

/** Check-quorum (thesis 6.2): a leader that a majority has not answered for an election timeout leads nobody. */
export function hearsMajority(state: RaftState, role: Leader, nowMs: number): boolean {
  return isQuorum(state, (id) => hears(state, role, id, nowMs));
}

/** True for this node itself, and for a follower that has answered within an election timeout. */
export function hears(state: RaftState, role: Leader, id: NodeId, nowMs: number): boolean {
  if (id === state.config.id) return true;
  const progress = role.progress.get(id);
  return progress !== undefined && isReachable(state, progress, nowMs);
}

export function onAppend(
  state: RaftState,
  from: NodeId,
  message: Of<"append">,
  nowMs: number,
  wallMs: number,
  out: MutableOutput,
): void {
  const reply = (result: AppendResult, round: number) => {
    send(state, from, { kind: "append_reply", term: state.term, result, round, wallMs }, out);
  };
  if (message.term < state.term) {
    // The higher term in the reply tells a leader of the past that its time is over. It says nothing else, neither a
    // round nor a position: the sender may lead that higher term by now and would take them for answers of its own term.
    reply({ kind: "conflict", prevIndex: 0, index: 0, term: 0 }, 0);
    return;
  }
  assert(
    state.role.kind !== "leader" || message.term > state.term,
    `two leaders in term ${state.term}: ${state.config.id}, ${from}`,
  );
  becomeFollower(state, message.term, from, nowMs);
  // A confirmation counts only behind a storage write of this turn; an append of entries is one already.
  if (state.config.fence && message.round > 0) out.fence = message.round;
  reply(takeEntries(state, message, out), message.round);
}

/** Matches, truncates, appends; commits what is verified. */
function takeEntries(state: RaftState, message: Of<"append">, out: MutableOutput): AppendResult {
  const { log } = state;
  let { prevIndex, prevTerm, entries } = message;
  if (prevIndex < state.commit) {
    // What is committed here equals the leader's log: start behind it (stale and duplicated messages end here).
    const known = entries[state.commit - prevIndex - 1];
    assert(
      known === undefined || known.term === termAt(log, state.commit),
      `entry ${state.commit} is committed, the leader of term ${message.term} has term ${known?.term} there`,
    );
    entries = entries.slice(state.commit - prevIndex);
    prevIndex = state.commit;
    prevTerm = termAt(log, prevIndex) ?? 0;
  }
  if (termAt(log, prevIndex) !== prevTerm) return conflictBelow(state, message);
  const verified = prevIndex + entries.length;
  const fresh = entries.findIndex((entry) => termAt(log, entry.index) !== entry.term);
  if (fresh >= 0) {
    const appended = entries.slice(fresh);
    const first = prevIndex + fresh + 1;
    if (first <= log.lastIndex) {
      assert(first > state.commit, `truncation at ${first} below the commit index ${state.commit}`);
      truncateLog(log, first);
      state.durableIndex = Math.min(state.durableIndex, first - 1);
      out.truncateFrom = first;
    }
    appendEntries(log, appended);
    out.append.push(...appended);
  }
  state.commit = Math.max(state.commit, Math.min(message.commit, verified));
  return { kind: "matched", index: verified };
}

/**
 * The largest index at or below the leader's guess that could still match: (index, term) of our own log. What is
 * committed does match, so the search ends there at the latest and never falls below the base.
 */
function conflictBelow({ log, commit }: RaftState, message: Of<"append">): AppendResult {
  let index = Math.min(message.prevIndex, log.lastIndex);
  let term = termAt(log, index) ?? 0;
  while (index > commit && term > message.prevTerm) {
    index -= 1;
    term = termAt(log, index) ?? 0;
  }
  return { kind: "conflict", prevIndex: message.prevIndex, index, term };
}

export function onAppendReply(
  state: RaftState,
  from: NodeId,
  message: Of<"append_reply">,
  nowMs: number,
  out: MutableOutput,
): void {
  if (state.role.kind !== "leader" || message.term !== state.term) return;
  const role = state.role;
  const progress = role.progress.get(from);
  if (progress === undefined) return;
  progress.heardAtMs = nowMs;
  progress.repliedAtMs = nowMs;
  noteClock(state, progress, message.wallMs, nowMs);
  if (message.result.kind === "matched") onMatched(state, role, progress, message.result.index, nowMs);
  else onConflict(state, role, from, progress, message.result, out);
  sendAppends(state, role, from, progress, out);
}

function onMatched(state: RaftState, role: Leader, progress: Progress, index: number, nowMs: number): void {
  assert(index <= state.log.lastIndex, `match ${index} beyond the log's end ${state.log.lastIndex}`);
  // Below the base nothing could follow: such a reply is late, or the snapshot that it tells of is too old already.
  if (progress.kind !== "replicate" && index >= state.log.base.index) {
    progress.kind = "replicate";
    progress.probing = false;
    progress.next = index + 1;
  }
  if (index > progress.match) progress.match = index;
  if (progress.next <= progress.match) progress.next = progress.match + 1;
  while ((progress.inFlight[0] ?? Number.POSITIVE_INFINITY) <= index) progress.inFlight.shift();
  advanceCommit(state, role, nowMs);
}

/**
 * Back to probing, at the highest index where both logs can agree (paper 5.3, the accelerated back-up); where that is
 * below the base, the follower needs a snapshot.
 */
function onConflict(
  state: RaftState,
  role: Leader,
  from: NodeId,
  progress: Progress,
  conflict: Extract<AppendResult, { kind: "conflict" }>,
  out: MutableOutput,
): void {
  // A reply that is older than what we know already says nothing.
  if (conflict.prevIndex <= progress.match) return;
  if (progress.kind === "probe" && conflict.prevIndex !== progress.next - 1) return;
  let index = Math.min(conflict.index, state.log.lastIndex);
  while (index > progress.match && (termAt(state.log, index) ?? 0) > conflict.term) index -= 1;
  if (Math.max(index, progress.match) < state.log.base.index) {
    if (progress.kind !== "snapshot") awaitSnapshot(state, role, from, progress, out);
    return;
  }
  progress.kind = "probe";
  progress.probing = false;
  progress.inFlight.length = 0;
  progress.next = Math.max(index, progress.match) + 1;
}

/** Commits the highest entry of the own term that a majority of the voters has durably (P3). */
export function advanceCommit(state: RaftState, role: Leader, nowMs: number): void {
  // A leader that removes itself replicates what it does not count for (thesis 4.2.2).
  const matches = membershipOf(state).voters.map((id) => {
    return id === state.config.id ? state.durableIndex : (role.progress.get(id)?.match ?? 0);
  });
  matches.sort((left, right) => right - left);
  const index = matches[majority(state) - 1] ?? 0;
  if (index <= state.commit || termAt(state.log, index) !== state.term) return;
  state.commit = index;
  const noticeAtMs = nowMs + state.config.heartbeatMs / COMMIT_NOTICE_SHARE;
  role.commitNoticeAtMs = Math.min(role.commitNoticeAtMs, noticeAtMs);
}
