/** Watches as they are iterated: event by event, or revision by revision. */
import type { WireSelector } from "../api/wire.ts";
import type { JsonValue } from "../base/json.ts";
import { Feed } from "./feed.ts";
import type { LinkedController } from "./signals.ts";
import type { WatchEvent } from "./typed-value.ts";
import { type CursorContext, WatchCursor, type WatchOptions } from "./watch-cursor.ts";

/** All events of one revision that the watch wants, in order. */
export interface WatchedRevision<T = JsonValue> {
  readonly revision: number;
  readonly events: readonly WatchEvent<T>[];
}

/**
 * A watch in progress. Iterate it once; leaving the loop, also by an exception, ends this watch and no other.
 *
 * It resumes by itself after any disconnect, on any node, without gap or repeat. The iteration throws ConcordError only
 * for what cannot be resumed: `compacted` (with `compact_revision`; or reason `resync`), `cluster_changed`, and refusals
 * such as `forbidden`. It ends without an error when its `signal` is aborted or the client is closed.
 */
export class Watch<Item> extends Feed<Item> {
  readonly #cursor: WatchCursor;

  constructor(parts: {
    readonly items: AsyncGenerator<Item, void, void>;
    readonly link: LinkedController;
    readonly cursor: WatchCursor;
  }) {
    super(parts.items, parts.link);
    this.#cursor = parts.cursor;
  }

  /**
   * Behind everything that was handed out: given as `after` to another watch, that one goes on from here. Null while
   * nothing is known. It moves with progress, too, so it stays young on a quiet selector.
   */
  get position(): string | null {
    return this.#cursor.handedOut;
  }

  /** Id of the cluster that {@link position} is of: store both, and give both (`after`, `cluster_id`). Null as that. */
  get clusterId(): string | null {
    return this.#cursor.clusterId;
  }

  /**
   * Starts the watch now rather than with the first `next`, and resolves when no later event can be missed. Only a watch
   * from now on needs it: `await watch.open()`, then cause what the watch is to see.
   */
  async open(): Promise<void> {
    await this.#cursor.open();
  }
}

export function watchEvents<T>(
  context: CursorContext,
  selector: WireSelector,
  options: WatchOptions,
): Watch<WatchEvent<T>> {
  const link = context.caller.link(options.signal);
  const cursor = new WatchCursor(context, selector, options, link);
  return new Watch({ items: eventsOf<T>(cursor, link), link, cursor });
}

export function watchRevisions<T>(
  context: CursorContext,
  selector: WireSelector,
  options: WatchOptions,
): Watch<WatchedRevision<T>> {
  const link = context.caller.link(options.signal);
  const cursor = new WatchCursor(context, selector, options, link);
  return new Watch({ items: revisionsOf<T>(cursor, link), link, cursor });
}

async function* eventsOf<T>(cursor: WatchCursor, link: LinkedController): AsyncGenerator<WatchEvent<T>, void, void> {
  try {
    for (let frame = await cursor.next(); frame !== null; frame = await cursor.next()) {
      for (const event of frame.events) {
        cursor.handedOut = `${event.revision}.${event.op_index}`;
        yield event as WatchEvent<T>;
      }
      cursor.handedOut = frame.position;
    }
  } finally {
    link.abort();
  }
}

async function* revisionsOf<T>(
  cursor: WatchCursor,
  link: LinkedController,
): AsyncGenerator<WatchedRevision<T>, void, void> {
  /** Events of a revision that is not at its end yet. */
  let open: WatchEvent<T>[] = [];
  try {
    for (let frame = await cursor.next(); frame !== null; frame = await cursor.next()) {
      const groups = groupsOf([...open, ...(frame.events as readonly WatchEvent<T>[])]);
      open = frame.complete ? [] : (groups.pop()?.events ?? []);
      for (const group of groups) {
        cursor.handedOut = String(group.revision);
        yield group;
      }
      if (frame.complete) cursor.handedOut = frame.position;
    }
  } finally {
    link.abort();
  }
}

function groupsOf<T>(events: readonly WatchEvent<T>[]): { revision: number; events: WatchEvent<T>[] }[] {
  const groups: { revision: number; events: WatchEvent<T>[] }[] = [];
  for (const event of events) {
    const group = groups.at(-1);
    if (group?.revision === event.revision) group.events.push(event);
    else groups.push({ revision: event.revision, events: [event] });
  }
  return groups;
}
