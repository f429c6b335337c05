/**
 * The durable state as it was when it was pinned, read in pieces while writes go on (design 02 §5).
 *
 * I1. Before a pinned row changes for the first time, what it held goes into a side table, in the transaction of the
 *     change. The pinned state is the table of the state, overlaid with those before-images.
 * I2. Rows behind the last key at the time of the pin are not part of it: the history, which grows at the end, costs
 *     neither images nor reading.
 * I3. A read looks at a bounded number of rows and images, however many of them it must leave out.
 * I4. The images of a pin that has ended are never looked at again; they are removed in bounded steps.
 */
import type { SealedRow, SnapshotChunk, SnapshotManifest, SnapshotPosition } from "./ports.ts";
import { type Exec, jsonBulks, numberColumn, SQL, type SqlRow, textColumn } from "./sqlite-rows.ts";
import type { SqliteState } from "./sqlite-state.ts";
import type { StateTable } from "./state-table.ts";

/** Rows that one read looks at, in steps: what a step has sized is still in the page cache when it is fetched. */
const READ_ROWS_MAX = 768;
const STEP_ROWS = 256;
const CLEAR_ROWS_MAX = 250;
const CLEAR_BYTES_MAX = 8 << 20;
/** Before-images of no pin have it: a view without any. */
const NO_PIN = 0;
/** Above every key. */
const KEYS_END = "\u{10FFFF}";

export interface Pin {
  readonly number: number;
  readonly manifest: SnapshotManifest;
  /** I2; empty: there was no row. */
  readonly endKey: string;
  /** Behind a key there is nothing up to another: found by reads that ended before they found a row. */
  readonly gaps: Map<string, string>;
}

/** Null: the sums of the state are not known. */
export function beginPin(state: SqliteState, position: SnapshotPosition): SnapshotManifest | null {
  const { exec, active, sums } = state;
  if (sums === null) return null;
  const [last] = exec(SQL.imagesLastPin);
  const lastNumber = Math.max(state.pin?.number ?? NO_PIN, (last?.pin as number | null) ?? NO_PIN);
  const [end] = exec(active.lastKey);
  const manifest = { position, ...sums };
  const endKey = (end?.key as string | null) ?? "";
  state.pin = { number: lastNumber + 1, manifest, endKey, gaps: new Map() };
  return manifest;
}

/** I1. Before any of these keys changes. */
export function saveImages(exec: Exec, table: StateTable, pin: Pin, keys: readonly string[]): void {
  const items = keys.filter((key) => key <= pin.endKey).map((key) => JSON.stringify(key));
  for (const bulk of jsonBulks(items, "[", "]")) exec(table.saveImages, pin.number, bulk);
}

export function readPinned(
  { exec, active }: SqliteState,
  pin: Pin,
  after: string | null,
  bytesMax: number,
): SnapshotChunk {
  const from = after ?? "";
  const view = { pin: pin.number, endKey: pin.endKey };
  const { rows, through, isEnd } = readStretch(exec, active, view, pin.gaps.get(from) ?? from, READ_ROWS_MAX, bytesMax);
  const end = rows.at(-1)?.[0] ?? from;
  if (through > end) pin.gaps.set(end, through);
  const { index, term } = pin.manifest.position;
  return { index, term, after, rows, last: isEnd };
}

/** Removes some images of pins that have ended; true if there were any. */
export function clearImages({ exec, pin }: SqliteState): boolean {
  const below = pin?.number ?? Number.MAX_SAFE_INTEGER;
  if (exec(SQL.imagesAny, below).length === 0) return false;
  exec(SQL.imagesClear, below, CLEAR_ROWS_MAX, CLEAR_BYTES_MAX);
  return true;
}

// --- bounded reads ---------------------------------------------------------------------------------------------------

interface View {
  readonly pin: number;
  readonly endKey: string;
}

/** The rows of a table as it is. */
export const LIVE: View = { pin: NO_PIN, endKey: KEYS_END };

export interface Stretch {
  readonly rows: readonly SealedRow[];
  /** There are no other rows up to here. */
  readonly through: string;
  readonly isEnd: boolean;
}

/** Rows behind `from`, as many as fit `bytesMax` and at least one if one is found; looks at about `rowsMax` rows. */
export function readStretch(
  exec: Exec,
  table: StateTable,
  view: View,
  from: string,
  rowsMax: number,
  bytesMax: number,
): Stretch {
  const rows: SealedRow[] = [];
  let at = from;
  let bytesLeft = bytesMax;
  for (let looked = 0; looked < rowsMax; looked += STEP_ROWS) {
    const offset = Math.min(STEP_ROWS, rowsMax - looked) - 1;
    const reach = nearer(
      keyOf(exec(table.reach, at, view.endKey, offset)),
      keyOf(exec(SQL.imagesReach, view.pin, at, view.endKey, offset)),
    );
    const through = reach ?? view.endKey;
    const [cut] = exec(table.cut, at, through, view.pin, bytesLeft);
    if (cut !== undefined && cut.first !== null) {
      const fits = cut.fits ?? (rows.length === 0 ? cut.first : null);
      if (typeof fits !== "string") return { rows, through: at, isEnd: false };
      for (const row of exec(table.pinned, at, fits, view.pin)) rows.push(rowOf(row, table));
      if (fits !== cut.last) return { rows, through: fits, isEnd: false };
      bytesLeft -= cut.bytes === null ? bytesLeft : numberColumn(cut, "bytes", table.name);
    }
    at = through;
    if (reach === null) return { rows, through: at, isEnd: true };
  }
  return { rows, through: at, isEnd: false };
}

function rowOf(row: SqlRow, table: StateTable): SealedRow {
  return [textColumn(row, "key", table.name), textColumn(row, "value", table.name)];
}

function keyOf(rows: readonly SqlRow[]): string | null {
  const [row] = rows;
  return row === undefined ? null : textColumn(row, "key", "state");
}

function nearer(left: string | null, right: string | null): string | null {
  if (left === null || right === null) return left ?? right;
  return left < right ? left : right;
}
