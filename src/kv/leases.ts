/**
 * Leases: owners of keys that end (design 01 §3). A TTL on a put is an anonymous lease of exactly one key.
 *
 * E1. A key is attached to at most one lease; the attachment row exists exactly while the key's current row names it.
 * E2. Each lease has one row in the expiry index, at its expiry; the lease row counts its attachments.
 * E3. An anonymous lease ends when its key leaves it; nobody else can attach to it.
 * E4. Time is the entry's. No lease ends by itself: only a command ends it (lease-expiry.ts). Until then it can be renewed,
 * also when its time has passed.
 */
import { assert } from "../base/assert.ts";
import { utf8Length } from "../base/bytes.ts";
import type { JsonObject } from "../base/json.ts";
import { LEASE_KEYS_MAX, LEASES_MAX } from "../base/limits.ts";
import type { CommandResult, KeepAlive, KeepAliveResult } from "./command.ts";
import { indexBytes, leaseBytes } from "./quota.ts";
import { deleteRecord, NO_METADATA, readCurrent } from "./records.ts";
import { refuse } from "./refusal.ts";
import { attachmentBounds, attachmentRow, expiryRow, keyOfAttachmentRow, leaseRow } from "./rows.ts";
import type { Draft } from "./state.ts";
import type { OrderedStore } from "./store.ts";

export interface Lease {
  readonly ttlS: number;
  readonly expiresAtMs: number;
  readonly anonymous: boolean;
  readonly keysCount: number;
  readonly metadata: JsonObject;
}

type LeaseTuple = readonly [number, number, 0 | 1, number, JsonObject];

/** Explicit ids below this move the counter, so that the counter never gives out an id that somebody once held. */
export const LEASE_COUNTER_MAX = 2 ** 48;

export function readLease(store: OrderedStore, id: number): Lease | null {
  const row = store.get(leaseRow(id));
  return row === undefined ? null : decodeLease(row);
}

export function decodeLease(row: string): Lease {
  const [ttlS, expiresAtMs, anonymous, keysCount, metadata]: LeaseTuple = JSON.parse(row);
  return { ttlS, expiresAtMs, anonymous: anonymous === 1, keysCount, metadata };
}

export function encodeLease(lease: Lease): string {
  return `[${lease.ttlS},${lease.expiresAtMs},${lease.anonymous ? 1 : 0},${lease.keysCount},${metadataText(lease)}]`;
}

function writeLease(store: OrderedStore, id: number, lease: Lease): void {
  store.put(leaseRow(id), encodeLease(lease));
}

function metadataText(lease: Lease): string {
  return lease.metadata === NO_METADATA ? "{}" : JSON.stringify(lease.metadata);
}

/** The keys attached to a lease, in byte order. */
export function attachedKeys(store: OrderedStore, id: number): string[] {
  const rows = store.scan({ ...attachmentBounds(id), limit: LEASE_KEYS_MAX });
  return rows.map(([row]) => keyOfAttachmentRow(row));
}

export function grantLease(
  draft: Draft,
  request: { readonly ttl_s: number; readonly metadata?: JsonObject; readonly id?: number },
): CommandResult {
  let id = request.id;
  if (id === undefined) id = nextLeaseId(draft);
  else {
    if (draft.store.get(leaseRow(id)) !== undefined) refuse("lease_exists", `Lease ${id} exists.`);
    if (id < LEASE_COUNTER_MAX && id > draft.meta.leaseCounter) draft.meta.leaseCounter = id;
  }
  const lease = createLease(draft, id, {
    ttlS: request.ttl_s,
    anonymous: false,
    metadata: request.metadata ?? NO_METADATA,
  });
  return { kind: "lease_grant", id, ttl_s: lease.ttlS, expires_at_ms: lease.expiresAtMs };
}

/** Ends a lease and deletes exactly the keys attached to it now, in key order, at one revision. */
export function revokeLease(draft: Draft, id: number): CommandResult {
  const lease = readLease(draft.store, id);
  // A TTL belongs to its record: it ends with a put or a delete.
  if (lease === null || lease.anonymous) refuse("unknown_lease", `There is no lease ${id}.`);
  return { kind: "lease_revoke", deleted: endLease(draft, id, lease) };
}

/** Renews each lease from the entry's time; one that is gone does not stop the others. */
export function keepAlive(draft: Draft, items: readonly KeepAlive[]): CommandResult {
  const results = items.map(({ id, ttl_s }): KeepAliveResult => {
    const lease = readLease(draft.store, id);
    if (lease === null || lease.anonymous) return { id, not_found: true };
    const renewed = renewLease(draft, id, lease, ttl_s ?? lease.ttlS);
    return { id, ttl_s: renewed.ttlS, expires_at_ms: renewed.expiresAtMs };
  });
  return { kind: "lease_keep_alive", items: results };
}

/** Ends a lease with its keys; answers how many they were. */
export function endLease(draft: Draft, id: number, lease: Lease): number {
  const keys = attachedKeys(draft.store, id);
  assert(keys.length === lease.keysCount, `lease ${id} counts ${lease.keysCount} keys, has ${keys.length}`);
  for (const key of keys) {
    const current = readCurrent(draft.store, key);
    assert(current !== null && current.leaseId === id, `key attached to lease ${id} does not name it`);
    detachRow(draft, key, id);
    deleteRecord(draft, key, current);
  }
  removeLease(draft, id, lease);
  return keys.length;
}

/** What a put says about the lease of its record. */
export interface LeaseWish {
  readonly ttl?: number;
  readonly lease?: number;
  readonly ignore_lease?: boolean;
}

/** The lease that the new version has, after attaching and detaching; `before` = 0 without one. */
export function moveLease(
  draft: Draft,
  key: string,
  before: number,
  wish: LeaseWish,
): { readonly leaseId: number; readonly expiresAtMs: number | null } {
  if (wish.ignore_lease === true) {
    const kept = before === 0 ? null : readLease(draft.store, before);
    return { leaseId: before, expiresAtMs: kept?.anonymous === true ? kept.expiresAtMs : null };
  }
  if (wish.ttl !== undefined) return moveToTtl(draft, key, before, wish.ttl);
  if (wish.lease !== undefined) {
    const lease = readLease(draft.store, wish.lease);
    if (lease === null || lease.anonymous) refuse("unknown_lease", `There is no lease ${wish.lease} to attach to.`);
    if (wish.lease === before) return { leaseId: before, expiresAtMs: null };
    if (lease.keysCount >= LEASE_KEYS_MAX) {
      refuse("lease_limit_exceeded", `Lease ${wish.lease} holds ${LEASE_KEYS_MAX} keys, the most a lease may hold.`, {
        reason: "too_many_keys",
      });
    }
    if (before !== 0) detachKey(draft, key, before);
    attachRow(draft, key, wish.lease);
    writeLease(draft.store, wish.lease, { ...lease, keysCount: lease.keysCount + 1 });
    return { leaseId: wish.lease, expiresAtMs: null };
  }
  if (before !== 0) detachKey(draft, key, before);
  return { leaseId: 0, expiresAtMs: null };
}

/** A key that already has a TTL keeps its anonymous lease and only gets a new expiry. */
function moveToTtl(draft: Draft, key: string, before: number, ttlS: number): { leaseId: number; expiresAtMs: number } {
  if (before !== 0) {
    const lease = readLease(draft.store, before);
    assert(lease !== null, `key names lease ${before}, which is absent`);
    if (lease.anonymous) {
      return { leaseId: before, expiresAtMs: renewLease(draft, before, lease, ttlS).expiresAtMs };
    }
    detachKey(draft, key, before);
  }
  const id = nextLeaseId(draft);
  const lease = createLease(draft, id, { ttlS, anonymous: true, keysCount: 1, metadata: NO_METADATA });
  attachRow(draft, key, id);
  return { leaseId: id, expiresAtMs: lease.expiresAtMs };
}

/** Takes `key` off lease `id`; the caller writes the key's new version, or deletes it. */
export function detachKey(draft: Draft, key: string, id: number): void {
  const lease = readLease(draft.store, id);
  assert(lease !== null, `key names lease ${id}, which is absent`);
  detachRow(draft, key, id);
  if (lease.anonymous) removeLease(draft, id, lease);
  else writeLease(draft.store, id, { ...lease, keysCount: lease.keysCount - 1 });
}

function attachRow(draft: Draft, key: string, id: number): void {
  draft.store.put(attachmentRow(id, key), "");
  draft.meta.logicalBytes += indexBytes(key);
}

function detachRow(draft: Draft, key: string, id: number): void {
  draft.store.delete(attachmentRow(id, key));
  draft.meta.logicalBytes -= indexBytes(key);
}

function renewLease(draft: Draft, id: number, lease: Lease, ttlS: number): Lease {
  const renewed: Lease = { ...lease, ttlS, expiresAtMs: draft.timeMs + ttlS * 1000 };
  draft.store.delete(expiryRow(lease.expiresAtMs, id));
  draft.store.put(expiryRow(renewed.expiresAtMs, id), "");
  writeLease(draft.store, id, renewed);
  return renewed;
}

function createLease(
  draft: Draft,
  id: number,
  fields: {
    readonly ttlS: number;
    readonly anonymous: boolean;
    readonly keysCount?: number;
    readonly metadata: JsonObject;
  },
): Lease {
  if (draft.meta.leasesCount >= LEASES_MAX) {
    refuse("lease_limit_exceeded", `There are ${LEASES_MAX} leases (records with a TTL included), the most allowed.`, {
      reason: "too_many_leases",
    });
  }
  const { ttlS, anonymous, metadata, keysCount = 0 } = fields;
  const lease: Lease = { ttlS, expiresAtMs: draft.timeMs + ttlS * 1000, anonymous, keysCount, metadata };
  writeLease(draft.store, id, lease);
  draft.store.put(expiryRow(lease.expiresAtMs, id), "");
  draft.meta.leasesCount += 1;
  draft.meta.logicalBytes += weightOfLease(lease);
  return lease;
}

function removeLease(draft: Draft, id: number, lease: Lease): void {
  draft.store.delete(leaseRow(id));
  draft.store.delete(expiryRow(lease.expiresAtMs, id));
  draft.meta.leasesCount -= 1;
  draft.meta.logicalBytes -= weightOfLease(lease);
}

/** What a lease weighs without its attachments. */
export function weightOfLease(lease: Lease): number {
  return leaseBytes(utf8Length(metadataText(lease)));
}

/** Skips ids that somebody chose explicitly and still holds. */
function nextLeaseId(draft: Draft): number {
  do draft.meta.leaseCounter += 1;
  while (draft.store.get(leaseRow(draft.meta.leaseCounter)) !== undefined);
  return draft.meta.leaseCounter;
}
