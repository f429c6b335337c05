/**
 * One record: its current row, its history rows, and the two primitives that change it.
 *
 * C1. A key has a current row exactly while it is live; the row points at the history row that holds the value.
 * C2. Each change adds one history row and one version row at (revision, op index); several changes of one key in one
 * revision are several rows, and the highest op index is the state.
 * Leases are attached and detached by leases.ts; here only their id is noted.
 */
import { assert } from "../base/assert.ts";
import { utf8Length } from "../base/bytes.ts";
import type { JsonObject } from "../base/json.ts";
import type { ChangeEvent, KeyRecord, Value } from "./command.ts";
import type { Position } from "./position.ts";
import { indexBytes, ROW_OVERHEAD_BYTES } from "./quota.ts";
import { currentRow, dueRow, historyRow, versionRow } from "./rows.ts";
import type { Draft } from "./state.ts";
import type { OrderedStore } from "./store.ts";

/** What the current row says: enough for most compares and for every put, without reading the value. */
export interface Current {
  readonly revision: number;
  readonly opIndex: number;
  readonly createRevision: number;
  readonly version: number;
  /** 0 = none. */
  readonly leaseId: number;
  /** Null = not in the due index. */
  readonly dueAtMs: number | null;
}

type CurrentTuple = readonly [number, number, number, number, number, number | null];

export const NO_METADATA: JsonObject = Object.freeze({});

export function readCurrent(store: OrderedStore, key: string): Current | null {
  const row = store.get(currentRow(key));
  return row === undefined ? null : decodeCurrent(row);
}

export function decodeCurrent(row: string): Current {
  const [revision, opIndex, createRevision, version, leaseId, dueAtMs]: CurrentTuple = JSON.parse(row);
  return { revision, opIndex, createRevision, version, leaseId, dueAtMs };
}

export function encodeCurrent(current: Current): string {
  const { revision, opIndex, createRevision, version, leaseId, dueAtMs } = current;
  return `[${revision},${opIndex},${createRevision},${version},${leaseId},${dueAtMs}]`;
}

/** The text of the history row at a position that an index names. */
export function readHistoryText(store: OrderedStore, revision: number, opIndex: number): string {
  const text = store.get(historyRow(revision, opIndex));
  assert(text !== undefined, `history row (${revision}, ${opIndex}) is missing`);
  return text;
}

/** Header of a history row: everything but the value, which may be large and is not always wanted. */
type HistoryHeader = readonly [
  key: string,
  createRevision: number,
  version: number,
  leaseId: number,
  expiresAtMs: number | null,
  contentType: string | null,
  metadata: JsonObject,
];

/**
 * `p` header \n value, or `d` header. The header is JSON and so holds no line break of its own; the value is `j` and
 * JSON text, or `b` and base64.
 */
export function encodeHistory(event: ChangeEvent): string {
  if (event.value === null) return tombstoneText(event.key);
  const contentType = event.content_type === null ? "null" : JSON.stringify(event.content_type);
  const metadata = event.metadata === NO_METADATA ? "{}" : JSON.stringify(event.metadata);
  const header =
    `p[${JSON.stringify(event.key)},${event.create_revision},${event.version},${event.lease_id ?? 0},` +
    `${event.expires_at_ms},${contentType},${metadata}]\n`;
  return header + encodeValue(event.value);
}

function tombstoneText(key: string): string {
  return `d[${JSON.stringify(key)}]`;
}

/** The key alone: most readers of a history row do not need its value parsed. */
export function keyOfHistory(text: string): string {
  const end = text.charCodeAt(0) === 0x64 ? text.length : text.indexOf("\n");
  const [key]: readonly [string] = JSON.parse(text.slice(1, end));
  return key;
}

export function encodeValue(value: Value): string {
  return "json" in value ? `j${JSON.stringify(value.json)}` : `b${value.base64}`;
}

function decodeValue(text: string, from: number): Value {
  if (text.charCodeAt(from) === 0x62) return { base64: text.slice(from + 1) };
  return { json: JSON.parse(text.slice(from + 1)) };
}

export function decodeEventAt(revision: number, opIndex: number, text: string): ChangeEvent {
  if (text.charCodeAt(0) === 0x64) {
    const [key]: readonly [string] = JSON.parse(text.slice(1));
    return deleteEvent(revision, opIndex, key);
  }
  return {
    revision,
    op_index: opIndex,
    type: "put",
    ...decodeRecord(text, revision, false),
  };
}

/** The record that a put's history row describes. Without values, `value` is JSON null. */
export function decodeRecord(text: string, revision: number, keysOnly: boolean): KeyRecord {
  const headerEnd = text.indexOf("\n");
  assert(headerEnd > 0, `history row of revision ${revision} is not a put`);
  const [key, createRevision, version, leaseId, expiresAtMs, contentType, metadata]: HistoryHeader = JSON.parse(
    text.slice(1, headerEnd),
  );
  return {
    key,
    value: keysOnly ? { json: null } : decodeValue(text, headerEnd + 1),
    create_revision: createRevision,
    mod_revision: revision,
    version,
    lease_id: leaseId === 0 ? null : leaseId,
    expires_at_ms: expiresAtMs,
    content_type: contentType,
    metadata,
  };
}

/** The history row of a record with a TTL, with another expiry. For a restore alone: history is never changed (L3). */
export function withExpiry(text: string, expiresAtMs: number): string {
  const event = decodeEventAt(0, 0, text);
  assert(event.type === "put", "a tombstone has no expiry");
  return encodeHistory({ ...event, expires_at_ms: expiresAtMs });
}

/** Bytes that a record weighs in a reply: what it weighs in storage, and its field names. */
export function replyBytes(text: string, keysOnly: boolean): number {
  return RECORD_NAMES_BYTES + (keysOnly ? text.indexOf("\n") : utf8Length(text));
}

const RECORD_NAMES_BYTES = 160;

export interface RecordFields {
  readonly value: Value;
  readonly leaseId: number;
  readonly expiresAtMs: number | null;
  readonly contentType: string | null;
  readonly metadata: JsonObject;
  readonly dueAtMs: number | null;
}

/** Writes a new version of `key`; `before` is its current row. */
export function putRecord(draft: Draft, key: string, before: Current | null, fields: RecordFields): void {
  const createRevision = before === null ? draft.revision : before.createRevision;
  const version = before === null ? 1 : before.version + 1;
  const opIndex = draft.events.length;
  const event: ChangeEvent = {
    revision: draft.revision,
    op_index: opIndex,
    type: "put",
    key,
    value: fields.value,
    create_revision: createRevision,
    mod_revision: draft.revision,
    version,
    lease_id: fields.leaseId === 0 ? null : fields.leaseId,
    expires_at_ms: fields.expiresAtMs,
    content_type: fields.contentType,
    metadata: fields.metadata,
  };
  addEvent(draft, event);
  const after: Current = {
    revision: draft.revision,
    opIndex,
    createRevision,
    version,
    leaseId: fields.leaseId,
    dueAtMs: fields.dueAtMs,
  };
  draft.store.put(currentRow(key), encodeCurrent(after));
  if (before === null) draft.meta.logicalBytes += recordBytes(key);
  moveDue(draft, key, before?.dueAtMs ?? null, fields.dueAtMs);
}

/** Deletes a live record and leaves a tombstone. */
export function deleteRecord(draft: Draft, key: string, before: Current): void {
  addEvent(draft, deleteEvent(draft.revision, draft.events.length, key));
  draft.store.delete(currentRow(key));
  draft.meta.logicalBytes -= recordBytes(key);
  moveDue(draft, key, before.dueAtMs, null);
}

/** A tombstone says which key ended and when; its numbers are those of an absent key, 0. */
function deleteEvent(revision: number, opIndex: number, key: string): ChangeEvent {
  return {
    revision,
    op_index: opIndex,
    type: "delete",
    key,
    value: null,
    create_revision: 0,
    mod_revision: revision,
    version: 0,
    lease_id: null,
    expires_at_ms: null,
    content_type: null,
    metadata: NO_METADATA,
  };
}

function addEvent(draft: Draft, event: ChangeEvent): void {
  const text = encodeHistory(event);
  draft.store.put(historyRow(event.revision, event.op_index), text);
  draft.store.put(versionRow(event.key, event.revision, event.op_index), event.type === "put" ? "p" : "d");
  const bytes = changeBytes(event.key, text);
  draft.meta.logicalBytes += bytes;
  draft.meta.historyBytes += bytes;
  draft.events.push(event);
}

/** Takes one version of `key` out of history; compaction.ts decides which. */
export function removeVersion(draft: Draft, key: string, position: Position, text: string): void {
  draft.store.delete(historyRow(position.revision, position.opIndex));
  draft.store.delete(versionRow(key, position.revision, position.opIndex));
  draft.meta.logicalBytes -= changeBytes(key, text);
}

/** What a change weighs until compaction removes it: its history row and its version row. */
export function changeBytes(key: string, text: string): number {
  return utf8Length(text) + key.length + 2 * ROW_OVERHEAD_BYTES;
}

/**
 * What a live record weighs beside its changes: its current row, and the tombstone that will end it. Paid in advance,
 * so that no delete needs room, also not one of 10 000 keys.
 */
export function recordBytes(key: string): number {
  return key.length + ROW_OVERHEAD_BYTES + changeBytes(key, tombstoneText(key));
}

function moveDue(draft: Draft, key: string, before: number | null, after: number | null): void {
  if (before === after) return;
  if (before !== null) {
    draft.store.delete(dueRow(before, key));
    draft.meta.logicalBytes -= indexBytes(key);
  }
  if (after !== null) {
    draft.store.put(dueRow(after, key), "");
    draft.meta.logicalBytes += indexBytes(key);
  }
}
