/**
 * Taking a backup in: its text (backup-reader.ts) and its rows (row-check.ts) judged together, as they come.
 * What `readBackup` says of its rows holds here too: they count for nothing until `endIntake` has answered.
 */
import { type BackupManifest, manifestOf } from "./backup-format.ts";
import { type BackupReader, endOfBackup, openBackup, readBackup } from "./backup-reader.ts";
import { beginRowCheck, checkRows, endRowCheck, type RowCheck } from "./row-check.ts";
import { refuseRows } from "./row-shapes.ts";
import type { Row } from "./store.ts";

export interface BackupIntake {
  readonly reader: BackupReader;
  readonly check: RowCheck;
}

export function beginIntake(): BackupIntake {
  return { reader: openBackup(), check: beginRowCheck() };
}

/** @throws ConcordError `invalid_request`, with the reason of a BackupFault or `invalid_rows` */
export function takeBackupText(intake: BackupIntake, piece: string): Row[] {
  const rows = readBackup(intake.reader, piece);
  checkRows(intake.check, rows);
  return rows;
}

/**
 * Says that the backup is whole, unchanged, and a state of ours.
 * @throws ConcordError `invalid_request`
 */
export function endIntake(intake: BackupIntake): BackupManifest {
  const manifest = endOfBackup(intake.reader);
  const meta = endRowCheck(intake.check);
  const told = manifestOf({ id: manifest.cluster_id, term: manifest.term }, meta);
  for (const [name, value] of Object.entries(manifest)) {
    const found = told[name as keyof BackupManifest];
    if (found !== value) refuseRows(`The manifest tells of ${name} ${value}; the rows are of ${found}.`);
  }
  return manifest;
}
