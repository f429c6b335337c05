/**
 * What carries watches and topics: the interface of the two ways, session and server-sent events.
 *
 * A stream is one connection's worth: it ends when the connection does, and whoever wants more opens the next one.
 */
import type { WireSelector, WireTopicMessage, WireWatchFrame, WireWatchParameters } from "../api/wire.ts";
import type { Next } from "./item-queue.ts";

export interface Stream<T> {
  /** Never rejects; behind the end it is the end again. One at a time. */
  next(): Promise<Next<T>>;
  /** Tells the node that nobody wants more. */
  close(): void;
}

export interface WatchStream extends Stream<WireWatchFrame> {
  /** Everything up to `position`, the one of the frame handed out last, has been used: its credit comes back. */
  acknowledge(position: string): void;
  /** Asks for a sign of life of the watch itself, where that can be asked: some frame follows, or the end. */
  probe?(): void;
}

export type WatchParameters = WireSelector & Omit<WireWatchParameters, "key" | "prefix" | "range">;

export interface OpenedWatch {
  readonly stream: WatchStream;
  /** What may be resumed after, should nothing else arrive; null: known with the first frame. */
  readonly position: string | null;
  readonly clusterId: string | null;
  readonly revision: number | null;
}

/** Both reject with ConcordError. Aborting `signal` gives up the opening, not what is open. */
export interface Streams {
  openWatch(parameters: WatchParameters, signal: AbortSignal): Promise<OpenedWatch>;
  openTopic(topic: string, signal: AbortSignal): Promise<Stream<WireTopicMessage>>;
  close(): void;
}
