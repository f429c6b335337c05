/**
 * Walks of history: the events of a selector behind a position, in order. One walk serves the pull side (`changes`) and
 * the watches of a node (src/watch).
 *
 * H1. A walk visits matching events behind a position in order, each once, and says how far it has looked; what it
 *     looked at beyond the row limit is at most the rest of one revision.
 * H2. `next` stands between two revisions, unless `visit` ended the walk inside one.
 * H3. The caller asks only for positions that are still available (`isAvailable`): rows at or below the compacted
 *     revision may or may not be there, and the walk does not look which.
 */
import { assert } from "../base/assert.ts";
import type { ChangeEvent, KeyRecord, Selector } from "./command.ts";
import { comparePositions, endOf, laterOf, type Position } from "./position.ts";
import { decodeEventAt, decodeRecord, keyOfHistory, readHistoryText } from "./records.ts";
import { historyRow, positionOfRow, selectorBounds, unescapeKey, versionBounds, versionRow } from "./rows.ts";
import type { OrderedStore, Row } from "./store.ts";

export interface WalkRequest {
  readonly selector: Selector;
  readonly after: Position;
  /** Rows looked at, matching or not, before the walk ends at the next revision. */
  readonly rowsMax: number;
}

/** `text` is the stored row, and `characters` its length. False ends the walk before this event. */
export type Visit = (event: ChangeEvent, characters: number, text: string) => boolean;

export interface Walked {
  /** Every matching event behind `after` and up to here has been visited. */
  readonly next: Position;
  readonly rows: number;
}

/** What a walk stands on: a machine (machine.ts) has this shape. */
export interface HistorySource {
  readonly store: OrderedStore;
  readonly revision: number;
  readonly compactRevision: number;
}

/** Rows fetched per step of a walk of the log: each may be 1.4 MB, and a scan has no limit in bytes. */
const LOG_STEP_ROWS = 16;
/** A prefix or range with at most this many keys is read key by key instead of through the whole log. */
const INDEXED_KEYS_MAX = 32;
/** Below this distance the log is shorter than a search for the keys of a selector. */
const INDEX_WORTH_REVISIONS = 128;

/** Tracks a walk's end: the revision of the last visited or passed row, and the budget of rows. */
interface Walk {
  readonly source: HistorySource;
  readonly request: WalkRequest;
  readonly visit: Visit;
  /** Everything up to here has been looked at. */
  reached: Position;
  rows: number;
  /** Rows spent on looking for the keys of the selector: work, but not against the budget of the walk itself. */
  searched: number;
}

export function walkHistory(source: HistorySource, request: WalkRequest, visit: Visit): Walked {
  const { after, selector } = request;
  assert(
    comparePositions(after, endOf(source.compactRevision)) >= 0,
    `walk from ${after.revision} in compacted history`,
  );
  const state: Walk = { source, request, visit, reached: after, rows: 0, searched: 0 };
  if (after.revision <= source.revision && comparePositions(after, endOf(source.revision)) < 0) {
    if ("key" in selector) walkKey(state, selector.key);
    else if (!walkKeys(state)) walkLog(state);
  }
  return { next: state.reached, rows: state.rows + state.searched };
}

/** Offers the event at `position` to the visitor. False: the walk ends before it, at the place that H2 asks for. */
function offer(state: Walk, position: Position, readEvent: () => readonly [ChangeEvent, string]): boolean {
  if (!enter(state, position)) return false;
  const [event, text] = readEvent();
  if (!state.visit(event, text.length, text)) {
    if (state.reached.revision < position.revision) state.reached = endOf(position.revision - 1);
    return false;
  }
  state.reached = position;
  return true;
}

/** Counts a row. At the first one of a revision, ends the walk if the budget is used up. */
function enter(state: Walk, position: Position): boolean {
  if (position.revision > state.reached.revision && state.rows >= state.request.rowsMax) {
    state.reached = laterOf(state.reached, endOf(position.revision - 1));
    return false;
  }
  state.rows += 1;
  return true;
}

function finish(state: Walk): void {
  state.reached = endOf(state.source.revision);
}

// --- one key: its versions are an index -------------------------------------------------------------------------------

function walkKey(state: Walk, key: string): void {
  const { store, revision } = state.source;
  const { after } = state.request;
  let start = behind(versionRow(key, after.revision, after.opIndex));
  const { end } = versionBounds(key, 0, revision);
  while (start < end) {
    const rows = store.scan({ start, end, limit: LOG_STEP_ROWS });
    for (const [row] of rows) {
      const position = rowPosition(row);
      if (!offer(state, position, () => readEvent(store, position))) return;
    }
    const last = rows[rows.length - 1];
    if (last === undefined || rows.length < LOG_STEP_ROWS) break;
    start = behind(last[0]);
  }
  finish(state);
}

// --- a selector with few keys: merge their versions --------------------------------------------------------------------

/** False when the selector has many keys, or the log is so short that it is the better way. */
function walkKeys(state: Walk): boolean {
  const { store, revision } = state.source;
  const { after, rowsMax } = state.request;
  if (revision - after.revision <= INDEX_WORTH_REVISIONS) return false;
  const keys = keysOf(state);
  if (keys === null) return false;
  const perKey = Math.max(8, Math.floor(rowsMax / Math.max(1, keys.length)));
  const positions: Position[] = [];
  /** Revisions up to here are complete in `positions`. */
  let known = revision;
  for (const key of keys) {
    const start = behind(versionRow(key, after.revision, after.opIndex));
    const rows = store.scan({ start, end: versionBounds(key, 0, revision).end, limit: perKey });
    state.searched += rows.length;
    for (const [row] of rows) positions.push(rowPosition(row));
    const last = rows.length < perKey ? undefined : rows[rows.length - 1];
    if (last !== undefined) known = Math.min(known, rowPosition(last[0]).revision - 1);
  }
  // One revision alone holds more versions than fit a round: the log tells them in order without a merge.
  if (known <= after.revision) return false;
  positions.sort(comparePositions);
  for (const position of positions) {
    if (position.revision > known) break;
    const [event, text] = readEvent(store, position);
    if (!state.visit(event, text.length, text)) {
      if (state.reached.revision < position.revision) state.reached = endOf(position.revision - 1);
      return true;
    }
    state.reached = position;
  }
  state.reached = endOf(known);
  return true;
}

/** The selector's keys in the version index, or null when there are more than a few. */
function keysOf(state: Walk): string[] | null {
  const { selector } = state.request;
  if ("prefix" in selector && selector.prefix === "") return null;
  const keys: string[] = [];
  let { start, end } = selectorBounds("k", selector);
  while (start < end) {
    const [row] = state.source.store.scan({ start, end, limit: 1 });
    if (row === undefined) break;
    if (keys.length >= INDEXED_KEYS_MAX) return null;
    state.searched += 1;
    // Behind the last mark stand only digits; a key in front of it may hold anything that escaping leaves.
    const escaped = row[0].slice(1, row[0].lastIndexOf("\u0001"));
    keys.push(unescapeKey(escaped));
    start = `k${escaped}\u0002`;
  }
  return keys;
}

// --- everything: the log ----------------------------------------------------------------------------------------------

function walkLog(state: Walk): void {
  const { store, revision } = state.source;
  const { after, selector } = state.request;
  let start = behind(historyRow(after.revision, after.opIndex));
  const end = historyRow(revision + 1, 0);
  while (start < end) {
    const rows = store.scan({ start, end, limit: LOG_STEP_ROWS });
    for (const [row, text] of rows) {
      const position = rowPosition(row);
      if (selects(selector, keyOfHistory(text))) {
        const read = (): readonly [ChangeEvent, string] => [eventAt(position, text), text];
        if (!offer(state, position, read)) return;
      } else if (!enter(state, position)) return;
      else state.reached = position;
    }
    const last = rows[rows.length - 1];
    if (last === undefined || rows.length < LOG_STEP_ROWS) break;
    start = behind(last[0]);
  }
  finish(state);
}

/** Whether a selector wants a key. */
export function selects(selector: Selector, key: string): boolean {
  if ("prefix" in selector) return key.startsWith(selector.prefix);
  if ("range" in selector) {
    const { start, end } = selector.range;
    return key >= start && (end === undefined || key < end);
  }
  return key === selector.key;
}

// --- rows -------------------------------------------------------------------------------------------------------------

/** The record of `key` as it was just before the event at `position`; null if it was not there. */
export function recordBefore(store: OrderedStore, key: string, position: Position): KeyRecord | null {
  const { start } = versionBounds(key, 0, position.revision);
  const end = versionRow(key, position.revision, position.opIndex);
  const [last]: (Row | undefined)[] = store.scan({ start, end, limit: 1, reverse: true });
  if (last === undefined || last[1] === "d") return null;
  const [revision, opIndex] = positionOfRow(last[0]);
  return decodeRecord(readHistoryText(store, revision, opIndex), revision, false);
}

function readEvent(store: OrderedStore, position: Position): readonly [ChangeEvent, string] {
  const text = readHistoryText(store, position.revision, position.opIndex);
  return [eventAt(position, text), text];
}

function eventAt(position: Position, text: string): ChangeEvent {
  return decodeEventAt(position.revision, position.opIndex, text);
}

function rowPosition(row: string): Position {
  const [revision, opIndex] = positionOfRow(row);
  return { revision, opIndex };
}

/** The lowest bound behind a row: no key holds NUL (store.ts O1). */
function behind(row: string): string {
  return `${row}\u0001`;
}
