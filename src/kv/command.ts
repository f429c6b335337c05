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
  | { readonly kind: "compact"; readonly revision: number };

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
  | { readonly kind: "compact"; readonly compact_revision: number };

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
  | { readonly kind: "lease"; readonly id: number }
  | { readonly kind: "revision" };

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
      readonly kind: "lease";
      readonly lease: {
        readonly id: number;
        readonly ttl_s: number;
        readonly expires_at_ms: number;
        /** By the clock of the node that answers; 0 when the lease is due but not yet ended. */
        readonly remaining_ms: number;
        /** A TTL of a record. */
        readonly anonymous: boolean;
        readonly metadata: JsonObject;
        readonly keys_count: number;
        /** In byte order; cut where they would be over a reply (`keys_count` is exact). */
        readonly keys: readonly string[];
      } | null;
    }
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
