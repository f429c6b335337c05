/**
 * Elections: pre-vote, votes, becoming leader (paper sections 5.2 and 5.4.1; thesis 4.2 and 9.6).
 *
 * E1. One vote per term, durable before the reply leaves (`sendLate`).
 * E2. A vote is refused while a leader is heard, so a returning or removed node with a high term disturbs nobody (S56);
 *     unless that leader has asked for the election itself (thesis 4.2.3).
 * E3. Terms rise only in a real campaign: a pre-vote changes nothing on either side.
 * E4. A candidate counts the votes of its own voters only. Who votes does not ask whether the candidate, or it itself, is
 *     a member: the log that says so may not have arrived, and the vote may be needed (thesis 4.2.1).
 */
import { assert } from "../base/assert.ts";
import { appendOwn, broadcastAppend, createProgress } from "./replication.ts";
import {
  becomeFollower,
  electionTime,
  fallAsleep,
  followersOf,
  isMember,
  isQuorum,
  type MutableOutput,
  mayCampaign,
  medianClock,
  type RaftState,
  send,
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
  if (mayCampaign(state)) startPreVote(state, nowMs, wallMs, out);
  else awaitLeader(state, nowMs, out);
}

/**
 * A learner, or whoever has left, can do nothing about a missing leader: it forgets it, and sleeps until it hears
 * anything. A learner calls the voters first, as a voter's pre-vote would: the whole cluster may be asleep but for it.
 */
function awaitLeader(state: RaftState, nowMs: number, out: MutableOutput): void {
  becomeFollower(state, state.term, null, nowMs);
  if (state.role.kind === "follower") fallAsleep(state.role);
  if (isMember(state, state.config.id)) sendToPeers(state, { kind: "wake", term: state.term }, out);
}

/** Asks whether an election could be won, without touching the term (thesis 9.6). */
export function startPreVote(state: RaftState, nowMs: number, wallMs: number, out: MutableOutput): void {
  state.role = {
    kind: "pre_candidate",
    granted: new Set([state.config.id]),
    electionAtMs: electionTime(state, nowMs),
    postponed: false,
  };
  if (isQuorum(state, (id) => id === state.config.id)) {
    startElection(state, { transfer: false }, nowMs, wallMs, out);
    return;
  }
  const { lastIndex, lastTerm } = state.log;
  sendToPeers(state, { kind: "pre_vote", term: state.term + 1, lastIndex, lastTerm }, out);
}

/** `transfer`: the leader has asked for it, so its voters need not protect it. */
export function startElection(
  state: RaftState,
  { transfer }: { readonly transfer: boolean },
  nowMs: number,
  wallMs: number,
  out: MutableOutput,
): void {
  state.term += 1;
  state.votedFor = state.config.id;
  const granted = new Map([[state.config.id, wallMs]]);
  state.role = { kind: "candidate", granted, electionAtMs: electionTime(state, nowMs), postponed: false };
  if (isQuorum(state, (id) => id === state.config.id)) {
    becomeLeader(state, granted, nowMs, out);
    return;
  }
  const { lastIndex, lastTerm } = state.log;
  sendToPeers(state, { kind: "vote", term: state.term, lastIndex, lastTerm, transfer }, out);
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
  send(state, from, { kind: "pre_vote_reply", term, granted }, out);
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
  const { granted } = state.role;
  granted.add(from);
  if (isQuorum(state, (id) => granted.has(id))) startElection(state, { transfer: false }, nowMs, wallMs, out);
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
    if (!message.transfer && hearsLeader(state, nowMs)) return; // E2: not even the term is taken over
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
  send(state, from, { kind: "vote_reply", term: state.term, granted, wallMs }, out);
}

export function onVoteReply(
  state: RaftState,
  from: NodeId,
  message: Of<"vote_reply">,
  nowMs: number,
  out: MutableOutput,
): void {
  if (state.role.kind !== "candidate" || message.term !== state.term || !message.granted) return;
  const { granted } = state.role;
  granted.set(from, message.wallMs);
  state.durableTerm = state.term; // the request has left behind its write
  if (isQuorum(state, (id) => granted.has(id))) becomeLeader(state, granted, nowMs, out);
}

function becomeLeader(state: RaftState, granted: ReadonlyMap<NodeId, number>, nowMs: number, out: MutableOutput): void {
  assert(state.votedFor === state.config.id, `leader of term ${state.term} voted for ${state.votedFor}`);
  const next = state.log.lastIndex + 1;
  const progress = new Map(followersOf(state).map((id) => [id, createProgress(next, nowMs)]));
  const wallMs = medianClock([...granted.values()]);
  state.role = {
    kind: "leader",
    progress,
    startIndex: next,
    termWallMs: Math.max(wallMs, state.log.lastTimeMs),
    termNowMs: nowMs,
    inheritedSkewMs: Math.max(0, state.log.lastTimeMs - wallMs),
    skewedSinceMs: Number.POSITIVE_INFINITY,
    heartbeatAtMs: nowMs + state.config.heartbeatMs,
    postponed: false,
    commitNoticeAtMs: Number.POSITIVE_INFINITY,
    reads: { waiting: [], round: null, lastRound: 0 },
    snapshot: null,
    transfer: null,
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
