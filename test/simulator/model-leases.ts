/**
 * The rules of leases in the model: who owns which key, until when, and how an owner ends. An attachment is nothing but
 * the lease that a live record names.
 */
import type { KeepAlive, SeenLease } from "../../src/kv/command.ts";
import { byKey, type Draft, type ModelRecord, Refused, remove } from "./model.ts";

export interface ModelLease {
  readonly ttlS: number;
  readonly expiresAtMs: number;
  /** The TTL of one record: nobody else can attach to it, and it ends with the record's need for it. */
  readonly anonymous: boolean;
}

/** What is alive. */
export interface Held {
  records: Map<string, ModelRecord>;
  leases: Map<number, ModelLease>;
  leaseCounter: number;
  /** No lease ends before it. */
  floorMs: number;
}

/** One expiry command ends no more leases than this. */
const LEASES_PER_EXPIRY_MAX = 50;
/** The floor lies no further ahead of the log. */
const GRACE_MS_MAX = 60_000;
/** Ids from here on do not move the counter. */
const COUNTER_MAX = 2 ** 48;

export function remainingMs(held: Held, lease: ModelLease, nowMs: number): number {
  return Math.max(0, effectiveExpiry(held, lease) - nowMs);
}

export function effectiveExpiry(held: Held, lease: ModelLease): number {
  return Math.max(lease.expiresAtMs, held.floorMs);
}

export function keysOf(held: Held, id: number): string[] {
  const attached = [...held.records.values()].filter((record) => record.lease === id);
  return attached.sort(byKey).map(({ key }) => key);
}

function leaseOf(draft: Draft, ttlS: number, anonymous: boolean): ModelLease {
  return { ttlS, expiresAtMs: draft.timeMs + ttlS * 1000, anonymous };
}

function nextId(draft: Draft): number {
  do draft.leaseCounter += 1;
  while (draft.leases.has(draft.leaseCounter));
  return draft.leaseCounter;
}

export function grant(draft: Draft, chosen: number | undefined, ttlS: number): string {
  if (chosen !== undefined && draft.leases.has(chosen)) throw new Refused("lease_exists");
  if (chosen !== undefined && chosen < COUNTER_MAX) draft.leaseCounter = Math.max(draft.leaseCounter, chosen);
  const id = chosen ?? nextId(draft);
  const lease = leaseOf(draft, ttlS, false);
  draft.leases.set(id, lease);
  return `lease ${id} ${ttlS} until ${lease.expiresAtMs}`;
}

export function revoke(draft: Draft, id: number): string {
  if (draft.leases.get(id)?.anonymous !== false) throw new Refused("unknown_lease");
  return `revoked ${end(draft, id)}`;
}

function end(draft: Draft, id: number): number {
  const keys = keysOf(draft, id);
  draft.leases.delete(id);
  for (const key of keys) remove(draft, key);
  return keys.length;
}

export function keepAlive(draft: Draft, items: readonly KeepAlive[]): string {
  const texts = items.map(({ id, ttl_s }) => {
    const lease = draft.leases.get(id);
    if (lease === undefined || lease.anonymous) return `${id} gone`;
    const renewed = leaseOf(draft, ttl_s ?? lease.ttlS, false);
    draft.leases.set(id, renewed);
    return `${id} ${renewed.ttlS} until ${renewed.expiresAtMs}`;
  });
  return `kept ${texts.join(", ")}`;
}

/** Ends what is still as the leader saw it, and due. */
export function expire(draft: Draft, seen: readonly SeenLease[]): string {
  const expired: number[] = [];
  let deleted = 0;
  for (const { id, expires_at_ms } of seen) {
    const lease = draft.leases.get(id);
    if (lease === undefined || lease.expiresAtMs !== expires_at_ms) continue;
    if (effectiveExpiry(draft, lease) > draft.timeMs || expired.length >= LEASES_PER_EXPIRY_MAX) continue;
    deleted += end(draft, id);
    expired.push(id);
  }
  return `expired ${expired.join(" ")} deleted ${deleted}`;
}

export function raiseFloor(draft: Draft, floorMs: number): string {
  draft.floorMs = Math.max(draft.floorMs, Math.min(floorMs, draft.timeMs + GRACE_MS_MAX));
  return `floor ${draft.floorMs}`;
}

/** The key leaves its lease; a TTL ends with it. */
export function detach(draft: Draft, key: string): void {
  const id = draft.records.get(key)?.lease ?? null;
  if (id !== null && draft.leases.get(id)?.anonymous === true) draft.leases.delete(id);
}

/** Where a put or touch leaves its key. */
export function moveKey(
  draft: Draft,
  key: string,
  wish: { readonly ttl?: number; readonly lease?: number; readonly ignore_lease?: boolean },
): Pick<ModelRecord, "lease" | "expiresAtMs"> {
  const before = draft.records.get(key) ?? null;
  if (wish.ignore_lease === true) return { lease: before?.lease ?? null, expiresAtMs: before?.expiresAtMs ?? null };
  if (wish.lease !== undefined && draft.leases.get(wish.lease)?.anonymous !== false) throw new Refused("unknown_lease");
  if (wish.ttl !== undefined) {
    // A key that has a TTL keeps the lease behind it.
    const own = before !== null && before.expiresAtMs !== null ? before.lease : null;
    if (own === null) detach(draft, key);
    const id = own ?? nextId(draft);
    const lease = leaseOf(draft, wish.ttl, true);
    draft.leases.set(id, lease);
    return { lease: id, expiresAtMs: lease.expiresAtMs };
  }
  detach(draft, key);
  return { lease: wish.lease ?? null, expiresAtMs: null };
}
