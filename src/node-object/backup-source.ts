/**
 * The text of a backup, made as it is taken (api/backend.ts): nothing is read ahead of whoever takes it.
 */
import type { BackupSource } from "../api/backend.ts";
import { ConcordError } from "../base/errors.ts";
import { beginBackup, endBackup, writeBackupRows } from "../kv/backup-writer.ts";
import type { BackupSteps, OpenedBackup } from "./served-backup.ts";

const LOST = {
  code: "overloaded",
  reason: "backup_lost",
  detail: "This node cannot hold the state of the backup any longer; begin anew, perhaps at another node.",
} as const;

export function createBackupSource(
  steps: BackupSteps,
  { id, manifest }: Extract<OpenedBackup, { readonly ok: true }>,
): BackupSource {
  const writer = beginBackup(manifest);
  let after: string | null = null;
  let isComplete = false;
  return {
    manifest,
    next: () => {
      if (isComplete) return null;
      const chunk = steps.read(id, after);
      if (chunk === null) throw new ConcordError(LOST);
      after = chunk.end;
      const text = writeBackupRows(writer, chunk.rows);
      if (!chunk.isLast) return text;
      isComplete = true;
      steps.close(id);
      return text + endBackup(writer);
    },
    close: () => {
      if (isComplete) return;
      isComplete = true;
      steps.close(id);
    },
  };
}
