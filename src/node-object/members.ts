/**
 * Which storage stands behind the id of a member. The log says who takes part (`raft/membership.ts`) and, in what the core
 * keeps with a membership for us, under which incarnation: a node that has lost its storage is another member.
 *
 * M1. What counts, a vote or an acknowledgement, counts only from the incarnation that the newest membership names for
 *     its sender, and is heard only by the one that it is addressed to (S08).
 * M2. A leader or a candidate may have been taken in by an entry that has not arrived here. What it asks is heard all the
 *     same, once it has said who it is (strangers.ts): it leads or campaigns only if its own log names it as a voter
 *     (`RaftConfig.isSelf`).
 */
import { nextFloat, type Random } from "../base/random.ts";
import { newestMembership, type RaftLog } from "../raft/log.ts";
import { NO_MEMBERS } from "../raft/membership.ts";
import type { Membership, NodeId } from "../raft/types.ts";
import { isCounter, isNode, parseJson } from "./json-guards.ts";
import type { Member } from "./ports.ts";

type Incarnations = ReadonlyMap<NodeId, number>;

/** Memberships never change, and are looked at with every message. */
const KNOWN = new WeakMap<Membership, Incarnations>();

export function incarnationsOf(membership: Membership): Incarnations {
  const known = KNOWN.get(membership) ?? readIncarnations(membership.extra);
  KNOWN.set(membership, known);
  return known;
}

function readIncarnations(extra: string | undefined): Incarnations {
  const found = new Map<NodeId, number>();
  const pairs = parseJson(extra ?? "");
  if (!Array.isArray(pairs)) return found;
  for (const pair of pairs as unknown[]) {
    if (!Array.isArray(pair)) continue;
    const [id, incarnation] = pair as unknown[];
    if (isNode(id) && isCounter(incarnation)) found.set(id, incarnation);
  }
  return found;
}

/** Equal incarnations have equal texts. */
export function extraOf(incarnations: Iterable<readonly [NodeId, number]>): string {
  return JSON.stringify([...incarnations].sort(([left], [right]) => left - right));
}

/** Of a storage that is new. */
export function newIncarnation(random: Random): number {
  return 1 + Math.floor(nextFloat(random) * 2 ** 48);
}

/** With which a cluster of these members began: that of its log before the first entry. */
export function foundingMembership(members: readonly Member[]): Membership {
  if (members.length === 0) return NO_MEMBERS;
  const voters = members.map(({ id }) => id).sort((left, right) => left - right);
  return { voters, learners: [], extra: extraOf(members.map(({ id, incarnation }) => [id, incarnation])) };
}

export function names(membership: Membership, id: NodeId, incarnation: number): boolean {
  const takesPart = membership.voters.includes(id) || membership.learners.includes(id);
  return takesPart && incarnationsOf(membership).get(id) === incarnation;
}

/** By the newest membership that knows the id: one that has left is told that it has (raft, G5). */
export function incarnationOf(log: RaftLog, id: NodeId): number | null {
  const newest = incarnationsOf(newestMembership(log).membership).get(id);
  if (newest !== undefined) return newest;
  const earlier = log.memberships.findLast(({ membership }) => incarnationsOf(membership).has(id));
  return earlier === undefined ? null : (incarnationsOf(earlier.membership).get(id) ?? null);
}
