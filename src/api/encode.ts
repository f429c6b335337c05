/**
 * Internal to wire: byte-string keys become text (or bytes, if they are no UTF-8), values become JSON.
 * Members are named one by one, so that nothing internal reaches a caller by accident.
 */
import { AssertionError } from "../base/assert.ts";
import { textFromBytes } from "../base/bytes.ts";
import type { JsonValue } from "../base/json.ts";
import type {
  ChangeEvent,
  CommandResult,
  KeyRecord,
  Operation,
  OperationResult,
  Outcome,
  TxnResult,
  Value,
} from "../kv/command.ts";
import { problemOf } from "./problem.ts";
import type {
  WireCommandResult,
  WireEvent,
  WireKey,
  WireListedRecord,
  WireOperationResult,
  WireRecord,
  WireTxnResolution,
  WireTxnResult,
  WireWatchEvent,
} from "./wire.ts";

export function encodeKey(key: string): WireKey {
  return textFromBytes(key) ?? { encoding: "base64", data: btoa(key) };
}

export function encodeValue(value: Value): JsonValue {
  return "json" in value ? value.json : { encoding: "base64", data: value.base64 };
}

export function encodeRecord(record: KeyRecord): WireRecord {
  return {
    key: encodeKey(record.key),
    value: encodeValue(record.value),
    create_revision: record.create_revision,
    mod_revision: record.mod_revision,
    version: record.version,
    lease_id: record.lease_id,
    expires_at_ms: record.expires_at_ms,
    content_type: record.content_type,
    metadata: record.metadata,
  };
}

export function encodeListed(record: KeyRecord, keysOnly: boolean): WireListedRecord {
  if (!keysOnly) return encodeRecord(record);
  const { value: _, ...rest } = encodeRecord(record);
  return rest;
}

export function encodeEvent(event: ChangeEvent): WireEvent {
  return {
    revision: event.revision,
    op_index: event.op_index,
    type: event.type,
    key: encodeKey(event.key),
    value: event.value === null ? null : encodeValue(event.value),
    create_revision: event.create_revision,
    mod_revision: event.mod_revision,
    version: event.version,
    lease_id: event.lease_id,
    expires_at_ms: event.expires_at_ms,
    content_type: event.content_type,
    metadata: event.metadata,
  };
}

/** The hub's encoder: JSON text of a {@link WireWatchEvent}, shared by all watches of that shape. */
export function encodeWatchEvent(
  event: ChangeEvent,
  before: KeyRecord | null | undefined,
  includeValue: boolean,
): string {
  const whole = encodeEvent(event);
  const { value: _, ...bare } = whole;
  const shown: WireWatchEvent = includeValue ? whole : bare;
  if (before === undefined) return JSON.stringify(shown);
  const previousValue = before === null ? null : encodeValue(before.value);
  return JSON.stringify({ ...shown, prev_value: previousValue } satisfies WireWatchEvent);
}

/** `branch`: the operations that were answered. A kept result has lost them, and with them which gets were `keys_only`. */
export function encodeTxnResult(result: TxnResult, branch: readonly Operation[] = []): WireTxnResult {
  return {
    succeeded: result.succeeded,
    revision: result.revision,
    responses: result.responses.map((response, index) => encodeOperationResult(response, branch[index])),
    ...(result.values_dropped === true ? { values_dropped: true } : {}),
  };
}

function encodeOperationResult(result: OperationResult, asked: Operation | undefined): WireOperationResult {
  switch (result.type) {
    case "get": {
      const keysOnly = asked?.type === "get" && asked.keys_only === true;
      const kvs = result.kvs.map((record) => encodeListed(record, keysOnly));
      return { type: "get", kvs, count: result.count, more: result.more };
    }
    case "put":
      return { type: "put", key: encodeKey(result.key), ...previous(result.prev_kv) };
    case "delete":
      return {
        type: "delete",
        deleted: result.deleted,
        ...(result.prev_kvs === undefined ? {} : { prev_kvs: result.prev_kvs.map(encodeRecord) }),
      };
    case "touch":
      return "not_found" in result
        ? { type: "touch", not_found: true }
        : { type: "touch", expires_at_ms: result.expires_at_ms };
  }
}

/** `prev_kv` of a reply: absent unless asked for, null if there was no record. */
export function previous(record: KeyRecord | null | undefined): { prev_kv?: WireRecord | null } {
  if (record === undefined) return {};
  return { prev_kv: record === null ? null : encodeRecord(record) };
}

export function encodeResolution(
  resolution: {
    readonly status: "known" | "unknown";
    readonly idem_floor: number;
    readonly outcome?: Outcome<CommandResult>;
  },
  revision: number,
): WireTxnResolution {
  const { outcome, idem_floor } = resolution;
  if (resolution.status === "unknown" || outcome === undefined) return { status: "unknown", idem_floor, revision };
  return {
    status: "known",
    idem_floor,
    revision,
    outcome: outcome.ok
      ? { ok: true, revision: outcome.revision, result: encodeCommandResult(outcome.result) }
      : { ok: false, revision: outcome.revision, error: problemOf(outcome.error) },
  };
}

function encodeCommandResult(result: CommandResult): WireCommandResult {
  switch (result.kind) {
    case "txn":
      return { kind: "txn", ...encodeTxnResult(result) };
    case "lease_grant":
      return { kind: "lease_grant", id: result.id, ttl_s: result.ttl_s, expires_at_ms: result.expires_at_ms };
    case "lease_revoke":
      return { kind: "lease_revoke", deleted: result.deleted };
    case "lease_keep_alive":
      return { kind: "lease_keep_alive", items: result.items };
    case "lease_expire":
    case "lease_floor":
    case "compact_remove":
    case "restore_begin":
    case "restore_rows":
    case "restore_end":
      throw new AssertionError(`${result.kind} is proposed by nodes alone and is under no idempotency key`);
    case "compact":
      return { kind: "compact", compact_revision: result.compact_revision };
  }
}
