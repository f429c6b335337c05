/**
 * Reading records: now, at an older revision, page by page, and the history of one key. Shared by queries and by the
 * `get` of a txn. Reads look at rows only through the indexes and depend on `compactRevision`, never on which old rows
 * happen to be still there: removal is a matter of later commands (S22).
 */
import type { ChangeEvent, KeyRecord, Selector } from "./command.ts";
import { decodeCurrent, decodeEventAt, decodeRecord, readCurrent, readHistoryText, replyBytes } from "./records.ts";
import { refuse } from "./refusal.ts";
import {
  type Bounds,
  escapedKeyOfVersionRow,
  escapeKey,
  keyOfCurrentRow,
  positionOfRow,
  selectorBounds,
  unescapeKey,
  versionBounds,
  versionRow,
} from "./rows.ts";
import type { View } from "./state.ts";
import type { OrderedStore } from "./store.ts";

/** Refuses a revision that cannot be read: not there yet, or below the compacted one. */
export function checkRevision(view: View, revision: number): void {
  const { revision: newest, compactRevision } = view.meta;
  if (revision > newest) {
    refuse("revision_in_future", `Revision ${revision} does not exist yet; the newest is ${newest}.`, {
      revision: newest,
    });
  }
  if (revision < compactRevision) refuseCompacted(revision, compactRevision);
}

function refuseCompacted(revision: number, compactRevision: number): never {
  refuse("compacted", `Revision ${revision} is compacted; the oldest that can be read is ${compactRevision}.`, {
    compact_revision: compactRevision,
  });
}

/** Position of the put that is the state of `key` at `revision` (absent = now); null if the key was not there. */
function locate(store: OrderedStore, key: string, revision: number | null): readonly [number, number] | null {
  const current = readCurrent(store, key);
  if (current !== null && (revision === null || current.revision <= revision)) {
    return [current.revision, current.opIndex];
  }
  return revision === null ? null : locateVersion(store, key, revision);
}

/** The last version at or below `revision`, if it is a put. */
function locateVersion(store: OrderedStore, key: string, revision: number): readonly [number, number] | null {
  const [last] = store.scan({ ...versionBounds(key, 0, revision), limit: 1, reverse: true });
  return last === undefined || last[1] === "d" ? null : positionOfRow(last[0]);
}

export interface Found {
  readonly record: KeyRecord;
  readonly bytes: number;
}

/** The record at a revision that `checkRevision` allowed; null revision = now. */
export function readRecord(store: OrderedStore, key: string, revision: number | null): Found | null {
  const position = locate(store, key, revision);
  return position === null ? null : readFound(store, position, false);
}

function readFound(store: OrderedStore, position: readonly [number, number], keysOnly: boolean): Found {
  const text = readHistoryText(store, position[0], position[1]);
  return { record: decodeRecord(text, position[0], keysOnly), bytes: replyBytes(text, keysOnly) };
}

export interface ListRequest {
  readonly selector: Selector;
  readonly limit: number;
  readonly descending: boolean;
  readonly keysOnly: boolean;
  readonly countOnly: boolean;
  /** Null = now. */
  readonly revision: number | null;
  /** Null = from the start of the selector. */
  readonly after: string | null;
  /** The page ends before it would weigh more, but holds at least one record. */
  readonly bytesMax: number;
}

export interface Listing {
  readonly records: readonly KeyRecord[];
  readonly count: number;
  readonly more: boolean;
  readonly bytes: number;
  /** True when `bytesMax` ended the page. */
  readonly cut: boolean;
}

export function listRecords(store: OrderedStore, request: ListRequest): Listing {
  if (request.countOnly) return countRecords(store, request);
  const records: KeyRecord[] = [];
  let bytes = 0;
  let more = false;
  let cut = false;
  walk(store, request, request.limit + 1, (_key, position) => {
    if (records.length >= request.limit) {
      more = true;
      return false;
    }
    const found = readFound(store, position, request.keysOnly);
    if (records.length > 0 && bytes + found.bytes > request.bytesMax) {
      more = true;
      cut = true;
      return false;
    }
    records.push(found.record);
    bytes += found.bytes;
    return true;
  });
  return { records, count: records.length, more, bytes, cut };
}

/** Counts the whole selector, wherever a page would begin or end. */
function countRecords(store: OrderedStore, request: ListRequest): Listing {
  let count = 0;
  walk(store, { ...request, after: null }, Number.POSITIVE_INFINITY, () => {
    count += 1;
    return true;
  });
  return { records: [], count, more: false, bytes: 0, cut: false };
}

/** Called per live key in order, with the position of its record; false ends the walk. */
type Visit = (key: string, position: readonly [number, number]) => boolean;

const WALK_PAGE_ROWS = 1000;

function walk(store: OrderedStore, request: ListRequest, wanted: number, visit: Visit): void {
  const { selector, revision } = request;
  if ("key" in selector) {
    const position = request.after === null ? locate(store, selector.key, revision) : null;
    if (position !== null) visit(selector.key, position);
  } else if (revision === null) walkCurrent(store, request, wanted, visit);
  else walkVersions(store, request, revision, visit);
}

function walkCurrent(store: OrderedStore, request: ListRequest, wanted: number, visit: Visit): void {
  let { start, end } = boundsBehind(request, "c");
  const limit = Math.min(wanted, WALK_PAGE_ROWS);
  while (start < end) {
    const rows = store.scan({ start, end, limit, reverse: request.descending });
    for (const [row, text] of rows) {
      const current = decodeCurrent(text);
      if (!visit(keyOfCurrentRow(row), [current.revision, current.opIndex])) return;
    }
    const last = rows[rows.length - 1];
    if (last === undefined || rows.length < limit) return;
    if (request.descending) end = last[0];
    else start = `${last[0]}\u0001`;
  }
}

/** Jumps from key to key in the version index: the cost is per key, not per version. */
function walkVersions(store: OrderedStore, request: ListRequest, revision: number, visit: Visit): void {
  let { start, end } = boundsBehind(request, "k");
  while (start < end) {
    const [row] = store.scan({ start, end, limit: 1, reverse: request.descending });
    if (row === undefined) return;
    const escaped = escapedKeyOfVersionRow(row[0]);
    const key = unescapeKey(escaped);
    const position = locateVersion(store, key, revision);
    if (position !== null && !visit(key, position)) return;
    if (request.descending) end = `k${escaped}\u0001`;
    else start = `k${escaped}\u0002`;
  }
}

/** The selector's bounds, narrowed to what lies behind `after`. */
function boundsBehind(request: ListRequest, table: "c" | "k"): Bounds {
  const bounds = selectorBounds(table, request.selector);
  if (request.after === null) return bounds;
  const row = table + escapeKey(request.after);
  if (request.descending) return { start: bounds.start, end: lower(row, bounds.end) };
  // "\x01" ends a key in `k` and starts none behind it in `c`; "\x02" is the first character that goes on in a key.
  const behind = table === "k" ? `${row}\u0002` : `${row}\u0001`;
  return { start: higher(behind, bounds.start), end: bounds.end };
}

function lower(left: string, right: string): string {
  if (left < right) return left;
  return right;
}

function higher(left: string, right: string): string {
  return lower(left, right) === left ? right : left;
}

export interface HistoryRequest {
  readonly key: string;
  readonly from: number | null;
  readonly to: number | null;
  readonly limit: number;
  readonly after: readonly [revision: number, opIndex: number] | null;
  readonly bytesMax: number;
}

/**
 * Events of one key, oldest first. After a compaction at r: without `from`, the record as it was at r (one event, if it
 * was there) and then every event behind r; with `from` <= r it is refused, because events at r may be gone.
 */
export function readHistory(
  view: View,
  request: HistoryRequest,
): { readonly events: readonly ChangeEvent[]; readonly more: boolean } {
  const { store, meta } = view;
  const compact = meta.compactRevision;
  for (const bound of [request.from, request.to]) {
    if (bound !== null) checkRevision(view, bound);
  }
  if (request.from !== null && request.from <= compact && compact > 0) refuseCompacted(request.from, compact);
  const to = request.to ?? meta.revision;
  const positions = historyPositions(store, request, compact, to);
  const events: ChangeEvent[] = [];
  let bytes = 0;
  for (const [revision, opIndex] of positions) {
    if (events.length >= request.limit) return { events, more: true };
    const text = readHistoryText(store, revision, opIndex);
    const eventBytes = replyBytes(text, false);
    if (events.length > 0 && bytes + eventBytes > request.bytesMax) return { events, more: true };
    events.push(decodeEventAt(revision, opIndex, text));
    bytes += eventBytes;
  }
  return { events, more: false };
}

/** At most limit + 1 positions: one more than the page, to know whether the page is the last. */
function historyPositions(
  store: OrderedStore,
  request: HistoryRequest,
  compact: number,
  to: number,
): (readonly [number, number])[] {
  const positions: (readonly [number, number])[] = [];
  const { key, after } = request;
  const from = Math.max(request.from ?? 0, compact + 1);
  const { start: firstRow, end } = versionBounds(key, from, to);
  let start = firstRow;
  const base = compact > 0 && to >= compact ? locateVersion(store, key, compact) : null;
  if (after === null) {
    if (request.from === null && base !== null) positions.push(base);
  } else {
    // A page that goes on behind a position at or below r has lost nothing only if that position was the state at r.
    const complete = after[0] > compact || (base !== null && !isBefore(after, base));
    if (compact > 0 && !complete) refuseCompacted(after[0], compact);
    const behind = `${versionRow(key, after[0], after[1])}\u0001`;
    if (behind > start) start = behind;
  }
  if (start < end) {
    const rows = store.scan({ start, end, limit: request.limit + 1 });
    for (const [row] of rows) positions.push(positionOfRow(row));
  }
  return positions;
}

function isBefore(left: readonly [number, number], right: readonly [number, number]): boolean {
  return left[0] < right[0] || (left[0] === right[0] && left[1] < right[1]);
}
