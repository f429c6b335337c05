/**
 * Every limit of the system, in one place, with its unit (design 01 §5).
 * Admission limits may be lowered by configuration at the edge; apply never reads them (S12).
 */

export const KEY_BYTES_MAX = 4096;
export const VALUE_BYTES_MAX = 1 << 20;
export const METADATA_BYTES_MAX = 4096;
export const CONTENT_TYPE_BYTES_MAX = 256;
export const COMPARES_MAX = 64;
export const OPERATIONS_PER_BRANCH_MAX = 128;
export const TXN_BYTES_MAX = 1_500_000;
export const NESTING_MAX = 100;
export const BATCH_KEYS_MAX = 500;
export const RANGE_LIMIT_MAX = 1000;
export const RANGE_LIMIT_DEFAULT = 100;
export const REPLY_BYTES_MAX = 4 << 20;
export const BODY_BYTES_MAX = 2 << 20;
export const DELETE_KEYS_MAX = 10_000;

export const IDEMPOTENCY_KEY_BYTES_MAX = 256;
export const IDEMPOTENCY_KEPT_MS_MIN = 10 * 60 * 1000;
export const IDEMPOTENCY_KEPT_REVISIONS_MIN = 10_000;
export const IDEMPOTENCY_ENTRIES_MAX = 100_000;
export const IDEMPOTENCY_BYTES_MAX = 64 << 20;
export const IDEMPOTENCY_RESULT_BYTES_MAX = 32 << 10;

export const LEASE_KEYS_MAX = 10_000;
export const LEASES_MAX = 100_000;
export const LEASE_TTL_S_MIN = 1;
/** Ids in one keep-alive: they share one log entry. */
export const LEASE_KEEP_ALIVES_MAX = 500;
/** Leases and keys that one expiry ends: it is one bounded turn on every node. */
export const LEASE_EXPIRE_LEASES_MAX = 50;
export const LEASE_EXPIRE_KEYS_MAX = 10_000;
/** How far ahead of the log's time a lease floor may lie: a wrong clock must not keep dead owners (design 01 §3). */
export const LEASE_GRACE_MS_MAX = 60_000;
/** Ten years: far above any use, far below what would overflow a millisecond counter (S35). */
export const LEASE_TTL_S_MAX = 315_360_000;

/** Automatic compaction keeps so many revisions or so much time, whichever is more, within so many bytes of history. */
export const COMPACTION_KEEP_REVISIONS_DEFAULT = 100_000;
export const COMPACTION_KEEP_MS_DEFAULT = 10 * 60 * 1000;
export const COMPACTION_HISTORY_BYTES_DEFAULT = 1024 * 1024 * 1024;
/** Growing writes are refused while the state is above this. */
export const QUOTA_BYTES_DEFAULT = 4 * 1024 * 1024 * 1024;
/** The log keeps so many entries beyond what the slowest live member has, within so many bytes (design 02 §5). */
export const LOG_KEEP_ENTRIES_DEFAULT = 10_000;
export const LOG_KEEP_BYTES_DEFAULT = 64 << 20;
/** Pause between two steps that verify the state on the disk. */
export const HOUSEKEEPING_MS_DEFAULT = 1000;
/** A cluster that nobody has asked anything for so long falls asleep. */
export const QUIESCE_AFTER_MS_DEFAULT = 10_000;
/** One removal command looks at so many rows of history, and ends early behind so many bytes of them. */
export const COMPACT_REMOVE_ROWS_MAX = 2000;
export const COMPACT_REMOVE_BYTES_MAX = 8 << 20;
/** History marks (time and size at a revision) lie no further apart; automatic compaction aims at marks. */
export const HISTORY_MARK_REVISIONS_MAX = 1000;
export const HISTORY_MARK_BYTES_MAX = 8 << 20;

/** A line of a backup, its end included: what a reader has to hold before it can judge it. */
export const BACKUP_LINE_BYTES_MAX = 512 << 10;
/** How far a restore moves the revision: further than the lost cluster can have come after the backup. */
export const RESTORE_REVISION_JUMP_DEFAULT = 1_000_000;
/** Far above any use, and far below what a counter holds. */
export const RESTORE_REVISION_JUMP_MAX = 1_000_000_000_000;
/** A row of a restore is cut into parts of this, an entry holds this many: far below its limit. */
export const RESTORE_PART_UNITS_MAX = 1 << 16;
export const RESTORE_ENTRY_UNITS_MAX = 3 * RESTORE_PART_UNITS_MAX;

/** A row of the log holds a whole batch of entries; a larger batch is split (the platform refuses rows of 2 MB). */
export const LOG_ROW_BYTES_MAX = 1_900_000;
/** Entries in one append message, and their bytes; one entry always fits, whatever its size. */
export const APPEND_ENTRIES_MAX = 1024;
export const APPEND_BYTES_MAX = 1 << 20;
export const APPENDS_IN_FLIGHT_MAX = 16;
/** Supported sizes of a resting cluster are 1, 3, 5 and 7 voters; a change goes through the even ones. */
export const VOTERS_MAX = 7;
export const LEARNERS_MAX = 7;
/** Characters of what the runtime keeps with a membership. */
export const MEMBERSHIP_EXTRA_UNITS_MAX = 16 << 10;
/** A learner may become a voter when it is at most this many entries behind: one append brings it to the end. */
export const PROMOTION_LAG_ENTRIES_MAX = 1024;
/** A leader whose log time is further than this from the members' clocks hands its leadership over (design 02 §3). */
export const SKEW_MS_MAX = 1000;
/** Proposals that the leader holds un-committed before it answers `overloaded`. */
export const PROPOSALS_IN_FLIGHT_MAX = 8192;
export const PROPOSALS_IN_FLIGHT_BYTES_MAX = 32 << 20;
