/** What an operator may ask of the leader: to take a node in, to let one go, to hand its leadership over. */
import { newestMembership } from "../raft/log.ts";
import type { Membership, NodeId, Refusal } from "../raft/types.ts";
import { extraOf, incarnationsOf } from "./members.ts";
import { promoted, renewed } from "./readmission.ts";
import type { Drive, NodeState, Running } from "./runtime-state.ts";
import { askedIncarnation } from "./strangers.ts";
import { olderMembers } from "./versions.ts";

/** `add`: the node is a learner, and votes as soon as it has caught up; `promote` does not wait for the leader's own turn. */
export type MemberChange = (
  | { readonly kind: "add" | "remove" | "promote"; readonly id: NodeId }
  /** It is a learner under this incarnation, which its storage is yet to get (errands.ts R4). */
  | { readonly kind: "renew"; readonly id: NodeId; readonly incarnation: number }
) & {
  /** A majority of those who would vote must have replied since then, by the monotonic clock. */
  readonly repliedSinceMs?: number;
};

export type MemberRefusal =
  | Refusal
  /** A member speaks an older version, which knows nothing of changes: upgrade it first. */
  | "older_member"
  /** No configured node. */
  | "unknown_node"
  /** The node has not yet said which storage it has: it was asked now, so ask again. */
  | "not_heard"
  | "not_a_member"
  /** The node leads: it hands over first. */
  | "leads"
  /** This instance does not serve. */
  | "not_running";

export function changeMember(
  state: NodeState,
  running: Running,
  change: MemberChange,
  drive: Drive,
): MemberRefusal | null {
  const { raft } = running;
  if (raft.role.kind !== "leader") return "not_leader";
  if (olderMembers(state, running).length > 0) return "older_member";
  const { membership } = newestMembership(raft.log);
  const { id } = change;
  const { repliedSinceMs = Number.NEGATIVE_INFINITY } = change;
  const propose = (next: Membership) =>
    drive(state, running, { kind: "change_membership", membership: next, repliedSinceMs }).refusal;
  if (change.kind === "remove") return propose(without(membership, id));
  if (change.kind === "promote") {
    if (membership.voters.includes(id)) return "unchanged";
    return membership.learners.includes(id) ? propose(promoted(membership, id)) : "not_a_member";
  }
  if (change.kind === "renew") {
    if (!membership.voters.includes(id) && !membership.learners.includes(id)) return "not_a_member";
    if (id === state.config.id) return membership.voters.length === 1 ? "invalid_membership" : "leads";
    if (membership.learners.some((one) => one !== id)) return "change_pending";
    return propose(renewed(membership, id, change.incarnation));
  }
  if (membership.voters.includes(id) || membership.learners.includes(id)) return "unchanged";
  // As with nodes that come back by themselves: one at a time (readmission.ts A3).
  if (membership.learners.length > 0) return "change_pending";
  if (!state.config.members.includes(id)) return "unknown_node";
  const incarnation = askedIncarnation(state, running, id);
  if (incarnation === null) return "not_heard";
  return propose(renewed(membership, id, incarnation));
}

function without({ voters, learners, ...rest }: Membership, id: NodeId): Membership {
  const others = (ids: readonly NodeId[]) => ids.filter((one) => one !== id);
  const incarnations = [...incarnationsOf({ voters, learners, ...rest })].filter(([one]) => one !== id);
  return { voters: others(voters), learners: others(learners), extra: extraOf(incarnations) };
}
