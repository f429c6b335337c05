/**
 * Memberships as data: their text in the log, what makes one valid, how far two are apart (thesis 4.1).
 * Must not: know a log or a node; who decides is `membership-changes.ts`.
 *
 * M1. A voter is no learner; ids stand in ascending order, each once. So equal memberships have equal texts.
 * M2. Two memberships whose majorities could miss each other are more than one voter apart.
 */
import { assert } from "../base/assert.ts";
import { utf8Length } from "../base/bytes.ts";
import { LEARNERS_MAX, MEMBERSHIP_EXTRA_UNITS_MAX, VOTERS_MAX } from "../base/limits.ts";
import type { Membership, NodeId, ProposalPayload } from "./types.ts";

/** That of a node which has not heard of any: it follows whoever leads, and never campaigns. */
export const NO_MEMBERS: Membership = { voters: [], learners: [] };

/** The same membership with its ids in order (M1); null if it is not valid. */
export function normalMembership({ voters, learners, extra }: Membership): Membership | null {
  const sorted = {
    voters: [...voters].sort((left, right) => left - right),
    learners: [...learners].sort((left, right) => left - right),
  };
  return readMembership(extra === undefined ? sorted : { ...sorted, extra });
}

/** Reads a membership from parsed JSON; null unless it is valid and normal (M1). At least one must vote. */
export function readMembership(value: unknown): Membership | null {
  if (typeof value !== "object" || value === null || !("voters" in value) || !("learners" in value)) return null;
  const { voters, learners } = value;
  if (!isAscending(voters, VOTERS_MAX) || !isAscending(learners, LEARNERS_MAX)) return null;
  if (voters.length === 0 || voters.some((id) => learners.includes(id))) return null;
  const extra = "extra" in value ? value.extra : undefined;
  if (extra === undefined) return { voters, learners };
  if (typeof extra !== "string" || extra.length > MEMBERSHIP_EXTRA_UNITS_MAX) return null;
  return { voters, learners, extra };
}

function isAscending(value: unknown, countMax: number): value is NodeId[] {
  if (!Array.isArray(value) || value.length > countMax) return false;
  let last = 0;
  for (const id of value as readonly unknown[]) {
    if (typeof id !== "number" || !Number.isSafeInteger(id) || id <= last) return false;
    last = id;
  }
  return true;
}

/** The payload of a `membership` entry. */
export function membershipPayload({ voters, learners, extra }: Membership): ProposalPayload {
  const payload = JSON.stringify({ voters, learners, extra });
  return { payload, payloadBytes: utf8Length(payload) };
}

/** Null for what is no payload of a `membership` entry. */
export function parseMembership(payload: string): Membership | null {
  try {
    return readMembership(JSON.parse(payload));
  } catch (error) {
    // JSON.parse signals malformed text by a SyntaxError; that is an answer here, not a fault.
    if (error instanceof SyntaxError) return null;
    throw error;
  }
}

export function equalMemberships(left: Membership, right: Membership): boolean {
  return membershipPayload(left).payload === membershipPayload(right).payload;
}

/** How many voters came or went. */
export function votersApart(left: Membership, right: Membership): number {
  const gone = left.voters.filter((id) => !right.voters.includes(id));
  const come = right.voters.filter((id) => !left.voters.includes(id));
  return gone.length + come.length;
}

export function majorityOf({ voters }: Membership): number {
  return Math.floor(voters.length / 2) + 1;
}

/** True if a majority of the voters `agrees`. Nobody's membership has no majority. */
export function hasMajority(membership: Membership, agrees: (id: NodeId) => boolean): boolean {
  return membership.voters.filter(agrees).length >= majorityOf(membership);
}

/** The log's own rule for consecutive memberships (M2). A node that knew of none takes the first it hears of. */
export function assertFollows(before: Membership, after: Membership): void {
  if (before.voters.length === 0) return;
  const apart = votersApart(before, after);
  assert(apart <= 1, `voters ${after.voters.join()} follow ${before.voters.join()}: ${apart} apart`);
}
