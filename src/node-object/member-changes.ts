/** What an operator may ask of the leader: to take a node in, to let one go, to hand its leadership over. */
import { newestMembership } from "../raft/log.ts";
import type { Membership, NodeId, Refusal } from "../raft/types.ts";
import { extraOf, incarnationOf, incarnationsOf } from "./members.ts";
import { renewed } from "./readmission.ts";
import type { Drive, NodeState, Running } from "./runtime-state.ts";

/** `add`: the node is a learner, and votes as soon as it has caught up. */
export interface MemberChange {
  readonly kind: "add" | "remove";
  readonly id: NodeId;
}

export type MemberRefusal =
  | Refusal
  /** No configured node, or one whose storage this leader has never heard of. */
  | "unknown_node"
  /** This instance does not serve. */
  | "not_running";

export function changeMember(
  state: NodeState,
  running: Running,
  change: MemberChange,
  drive: Drive,
): Refusal | "unknown_node" | null {
  const { raft } = running;
  if (raft.role.kind !== "leader") return "not_leader";
  const { membership } = newestMembership(raft.log);
  const { kind, id } = change;
  if (kind === "remove")
    return drive(state, running, { kind: "change_membership", membership: without(membership, id) }).refusal;
  if (membership.voters.includes(id) || membership.learners.includes(id)) return "unchanged";
  // As with nodes that come back by themselves: one at a time (readmission.ts A3).
  if (membership.learners.length > 0) return "change_pending";
  const incarnation = incarnationOf(raft.log, id);
  if (incarnation === null || !state.config.members.includes(id)) return "unknown_node";
  return drive(state, running, { kind: "change_membership", membership: renewed(membership, id, incarnation) }).refusal;
}

function without({ voters, learners, ...rest }: Membership, id: NodeId): Membership {
  const others = (ids: readonly NodeId[]) => ids.filter((one) => one !== id);
  const incarnations = [...incarnationsOf({ voters, learners, ...rest })].filter(([one]) => one !== id);
  return { voters: others(voters), learners: others(learners), extra: extraOf(incarnations) };
}
