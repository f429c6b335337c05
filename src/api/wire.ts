/**
 * The JSON of the HTTP API as types (design 01 §2, §7): what the routes read and write and what the client is typed
 * with. Types only, so that the client carries no schema code. Names are snake_case because they are the wire.
 */
import type { ErrorCode, Retry } from "../base/errors.ts";
import type { JsonObject, JsonValue } from "../base/json.ts";
import type { EqualityOperator, OrderOperator } from "../kv/command.ts";

export type {
  WireChanges,
  WireChunk,
  WireCompacted,
  WirePublished,
  WireTopicMessage,
  WireWatchCreated,
  WireWatchEnd,
  WireWatchEvent,
  WireWatchFrame,
  WireWatchParameters,
  WireWatchRequest,
} from "./wire-sync.ts";

/** Bytes inside JSON. A JSON object of exactly this shape always means bytes. */
export type WireBytes = { readonly encoding: "base64"; readonly data: string };

/** A key as text; one that is not valid UTF-8 (written through the etcd gateway) as bytes. */
export type WireKey = string | WireBytes;

/** A JSON value, or {@link WireBytes}. */
export type WireValue = JsonValue;

export interface WireRecord<T = WireValue> {
  readonly key: WireKey;
  readonly value: T;
  readonly create_revision: number;
  readonly mod_revision: number;
  /** Writes since creation; 1 for a new record. */
  readonly version: number;
  readonly lease_id: number | null;
  readonly expires_at_ms: number | null;
  readonly content_type: string | null;
  readonly metadata: JsonObject;
}

/** A record of a list or of a txn's get. Under `keys_only` it has no `value`, which a stored null does have. */
export type WireListedRecord<T = WireValue> = Omit<WireRecord<T>, "value"> & { readonly value?: T };

export type WireRange = { readonly start: WireKey; readonly end?: WireKey };

/** Exactly one of the three. `end` is exclusive; without it the range goes to the end of the key space. */
export type WireSelector = { readonly key: WireKey } | { readonly prefix: WireKey } | { readonly range: WireRange };

export type WireCompare =
  | { readonly target: "exists"; readonly key: WireKey; readonly op: EqualityOperator; readonly value: boolean }
  | { readonly target: "value"; readonly key: WireKey; readonly op: EqualityOperator; readonly value: WireValue }
  | {
      readonly target: "field";
      readonly key: WireKey;
      readonly path: readonly (string | number)[];
      readonly op: OrderOperator;
      readonly value: JsonValue;
    }
  | {
      readonly target: "version" | "create_revision" | "mod_revision";
      readonly key: WireKey;
      readonly op: OrderOperator;
      readonly value: number;
    }
  | { readonly target: "lease"; readonly key: WireKey; readonly op: EqualityOperator; readonly value: number | null }
  | { readonly target: "ttl"; readonly key: WireKey; readonly op: OrderOperator; readonly value: number | null };

/** What a put may say besides its key and value. `ttl` is in seconds and excludes `lease`. */
export interface WirePutOptions {
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

export interface WirePut extends WirePutOptions {
  readonly key: WireKey;
  /** Absent only with `ignore_value`. */
  readonly value?: WireValue;
}

export interface WireGetOptions {
  /** Mandatory for prefix and range. */
  readonly limit?: number;
  readonly revision?: number;
  readonly keys_only?: boolean;
  readonly count_only?: boolean;
  readonly order?: "asc" | "desc";
}

export type WireOperation =
  | ({ readonly type: "get" } & WireSelector & WireGetOptions)
  | ({ readonly type: "put" } & WirePut)
  | ({ readonly type: "delete" } & WireSelector & { readonly prev_kv?: boolean })
  | { readonly type: "touch"; readonly key: WireKey; readonly ttl: number };

export interface WireTxn {
  readonly compare?: readonly WireCompare[];
  readonly success?: readonly WireOperation[];
  readonly failure?: readonly WireOperation[];
}

export type WireOperationResult =
  | { readonly type: "get"; readonly kvs: readonly WireListedRecord[]; readonly count: number; readonly more: boolean }
  | { readonly type: "put"; readonly key: WireKey; readonly prev_kv?: WireRecord | null }
  | { readonly type: "delete"; readonly deleted: number; readonly prev_kvs?: readonly WireRecord[] }
  | { readonly type: "touch"; readonly expires_at_ms: number }
  | { readonly type: "touch"; readonly not_found: true };

export interface WireTxnResult {
  readonly succeeded: boolean;
  readonly revision: number;
  readonly responses: readonly WireOperationResult[];
  /** True when the result was kept without values because it was over 32 KiB (idempotent replay only). */
  readonly values_dropped?: boolean;
}

export interface WirePutReply {
  readonly revision: number;
  /** Only with `prev_kv=true`. */
  readonly prev_kv?: WireRecord | null;
  /** Only with `revision_suffix`: the full key. */
  readonly key?: WireKey;
  /** As in {@link WireTxnResult}. */
  readonly values_dropped?: boolean;
}

export interface WireDeleteReply {
  readonly revision: number;
  /** 0 when the key was absent. */
  readonly deleted: number;
  readonly prev_kv?: WireRecord | null;
  readonly values_dropped?: boolean;
}

export interface WireList<T = WireValue> {
  readonly records: readonly WireListedRecord<T>[];
  /** Records of this page; with `count_only` all matches. */
  readonly count: number;
  /** Opaque; null on the last page. */
  readonly cursor: string | null;
  /** The revision of the first page, which every later page is read at. */
  readonly revision: number;
}

export interface WireEvent {
  readonly revision: number;
  readonly op_index: number;
  readonly type: "put" | "delete";
  readonly key: WireKey;
  /** Null for a delete. */
  readonly value: WireValue | null;
  readonly create_revision: number;
  readonly mod_revision: number;
  readonly version: number;
  readonly lease_id: number | null;
  readonly expires_at_ms: number | null;
  readonly content_type: string | null;
  readonly metadata: JsonObject;
}

export interface WireHistory {
  readonly events: readonly WireEvent[];
  readonly cursor: string | null;
  readonly revision: number;
}

/** The reply of `kv.get`: an absent record is no error there. */
export interface WireGetReply<T = WireValue> {
  readonly record: WireRecord<T> | null;
  readonly revision: number;
}

export type WireBatch =
  | { readonly op: "put_many"; readonly items: readonly WirePut[] }
  | { readonly op: "get_many"; readonly keys: readonly WireKey[]; readonly revision?: number }
  | { readonly op: "delete_many"; readonly keys: readonly WireKey[]; readonly prev_kv?: boolean };

export interface WirePutManyReply {
  readonly revision: number;
  /** One per item, in order. */
  readonly responses: readonly { readonly key: WireKey; readonly prev_kv?: WireRecord | null }[];
  readonly values_dropped?: boolean;
}

export interface WireGetManyReply<T = WireValue> {
  readonly revision: number;
  /** One per key, in order; null for an absent key. All are read at one revision. */
  readonly records: readonly (WireRecord<T> | null)[];
}

export interface WireDeleteManyReply {
  readonly revision: number;
  readonly deleted: number;
  /** One per key, in order. */
  readonly responses: readonly { readonly deleted: number; readonly prev_kv?: WireRecord | null }[];
  readonly values_dropped?: boolean;
}

export interface WireLeaseGrant {
  readonly ttl_s: number;
  readonly metadata?: JsonObject;
  readonly id?: number;
}

export interface WireLeaseGranted {
  readonly id: number;
  readonly ttl_s: number;
  readonly expires_at_ms: number;
  readonly revision: number;
}

export interface WireLease {
  readonly id: number;
  readonly ttl_s: number;
  readonly expires_at_ms: number;
  readonly remaining_ms: number;
  readonly metadata: JsonObject;
  /** Exact; `keys` is cut where it would be over a reply. */
  readonly keys_count: number;
  readonly anonymous?: true;
  readonly keys: readonly WireKey[];
  readonly revision: number;
}

/** A lease of a list. */
export interface WireListedLease {
  readonly id: number;
  readonly ttl_s: number;
  readonly expires_at_ms: number;
  readonly remaining_ms: number;
  readonly metadata: JsonObject;
  readonly keys_count: number;
  /** Only of the lease behind a record's `ttl`. */
  readonly anonymous?: true;
}

export interface WireLeaseList {
  readonly leases: readonly WireListedLease[];
  /** To be given as `after` for the next page; null on the last one. A page may be short, or empty, before that. */
  readonly next: number | null;
  readonly revision: number;
}

export interface WireLeaseKeepAlive {
  /** Replaces the lease's TTL. */
  readonly ttl_s?: number;
}

export interface WireLeaseKeptAlive {
  readonly id: number;
  readonly ttl_s: number;
  readonly expires_at_ms: number;
  readonly revision: number;
}

export interface WireLeaseRevoked {
  /** Keys that were deleted with the lease. */
  readonly deleted: number;
  readonly revision: number;
}

/** What became of one lease of a keep-alive. */
export type WireKeepAlive =
  | { readonly id: number; readonly ttl_s: number; readonly expires_at_ms: number }
  | { readonly id: number; readonly not_found: true };

/** The result of a write, as `GET /v1/txn/results/{key}` tells it. */
export type WireCommandResult =
  | ({ readonly kind: "txn" } & WireTxnResult)
  | { readonly kind: "lease_grant"; readonly id: number; readonly ttl_s: number; readonly expires_at_ms: number }
  | { readonly kind: "lease_revoke"; readonly deleted: number }
  | { readonly kind: "lease_keep_alive"; readonly items: readonly WireKeepAlive[] }
  | { readonly kind: "compact"; readonly compact_revision: number };

export type WireTxnResolution =
  | {
      readonly status: "known";
      /** The newest revision whose results may have been forgotten. */
      readonly idem_floor: number;
      readonly revision: number;
      readonly outcome:
        | { readonly ok: true; readonly revision: number; readonly result: WireCommandResult }
        | { readonly ok: false; readonly revision: number; readonly error: WireProblem };
    }
  /** Never run, or no longer known: a write that began at or below `idem_floor` may have run. */
  | { readonly status: "unknown"; readonly idem_floor: number; readonly revision: number };

export interface WireRevision {
  readonly revision: number;
}

export interface WireCluster {
  readonly name: string;
  readonly jurisdiction: string | null;
  /** One location hint per node, or none. */
  readonly placement: readonly string[];
}

/** One page in order of name. */
export interface WireClusterList {
  readonly clusters: readonly WireCluster[];
  /** To be given as `after` for the next page; null on the last one. */
  readonly next: string | null;
}

/** An error, RFC 9457 `application/problem+json`. Programs read `code`, `reason` and `retry`; people read the rest. */
export interface WireProblem {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly detail: string;
  readonly code: ErrorCode;
  readonly reason?: string;
  readonly retry: Retry;
  readonly leader?: number;
  readonly revision?: number;
  readonly compact_revision?: number;
}
