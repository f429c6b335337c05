/** Backup and restore of a bare machine, in one call each. */

import { hashText } from "../../src/base/hash.ts";
import { RESTORE_REVISION_JUMP_DEFAULT } from "../../src/base/limits.ts";
import { manifestOf } from "../../src/kv/backup-format.ts";
import { beginIntake, endIntake, takeBackupText } from "../../src/kv/backup-intake.ts";
import { beginBackup, endBackup, writeBackupRows } from "../../src/kv/backup-writer.ts";
import type { Machine } from "../../src/kv/machine.ts";
import { MemoryStore } from "../../src/kv/memory-store.ts";
import { applyChanges, type Change, Overlay } from "../../src/kv/overlay.ts";
import { forgetHistory, RENEWAL_BEGIN, type Renewal, renew, restoredMeta } from "../../src/kv/restore.ts";
import { beginRowCheck, checkRows, endRowCheck } from "../../src/kv/row-check.ts";
import { type Meta, readMeta, writeMeta } from "../../src/kv/state.ts";
import type { OrderedStore, Row } from "../../src/kv/store.ts";
import { Harness } from "./harness.ts";

const ALL = { start: "\u0001", end: "\u{10FFFF}", limit: Number.MAX_SAFE_INTEGER };

export function backupOf(machine: Machine): string {
  const writer = beginBackup(manifestOf({ id: "old", term: 7 }, readMeta(machine.store)));
  return writeBackupRows(writer, machine.store.scan(ALL)) + endBackup(writer);
}

/** The rows of a backup that was found good. */
export function takenIn(text: string, pieceSize = text.length): MemoryStore {
  const intake = beginIntake();
  const store = new MemoryStore();
  for (let from = 0; from < text.length; from += pieceSize) {
    for (const [row, value] of takeBackupText(intake, text.slice(from, from + pieceSize))) store.put(row, value);
  }
  endIntake(intake);
  return store;
}

/** Counters of rows that are a state; throws for what is none. */
export function checkedRows(rows: readonly Row[]): Meta {
  const check = beginRowCheck();
  checkRows(check, rows);
  return endRowCheck(check);
}

export interface RestoreOptions {
  readonly index: number;
  readonly nowMs: number;
  readonly revisionJump?: number;
}

/** Both parts of a restore, where the rows stand. `rowsMax`: of one step of the second part. */
export function restoreIn(store: OrderedStore, options: RestoreOptions, rowsMax = 7): void {
  const { revisionJump = RESTORE_REVISION_JUMP_DEFAULT, nowMs, index } = options;
  for (const change of forgetHistory(store)) if (change !== null) applyChanges(store, [change]);
  const meta = readMeta(store);
  let from: Renewal | null = RENEWAL_BEGIN;
  while (from !== null) {
    from = renew(store, meta, { from, nowMs, revisionJump }, { rowsMax, charactersMax: 1_000_000 });
  }
  const restored = restoredMeta(meta, { index, nowMs, revisionJump });
  writeMeta(store, { ...restored, digest: hashText(JSON.stringify(restored), 0) });
}

/** The machine of a new cluster, from a backup's text. Its time goes on from `nowMs`. */
export function restored(text: string, options: RestoreOptions): Harness {
  const h = new Harness();
  for (const [row, value] of takenIn(text).rows()) h.store.put(row, value);
  restoreIn(h.store, options);
  h.restart();
  h.timeMs = options.nowMs;
  return h;
}

/** The changes of a restore, carried out nowhere. */
export function restoreChanges(source: OrderedStore, options: RestoreOptions): Change[] {
  const apart = new Overlay(source);
  restoreIn(apart, options, 1);
  return apart.changes();
}

/** The rows with the changes of a restore beside them. */
export function restoredApart(source: OrderedStore, options: RestoreOptions): Row[] {
  const target = new MemoryStore();
  for (const [row, value] of source.scan(ALL)) target.put(row, value);
  applyChanges(target, restoreChanges(source, options));
  return target.rows();
}
