/**
 * Changes of membership at the leader (thesis 4.1 to 4.2).
 *
 * G1. One at a time: the earlier one must be committed, and an entry of this term too, or the majorities of two leaders
 *     with different uncommitted changes could miss each other.
 * G2. At most one voter comes or goes with a change. It is in force from the moment it is appended.
 * G3. Whoever shall vote has been a learner and is close behind; a change that could not be committed is not begun.
 * G4. A leader that is no voter any more leads until that is committed, without counting itself; then it steps down.
 * G5. Whoever has left hears that it has, so that it stops campaigning; it counts for nothing meanwhile.
 */
import { assert } from "../base/assert.ts";
import { PROMOTION_LAG_ENTRIES_MAX } from "../base/limits.ts";
import { newestMembership } from "./log.ts";
import { equalMemberships, hasMajority, membershipPayload, normalMembership, votersApart } from "./membership.ts";
import { endRound } from "./reads.ts";
import {
  advanceCommit,
  appendOwn,
  broadcastAppend,
  broadcastHeartbeat,
  createProgress,
  sendHeartbeat,
} from "./replication.ts";
import {
  becomeFollower,
  followersOf,
  isMember,
  isReachable,
  isVoter,
  type Leader,
  type MutableOutput,
  membershipOf,
  type RaftState,
} from "./state.ts";
import { askToCampaign } from "./transfer.ts";
import type { Event, Membership, NodeId, Refusal } from "./types.ts";

export function onChangeMembership(
  state: RaftState,
  { membership: wanted, repliedSinceMs }: Extract<Event, { kind: "change_membership" }>,
  nowMs: number,
  out: MutableOutput,
): void {
  const { role } = state;
  const membership = normalMembership(wanted);
  const sinceMs = Math.max(repliedSinceMs ?? Number.NEGATIVE_INFINITY, nowMs - state.config.electionTimeoutMsMax);
  out.refusal = role.kind !== "leader" ? "not_leader" : refusalOf(state, role, membership, sinceMs, nowMs);
  if (role.kind !== "leader" || membership === null || out.refusal !== null) return;
  const before = membershipOf(state);
  out.proposed = { firstIndex: state.log.lastIndex + 1, term: state.term };
  appendOwn(state, role, "membership", [membershipPayload(membership)], nowMs, out);
  followMembership(state, role, before, nowMs);
  broadcastAppend(state, role, out);
  // Fewer voters may agree on more than before.
  advanceCommit(state, role, nowMs);
  endRound(state, role, nowMs, out);
}

function refusalOf(
  state: RaftState,
  role: Leader,
  wanted: Membership | null,
  sinceMs: number,
  nowMs: number,
): Refusal | null {
  const { commit, log } = state;
  const { index, membership } = newestMembership(log);
  if (wanted === null) return "invalid_membership";
  if (role.transfer !== null) return "transferring";
  if (commit < role.startIndex) return "not_ready";
  if (commit < index) return "change_pending";
  if (equalMemberships(membership, wanted)) return "unchanged";
  if (votersApart(membership, wanted) > 1) return "several_voters";
  const added = wanted.voters.find((id) => !membership.voters.includes(id));
  if (added !== undefined && !isCaughtUp(state, role, added, nowMs)) return "not_caught_up";
  return hasMajority(wanted, (id) => hasReplied(state, role, id, sinceMs)) ? null : "quorum_unreachable";
}

/** G3. The benefit of the doubt that a new leader, or one that wakes, gives its followers is no sign of life. */
function hasReplied(state: RaftState, role: Leader, id: NodeId, sinceMs: number): boolean {
  return id === state.config.id || (role.progress.get(id)?.repliedAtMs ?? Number.NEGATIVE_INFINITY) >= sinceMs;
}

/** G3. A learner that answers and is at most one append behind. */
export function isCaughtUp(state: RaftState, role: Leader, id: NodeId, nowMs: number): boolean {
  const progress = role.progress.get(id);
  if (progress === undefined || progress.leftAt !== null || !isReachable(state, progress, nowMs)) return false;
  return progress.kind === "replicate" && progress.match + PROMOTION_LAG_ENTRIES_MAX >= state.log.lastIndex;
}

/** The leader's view of its followers after its own change. */
function followMembership(state: RaftState, role: Leader, before: Membership, nowMs: number): void {
  const { index, membership } = newestMembership(state.log);
  for (const id of followersOf(state)) {
    if (!isSameNode(id, before, membership)) role.progress.set(id, createProgress(index, nowMs));
  }
  for (const [id, progress] of role.progress) if (!isMember(state, id)) progress.leftAt ??= index;
}

/**
 * True if what is known of `id` still holds. Another incarnation may stand behind an id that is new, that was a voter and
 * is a learner now, or that stays a learner while what the caller notes about the members changes.
 */
function isSameNode(id: NodeId, before: Membership, after: Membership): boolean {
  if (before.voters.includes(id)) return after.voters.includes(id);
  return before.learners.includes(id) && (after.voters.includes(id) || before.extra === after.extra);
}

/** G4 and G5: at the end of each step of a leader. */
export function dismiss(state: RaftState, nowMs: number, out: MutableOutput): void {
  const { role, commit } = state;
  if (role.kind !== "leader") return;
  for (const [id, { leftAt, match, kind, heardAtMs }] of role.progress) {
    if (leftAt === null) continue;
    const told = match >= leftAt && commit >= leftAt;
    if (told) sendHeartbeat(state, role, id, out);
    const lost = kind === "snapshot" || heardAtMs + state.config.electionTimeoutMsMax < nowMs;
    if (told || lost) role.progress.delete(id);
  }
  if (isVoter(state, state.config.id) || newestMembership(state.log).index > commit) return;
  // The others learn at once that it is committed, and one of them need not wait for its timer (thesis 4.2.2).
  broadcastHeartbeat(state, role, out);
  const successor = membershipOf(state).voters.find((id) => role.progress.get(id)?.match === state.log.lastIndex);
  if (successor !== undefined) askToCampaign(state, successor, out);
  becomeFollower(state, state.term, null, nowMs);
}

/** The leader follows up exactly the other members, and those that it has not yet told that they are none. */
export function assertFollowers(state: RaftState): void {
  const { role } = state;
  if (role.kind !== "leader") return;
  const { voters, learners } = membershipOf(state);
  const followed = (id: NodeId) => role.progress.has(id) || id === state.config.id;
  assert(voters.every(followed) && learners.every(followed), `of ${voters}/${learners} some are not followed up`);
  for (const [id, { leftAt }] of role.progress) {
    assert(isMember(state, id) === (leftAt === null), `node ${id} has left at ${leftAt}`);
  }
}
