/** The JSON around backups (design 02 §5). Types only, as all of the wire. The text itself: kv/backup-format.ts. */

/** Of what a backup is. */
export interface WireBackup {
  readonly cluster_id: string;
  readonly revision: number;
  /** Of the last log entry in it. */
  readonly index: number;
  /** The log's time at that entry. */
  readonly time_ms: number;
}

/** A cluster that serves a backup from now on. */
export interface WireRestored {
  /** New: what clients know of the cluster of the backup counts no more. */
  readonly cluster_id: string;
  /** Everything up to it is compacted. */
  readonly revision: number;
  readonly backup: WireBackup;
}
