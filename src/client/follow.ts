/**
 * A copy of a part of the data that keeps itself right: the list, then every change of it; the list again, compared with
 * what was told before, whenever the changes in between cannot be had.
 *
 * O1. Whoever applies the items in order has, at each `synced` and at the end of each revision behind it, exactly the
 *     records of that revision.
 * O2. Nothing becomes older again: a record is followed by later ones of its key only, `synced` revisions do not fall;
 *     except behind a `restarted` for `cluster_changed`, where revisions begin anew (S86).
 * O3. Only keys and their mod_revisions are kept.
 */
import type { WireKey, WireList, WireListedRecord, WireSelector, WireWatchEvent } from "../api/wire.ts";
import { ConcordError } from "../base/errors.ts";
import type { JsonValue } from "../base/json.ts";
import { backoffMs } from "./backoff.ts";
import { Feed } from "./feed.ts";
import type { Params } from "./operations.ts";
import { linkedController } from "./signals.ts";
import { bytes, bytesOf } from "./value.ts";
import {
  type CursorContext,
  clusterChanged,
  WatchCursor,
  type WatchOptions,
  type WatchStatus,
} from "./watch-cursor.ts";

export interface FollowOptions {
  /** Default true. Without, records have no `value`. */
  readonly include_values?: boolean;
  /** Records per page of the list, 1 to 1000. Default 100. */
  readonly limit?: number;
  /** As of a watch. */
  readonly onStatus?: (status: WatchStatus) => void;
  /** Ends it when aborted; the iteration is then done. */
  readonly signal?: AbortSignal;
}

export type FollowItem<T = JsonValue> =
  /** The record is there, or has changed. */
  | { readonly kind: "put"; readonly key: WireKey; readonly revision: number; readonly record: WireListedRecord<T> }
  /**
   * The record is gone. `computed`: it was missing from a later list, so it went at `revision` or before; it may have been
   * gone, and back, unseen.
   */
  | { readonly kind: "delete"; readonly key: WireKey; readonly revision: number; readonly computed: boolean }
  /** Everything up to `revision` has been told. Once behind each list. */
  | { readonly kind: "synced"; readonly revision: number }
  /** The changes cannot be had; the list comes again. */
  | { readonly kind: "restarted"; readonly reason: "compacted" | "resync" | "cluster_changed" };

const RELIST = { minMs: 100, maxMs: 5_000 } as const;
/** No record has it: what is known of a former cluster equals nothing of this one. */
const FORMER_REVISION = 0;

export function follow<T>(context: CursorContext, selector: WireSelector, options: FollowOptions): Feed<FollowItem<T>> {
  const link = context.caller.link(options.signal);
  return new Feed(new Follower<T>(context, selector, options, link.signal).items(), link);
}

class Follower<T> {
  readonly #context: CursorContext;
  readonly #selector: WireSelector;
  readonly #options: FollowOptions;
  readonly #signal: AbortSignal;
  /** mod_revision by key, which stands as JSON text. */
  readonly #known = new Map<string, number>();
  /** Lists in a row behind which no change was told. */
  #failures = 0;
  /** The cluster that these are of. */
  #clusterId: string | null = null;

  constructor(context: CursorContext, selector: WireSelector, options: FollowOptions, signal: AbortSignal) {
    this.#context = context;
    this.#selector = selector;
    this.#options = options;
    this.#signal = signal;
  }

  async *items(): AsyncGenerator<FollowItem<T>, void, void> {
    while (!this.#signal.aborted) {
      try {
        const revision = yield* this.#list();
        if (revision !== null) yield* this.#watch(revision);
      } catch (error) {
        if (this.#signal.aborted) return;
        const reason = reasonToRestart(error);
        if (reason === null) throw error;
        if (reason === "cluster_changed") this.#forgetCluster();
        yield { kind: "restarted", reason };
        await this.#pause();
      }
    }
  }

  /** Tells what differs from what was told before. Returns the revision of the list; null once the signal is aborted. */
  async *#list(): AsyncGenerator<FollowItem<T>, number | null, void> {
    const seen = new Set<string>();
    let cursor: string | null = null;
    let revision = 0;
    do {
      const page: WireList | null = await this.#page(cursor);
      if (page === null) return null;
      revision = page.revision;
      cursor = page.cursor;
      for (const record of page.records) {
        const text = JSON.stringify(record.key);
        seen.add(text);
        if (this.#known.get(text) !== record.mod_revision) yield this.#put(record as WireListedRecord<T>);
      }
    } while (cursor !== null);
    for (const text of this.#known.keys()) {
      if (seen.has(text)) continue;
      this.#known.delete(text);
      yield { kind: "delete", key: JSON.parse(text), revision, computed: true };
    }
    yield { kind: "synced", revision };
    return revision;
  }

  /** One page, however long it takes to get it; null once the signal is aborted. */
  async #page(cursor: string | null): Promise<WireList | null> {
    const { caller } = this.#context;
    const { limit, include_values } = this.#options;
    const params = {
      ...listed(this.#selector),
      limit,
      keys_only: include_values === false ? true : undefined,
      cursor: cursor ?? undefined,
    };
    for (let failures = 1; !this.#signal.aborted; failures += 1) {
      try {
        const page = await caller.read("kv.list", params, { signal: this.#signal });
        // Another call may have been told of the change; what is kept here is of the cluster before all the same.
        if (this.#clusterId !== null && caller.clusterId !== this.#clusterId) throw clusterChanged();
        this.#clusterId = caller.clusterId;
        return page;
      } catch (error) {
        if (this.#signal.aborted) return null;
        if (!(error instanceof ConcordError)) throw error;
        // Nothing is known of any cluster: to be told of another one changes nothing.
        if (error.code === "cluster_changed" && this.#clusterId === null) continue;
        if (error.retry === "no") throw error;
        await caller.clock.sleep(backoffMs(failures, caller.random(), RELIST), this.#signal);
      }
    }
    return null;
  }

  async *#watch(revision: number): AsyncGenerator<FollowItem<T>, void, void> {
    const { include_values, onStatus } = this.#options;
    const options: WatchOptions = {
      from_revision: revision + 1,
      ...(include_values === undefined ? {} : { include_values }),
      ...(onStatus === undefined ? {} : { onStatus }),
    };
    const link = linkedController(this.#signal);
    const cursor = new WatchCursor(this.#context, this.#selector, options, {
      signal: link.signal,
      clusterId: this.#clusterId,
    });
    try {
      for (let frame = await cursor.next(); frame !== null; frame = await cursor.next()) {
        this.#failures = 0;
        for (const event of frame.events) yield this.#change(event);
      }
    } finally {
      link.abort();
      link.unlink();
    }
  }

  #change(event: WireWatchEvent): FollowItem<T> {
    const { revision, op_index: _index, type, prev_value: _previous, ...record } = event;
    if (type === "put") return this.#put(record as WireListedRecord<T>);
    this.#known.delete(JSON.stringify(event.key));
    return { kind: "delete", key: event.key, revision, computed: false };
  }

  #put(record: WireListedRecord<T>): FollowItem<T> {
    const { key, mod_revision } = record;
    this.#known.set(JSON.stringify(key), mod_revision);
    return { kind: "put", key, revision: mod_revision, record };
  }

  /** A list whose changes were gone at once is not read again at once. */
  async #pause(): Promise<void> {
    const { clock, random } = this.#context.caller;
    if (this.#failures > 0) await clock.sleep(backoffMs(this.#failures, random(), RELIST), this.#signal);
    this.#failures += 1;
  }

  #forgetCluster(): void {
    this.#clusterId = null;
    for (const key of this.#known.keys()) this.#known.set(key, FORMER_REVISION);
  }
}

function reasonToRestart(error: unknown): "compacted" | "resync" | "cluster_changed" | null {
  if (!(error instanceof ConcordError)) return null;
  if (error.code === "cluster_changed") return "cluster_changed";
  if (error.code !== "compacted") return null;
  return error.body.reason === "resync" ? "resync" : "compacted";
}

/** The selector as a list names it: one key is the range up to its successor. */
function listed(selector: WireSelector): Params<"kv.list"> {
  if ("prefix" in selector) return selector;
  return "key" in selector ? { start: selector.key, end: successorOf(selector.key) } : selector.range;
}

function successorOf(key: WireKey): WireKey {
  const data = typeof key === "string" ? null : bytesOf(key);
  return data === null ? `${String(key)}\0` : bytes(Uint8Array.of(...data, 0));
}
