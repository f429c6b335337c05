/**
 * Versions of what nodes say to each other, so that a cluster can be upgraded node by node: each version is understood by
 * the one before it and the one after it.
 *
 * V1. Each message is said in the highest version that both sides speak. What the other side speaks is known from what it
 *     has said; until then it is taken for the oldest, whose words everybody knows.
 * V2. What a version cannot say is not said to a node that speaks no later one: it catches up when it is upgraded.
 * V3. While a member is heard to speak an older version, the leader begins nothing that this member could not follow: no
 *     change of membership, no truncation of the log.
 *
 * Version 1: one call per forward, one message per topic frame. Version 2: several; members that come and go, snapshots,
 * leader transfer, comparison of digests.
 */
import { unreachable } from "../base/assert.ts";
import { membershipOf } from "../raft/state.ts";
import type { NodeId } from "../raft/types.ts";
import type { PeerBody, PeerEnvelope } from "./ports.ts";
import type { NodeState, Running } from "./runtime-state.ts";

export const PROTOCOL_MIN = 1;
export const PROTOCOL_MAX = 2;
/** Of the tables of a node's storage. 1: no base, no snapshots, no sums of the state. */
export const FORMAT_VERSION = 2;

/** V1 */
export function noticeVersion(state: NodeState, { from, speaks }: PeerEnvelope): void {
  state.spoken.set(from, speaks);
}

/** V1: the version for a message to `to`; null if it cannot be said to it (V2). */
export function versionFor(state: NodeState, to: NodeId, body: PeerBody): number | null {
  const version = Math.min(state.config.protocolMax, state.spoken.get(to) ?? PROTOCOL_MIN);
  return version >= neededVersion(body) ? version : null;
}

/** The oldest version that can say this. */
export function neededVersion(body: PeerBody): number {
  switch (body.kind) {
    case "snapshot_request":
    case "snapshot_chunk":
    case "digest_request":
    case "digest_reply":
    case "diverged":
      return 2;
    case "raft": {
      const { message } = body;
      if (message.kind === "snapshot_offer" || message.kind === "timeout_now") return 2;
      return message.kind === "append" && message.entries.some(({ kind }) => kind === "membership") ? 2 : 1;
    }
    case "hello":
    case "forward":
    case "forward_reply":
    case "topics":
      return 1;
    default:
      return unreachable(body);
  }
}

/** V3. Members that are heard to speak an older version than this node does at most; this node itself if it is held back. */
export function olderMembers(state: NodeState, { raft }: Running): NodeId[] {
  const { voters, learners } = membershipOf(raft);
  return [...voters, ...learners].filter((id) => {
    const spoken = id === state.config.id ? state.config.protocolMax : state.spoken.get(id);
    return spoken !== undefined && spoken < PROTOCOL_MAX;
  });
}
