/** Following the data: pages of changes, watches, and copies that keep themselves right. */
import type { WireChanges, WireSelector } from "../api/wire.ts";
import type { JsonValue } from "../base/json.ts";
import type { Caller } from "./caller.ts";
import { checkKind, checkMembers, checkSelector, READ } from "./check.ts";
import type { Feed } from "./feed.ts";
import { type FollowItem, type FollowOptions, follow } from "./follow.ts";
import type { ReadOptions } from "./options.ts";
import type { Streams } from "./streams.ts";
import type { ChangeEvent, WatchEvent } from "./typed-value.ts";
import { type Watch, type WatchedRevision, watchEvents, watchRevisions } from "./watch.ts";
import type { CursorContext, WatchOptions } from "./watch-cursor.ts";

export interface ChangesOptions extends ReadOptions {
  /** A position: `next` of an earlier page, `position` of a watch. Default: before the oldest change that is kept. */
  readonly after?: string;
  /** Id of the cluster that `after` is of: give it with what was stored. In another cluster: `cluster_changed`. */
  readonly cluster_id?: string;
  /** Events per page, 1 to 1000. Default 100. */
  readonly limit?: number;
}

/** One page of changes of records whose values are a `T`. */
export type ChangesPage<T = JsonValue> = Omit<WireChanges, "events"> & {
  readonly events: readonly ChangeEvent<T>[];
  /** Id of the cluster that `next` is of: store both, and give both. */
  readonly cluster_id: string | null;
};

/**
 * ```ts
 * for await (const { type, key, value } of concord.sync.watch({ prefix: "/jobs/" })) console.log(type, key, value);
 *
 * const jobs = new Map();
 * for await (const item of concord.sync.follow({ prefix: "/jobs/" })) {
 *   if (item.kind === "put") jobs.set(item.key, item.record);
 *   else if (item.kind === "delete") jobs.delete(item.key);
 *   else if (item.kind === "synced") console.log("complete at", item.revision, jobs.size);
 * }
 * ```
 */
export class SyncClient {
  readonly #context: CursorContext;

  constructor(caller: Caller, streams: Streams) {
    this.#context = { caller, streams };
  }

  /**
   * One page of changes, oldest first. It may end inside a revision (`whole: false`), and be empty before the end
   * (`has_more`).
   * @throws ConcordError `compacted` if what is behind `after` is not kept any more; `revision_in_future` if `after` lies
   *   behind the newest revision, which a position of this cluster cannot; `cluster_changed`.
   */
  async changes<T = JsonValue>(selector: WireSelector, options: ChangesOptions = {}): Promise<ChangesPage<T>> {
    checkSelector(selector);
    checkMembers(options, `${READ} after limit cluster_id`);
    const { after, limit } = options;
    checkKind("after", after ?? "", "string");
    const params = { ...selector, after, limit };
    const { result, clusterId } = await this.#context.caller.readReply("changes", params, options);
    return { ...(result as Omit<ChangesPage<T>, "cluster_id">), cluster_id: clusterId };
  }

  /** All changes behind `after` up to now, page by page. */
  async *allChanges<T = JsonValue>(
    selector: WireSelector,
    options: ChangesOptions = {},
  ): AsyncGenerator<ChangeEvent<T>, void, void> {
    let page: ChangesPage<T> | null = null;
    do {
      page = await this.changes<T>(selector, page === null ? options : { ...options, ...behind(page) });
      yield* page.events;
    } while (page.has_more);
  }

  /**
   * Events as they come, each once, in order. Nothing is sent until the first `next` or `open`; what is not taken waits
   * at the node, and memory here stays bounded. See {@link Watch} for how it resumes and ends.
   */
  watch<T = JsonValue>(selector: WireSelector, options: WatchOptions = {}): Watch<WatchEvent<T>> {
    this.#check(selector, options);
    return watchEvents<T>(this.#context, selector, options);
  }

  /** As {@link watch}, but all events of a revision at once, never a part of them. A large revision is held whole. */
  watchGrouped<T = JsonValue>(selector: WireSelector, options: WatchOptions = {}): Watch<WatchedRevision<T>> {
    this.#check(selector, options);
    return watchRevisions<T>(this.#context, selector, options);
  }

  /**
   * The records of a selector, then their changes, for ever: after a compaction, a resync or a change of cluster it lists
   * again and tells the difference. Throws ConcordError only for refusals.
   */
  follow<T = JsonValue>(selector: WireSelector, options: FollowOptions = {}): Feed<FollowItem<T>> {
    this.#context.caller.checkOpen();
    checkSelector(selector);
    checkMembers(options, "include_values limit onStatus signal");
    return follow<T>(this.#context, selector, options);
  }

  #check(selector: WireSelector, options: WatchOptions): void {
    this.#context.caller.checkOpen();
    checkSelector(selector);
    checkMembers(options, "from_revision after cluster_id include_values prev_values filter onStatus signal");
    checkKind("after", options.after ?? "", "string");
  }
}

function behind({ next, cluster_id }: ChangesPage<unknown>): ChangesOptions {
  return { after: next, ...(cluster_id === null ? {} : { cluster_id }) };
}
