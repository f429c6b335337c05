/**
 * What goes into the log and what comes out of it: commands, queries, outcomes (design 01 §2, §3). Types only.
 * Keys here are byte strings (base/bytes.ts); names are snake_case because the same records travel on the wire and in
 * the log. A command is validated at admission (validate.ts); apply trusts shape, never state.
 */
import type { ErrorBody } from "../base/errors.ts";
import type { JsonObject, JsonValue } from "../base/json.ts";

/** A stored value: a JSON value or bytes. `{ json: null }` is a value; absence is the absence of the record. */
export type Value = { readonly json: JsonValue } | { readonly base64: string };

export interface KeyRecord {
  readonly key: string;
  readonly value: Value;
  readonly create_revision: number;
  readonly mod_revision: number;
  /** Writes since creation; 1 for a new record. */
  readonly version: number;
  /** The lease it is attached to; the id of an anonymous lease for a record with a TTL. */
  readonly lease_id: number | null;
  /** Of a record with a TTL. Null under a granted lease, whose expiry moves without a write: ask the lease. */
  readonly expires_at_ms: number | null;
  readonly content_type: string | null;
  readonly metadata: JsonObject;
}

export type Selector =
  | { readonly key: string }
  | { readonly prefix: string }
  /** `end` exclusive; absent = to the end of the key space. */
  | { readonly range: { readonly start: string; readonly end?: string } };

export type EqualityOperator = "==" | "!=";
export type OrderOperator = EqualityOperator | ">" | ">=" | "<" | "<=";

export type Compare =
  | { readonly target: "exists"; readonly key: string; readonly op: EqualityOperator; readonly value: boolean }
  | { readonly target: "value"; readonly key: string; readonly op: EqualityOperator; readonly value: Value | null }
  | {
      readonly target: "field";
      readonly key: string;
      readonly path: readonly (string | number)[];
      readonly op: OrderOperator;
      readonly value: JsonValue;
    }
  | {
      readonly target: "version" | "create_revision" | "mod_revision";
      readonly key: string;
      readonly op: OrderOperator;
      readonly value: number;
    }
  | { readonly target: "lease"; readonly key: string; readonly op: EqualityOperator; readonly value: number | null }
  /** Remaining seconds of the record's lease or TTL; null without one. */
  | { readonly target: "ttl"; readonly key: string; readonly op: OrderOperator; readonly value: number | null };

export type Operation =
  | {
      readonly type: "get";
      readonly selector: Selector;
      /** Mandatory for prefix and range. */
      readonly limit?: number;
      readonly revision?: number;
      readonly keys_only?: boolean;
      readonly count_only?: boolean;
      readonly order?: "asc" | "desc";
    }
  | {
      readonly type: "put";
      readonly key: string;
      /** Absent only with `ignore_value`. */
      readonly value?: Value;
      readonly prev_kv?: boolean;
      readonly content_type?: string;
      readonly metadata?: JsonObject;
      readonly ttl?: number;
      readonly lease?: number;
      readonly ignore_value?: boolean;
      readonly ignore_lease?: boolean;
      readonly revision_suffix?: boolean;
      readonly due_at_ms?: number;
    }
  | { readonly type: "delete"; readonly selector: Selector; readonly prev_kv?: boolean }
  | { readonly type: "touch"; readonly key: string; readonly ttl: number };

export interface Txn {
  readonly compare: readonly Compare[];
  readonly success: readonly Operation[];
  readonly failure: readonly Operation[];
}

export type OperationResult =
  | { readonly type: "get"; readonly kvs: readonly KeyRecord[]; readonly count: number; readonly more: boolean }
  /** `key` is the full key, which differs from the request's under `revision_suffix`; `prev_kv` only if asked for. */
  | { readonly type: "put"; readonly key: string; readonly prev_kv?: KeyRecord | null }
  | { readonly type: "delete"; readonly deleted: number; readonly prev_kvs?: readonly KeyRecord[] }
  | { readonly type: "touch"; readonly expires_at_ms: number }
  | { readonly type: "touch"; readonly not_found: true };

export interface TxnResult {
  readonly succeeded: boolean;
  readonly revision: number;
  readonly responses: readonly OperationResult[];
  /** True when the result was kept without values because it was over 32 KiB (idempotent replay only). */
  readonly values_dropped?: boolean;
}

export type Command =
  | ({ readonly kind: "txn" } & Txn)
  | { readonly kind: "lease_grant"; readonly ttl_s: number; readonly metadata?: JsonObject; readonly id?: number }
  | { readonly kind: "lease_revoke"; readonly id: number }
  /** Renews many leases in one entry, each for its TTL (or `ttl_s`, which replaces it) from the entry's time. */
  | { readonly kind: "lease_keep_alive"; readonly items: readonly KeepAlive[] }
  /** Proposed by the leader alone. Ends each lease that is still as the leader saw it and due by the entry's time. */
  | { readonly kind: "lease_expire"; readonly leases: readonly SeenLease[] }
  /** Proposed by the leader alone, once after a change of leader: no lease ends before it. */
  | { readonly kind: "lease_floor"; readonly floor_ms: number }
  | { readonly kind: "compact"; readonly revision: number }
  /** Proposed by the leader alone: the next chunk of rows that compaction made unreadable goes (compaction.ts). */
  | { readonly kind: "compact_remove"; readonly rows_max: number }
  | RestoreCommand;

/** From a node that has taken a backup in (restoring.ts). `id`: of this try, so that no two mix. */
export type RestoreCommand =
  /** The state becomes a place for the rows of a backup. Repeated until all that was there is gone. */
  | { readonly kind: "restore_begin"; readonly id: string }
  | {
      readonly kind: "restore_rows";
      readonly id: string;
      /** Taken only if exactly this has come so far. */
      readonly after: RestorePosition;
      /** In the order of their keys. The first may go on where the row of `after` ends. */
      readonly rows: readonly (readonly [key: string, text: string])[];
    }
  /** The state becomes that of a new cluster. Repeated until it is. */
  | {
      readonly kind: "restore_end";
      readonly id: string;
      readonly cluster_id: string;
      readonly rows_count: number;
      readonly revision_jump: number;
    };

/** The last row that has come, and how much of it. */
export interface RestorePosition {
  readonly key: string;
  readonly units: number;
}

export interface KeepAlive {
  readonly id: number;
  readonly ttl_s?: number;
}

/** `expires_at_ms` as it is stored, without the floor: another number means that the lease was renewed. */
export interface SeenLease {
  readonly id: number;
  readonly expires_at_ms: number;
}

/** In the order of the request. An anonymous lease is not found: its expiry is a field of its record (`touch`). */
export type KeepAliveResult =
  | { readonly id: number; readonly ttl_s: number; readonly expires_at_ms: number }
  | { readonly id: number; readonly not_found: true };

export interface Idempotency {
  /** The caller's principal: the same key of two principals is two keys. */
  readonly scope: string;
  readonly key: string;
  /** Hash of the canonical request, made at admission (SHA-256, hex). */
  readonly hash: string;
  /** A revision known before the first try. */
  readonly since?: number;
}

/** The payload of a log entry, as JSON text. */
export interface Proposal {
  readonly format: 1;
  readonly command: Command;
  readonly idempotency?: Idempotency;
}

export type CommandResult =
  | ({ readonly kind: "txn" } & TxnResult)
  | { readonly kind: "lease_grant"; readonly id: number; readonly ttl_s: number; readonly expires_at_ms: number }
  | { readonly kind: "lease_revoke"; readonly deleted: number }
  | { readonly kind: "lease_keep_alive"; readonly items: readonly KeepAliveResult[] }
  /** The leases that ended; one that was renewed, is not due, is gone or did not fit is left out and left as it is. */
  | { readonly kind: "lease_expire"; readonly expired: readonly number[]; readonly deleted: number }
  /** The floor that holds now. */
  | { readonly kind: "lease_floor"; readonly floor_ms: number }
  | { readonly kind: "compact"; readonly compact_revision: number }
  /** `removed`: changes whose rows went. `done`: nothing is left to remove until the next compaction. */
  | { readonly kind: "compact_remove"; readonly removed: number; readonly done: boolean }
  /** `done`: rows may come. */
  | { readonly kind: "restore_begin"; readonly done: boolean }
  /** What has come, whether it is of this command or not. */
  | { readonly kind: "restore_rows"; readonly position: RestorePosition }
  | { readonly kind: "restore_end"; readonly done: boolean };

/** Reads. Each is answered from one state, at one revision, and goes through no log. */
export type Query =
  | { readonly kind: "get"; readonly key: string; readonly revision?: number }
  | { readonly kind: "get_many"; readonly keys: readonly string[]; readonly revision?: number }
  | {
      readonly kind: "list";
      readonly selector: Selector;
      readonly limit: number;
      readonly order: "asc" | "desc";
      readonly keys_only: boolean;
      readonly count_only: boolean;
      readonly revision?: number;
      /** The last key of the page before; the page goes on behind it, at `revision`. */
      readonly after?: string;
    }
  | {
      readonly kind: "history";
      readonly key: string;
      readonly from?: number;
      readonly to?: number;
      readonly limit: number;
      /** (revision, op_index) of the last event of the page before. */
      readonly after?: readonly [revision: number, opIndex: number];
    }
  /** A txn without writes: evaluated, never logged. */
  | ({ readonly kind: "txn" } & Txn)
  | { readonly kind: "txn_result"; readonly scope: string; readonly key: string }
  /** Events of a selector behind a position, oldest first: the pull side of sync. */
  | {
      readonly kind: "changes";
      readonly selector: Selector;
      /**
       * Position of the last event seen; op index 99 999 (position.ts) asks for everything with a higher revision. Absent:
       * from the oldest event that is kept.
       */
      readonly after?: readonly [revision: number, opIndex: number];
      readonly limit: number;
    }
  | { readonly kind: "lease"; readonly id: number }
  | {
      readonly kind: "lease_list";
      readonly limit: number;
      /** `next` of the page before. */
      readonly after?: number;
      /** Also the leases behind TTLs of records. */
      readonly anonymous?: boolean;
    }
  /** Entries of the due index that are due at or before `at_ms`, earliest first. */
  | {
      readonly kind: "due";
      readonly at_ms: number;
      readonly limit: number;
      /** The last entry of the page before. */
      readonly after?: readonly [dueAtMs: number, key: string];
    }
  | { readonly kind: "revision" };

export interface LeaseInfo {
  readonly id: number;
  readonly ttl_s: number;
  /** No earlier than the lease floor. */
  readonly expires_at_ms: number;
  /** By the clock of the node that answers; 0 when the lease is due but not yet ended. */
  readonly remaining_ms: number;
  /** A TTL of a record. */
  readonly anonymous: boolean;
  readonly metadata: JsonObject;
  readonly keys_count: number;
}

export interface DueEntry {
  readonly due_at_ms: number;
  readonly key: string;
  /** Of the record; whoever handles the entry guards its write with it. */
  readonly mod_revision: number;
}

export type QueryResult =
  | { readonly kind: "get"; readonly record: KeyRecord | null }
  | { readonly kind: "get_many"; readonly records: readonly (KeyRecord | null)[] }
  | {
      readonly kind: "list";
      readonly records: readonly KeyRecord[];
      /** All matches of the selector at that revision when `count_only`; else the records of this page. */
      readonly count: number;
      /** True when keys of the selector remain behind the last one. */
      readonly more: boolean;
    }
  | { readonly kind: "history"; readonly events: readonly ChangeEvent[]; readonly more: boolean }
  | ({ readonly kind: "txn" } & TxnResult)
  | {
      readonly kind: "txn_result";
      /** `expired`: no longer known (older than the floor `idem_floor`) or never run; see design 01 §2. */
      readonly status: "known" | "unknown";
      readonly idem_floor: number;
      readonly outcome?: Outcome<CommandResult>;
    }
  | {
      readonly kind: "changes";
      readonly events: readonly ChangeEvent[];
      /** Where the next page begins. It may move although the page is empty: a page looks at a bounded stretch. */
      readonly next: readonly [revision: number, opIndex: number];
      /** False: the page ends inside the revision of `next`. */
      readonly whole: boolean;
      readonly has_more: boolean;
    }
  | {
      readonly kind: "lease";
      /** `keys` in byte order; cut where they would be over a reply (`keys_count` is exact). */
      readonly lease: (LeaseInfo & { readonly keys: readonly string[] }) | null;
    }
  /** By id. `next`: where the next page begins; null on the last. A page may be short, or empty, before the last. */
  | { readonly kind: "lease_list"; readonly leases: readonly LeaseInfo[]; readonly next: number | null }
  | { readonly kind: "due"; readonly entries: readonly DueEntry[]; readonly more: boolean }
  | { readonly kind: "revision" };

/** One change of one key. `(revision, op_index)` identifies it. */
export interface ChangeEvent {
  readonly revision: number;
  readonly op_index: number;
  readonly type: "put" | "delete";
  readonly key: string;
  /** Null for a delete. */
  readonly value: Value | null;
  readonly create_revision: number;
  readonly mod_revision: number;
  readonly version: number;
  readonly lease_id: number | null;
  readonly expires_at_ms: number | null;
  readonly content_type: string | null;
  readonly metadata: JsonObject;
}

/** `revision` is the cluster's revision after the command, or the one that the read was evaluated at. */
export type Outcome<T> =
  | { readonly ok: true; readonly revision: number; readonly result: T; readonly replayed?: true }
  | { readonly ok: false; readonly revision: number; readonly error: ErrorBody };
