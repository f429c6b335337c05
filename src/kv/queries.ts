/**
 * Queries: reads of one state that go through no log (design 01 §1). Refuses like the rest; changes nothing.
 */
import { unreachable } from "../base/assert.ts";
import { REPLY_BYTES_MAX } from "../base/limits.ts";
import type { KeyRecord, Query, QueryResult } from "./command.ts";
import { readResult } from "./idempotency.ts";
import { attachedKeys, readLease } from "./leases.ts";
import { checkRevision, listRecords, readHistory, readRecord } from "./reads.ts";
import { refuse } from "./refusal.ts";
import type { Meta, View } from "./state.ts";
import { readTxn } from "./txn.ts";

export interface QueryView extends View {
  readonly meta: Readonly<Pick<Meta, "revision" | "compactRevision" | "idemFloor">>;
}

export function runQuery(view: QueryView, query: Query): QueryResult {
  switch (query.kind) {
    case "get":
      if (query.revision !== undefined) checkRevision(view, query.revision);
      return { kind: "get", record: readRecord(view.store, query.key, query.revision ?? null)?.record ?? null };
    case "get_many":
      return getMany(view, query);
    case "list":
      return list(view, query);
    case "history": {
      const { key, from = null, to = null, limit, after = null } = query;
      return { kind: "history", ...readHistory(view, { key, from, to, limit, after, bytesMax: REPLY_BYTES_MAX }) };
    }
    case "txn":
      return { kind: "txn", ...readTxn(view, query) };
    case "txn_result": {
      const stored = readResult(view.store, query.scope, query.key);
      const { idemFloor } = view.meta;
      if (stored === null) return { kind: "txn_result", status: "unknown", idem_floor: idemFloor };
      return { kind: "txn_result", status: "known", idem_floor: idemFloor, outcome: stored.outcome };
    }
    case "lease":
      return { kind: "lease", lease: describeLease(view, query.id) };
    case "revision":
      return { kind: "revision" };
    default:
      return unreachable(query);
  }
}

function getMany(view: View, query: Query & { readonly kind: "get_many" }): QueryResult {
  if (query.revision !== undefined) checkRevision(view, query.revision);
  const records: (KeyRecord | null)[] = [];
  let bytes = 0;
  for (const key of query.keys) {
    const found = readRecord(view.store, key, query.revision ?? null);
    bytes += found?.bytes ?? 0;
    if (bytes > REPLY_BYTES_MAX) {
      refuse("result_too_large", `The records are over ${REPLY_BYTES_MAX} bytes together; ask for fewer keys.`);
    }
    records.push(found?.record ?? null);
  }
  return { kind: "get_many", records };
}

function list(view: View, query: Query & { readonly kind: "list" }): QueryResult {
  if (query.revision !== undefined) checkRevision(view, query.revision);
  const { records, count, more } = listRecords(view.store, {
    selector: query.selector,
    limit: query.limit,
    descending: query.order === "desc",
    keysOnly: query.keys_only,
    countOnly: query.count_only,
    revision: query.revision ?? null,
    after: query.after ?? null,
    bytesMax: REPLY_BYTES_MAX,
  });
  return { kind: "list", records, count, more };
}

type LeaseInfo = (QueryResult & { readonly kind: "lease" })["lease"];

function describeLease(view: View, id: number): LeaseInfo {
  const lease = readLease(view.store, id);
  if (lease === null) return null;
  return {
    id,
    ttl_s: lease.ttlS,
    expires_at_ms: lease.expiresAtMs,
    remaining_ms: Math.max(0, lease.expiresAtMs - view.timeMs),
    anonymous: lease.anonymous,
    metadata: lease.metadata,
    keys_count: lease.keysCount,
    keys: firstKeys(attachedKeys(view.store, id)),
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
