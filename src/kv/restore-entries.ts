/**
 * The rows of a backup as commands of bounded size (restoring.ts). An entry is text within text: what is escaped twice may
 * grow sixfold, and still fits.
 */
import { RESTORE_ENTRY_UNITS_MAX, RESTORE_PART_UNITS_MAX } from "../base/limits.ts";
import type { RestorePosition } from "./command.ts";
import type { Row } from "./store.ts";

/** The content of one `restore_rows`, and what has come with it. */
export interface RestoreEntry {
  readonly after: RestorePosition;
  readonly rows: readonly Row[];
  readonly position: RestorePosition;
}

export const RESTORE_START: RestorePosition = { key: "", units: 0 };

/** @param rows in the order of their keys, behind the row of `after`, which is whole. */
export function restoreEntries(after: RestorePosition, rows: readonly Row[]): RestoreEntry[] {
  const entries: RestoreEntry[] = [];
  let start = after;
  let taken: Row[] = [];
  let units = 0;
  const end = (position: RestorePosition) => {
    if (taken.length === 0) return;
    entries.push({ after: start, rows: taken, position });
    start = position;
    taken = [];
    units = 0;
  };
  let position = after;
  for (const [key, text] of rows) {
    for (const { from, part } of partsOf(text)) {
      if (units + key.length + part.length > RESTORE_ENTRY_UNITS_MAX) end(position);
      taken.push([key, part]);
      units += key.length + part.length;
      position = { key, units: from + part.length };
    }
  }
  end(position);
  return entries;
}

/** A pair of surrogates stays together: a row that has come in part is well-formed text, as every row is. */
function partsOf(text: string): { readonly from: number; readonly part: string }[] {
  const parts: { from: number; part: string }[] = [];
  let from = 0;
  do {
    let to = Math.min(text.length, from + RESTORE_PART_UNITS_MAX);
    if (to < text.length && isHighSurrogate(text.charCodeAt(to - 1))) to -= 1;
    parts.push({ from, part: text.slice(from, to) });
    from = to;
  } while (from < text.length);
  return parts;
}

function isHighSurrogate(code: number): boolean {
  return code >= 0xd800 && code < 0xdc00;
}
