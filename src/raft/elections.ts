/**
 * Elections: pre-vote, votes, becoming leader (paper sections 5.2 and 5.4.1; thesis 4.2.3 and 9.6).
 *
 * E1. One vote per term, durable before the reply leaves (`sendLate`).
 * E2. A vote is refused while a leader is heard, so a returning node with a high term disturbs nobody.
 * E3. Terms rise only in a real campaign: a pre-vote changes nothing on either side.
 */
import { assert } from "../base/assert.ts";
import { appendOwn, broadcastAppend, createProgress } from "./replication.ts";
import {
  becomeFollower,
  electionTime,
  type MutableOutput,
  majority,
  peersOf,
  type RaftState,
  sendToPeers,
} from "./state.ts";
import type { Message, NodeId } from "./types.ts";

type Of<Kind extends Message["kind"]> = Extract<Message, { kind: Kind }>;

/** A follower or candidate whose election timer has run out. */
export function onElectionTimer(state: RaftState, nowMs: number, wallMs: number, out: MutableOutput): void {
  const { role } = state;
  if (role.kind === "leader") return;
  const late = nowMs > role.electionAtMs + state.config.heartbeatMs;
  if (late && !role.postponed) {
    // The thread stalled: messages of a live leader may be queued behind this timer. Hear them first.
    role.postponed = true;
    role.electionAtMs = nowMs + state.config.heartbeatMs;
    return;
  }
  startPreVote(state, nowMs, wallMs, out);
}

/** Asks whether an election could be won, without touching the term (thesis 9.6). */
export function startPreVote(state: RaftState, nowMs: number, wallMs: number, out: MutableOutput): void {
  state.role = {
    kind: "pre_candidate",
    granted: new Set([state.config.id]),
    electionAtMs: electionTime(state, nowMs),
    postponed: false,
  };
  if (majority(state) === 1) {
    startElection(state, nowMs, wallMs, out);
    return;
  }
  const { lastIndex, lastTerm } = state.log;
  sendToPeers(state, { kind: "pre_vote", term: state.term + 1, lastIndex, lastTerm }, out);
}

function startElection(state: RaftState, nowMs: number, wallMs: number, out: MutableOutput): void {
  state.term += 1;
  state.votedFor = state.config.id;
  const granted = new Map([[state.config.id, wallMs]]);
  state.role = { kind: "candidate", granted, electionAtMs: electionTime(state, nowMs), postponed: false };
  if (majority(state) === 1) {
    becomeLeader(state, granted, nowMs, out);
    return;
  }
  const { lastIndex, lastTerm } = state.log;
  sendToPeers(state, { kind: "vote", term: state.term, lastIndex, lastTerm }, out);
}

export function onPreVote(
  state: RaftState,
  from: NodeId,
  message: Of<"pre_vote">,
  nowMs: number,
  out: MutableOutput,
): void {
  const granted = message.term > state.term && !hearsLeader(state, nowMs) && isUpToDate(state, message);
  const term = granted ? message.term : state.term;
  out.sendLate.push({ from: state.config.id, to: from, message: { kind: "pre_vote_reply", term, granted } });
}

export function onPreVoteReply(
  state: RaftState,
  from: NodeId,
  message: Of<"pre_vote_reply">,
  nowMs: number,
  wallMs: number,
  out: MutableOutput,
): void {
  if (!message.granted) {
    if (message.term > state.term) becomeFollower(state, message.term, null, nowMs);
    return;
  }
  if (state.role.kind !== "pre_candidate" || message.term !== state.term + 1) return;
  state.role.granted.add(from);
  if (state.role.granted.size >= majority(state)) startElection(state, nowMs, wallMs, out);
}

/** Grants at most one candidate per term, whose log is at least as up to date (paper 5.4.1). */
export function onVote(
  state: RaftState,
  from: NodeId,
  message: Of<"vote">,
  nowMs: number,
  wallMs: number,
  out: MutableOutput,
): void {
  if (message.term > state.term) {
    if (hearsLeader(state, nowMs)) return; // E2: not even the term is taken over
    becomeFollower(state, message.term, null, nowMs);
  }
  const free = state.votedFor === null || state.votedFor === from;
  const granted = message.term === state.term && free && isUpToDate(state, message);
  if (granted) {
    state.votedFor = from;
    // A pre-candidate gives up here, or its own pre-votes would unseat at once the candidate it has just voted for.
    if (state.role.kind === "follower") state.role.electionAtMs = electionTime(state, nowMs);
    else becomeFollower(state, state.term, null, nowMs);
  }
  const reply = { kind: "vote_reply", term: state.term, granted, wallMs } as const;
  out.sendLate.push({ from: state.config.id, to: from, message: reply });
}

export function onVoteReply(
  state: RaftState,
  from: NodeId,
  message: Of<"vote_reply">,
  nowMs: number,
  out: MutableOutput,
): void {
  if (state.role.kind !== "candidate" || message.term !== state.term || !message.granted) return;
  state.role.granted.set(from, message.wallMs);
  if (state.role.granted.size >= majority(state)) becomeLeader(state, state.role.granted, nowMs, out);
}

function becomeLeader(state: RaftState, granted: ReadonlyMap<NodeId, number>, nowMs: number, out: MutableOutput): void {
  assert(state.votedFor === state.config.id, `leader of term ${state.term} voted for ${state.votedFor}`);
  const next = state.log.lastIndex + 1;
  const progress = new Map(peersOf(state).map((id) => [id, createProgress(next, nowMs)]));
  state.role = {
    kind: "leader",
    progress,
    startIndex: next,
    termWallMs: Math.max(median([...granted.values()]), state.log.lastTimeMs),
    termNowMs: nowMs,
    heartbeatAtMs: nowMs + state.config.heartbeatMs,
    postponed: false,
    commitNoticeAtMs: Number.POSITIVE_INFINITY,
    reads: { waiting: [], round: null, lastRound: 0 },
    asleep: null,
  };
  appendOwn(state, state.role, "leader_start", [{ payload: "", payloadBytes: 0 }], nowMs, out);
  broadcastAppend(state, state.role, out);
}

/** True while a live leader is known: its voters must not help to unseat it (thesis 4.2.3). */
function hearsLeader(state: RaftState, nowMs: number): boolean {
  if (state.role.kind === "leader") return true;
  if (state.role.kind !== "follower" || state.role.leader === null) return false;
  return nowMs < state.role.heardLeaderAtMs + state.config.electionTimeoutMsMin;
}

function isUpToDate(state: RaftState, candidate: { readonly lastIndex: number; readonly lastTerm: number }): boolean {
  if (candidate.lastTerm !== state.log.lastTerm) return candidate.lastTerm > state.log.lastTerm;
  return candidate.lastIndex >= state.log.lastIndex;
}

/** The lower median: of three clocks one wrong one cannot choose it; of two it is the slower one. */
function median(values: readonly number[]): number {
  const sorted = [...values].sort((left, right) => left - right);
  const middle = sorted[(sorted.length - 1) >> 1];
  assert(middle !== undefined, "a leader has at least its own clock");
  return Math.floor(middle);
}
