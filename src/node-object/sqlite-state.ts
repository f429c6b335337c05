/**
 * The rows of the state in a node's SQLite database: written in bulk, with their sums kept beside them.
 *
 * D6. Rows, sums and before-images of a batch are one transaction; the caller begins it.
 * D7. `sums` are those of all rows, or null in a database of an earlier format until a scrub has gone through it once.
 *
 * Must not: know what the rows mean.
 */
import { assert } from "../base/assert.ts";
import { utf8Length } from "../base/bytes.ts";
import { LOG_ROW_BYTES_MAX } from "../base/limits.ts";
import type { Row, ScanRange } from "../kv/store.ts";
import { isCounter, parseJson } from "./json-guards.ts";
import type { SealedRow, WriteBatch } from "./ports.ts";
import { corrupt, type Exec, jsonBulks, numberColumn, putMeta, textColumn } from "./sqlite-rows.ts";
import { type Pin, saveImages } from "./sqlite-snapshot.ts";
import type { Staged } from "./staged-snapshot.ts";
import { minus, NO_SUMS, opened, plus, SEAL_UNITS, type StateSums, sealed, sumsOfSeals } from "./state-seals.ts";
import { otherTable, STATE_A, STATE_B, type StateTable } from "./state-table.ts";

/** A value longer than this is bound by itself: escaping it into JSON would only cost. */
const BULK_VALUE_UNITS_MAX = 64_000;
/** Emptying a table goes so far in one step. */
const CLEAR_ROWS_MAX = 250;
const CLEAR_BYTES_MAX = 8 << 20;
const SCAN_ROWS_MAX = 2 ** 31 - 1;

export interface SqliteState {
  readonly exec: Exec;
  active: StateTable;
  /** D7 */
  sums: StateSums | null;
  /** A pass through all rows, and the sums of those up to `afterKey` as they are now (sqlite-scrub.ts). */
  scrub: { readonly afterKey: string; sums: StateSums } | null;
  pin: Pin | null;
  staged: Staged | null;
  /** A backup is on its way in (sqlite-spool.ts). */
  isSpooling: boolean;
}

export function emptyState(exec: Exec): SqliteState {
  return { exec, active: STATE_A, sums: null, scrub: null, pin: null, staged: null, isSpooling: false };
}

/** The table that holds no state: it is empty, is being emptied, or takes in a snapshot. */
export function spareTable({ active }: SqliteState): StateTable {
  return otherTable(active);
}

/** @throws CorruptionError if it is not said: the table that is not the state is emptied (sqlite-staging.ts J3). */
export function activeFrom(text: string | undefined): StateTable {
  if (text === STATE_A.name) return STATE_A;
  if (text === STATE_B.name) return STATE_B;
  throw corrupt("meta active_state", "not a table");
}

export function sumsFrom(text: string | undefined): StateSums | null {
  if (text === undefined) return null;
  const value = parseJson(text);
  if (!Array.isArray(value) || value.length !== 2) throw corrupt("meta state_sums", "not a pair");
  const [rowsCount, hash] = value as unknown[];
  if (!isCounter(rowsCount) || !isCounter(hash)) throw corrupt("meta state_sums", "not count and hash");
  return { rowsCount, hash };
}

export function putSums(state: SqliteState, sums: StateSums): void {
  putMeta(state.exec, "state_sums", JSON.stringify([sums.rowsCount, sums.hash]));
  state.sums = sums;
}

/** Puts and deletes; of a key's changes the last counts. */
export function writeState(state: SqliteState, rows: NonNullable<WriteBatch["state"]>): void {
  const changes = new Map<string, string | null>();
  for (const [key, value] of rows) changes.set(key, value);
  const puts: SealedRow[] = [];
  const deletes: string[] = [];
  for (const [key, value] of changes) {
    if (value === null) deletes.push(key);
    else puts.push([key, sealed(key, value)]);
  }
  const keys = [...changes.keys()];
  const { exec, active, pin } = state;
  if (pin !== null) saveImages(exec, active, pin, keys);
  noteChanges(state, keys, puts);
  deleteRows(exec, active, deletes);
  putRows(exec, active, puts);
}

export function deleteRows(exec: Exec, table: StateTable, keys: readonly string[]): void {
  const items = keys.map((key) => JSON.stringify(key));
  for (const bulk of jsonBulks(items, "[", "]")) exec(table.deleteMany, bulk);
}

/** Writes rows that are sealed already, in as few statements as the platform's limits on bound values allow. */
export function putRows(exec: Exec, table: StateTable, rows: readonly SealedRow[]): void {
  const items: string[] = [];
  for (const [key, text] of rows) {
    if (text.length <= BULK_VALUE_UNITS_MAX) items.push(`${JSON.stringify(key)}:${JSON.stringify(text)}`);
    else {
      const bytes = utf8Length(key) + utf8Length(text);
      assert(bytes <= LOG_ROW_BYTES_MAX, `state row ${JSON.stringify(key)} of ${bytes} bytes fits`);
      exec(table.put, key, text);
    }
  }
  for (const bulk of jsonBulks(items, "{", "}")) exec(table.putMany, bulk);
}

/** Removes some rows of a table that holds no state; true if there were any. */
export function clearTable(exec: Exec, table: StateTable): boolean {
  if (exec(table.any).length === 0) return false;
  exec(table.clear, CLEAR_ROWS_MAX, CLEAR_BYTES_MAX);
  return true;
}

export function getRow(exec: Exec, table: StateTable, key: string): string | undefined {
  const [row] = exec(table.get, key);
  return row === undefined ? undefined : opened(key, textColumn(row, "value", table.name));
}

export function scanRows(exec: Exec, table: StateTable, { start, end, limit, reverse }: ScanRange): Row[] {
  const statement = reverse === true ? table.scanReverse : table.scan;
  return exec(statement, start, end, Math.min(limit, SCAN_ROWS_MAX)).map((row) => {
    const key = textColumn(row, "key", table.name);
    return [key, opened(key, textColumn(row, "value", table.name))];
  });
}

// --- sums ------------------------------------------------------------------------------------------------------------

/** Takes the changes into the sums of all rows, and into those of the rows that a scrub has passed. */
function noteChanges(state: SqliteState, keys: readonly string[], puts: readonly SealedRow[]): void {
  const { sums, scrub } = state;
  if (sums === null && scrub === null) return;
  if (scrub === null) {
    if (sums !== null) putSums(state, changed(state, sums, keys, puts));
    return;
  }
  const isPassed = (key: string) => key <= scrub.afterKey;
  const passed = { keys: keys.filter(isPassed), puts: puts.filter(([key]) => isPassed(key)) };
  const before = scrub.sums;
  scrub.sums = changed(state, before, passed.keys, passed.puts);
  if (sums === null) return;
  const ahead = { keys: keys.filter((key) => !isPassed(key)), puts: puts.filter(([key]) => !isPassed(key)) };
  const rest = changed(state, minus(sums, before), ahead.keys, ahead.puts);
  putSums(state, plus(rest, scrub.sums));
}

/** `sums` after the rows of these keys are replaced by `puts`. */
function changed(
  { exec, active }: SqliteState,
  sums: StateSums,
  keys: readonly string[],
  puts: readonly SealedRow[],
): StateSums {
  let after = sums;
  const items = keys.map((key) => JSON.stringify(key));
  for (const bulk of jsonBulks(items, "[", "]")) after = minus(after, oldSums(exec, active, bulk));
  const added = sumsOfSeals(puts.map(([, text]) => text.slice(0, SEAL_UNITS)).join(""));
  assert(added !== null, "seals that were just made are seals");
  return plus(after, added);
}

function oldSums(exec: Exec, table: StateTable, keys: string): StateSums {
  const [row] = exec(table.seals, keys);
  if (row === undefined || row.seals === null) return NO_SUMS;
  const sums = sumsOfSeals(textColumn(row, "seals", table.name));
  if (sums === null || sums.rowsCount !== numberColumn(row, "rows", table.name)) {
    throw corrupt(table.name, "holds a row without a seal");
  }
  return sums;
}
