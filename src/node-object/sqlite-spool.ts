/**
 * The rows of a backup on their way in, in a node's SQLite database (design 02 §5): beside the state, larger than memory.
 *
 * B1. What is there counts for nothing once the instance has ended: a later one finds garbage, which is removed in bounded
 *     steps, before another backup comes in or at leisure.
 */
import type { Change } from "../kv/overlay.ts";
import type { SealedRow } from "./ports.ts";
import { clearTable, deleteRows, putRows, type SqliteState } from "./sqlite-state.ts";
import { sealed } from "./state-seals.ts";
import { SPOOL } from "./state-table.ts";

/** Removes some of what is there; false: there was something. */
export function beginSpool(state: SqliteState): boolean {
  state.isSpooling = !clearTable(state.exec, SPOOL);
  return state.isSpooling;
}

/** Of a key's changes the last counts. */
export function writeSpool({ exec }: SqliteState, changes: readonly Change[]): void {
  const puts: SealedRow[] = [];
  const deletes: string[] = [];
  for (const [key, value] of new Map(changes)) {
    if (value === null) deletes.push(key);
    else puts.push([key, sealed(key, value)]);
  }
  deleteRows(exec, SPOOL, deletes);
  putRows(exec, SPOOL, puts);
}

/** True: something was removed. */
export function clearSpool({ exec, isSpooling }: SqliteState): boolean {
  return !isSpooling && clearTable(exec, SPOOL);
}
