/**
 * An event that many watches share: encoded once per shape, with its previous record looked up once.
 * The text of an event is the business of the edge, which hands its encoder to the hub; here it has only a length.
 */
import { utf8Length } from "../base/bytes.ts";
import type { ChangeEvent, KeyRecord } from "../kv/command.ts";
import { positionOf } from "../kv/position.ts";
import type { HistoryView } from "./history-view.ts";

/** What a watch wants to see of its events. */
export interface Shape {
  readonly includeValues: boolean;
  readonly prevValues: boolean;
}

/**
 * JSON text of one event. `previous`: the record before it (null = none), undefined when the watch did not ask.
 * Must be pure: its text is shared.
 */
export type EncodeEvent = (event: ChangeEvent, previous: KeyRecord | null | undefined, includeValue: boolean) => string;

export interface EncodedEvent {
  readonly event: ChangeEvent;
  /** Undefined unless the watch asked for previous values. */
  readonly previous: KeyRecord | null | undefined;
  readonly text: string;
  /** UTF-8 bytes of `text`, and one for what separates it from the next. */
  readonly bytes: number;
}

export interface SharedEvent {
  readonly event: ChangeEvent;
  /** Undefined until somebody asks. */
  previous: KeyRecord | null | undefined;
  /** By shape: bit 0 = values, bit 1 = previous values. */
  readonly encoded: (EncodedEvent | undefined)[];
}

export function shareEvent(event: ChangeEvent): SharedEvent {
  return { event, previous: undefined, encoded: [] };
}

/** `view`: needed for previous values only, and only while the version before the event is not compacted away. */
export function encodeShared(encode: EncodeEvent, view: HistoryView, shared: SharedEvent, shape: Shape): EncodedEvent {
  const slot = (shape.includeValues ? 1 : 0) + (shape.prevValues ? 2 : 0);
  const known = shared.encoded[slot];
  if (known !== undefined) return known;
  const { event } = shared;
  if (shape.prevValues && shared.previous === undefined) shared.previous = previousOf(view, event);
  return put(encode, shared, slot, shape.includeValues, shape.prevValues ? (shared.previous ?? null) : undefined);
}

/** Bytes of the event without its previous value: what a watch that cannot be served is behind by. */
export function weightOf(encode: EncodeEvent, shared: SharedEvent, shape: Shape): number {
  const slot = shape.includeValues ? 1 : 0;
  return (shared.encoded[slot] ?? put(encode, shared, slot, shape.includeValues, undefined)).bytes;
}

function put(
  encode: EncodeEvent,
  shared: SharedEvent,
  slot: number,
  includeValue: boolean,
  previous: KeyRecord | null | undefined,
): EncodedEvent {
  const text = encode(shared.event, previous, includeValue);
  const encoded = { event: shared.event, previous, text, bytes: utf8Length(text) + 1 };
  shared.encoded[slot] = encoded;
  return encoded;
}

function previousOf(view: HistoryView, event: ChangeEvent): KeyRecord | null {
  // The first version of a record follows nothing, or a tombstone.
  if (event.type === "put" && event.version === 1) return null;
  return view.recordBefore(event.key, positionOf(event));
}
