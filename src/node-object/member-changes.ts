/** What an operator may ask of the leader: to take a node in, to let one go, to hand its leadership over. */
import { newestMembership } from "../raft/log.ts";
import type { Membership, NodeId, Refusal } from "../raft/types.ts";
import { extraOf, incarnationsOf } from "./members.ts";
import { renewed } from "./readmission.ts";
import type { Drive, NodeState, Running } from "./runtime-state.ts";
import { askedIncarnation } from "./strangers.ts";
import { olderMembers } from "./versions.ts";

/** `add`: the node is a learner, and votes as soon as it has caught up. */
export interface MemberChange {
  readonly kind: "add" | "remove";
  readonly id: NodeId;
}

export type MemberRefusal =
  | Refusal
  /** A member speaks an older version, which knows nothing of changes: upgrade it first. */
  | "older_member"
  /** No configured node. */
  | "unknown_node"
  /** The node has not yet said which storage it has: it was asked now, so ask again. */
  | "not_heard"
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
  const { kind, id } = change;
  if (kind === "remove")
    return drive(state, running, { kind: "change_membership", membership: without(membership, id) }).refusal;
  if (membership.voters.includes(id) || membership.learners.includes(id)) return "unchanged";
  // As with nodes that come back by themselves: one at a time (readmission.ts A3).
  if (membership.learners.length > 0) return "change_pending";
  if (!state.config.members.includes(id)) return "unknown_node";
  const incarnation = askedIncarnation(state, running, id);
  if (incarnation === null) return "not_heard";
  return drive(state, running, { kind: "change_membership", membership: renewed(membership, id, incarnation) }).refusal;
}

function without({ voters, learners, ...rest }: Membership, id: NodeId): Membership {
  const others = (ids: readonly NodeId[]) => ids.filter((one) => one !== id);
  const incarnations = [...incarnationsOf({ voters, learners, ...rest })].filter(([one]) => one !== id);
  return { voters: others(voters), learners: others(learners), extra: extraOf(incarnations) };
}
