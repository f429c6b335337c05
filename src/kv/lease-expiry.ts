/**
 * The end of leases (design 01 §3). Deciding that a lease is over takes two: the leader names what it saw, and apply
 * refuses it if that is no longer so. A decision of a leader that slept, or was deposed, therefore ends nothing (S29).
 *
 * X1. An expiry ends a lease only if its stored expiry is the one named and its effective expiry is not after the entry's
 * time: a keep-alive that comes first in the log wins; one that comes behind finds no lease (S32).
 * X2. Effective expiry = max(stored expiry, floor). One floor for all leases, raised after a change of leader, so that an
 * outage does not end the leases of owners who could not reach anybody. The floor never falls, and lies at most
 * LEASE_GRACE_MS_MAX ahead of the entry that sets it.
 * X3. One command ends at most LEASE_EXPIRE_LEASES_MAX leases and LEASE_EXPIRE_KEYS_MAX keys, at one revision; what does
 * not fit stays as it is, and is due again.
 */
import { LEASE_EXPIRE_KEYS_MAX, LEASE_EXPIRE_LEASES_MAX, LEASE_GRACE_MS_MAX } from "../base/limits.ts";
import type { CommandResult, SeenLease } from "./command.ts";
import { endLease, type Lease, readLease } from "./leases.ts";
import { expiryBounds, partsOfExpiryRow } from "./rows.ts";
import type { Draft, View } from "./state.ts";
import type { OrderedStore } from "./store.ts";

/** Milliseconds until a lease may end; 0 when it is due but not yet ended. */
export function remainingMs(view: Pick<View, "meta" | "timeMs">, lease: Lease): number {
  return Math.max(0, effectiveExpiry(lease.expiresAtMs, view.meta.leaseFloorMs) - view.timeMs);
}

export function effectiveExpiry(expiresAtMs: number, floorMs: number): number {
  return Math.max(expiresAtMs, floorMs);
}

/** Ends the named leases that are due, in the order of the command; of each, its keys in byte order. */
export function expireLeases(draft: Draft, leases: readonly SeenLease[]): CommandResult {
  const expired: number[] = [];
  let deleted = 0;
  for (const { id, expires_at_ms } of leases) {
    const lease = readLease(draft.store, id);
    if (lease === null || lease.expiresAtMs !== expires_at_ms || remainingMs(draft, lease) > 0) continue;
    if (expired.length >= LEASE_EXPIRE_LEASES_MAX || deleted + lease.keysCount > LEASE_EXPIRE_KEYS_MAX) continue;
    deleted += endLease(draft, id, lease);
    expired.push(id);
  }
  return { kind: "lease_expire", expired, deleted };
}

export function raiseLeaseFloor(draft: Draft, floorMs: number): CommandResult {
  const bounded = Math.min(floorMs, draft.timeMs + LEASE_GRACE_MS_MAX);
  if (bounded > draft.meta.leaseFloorMs) draft.meta.leaseFloorMs = bounded;
  return { kind: "lease_floor", floor_ms: draft.meta.leaseFloorMs };
}

/** A machine has this shape. */
export interface LeaseSource {
  readonly store: OrderedStore;
  readonly leaseFloorMs: number;
  /** The rows are on their way in: nothing in them is due. */
  readonly isRestoring: boolean;
}

/**
 * When the next lease may end, by the log's time; null without leases. Reads one row.
 * @param stepMs leases are ended together in steps of this: the expiry is that of the step behind it. A floor is a step.
 */
export function nextLeaseExpiry(source: LeaseSource, stepMs = 1): number | null {
  if (source.isRestoring) return null;
  const [first] = source.store.scan({ ...expiryBounds(Number.MAX_SAFE_INTEGER), limit: 1 });
  if (first === undefined) return null;
  const [expiresAtMs] = partsOfExpiryRow(first[0]);
  return effectiveExpiry(Math.ceil(expiresAtMs / stepMs) * stepMs, source.leaseFloorMs);
}

export interface ExpiryLimits {
  readonly leasesMax: number;
  readonly keysMax: number;
}

const EXPIRY_LIMITS: ExpiryLimits = { leasesMax: LEASE_EXPIRE_LEASES_MAX, keysMax: LEASE_EXPIRE_KEYS_MAX };

/**
 * The leases of the next `lease_expire`, those that are due longest first; empty when nothing is due, which costs one row.
 * Holds at least one lease if any is due, whatever `keysMax` is.
 * @param nowMs the time that an entry proposed now would carry.
 */
export function expiredLeases(source: LeaseSource, nowMs: number, limits: ExpiryLimits = EXPIRY_LIMITS): SeenLease[] {
  const next = nextLeaseExpiry(source);
  if (next === null || next > nowMs) return [];
  const due: SeenLease[] = [];
  let keys = 0;
  for (const [row] of source.store.scan({ ...expiryBounds(nowMs), limit: limits.leasesMax })) {
    const [expiresAtMs, id] = partsOfExpiryRow(row);
    keys += readLease(source.store, id)?.keysCount ?? 0;
    if (due.length > 0 && keys > limits.keysMax) break;
    due.push({ id, expires_at_ms: expiresAtMs });
  }
  return due;
}
