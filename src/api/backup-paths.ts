/** Where backups leave and come in, for the Worker and the node alike. */
export const SNAPSHOT_PATH = "/v1/cluster/snapshot";
export const RESTORE_PATH = "/v1/cluster/restore";
export const BACKUP_CONTENT_TYPE = "application/x-ndjson";
