/**
 * A watch over all its streams: frames in order, each once, wherever they come from.
 *
 * V1. A stream is resumed behind the last frame that was used, never from the original start (S45): so nothing is lost
 *     and nothing is repeated. Frames that were received and not used are given up with their stream.
 * V2. A watch that begins "now" begins once: at the position that the first stream named. What this client had seen by
 *     then is not news, even if the node lags behind it (S86).
 * V3. A frame is acknowledged when the next one is asked for.
 * V4. It ends by an error only for what cannot be resumed: `compacted` (also reason `resync`), `cluster_changed`, and
 *     what says `no`.
 */
import type { WireSelector, WireWatchEvent, WireWatchFrame } from "../api/wire.ts";
import { ConcordError } from "../base/errors.ts";
import type { Caller } from "./caller.ts";
import { fault } from "./check.ts";
import type { Next } from "./item-queue.ts";
import { StreamKeeper } from "./stream-keeper.ts";
import type { Streams, WatchParameters, WatchStream } from "./streams.ts";

/** How a watch is doing, told between its events: what was handed out before it came before it. */
export type WatchStatus =
  /** History is replayed; what comes now is live. Also behind a resumption. */
  | { readonly kind: "ready"; readonly revision: number }
  /** Every event up to `revision` has been handed out. */
  | { readonly kind: "progress"; readonly revision: number }
  /** The connection is gone, or this client was too slow for it (reason `slow_consumer`). The watch will be resumed. */
  | { readonly kind: "interrupted"; readonly error: ConcordError }
  | { readonly kind: "resumed" }
  | { readonly kind: "leader_changed"; readonly leader: number | null }
  /** Nothing has been written yet at `revision`, the first one wanted: until then nothing comes. */
  | { readonly kind: "waiting"; readonly revision: number };

export interface WatchOptions {
  /**
   * First revision wanted. One of the future is waited for, as etcd does; `onStatus` tells so (`waiting`). Absent, without
   * `after`: from now on.
   */
  readonly from_revision?: number;
  /** Resumes behind this position; see `Watch.position`. One that lies in the future is `revision_in_future`. */
  readonly after?: string;
  /**
   * Id of the cluster that `after` or `from_revision` is of: give it with what was stored. From another cluster, as after
   * a restore, the error is `cluster_changed`. Default: the cluster that this client has last heard of, if any.
   */
  readonly cluster_id?: string;
  /** Default true. Without, events have no `value`. */
  readonly include_values?: boolean;
  /** Default false. With, events have a `prev_value`: null if there was no record. */
  readonly prev_values?: boolean;
  /** Only puts, or only deletes. Default: both. */
  readonly filter?: "puts" | "deletes";
  /** Called between events. What it throws ends the watch and reaches who iterates. */
  readonly onStatus?: (status: WatchStatus) => void;
  /** Ends the watch when aborted; the iteration is then done. */
  readonly signal?: AbortSignal;
}

export interface CursorContext {
  readonly caller: Caller;
  readonly streams: Streams;
}

/** Events of whole revisions, or a part of one revision that goes on. */
export interface CursorFrame {
  readonly events: readonly WireWatchEvent[];
  readonly complete: boolean;
  readonly position: string;
}

/** A watch that is silent for so long is asked for a sign of life, if there should have been news. */
const PROBE_AFTER_MS = 60_000;

export class WatchCursor {
  /** Behind what the consumer was given, by whoever cuts frames into what it gets. */
  handedOut: string | null;
  readonly #caller: Caller;
  readonly #streams: Streams;
  readonly #selector: WireSelector;
  readonly #options: WatchOptions;
  readonly #signal: AbortSignal;
  readonly #keeper: StreamKeeper<WatchStream>;
  /** Where a stream resumes: behind the last frame that was used. */
  #position: string | null;
  /** The cluster that the position, or the first revision, is of. Null: neither is known. */
  #clusterId: string | null;
  /** Events up to here are no news (V2). */
  #skipThrough: number;
  #toldRevision = 0;
  #unacknowledged: string | null = null;
  #peeked: WireWatchFrame | null = null;
  #isResuming = false;
  /** A first stream was opened. */
  #isBegun = false;
  #turn: Promise<unknown> = Promise.resolve();

  constructor(
    { caller, streams }: CursorContext,
    selector: WireSelector,
    options: WatchOptions,
    { signal, clusterId = caller.clusterId }: { readonly signal: AbortSignal; readonly clusterId?: string | null },
  ) {
    const isFromNow = options.after === undefined && options.from_revision === undefined;
    this.#caller = caller;
    this.#streams = streams;
    this.#selector = selector;
    this.#options = options;
    this.#signal = signal;
    this.#position = options.after ?? null;
    this.handedOut = this.#position;
    this.#clusterId = options.cluster_id ?? (isFromNow ? null : clusterId);
    this.#skipThrough = isFromNow ? caller.revision : 0;
    this.#keeper = new StreamKeeper({
      clock: caller.clock,
      random: caller.random,
      signal,
      open: (opening) => this.#openStream(opening),
      onInterrupted: (error) => this.#tell({ kind: "interrupted", error }),
    });
  }

  get clusterId(): string | null {
    return this.#clusterId;
  }

  /** Resolves when it is certain where the watch begins: no later event can be missed. At its end, too. */
  async open(): Promise<void> {
    await this.#inTurn(async () => {
      while (this.#position === null && this.#options.from_revision === undefined && this.#peeked === null) {
        const stream = await this.#keeper.stream();
        if (stream === null) return;
        // The stream may have named the position by opening; else its first frame does.
        if (this.#position !== null) return;
        const { item, error } = await stream.next();
        if (error !== null) this.#interrupt(error);
        else {
          this.#peeked = item;
          if (item.kind === "ready") this.handedOut = item.position;
        }
      }
      await this.#keeper.stream();
    });
  }

  /** The next frame with events, or with the end of a revision; null once the signal is aborted. */
  async next(): Promise<CursorFrame | null> {
    return await this.#inTurn(async () => {
      for (;;) {
        const frame = await this.#take();
        if (frame === null) return null;
        const events = this.#onFrame(frame);
        if (events !== null) return events;
      }
    });
  }

  async #take(): Promise<WireWatchFrame | null> {
    if (this.#signal.aborted) return null;
    const peeked = this.#peeked;
    this.#peeked = null;
    if (peeked !== null) return peeked;
    for (;;) {
      const stream = await this.#keeper.stream();
      if (stream === null) return null;
      if (this.#unacknowledged !== null) stream.acknowledge(this.#unacknowledged);
      this.#unacknowledged = null;
      const { item, error } = await this.#takeFrom(stream);
      if (error === null) return item;
      this.#interrupt(error);
    }
  }

  async #takeFrom(stream: WatchStream): Promise<Next<WireWatchFrame>> {
    let cancel = () => {};
    const arm = () => {
      cancel = this.#caller.clock.after(PROBE_AFTER_MS, onSilence, true);
    };
    const onSilence = () => {
      // A node that sleeps is not woken for nothing: only what others told us shows that this watch should have spoken.
      if (this.#isOwnCluster() && this.#caller.revision > this.#toldRevision) stream.probe?.();
      arm();
    };
    arm();
    try {
      return await stream.next();
    } finally {
      cancel();
    }
  }

  async #openStream(signal: AbortSignal): Promise<WatchStream> {
    const { from_revision, include_values, prev_values, filter } = this.#options;
    const parameters: WatchParameters = {
      ...this.#selector,
      ...(this.#position !== null ? { after: this.#position } : from_revision === undefined ? {} : { from_revision }),
      ...(include_values === undefined ? {} : { include_values }),
      ...(prev_values === undefined ? {} : { prev_values }),
      ...(filter === undefined ? {} : { filter }),
      ...(this.#clusterId === null ? {} : { cluster_id: this.#clusterId }),
    };
    const { stream, position, clusterId, revision } = await this.#streams.openWatch(parameters, signal);
    try {
      const changed = this.#caller.observe({ clusterId, revision });
      if (this.#clusterId !== null && clusterId !== null && clusterId !== this.#clusterId) throw clusterChanged();
      if (changed !== null) this.#skipThrough = 0; // Of the cluster before.
      this.#clusterId ??= clusterId;
      if (!this.#isBegun) await this.#checkBeginning(signal);
    } catch (error) {
      stream.close();
      throw error;
    }
    this.#isBegun = true;
    if (this.#position === null) {
      this.#position = position;
      this.handedOut = position;
    }
    if (this.#isResuming) this.#tell({ kind: "resumed" });
    this.#isResuming = false;
    return stream;
  }

  /**
   * A node that lags behind knows no more of the future than one of another history, where the watch would wait for
   * ever. Positions are handed out behind what exists, so one that is nowhere is of such a history; revisions are numbers
   * that anybody may think of.
   */
  async #checkBeginning(signal: AbortSignal): Promise<void> {
    const { after, from_revision = 1 } = this.#options;
    const revision = after === undefined ? from_revision - 1 : Number.parseInt(after, 10);
    if (revision <= this.#caller.revision) return;
    if (after === undefined) this.#tell({ kind: "waiting", revision: from_revision });
    else if (revision > (await this.#caller.read("revision", {}, { signal })).revision) {
      const detail = `The position ${after} lies behind the newest revision: it is of another history.`;
      throw fault("revision_in_future", "after", detail);
    }
  }

  /** Takes a frame in; events are handed on. */
  #onFrame(frame: WireWatchFrame): CursorFrame | null {
    this.#keeper.noteProgress();
    switch (frame.kind) {
      case "events":
        return this.#onEvents(frame);
      case "ready":
      case "progress":
        this.#position = frame.position;
        // It costs credit like any other frame; unacknowledged ones would stop a quiet watch in the end.
        this.#unacknowledged = frame.position;
        this.handedOut = frame.position; // Whatever came before has been taken, or this would not be.
        this.#toldRevision = frame.revision;
        this.#observe(frame.revision);
        this.#tell({ kind: frame.kind, revision: frame.revision });
        return null;
      case "leader_changed":
        this.#tell({ kind: "leader_changed", leader: frame.leader });
        return null;
      case "slow_consumer": {
        const detail = "This client was too slow for the node; the watch goes on where it was.";
        this.#interrupt(fault("overloaded", "slow_consumer", detail));
        return null;
      }
      case "compacted": {
        const { compact_revision } = frame;
        const detail = `What comes next has been compacted at revision ${compact_revision}.`;
        throw new ConcordError({ code: "compacted", compact_revision, detail });
      }
      case "resync": {
        const { revision } = frame;
        const detail = `The node went on at revision ${revision} without what lies between; list again.`;
        throw new ConcordError({ code: "compacted", reason: "resync", revision, detail });
      }
      case "cluster_changed":
        throw clusterChanged();
      default:
        return null; // A later version may tell more.
    }
  }

  #onEvents(frame: CursorFrame): CursorFrame {
    const { complete, position } = frame;
    this.#position = position;
    this.#unacknowledged = position;
    const events = frame.events.filter(({ revision }) => revision > this.#skipThrough);
    const last = events.at(-1);
    if (last !== undefined) {
      this.#toldRevision = last.revision;
      this.#observe(last.revision);
    }
    return { events, complete, position };
  }

  #interrupt(error: ConcordError): void {
    this.#unacknowledged = null;
    this.#isResuming = true;
    this.#keeper.interrupt(error);
  }

  #isOwnCluster(): boolean {
    return this.#clusterId !== null && this.#clusterId === this.#caller.clusterId;
  }

  #observe(revision: number): void {
    if (this.#isOwnCluster()) this.#caller.observe({ clusterId: this.#clusterId, revision });
  }

  #tell(status: WatchStatus): void {
    this.#options.onStatus?.(status);
  }

  async #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const turn = this.#turn.then(work);
    this.#turn = turn.catch(() => {}); // Told to whoever asked; the next one asks for itself.
    return await turn;
  }
}

export function clusterChanged(): ConcordError {
  const detail = "The watch is of a cluster that is no more.";
  return new ConcordError({ code: "cluster_changed", detail });
}
