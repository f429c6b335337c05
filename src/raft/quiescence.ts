/**
 * Quiescence: an idle cluster falls asleep and costs nothing until somebody has something to do (design 02 §4).
 *
 * Q1. A leader falls asleep only when its whole log is committed, and durable here and on every member it reaches,
 *     learners and receivers of a snapshot among them; and not while it hands over.
 * Q2. A follower falls asleep only when its log is committed to its end and equals its leader's. If it is never told,
 *     or refuses, its election timer goes on: the pre-vote wakes the leader, so every loss heals itself.
 * Q3. Whatever is asked of a sleeping leader finds it awake, and its followers hear from it in the same step. A leader
 *     that was deposed in its sleep learns it from the first answer.
 * Q4. Safety never depends on any of this: sleep stops timers, it promises nothing. Votes, commitment and reads need a
 *     majority as ever, and a sleeping follower votes as one that hears no leader.
 */
import { assert } from "../base/assert.ts";
import { startPreVote } from "./elections.ts";
import { newestMembership } from "./log.ts";
import { hearsMajority, sendHeartbeat } from "./replication.ts";
import { askAtBase } from "./snapshots.ts";
import {
  electionTime,
  fallAsleep,
  isAsleep,
  isMember,
  isReachable,
  type Leader,
  laggingPeers,
  leaderTimeMs,
  type MutableOutput,
  mayCampaign,
  type Progress,
  type RaftState,
  send,
  sendToPeers,
} from "./state.ts";
import type { Message, NodeId } from "./types.ts";

type Of<Kind extends Message["kind"]> = Extract<Message, { kind: Kind }>;

// Falling asleep

/** The caller lets the cluster sleep. The leader does it if Q1 holds, and tells those who can follow. */
export function onQuiesce(state: RaftState, nowMs: number, out: MutableOutput): void {
  const { role, log } = state;
  if (role.kind !== "leader" || role.asleep !== null || !maySleep(state, role, nowMs)) return;
  const lagging: NodeId[] = [];
  const message: Message = {
    kind: "quiesce",
    term: state.term,
    index: log.lastIndex,
    commit: state.commit,
    timeMs: leaderTimeMs(log, role, nowMs),
  };
  for (const [to, progress] of role.progress) {
    if (isReachable(state, progress, nowMs)) send(state, to, message, out);
    else if (progress.leftAt === null) lagging.push(to);
  }
  role.asleep = { lagging };
  role.heartbeatAtMs = Number.POSITIVE_INFINITY;
  role.commitNoticeAtMs = Number.POSITIVE_INFINITY;
}

/** Q1. The term's `leader_start` stands in the log, so it is committed with the rest. */
function maySleep(state: RaftState, role: Leader, nowMs: number): boolean {
  const { commit, durableIndex, log } = state;
  if (commit !== log.lastIndex || durableIndex !== log.lastIndex) return false;
  if (isReading(role) || role.transfer !== null) return false;
  // Without a majority this is a leader of the past, maybe, and check-quorum has to say so.
  if (!hearsMajority(state, role, nowMs)) return false;
  const follows = (progress: Progress) => progress.match === log.lastIndex && progress.sentCommit === commit;
  return [...role.progress.values()].every((progress) => follows(progress) || !isReachable(state, progress, nowMs));
}

function isReading({ reads }: Leader): boolean {
  return reads.round !== null || reads.waiting.length > 0;
}

/**
 * Q2. The term of the last entry need not be compared: what is committed here stands in the log of every leader of this
 * term (paper 5.4.3), so two logs of the same length, this one committed to its end, are the same log.
 */
export function onQuiesceMessage(state: RaftState, from: NodeId, message: Of<"quiesce">): void {
  const { role, log, commit } = state;
  if (message.term < state.term) return;
  assert(role.kind !== "leader", `two leaders in term ${state.term}: ${state.config.id}, ${from}`);
  if (role.kind !== "follower" || role.leader !== from) return;
  if (log.lastIndex !== message.index || commit !== message.index || message.commit !== message.index) return;
  fallAsleep(role);
}

// Waking up

/**
 * Ends the sleep of this node: a follower's election timer starts anew, a leader has a full election timeout to be
 * answered. The step that woke a leader ends with {@link greetFollowers}.
 */
export function rouse(state: RaftState, nowMs: number): void {
  const { role } = state;
  if (role.kind === "follower" && role.asleep) {
    role.asleep = false;
    role.electionAtMs = electionTime(state, nowMs);
    role.postponed = false;
  } else if (role.kind === "leader" && role.asleep !== null) {
    role.asleep = null;
    role.heartbeatAtMs = nowMs + state.config.heartbeatMs;
    role.postponed = false;
    role.skewedSinceMs = Number.POSITIVE_INFINITY;
    for (const progress of role.progress.values()) {
      progress.heardAtMs = nowMs;
      if (progress.kind === "snapshot") askAtBase(state, progress); // it was away; is it back?
    }
  }
}

/** A heartbeat for every follower to which this step has not sent an append anyway (Q3). */
export function greetFollowers(state: RaftState, out: MutableOutput): void {
  const { role } = state;
  if (role.kind !== "leader") return;
  const told = new Set(out.sendEarly.map(({ to }) => to));
  for (const to of role.progress.keys()) if (!told.has(to)) sendHeartbeat(state, role, to, out);
}

/**
 * True for what was under way when the sleep began and says nothing new: a `quiesce` of the past, and to a leader the
 * answer to its last heartbeat from a member that it knows to hold everything. They wake nobody, or no sleep would last
 * longer than a round trip. Nor does the pre-vote of a node that has left for certain and has not heard so: it gets its
 * answer. Where its leaving is not committed, the sleeper may be the only one that can lead.
 */
export function isEcho(state: RaftState, from: NodeId, message: Message): boolean {
  const { role, term } = state;
  if (message.kind === "pre_vote") return !isMember(state, from) && newestMembership(state.log).index <= state.commit;
  if (message.kind === "quiesce") return message.term < term;
  if (role.kind !== "leader" || role.asleep === null || role.asleep.lagging.includes(from)) return false;
  return message.kind === "append_reply" && message.result.kind === "matched";
}

/** This node has something to do. Repeated without need it does nothing: the first call has started all there is. */
export function onWake(state: RaftState, nowMs: number, wallMs: number, out: MutableOutput): void {
  const { role } = state;
  if (role.kind === "leader") rouse(state, nowMs);
  if (role.kind !== "follower") return; // a candidate's own requests wake the others
  if (!role.asleep && (role.leader !== null || role.called)) return;
  rouse(state, nowMs);
  role.called = true;
  sendToPeers(state, { kind: "wake", term: state.term }, out);
  resumeLeadership(state, nowMs, wallMs, out);
}

/** As with pre-votes, the sender's term changes nothing here: it has only called. */
export function onWakeMessage(state: RaftState, from: NodeId, nowMs: number, wallMs: number, out: MutableOutput): void {
  const { role } = state;
  const slept = isAsleep(state);
  rouse(state, nowMs);
  // A leader that was awake tells the caller alone; one that slept greets everybody.
  if (role.kind === "leader" && !slept) sendHeartbeat(state, role, from, out);
  if (role.kind === "follower" && slept) resumeLeadership(state, nowMs, wallMs, out);
}

/**
 * The last leader campaigns at once when it wakes up without its memory, so that nobody waits for a timer. What is
 * durable only hints at it: a loser of that term's election that has adopted the winner's entries looks the same, and
 * later terms may have begun elsewhere. Hence the pre-vote.
 */
function resumeLeadership(state: RaftState, nowMs: number, wallMs: number, out: MutableOutput): void {
  const { role, log, term, votedFor, config } = state;
  if (role.kind !== "follower" || role.leader !== null || !mayCampaign(state)) return;
  if (votedFor === config.id && log.lastTerm === term) startPreVote(state, nowMs, wallMs, out);
}

// While asleep

/** A member that was behind or away may hold watches: it must not stay behind for as long as nobody writes. */
export function onProbe(state: RaftState, out: MutableOutput): void {
  const { role } = state;
  if (role.kind !== "leader") return;
  for (const to of laggingPeers(state)) sendHeartbeat(state, role, to, out);
}

/** I4 of `step.ts`. */
export function assertSleep(state: RaftState): void {
  const { role, commit, log } = state;
  if (role.kind === "leader" && role.asleep !== null) {
    assert(commit === log.lastIndex, `a leader sleeps at commit ${commit} of ${log.lastIndex}`);
    assert(!isReading(role), "a leader sleeps over reads");
    assert(role.transfer === null, `a leader sleeps while it hands over to ${role.transfer?.to}`);
    assert(role.heartbeatAtMs === Number.POSITIVE_INFINITY, `a sleeping leader has a timer at ${role.heartbeatAtMs}`);
  }
  if (role.kind === "follower") {
    const timer = role.electionAtMs < Number.POSITIVE_INFINITY;
    assert(
      timer !== role.asleep,
      `a follower that is ${role.asleep ? "asleep" : "awake"} has its timer at ${role.electionAtMs}`,
    );
  }
}
