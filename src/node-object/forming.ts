/**
 * How a cluster comes to be, exactly once (design 02 §2, Identity). Pure: membership + what others said → membership.
 *
 * F1. A new cluster id is made only by the lowest of the founders, only while every one of them answered `empty` to this
 *     very incarnation. A majority is not enough: a wiped cluster must not form again (S08). Founders are all configured
 *     members, or fewer that an administrator has named (errands.ts).
 * F2. Nobody elects before `formed`; the lowest member says `formed` only when all have durably adopted `forming`.
 * F3. Storage that is empty and hears of a cluster that does not name its incarnation is `lost`: it never votes.
 */

import type { NodeId } from "../raft/types.ts";
import type { Identity, Member, NodeConfig } from "./ports.ts";

export type Membership = Identity["membership"];

/** The latest answer of a peer to a hello of this incarnation. */
export interface HelloAnswer {
  readonly incarnation: number;
  readonly membership: Membership;
}

export interface Hello {
  readonly from: NodeId;
  readonly incarnation: number;
  readonly membership: Membership;
}

/** What this node becomes when it hears `hello`; the same object when nothing changes. */
export function hearHello(identity: Identity, config: NodeConfig, hello: Hello): Membership {
  const own = identity.membership;
  const theirs = hello.membership;
  switch (own.kind) {
    case "formed":
    case "lost":
      return own;
    case "forming":
      if (theirs.kind !== "formed" || theirs.clusterId !== own.clusterId) return own;
      return { kind: "formed", clusterId: own.clusterId, members: own.members };
    case "empty": {
      if (theirs.kind === "empty") return own;
      const adopted = theirs.kind === "forming" && names(theirs.members, config.id, identity.incarnation);
      if (adopted) return theirs;
      return { kind: "lost", clusterId: theirs.clusterId };
    }
  }
}

/** The lowest member's own step, once the answers allow it; the same object when they do not. */
export function advanceForming(
  identity: Identity,
  { id: ownId, founders }: { readonly id: NodeId; readonly founders: readonly NodeId[] },
  answers: ReadonlyMap<NodeId, HelloAnswer>,
  newClusterId: () => string,
): Membership {
  const own = identity.membership;
  if (own.kind !== "empty" && own.kind !== "forming") return own;
  // Once it has begun, those count with whom it has.
  const ids = own.kind === "empty" ? founders : own.members.map(({ id }) => id);
  if (ownId !== Math.min(...ids)) return own;
  const others = ids.filter((id) => id !== ownId);
  if (own.kind === "empty") {
    if (!others.every((id) => answers.get(id)?.membership.kind === "empty")) return own;
    const members = founders.map((id) => ({
      id,
      incarnation: answers.get(id)?.incarnation ?? identity.incarnation,
    }));
    return { kind: "forming", clusterId: newClusterId(), members };
  }
  const adopted = (id: NodeId) => {
    const answer = answers.get(id);
    if (answer === undefined || !names(own.members, id, answer.incarnation)) return false;
    const { membership } = answer;
    return (membership.kind === "forming" || membership.kind === "formed") && membership.clusterId === own.clusterId;
  };
  return others.every(adopted) ? { kind: "formed", clusterId: own.clusterId, members: own.members } : own;
}

function names(members: readonly Member[], id: NodeId, incarnation: number): boolean {
  return members.some((member) => member.id === id && member.incarnation === incarnation);
}
