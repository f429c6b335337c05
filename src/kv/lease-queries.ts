/**
 * Reading leases: one with its keys, and all of them page by page.
 */
import { utf8Length } from "../base/bytes.ts";
import { REPLY_BYTES_MAX } from "../base/limits.ts";
import type { LeaseInfo, Query, QueryResult } from "./command.ts";
import { effectiveExpiry, remainingMs } from "./lease-expiry.ts";
import { attachedKeys, decodeLease, type Lease, readLease } from "./leases.ts";
import { idOfLeaseRow, leaseBounds } from "./rows.ts";
import type { View } from "./state.ts";

export function describeLease(view: View, id: number): QueryResult {
  const lease = readLease(view.store, id);
  if (lease === null) return { kind: "lease", lease: null };
  return { kind: "lease", lease: { ...infoOf(view, id, lease), keys: firstKeys(attachedKeys(view.store, id)) } };
}

function infoOf(view: View, id: number, lease: Lease): LeaseInfo {
  return {
    id,
    ttl_s: lease.ttlS,
    expires_at_ms: effectiveExpiry(lease.expiresAtMs, view.meta.leaseFloorMs),
    remaining_ms: remainingMs(view, lease),
    anonymous: lease.anonymous,
    metadata: lease.metadata,
    keys_count: lease.keysCount,
  };
}

/** As many keys as fit a reply; `keys_count` tells how many there are. */
function firstKeys(keys: readonly string[]): readonly string[] {
  let bytes = 0;
  const fitting = keys.findIndex((key) => {
    // A byte of a key takes up to two bytes in UTF-8 text, or six as a JSON escape; two is the common worst case.
    bytes += 2 * key.length + 3;
    return bytes > REPLY_BYTES_MAX;
  });
  return fitting < 0 ? keys : keys.slice(0, fitting);
}

/** Rows looked at for one page: hidden leases may lie between the others in any number. */
const LIST_ROWS_MAX = 4000;

/** Names and numbers of a lease in a reply, beside its metadata. */
const INFO_BYTES = 192;

export function listLeases(view: View, query: Query & { readonly kind: "lease_list" }): QueryResult {
  const leases: LeaseInfo[] = [];
  let bytes = 0;
  let seen = query.after ?? 0;
  // A step holds no more than a page may: each row may carry 4 KiB of metadata.
  const step = query.limit + 1;
  for (let looked = 0; looked < LIST_ROWS_MAX; looked += step) {
    const rows = view.store.scan({ ...leaseBounds(seen), limit: step });
    for (const [row, text] of rows) {
      const lease = decodeLease(text);
      if (!lease.anonymous || query.anonymous === true) {
        bytes += INFO_BYTES + utf8Length(text);
        const full = leases.length >= query.limit || (leases.length > 0 && bytes > REPLY_BYTES_MAX);
        if (full) return { kind: "lease_list", leases, next: seen };
        leases.push(infoOf(view, idOfLeaseRow(row), lease));
      }
      seen = idOfLeaseRow(row);
    }
    if (rows.length < step) return { kind: "lease_list", leases, next: null };
  }
  return { kind: "lease_list", leases, next: seen };
}
