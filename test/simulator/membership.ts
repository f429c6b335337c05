/**
 * Who takes part, as the checkers know it, and whose storage is the one that a membership means. A wiped host counts for
 * nothing until a membership names its new incarnation.
 */
import { foundingMembership, incarnationsOf, names } from "../../src/node-object/members.ts";
import { NO_MEMBERS, parseMembership } from "../../src/raft/membership.ts";
import type { Membership, NodeId } from "../../src/raft/types.ts";
import { type Host, hostOf, type World } from "./host.ts";

/** The last one that is committed. */
export function membershipInForce({ safety, hosts }: World): Membership {
  if (safety.membership !== null) return safety.membership;
  return hosts.map(foundingOf).find(({ voters }) => voters.length > 0) ?? NO_MEMBERS;
}

function foundingOf({ disk }: Host): Membership {
  const membership = disk.identity?.membership;
  return membership?.kind === "formed" ? foundingMembership(membership.members) : NO_MEMBERS;
}

/** All that somebody may still go by: the one in force, and the newest on each disk. */
function membershipsInPlay(world: World): Membership[] {
  const found = [membershipInForce(world)];
  for (const { disk } of world.hosts) {
    const entry = disk.log.findLast(({ kind }) => kind === "membership");
    const newest = entry === undefined ? null : parseMembership(entry.payload);
    found.push(newest ?? membershipInForce(world));
  }
  // A learner may be made a voter at any moment, also one whose damage nobody has noticed yet.
  return found.flatMap((one) => [one, { ...one, voters: [...one.voters, ...one.learners] }]);
}

/** The storage that this membership means is gone, or has gone bad. */
export function isReplaced(membership: Membership, { id, disk }: Host): boolean {
  return disk.damage.struck || incarnationsOf(membership).get(id) !== disk.identity?.incarnation;
}

function lostVoters(world: World, membership: Membership): NodeId[] {
  return membership.voters.filter((id) => isReplaced(membership, hostOf(world, id)));
}

/** A majority of those who vote has kept its storage. */
export function canElect(world: World): boolean {
  const membership = membershipInForce(world);
  return lostVoters(world, membership).length * 2 < membership.voters.length;
}

/** Whether the cluster lives through it that these hosts are gone, whichever membership their leader goes by. */
export function canSpare(world: World, gone: Host): boolean {
  return membershipsInPlay(world).every((membership) => {
    const lost = new Set(lostVoters(world, membership));
    if (membership.voters.includes(gone.id)) lost.add(gone.id);
    return lost.size <= (membership.voters.length - 1) / 2;
  });
}

/** The cluster lives on with this one removed. */
export function canRemove(world: World, membership: Membership, id: NodeId): boolean {
  const voters = membership.voters.filter((one) => one !== id);
  if (voters.length * 2 <= world.hosts.length) return false;
  return lostVoters(world, { ...membership, voters }).length <= (voters.length - 1) / 2;
}

/** Hosts that do not take part, by the membership that this leader goes by. */
export function removedHosts(world: World, { voters, learners }: Membership): Host[] {
  return world.hosts.filter(({ id }) => !voters.includes(id) && !learners.includes(id));
}

export function isVoter(world: World, { id, disk }: Host): boolean {
  const membership = membershipInForce(world);
  return membership.voters.includes(id) && names(membership, id, disk.identity?.incarnation ?? 0);
}
