/**
 * The wire of what follows the data: changes, watches, topics (design 01 §4). Types only, like the rest of the wire.
 */
import type { JsonValue } from "../base/json.ts";
import type { WireEvent, WireKey, WireRange, WireValue } from "./wire.ts";

/** One page of `GET /v1/changes`. */
export interface WireChanges {
  readonly events: readonly WireEvent[];
  /** A position: to be given as `after` for the next page. It may have moved although the page is empty. */
  readonly next: string;
  /** False: the page ends inside the revision of `next`. */
  readonly whole: boolean;
  /** False: nothing was left when this page was read. */
  readonly has_more: boolean;
  readonly revision: number;
}

export interface WireCompacted {
  /** Everything that needs less than this revision is gone now. */
  readonly compact_revision: number;
  readonly revision: number;
}

/** An event of a watch. Without `value` under `include_values: false`. */
export type WireWatchEvent = Omit<WireEvent, "value"> & {
  readonly value?: WireValue | null;
  /** Only with `prev_values`: the value before, null if there was no record. */
  readonly prev_value?: WireValue | null;
};

/** What a watch sends. Positions are opaque: to be acknowledged, or to be resumed after. */
export type WireWatchFrame =
  | {
      readonly kind: "events";
      readonly events: readonly WireWatchEvent[];
      /** False: a part of one revision, which goes on in the next frame. */
      readonly complete: boolean;
      readonly position: string;
    }
  /** Everything up to `revision` has been sent; what comes now is live. Once per watch. */
  | { readonly kind: "ready"; readonly revision: number; readonly position: string }
  /** Everything up to `revision` has been sent. */
  | { readonly kind: "progress"; readonly revision: number; readonly position: string }
  | WireWatchEnd
  /** Of the connection, whose watches go on. */
  | { readonly kind: "leader_changed"; readonly leader: number | null };

/** The last frame of a watch. */
export type WireWatchEnd =
  | { readonly kind: "compacted"; readonly compact_revision: number }
  | { readonly kind: "slow_consumer"; readonly position: string }
  | { readonly kind: "resync"; readonly revision: number }
  | { readonly kind: "cluster_changed" };

/** A message over the size that the connection asked for, in parts: the `data` of all, joined, is the message. */
export interface WireChunk {
  readonly kind: "chunk";
  readonly index: number;
  readonly last: boolean;
  readonly data: string;
}

/** What a client of `GET /v1/watch` over a WebSocket may send. */
export type WireWatchRequest = { readonly ack: string } | { readonly progress: true };

/** Parameters of `watch.create`, beside `watch_id`; exactly one of key, prefix and range. */
export interface WireWatchParameters {
  readonly key?: WireKey;
  readonly prefix?: WireKey;
  readonly range?: WireRange;
  /** First revision wanted; absent = from now on. Excludes `after`. */
  readonly from_revision?: number;
  /** A position to resume behind. */
  readonly after?: string;
  /** Default true. */
  readonly include_values?: boolean;
  readonly prev_values?: boolean;
  readonly filter?: "puts" | "deletes";
  readonly cluster_id?: string;
}

export interface WireWatchCreated {
  readonly watch_id: number;
  /** Where the watch begins: to be resumed after, should nothing else arrive. */
  readonly position: string;
  readonly revision: number;
  readonly cluster_id: string;
}

export interface WirePublished {
  readonly topic: string;
  readonly revision: number;
}

export interface WireTopicMessage {
  readonly topic: string;
  readonly payload: JsonValue;
  /** Counts this connection's messages; to be acknowledged. */
  readonly seq: number;
  /** Messages lost since the one before, because the connection was behind. */
  readonly dropped: number;
}
