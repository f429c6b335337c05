/**
 * Queries: reads of one state that go through no log (design 01 §1). Refuses like the rest; changes nothing.
 */
import { unreachable } from "../base/assert.ts";
import { REPLY_BYTES_MAX } from "../base/limits.ts";
import { readChanges } from "./changes.ts";
import type { KeyRecord, Query, QueryResult } from "./command.ts";
import { readDue } from "./due-index.ts";
import { walkHistory } from "./history-walk.ts";
import { readResult } from "./idempotency.ts";
import { describeLease, listLeases } from "./lease-queries.ts";
import { endOf, isWhole } from "./position.ts";
import { checkRevision, listRecords, readHistory, readRecord } from "./reads.ts";
import { refuse } from "./refusal.ts";
import type { Meta, View } from "./state.ts";
import { readTxn } from "./txn.ts";

export interface QueryView extends View {
  readonly meta: Readonly<Pick<Meta, "revision" | "compactRevision" | "leaseFloorMs" | "idemFloor">>;
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
    case "changes":
      return changes(view, query);
    case "lease":
      return describeLease(view, query.id);
    case "lease_list":
      return listLeases(view, query);
    case "due":
      return readDue(view.store, query);
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

function changes(view: View, query: Query & { readonly kind: "changes" }): QueryResult {
  const { revision, compactRevision } = view.meta;
  const { after } = query;
  const history = { store: view.store, revision, compactRevision };
  const page = readChanges(
    { revision, compactRevision, walk: (request, visit) => walkHistory(history, request, visit) },
    {
      selector: query.selector,
      after: after === undefined ? endOf(compactRevision) : { revision: after[0], opIndex: after[1] },
      limit: query.limit,
      bytesMax: REPLY_BYTES_MAX,
    },
  );
  const { next } = page;
  return {
    kind: "changes",
    events: page.events,
    next: [next.revision, next.opIndex],
    whole: isWhole(next),
    has_more: page.hasMore,
  };
}
