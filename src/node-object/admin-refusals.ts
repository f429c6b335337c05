/** What the reasons of `admin_refused` mean, and what to do: one sentence or two for a person. */
import type { ErrandRefusal } from "./errands.ts";

type Reason =
  | ErrandRefusal
  | "node_unreachable"
  | "not_halted"
  /** Of a repair, in place of what the leader has said. */
  | "would_cost_majority"
  | "not_committed";

export const ADMIN_REFUSALS: Readonly<Record<Reason, string>> = {
  not_leader: "The node does not lead any more; ask again.",
  transferring: "The leader is handing over; ask again in a second.",
  not_ready: "The leader has just been elected and has committed nothing yet; ask again in a second.",
  change_pending:
    "Another change of membership is under way, or a learner has not caught up: one at a time. See `membership` of GET /v1/cluster, and ask again when it is done.",
  invalid_membership: "Nobody would be left to vote.",
  older_member:
    "A member runs an older version, which does not know of changes of membership. Upgrade every node first; see `protocol` in GET /v1/cluster.",
  unchanged: "It is so already.",
  several_voters: "More than one voter would come or go at once.",
  not_caught_up:
    "The node has not caught up with the leader, or does not answer. It votes by itself as soon as it has; see its `applied_index` in GET /v1/cluster.",
  quorum_unreachable:
    "The leader does not hear a majority of those who would vote then, so nothing could be committed. Start the nodes that are down first.",
  not_a_voter: "Only a voter can lead; see `membership` of GET /v1/cluster.",
  already_leader: "The node leads already.",
  unknown_node: "The node is not among those that are configured.",
  not_heard: "The node does not answer the leader. Start it, then ask again.",
  not_a_member: "The node is no member; add it first.",
  leads: "The node leads; hand leadership over first.",
  not_running: "The node serves nothing now; ask another one.",
  no_successor: "No other voter answers the leader, so there is nobody to hand over to.",
  transfer_failed: "The successor did not take over in time; the leader goes on. Ask again, or name another one.",
  formed: "A cluster is formed or being formed already, with these nodes or others; see GET /v1/cluster.",
  not_all_empty:
    "Not all of the named nodes have answered that they are empty, so nothing was formed. Start them all, then ask again.",
  other_cluster: "The node belongs to another cluster; its state stays as it is.",
  superseded: "The node has been repaired or wiped meanwhile and has another storage by now; see GET /v1/cluster.",
  halted: "The node has halted; it has to be repaired, and forms nothing.",
  too_many: "That node is busy with as many requests of administrators as it takes; ask again when some are answered.",
  node_unreachable: "The node does not answer. Start it, then ask again.",
  not_halted: "The node is well. With `force` it gives up its state all the same, and takes in that of the others.",
  would_cost_majority:
    "Without this node no majority of the voters is known to hold what was acknowledged, so it keeps its state. Start the nodes that are down first.",
  not_committed: "The leader could not commit in time that the node comes back; it keeps its state. Ask again.",
};
