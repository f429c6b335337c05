/**
 * Wire to internal: parsed bodies become commands and queries of the state machine.
 *
 * D1. Keys become byte strings here and nowhere else; a lone surrogate has no bytes and is refused.
 * D2. The result is in normal form: an option that says its default is left out. Two bodies that mean the same thing
 *     are therefore the same command, and hash alike for idempotency (S26).
 * D3. A system key (first byte 0x00) is refused wherever a caller can name one. A prefix or a range that begins at the
 *     start of the key space begins behind the system keys instead.
 */
import { bytesFromArray, bytesFromText } from "../base/bytes.ts";
import type { ErrorCode } from "../base/errors.ts";
import type { JsonObject, JsonValue } from "../base/json.ts";
import type { Command, Compare, Operation, Selector, Txn, Value } from "../kv/command.ts";
import { quoted } from "./parameters.ts";
import { refusal } from "./problem.ts";
import type { ParsedBatch, ParsedCompare, ParsedOperation, ParsedPut, ParsedTxn } from "./schema.ts";
import type { WireBytes, WireKey } from "./wire.ts";

/** The first key behind the system prefix. */
const USER_KEYS_START = "\x01";

export function decodeKey(key: WireKey, code: ErrorCode): string {
  const bytes = decodeKeyBytes(key, code);
  if (bytes.startsWith("\0")) throw systemPrefix();
  return bytes;
}

function decodeKeyBytes(key: WireKey, code: ErrorCode): string {
  if (typeof key !== "string") return atob(canonicalBase64(key.data, code));
  const bytes = bytesFromText(key);
  if (bytes === null) {
    throw refusal(code, "lone_surrogate", `The key ${quoted(key)} holds a lone surrogate and has no UTF-8 encoding.`);
  }
  return bytes;
}

function systemPrefix() {
  return refusal("forbidden", "system_prefix", "Keys whose first byte is 0x00 belong to the system.");
}

export function decodePrefix(prefix: WireKey, code: ErrorCode): Selector {
  const bytes = decodeKey(prefix, code);
  return bytes === "" ? { range: { start: USER_KEYS_START } } : { prefix: bytes };
}

export function decodeRange(start: WireKey, end: WireKey | undefined, code: ErrorCode): Selector {
  const startBytes = decodeKey(start, code);
  const from = startBytes === "" ? USER_KEYS_START : startBytes;
  return end === undefined ? { range: { start: from } } : { range: { start: from, end: decodeKey(end, code) } };
}

/** How a request names what it wants. */
export interface SelectorFields {
  readonly key?: WireKey | undefined;
  readonly prefix?: WireKey | undefined;
  readonly range?: { readonly start: WireKey; readonly end?: WireKey | undefined } | undefined;
}

/** Exactly one of key, prefix and range. `place` names the operation in the error. */
export function decodeSelector(fields: SelectorFields, code: ErrorCode, place: string): Selector {
  const { key, prefix, range } = fields;
  if (key !== undefined && prefix === undefined && range === undefined) return { key: decodeKey(key, code) };
  if (prefix !== undefined && key === undefined && range === undefined) return decodePrefix(prefix, code);
  if (range !== undefined && key === undefined && prefix === undefined)
    return decodeRange(range.start, range.end, code);
  const isEmpty = key === undefined && prefix === undefined && range === undefined;
  const detail = `${place} needs exactly one of key, prefix and range.`;
  throw refusal("invalid_selector", isEmpty ? "empty_selector" : "ambiguous_selector", detail);
}

/** A JSON object of exactly the shape of {@link WireBytes} is bytes; every other JSON is itself. */
export function decodeValue(value: JsonValue, code: ErrorCode): Value {
  return isWireBytes(value) ? { base64: canonicalBase64(value.data, code) } : { json: value };
}

export function valueFromBytes(bytes: Uint8Array): Value {
  return { base64: btoa(bytesFromArray(bytes)) };
}

export function isWireBytes(value: unknown): value is WireBytes {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return false;
  if (Object.keys(value).length !== 2 || !Object.hasOwn(value, "encoding") || !Object.hasOwn(value, "data"))
    return false;
  return Reflect.get(value, "encoding") === "base64" && typeof Reflect.get(value, "data") === "string";
}

/** One text for equal bytes: standard alphabet, padding, and no stray bits at the end. */
function canonicalBase64(data: string, code: ErrorCode): string {
  if (data.length % 4 === 0 && /^[A-Za-z0-9+/]*={0,2}$/.test(data)) {
    const tail = data.slice(-4);
    return data.slice(0, data.length - tail.length) + btoa(atob(tail));
  }
  throw refusal(code, "invalid_base64", "The data of a base64 value must be standard base64 with padding.");
}

export function decodeTxn(txn: ParsedTxn): Txn {
  const code = "invalid_txn";
  return {
    compare: (txn.compare ?? []).map((compare) => decodeCompare(compare, code)),
    success: (txn.success ?? []).map((operation, index) => decodeOperation(operation, code, `success[${index}]`)),
    failure: (txn.failure ?? []).map((operation, index) => decodeOperation(operation, code, `failure[${index}]`)),
  };
}

function decodeCompare(compare: ParsedCompare, code: ErrorCode): Compare {
  const key = decodeKey(compare.key, code);
  switch (compare.target) {
    case "value":
      return { ...compare, key, value: decodeValue(compare.value, code) };
    default:
      return { ...compare, key };
  }
}

function decodeOperation(operation: ParsedOperation, code: ErrorCode, place: string): Operation {
  switch (operation.type) {
    case "get":
      return {
        type: "get",
        selector: decodeSelector(operation, code, place),
        ...(operation.limit === undefined ? {} : { limit: operation.limit }),
        ...(operation.revision === undefined ? {} : { revision: operation.revision }),
        ...(operation.keys_only === true ? { keys_only: true } : {}),
        ...(operation.count_only === true ? { count_only: true } : {}),
        ...(operation.order === "desc" ? { order: "desc" } : {}),
      };
    case "put":
      return decodePut(operation, code);
    case "delete":
      return {
        type: "delete",
        selector: decodeSelector(operation, code, place),
        ...(operation.prev_kv === true ? { prev_kv: true } : {}),
      };
    case "touch":
      return { type: "touch", key: decodeKey(operation.key, code), ttl: operation.ttl };
  }
}

export function decodePut(put: ParsedPut, code: ErrorCode): Extract<Operation, { type: "put" }> {
  if (put.content_type !== undefined) checkContentType(put.content_type, code);
  return {
    type: "put",
    key: decodeKey(put.key, code),
    ...(put.value === undefined ? {} : { value: decodeValue(put.value, code) }),
    ...(put.prev_kv === true ? { prev_kv: true } : {}),
    ...(put.content_type === undefined ? {} : { content_type: put.content_type }),
    // Under ignore_value empty metadata says something: it replaces what is there.
    ...(put.metadata === undefined || (isEmpty(put.metadata) && put.ignore_value !== true)
      ? {}
      : { metadata: put.metadata }),
    ...(put.ttl === undefined ? {} : { ttl: put.ttl }),
    ...(put.lease === undefined ? {} : { lease: put.lease }),
    ...(put.ignore_value === true ? { ignore_value: true } : {}),
    ...(put.ignore_lease === true ? { ignore_lease: true } : {}),
    ...(put.revision_suffix === true ? { revision_suffix: true } : {}),
    ...(put.due_at_ms === undefined ? {} : { due_at_ms: put.due_at_ms }),
  };
}

/** A stored content type comes back as a header, so it must be one. */
export function checkContentType(contentType: string, code: ErrorCode): void {
  if (/^[\x21-\x7e]+\/[\x21-\x7e]+(?:[ \t]*;[\x20-\x7e]*)?$/.test(contentType)) return;
  throw refusal(code, "content_type", `The content type ${quoted(contentType)} is not a media type.`);
}

function isEmpty(metadata: JsonObject): boolean {
  return Object.keys(metadata).length === 0;
}

/** put_many and delete_many: one txn, one revision, operations in the order of the items. */
export function decodeBatchWrite(batch: Exclude<ParsedBatch, { op: "get_many" }>): Extract<Command, { kind: "txn" }> {
  const code = "invalid_kv";
  const success: Operation[] =
    batch.op === "put_many"
      ? batch.items.map((item) => decodePut(item, code))
      : batch.keys.map((key) => ({
          type: "delete",
          selector: { key: decodeKey(key, code) },
          ...(batch.prev_kv === true ? { prev_kv: true } : {}),
        }));
  return { kind: "txn", compare: [], success, failure: [] };
}
