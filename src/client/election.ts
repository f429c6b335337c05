/** Elections: one leader at a time among those who campaign, and who it is for everybody else. The queue of a lock. */
import type { WireWatchEvent } from "../api/wire.ts";
import type { JsonValue } from "../base/json.ts";
import { CALL, checkKind, checkMembers, WRITE } from "./check.ts";
import { Held, type Place } from "./guard.ts";
import {
  headOf,
  isToBeReadAgain,
  QUEUE,
  type QueueContext,
  type QueueOptions,
  rangeOf,
  takeTurn,
  textOf,
} from "./lease-queue.ts";
import type { CallOptions, WriteOptions } from "./options.ts";

export interface Leader<T = JsonValue> {
  /** The leader's key, which exists exactly while it leads. */
  readonly key: string;
  /** What it campaigned with, or proclaimed last. */
  readonly value: T;
  /** Higher for every later leader; create_revision of `key`. */
  readonly fencingRevision: number;
  /** When `value` was written: mod_revision of `key`. */
  readonly revision: number;
}

/** A leadership: what the leader writes with, and when it ends. See {@link Held}. */
export class Leadership<T = JsonValue> extends Held {
  /**
   * Tells everybody another value.
   * @throws ConcordError `precondition_failed` reason `lock_lost` if this leadership is over.
   */
  async proclaim(value: T, options: WriteOptions = {}): Promise<void> {
    checkMembers(options, WRITE);
    await this.put(this.key, value as JsonValue, { ...options, ignore_lease: true });
  }

  /** Steps down: the next candidate leads at once. As {@link Held.release}. */
  resign(): Promise<void> {
    return this.release();
  }
}

/**
 * `concord.election(name)`.
 *
 * ```ts
 * const election = concord.election<{ host: string }>("/work/system/manager");
 * const leadership = await election.campaign({ host: "a" }, { ttl_s: 30 });
 * while (!leadership.isLost) {
 *   await leadership.put("/work/plan", nextPlan()); // refused once another one may lead
 *   await pause(1000, leadership.signal);
 * }
 * ```
 *
 * `name` is the prefix of a queue of keys, `<name>/<revision>`, which nothing else may use.
 */
export class Election<T = JsonValue> {
  readonly name: string;
  readonly #context: QueueContext;

  /** Made by `concord.election`. */
  constructor(context: QueueContext, name: string) {
    checkKind("The name", name, "string");
    this.#context = context;
    this.name = name;
  }

  /**
   * Waits until this candidate leads; the one that waits longest is next. `value` is for the others to read. A candidate
   * whose own lease ended while it waited begins anew at the end of the queue.
   * @throws ConcordError as `concord.lock`.
   */
  async campaign(value: T, options: QueueOptions = {}): Promise<Leadership<T>> {
    checkMembers(options, QUEUE);
    const place: Place = await takeTurn(this.#context, { ...options, name: this.name, value: value as JsonValue });
    return new Leadership<T>(this.#context, place);
  }

  /** Who leads now, linearizable; null if nobody does. It may be over when the answer arrives. */
  async leader(options: CallOptions = {}): Promise<Leader<T> | null> {
    checkMembers(options, CALL);
    return (await this.#look(options)).leader;
  }

  /**
   * Who leads, now and from now on, and each value that is proclaimed; null while nobody leads. In order; a leader whose
   * time was over before this client heard of it may be left out. Ends when `signal` aborts, resumes by itself otherwise.
   * @throws ConcordError cluster errors that last longer than the client's `timeoutMs`.
   */
  async *observe(options: { readonly signal?: AbortSignal } = {}): AsyncGenerator<Leader<T> | null, void> {
    checkMembers(options, "signal");
    const { signal } = options;
    let told: number | null | undefined;
    while (signal?.aborted !== true) {
      const { leader, revision } = await this.#look(options);
      if (told !== (leader?.revision ?? null)) yield leader;
      told = leader?.revision ?? null;
      const selector = leader === null ? rangeOf(this.name) : { key: leader.key };
      try {
        for await (const event of this.#context.sync.watch(selector, { ...options, from_revision: revision + 1 })) {
          // Another one leads, or may.
          if (leader === null || event.type === "delete") break;
          told = event.revision;
          yield leaderOf<T>(event);
        }
      } catch (error) {
        if (!isToBeReadAgain(error)) throw error;
      }
    }
  }

  async #look(options: CallOptions): Promise<{ readonly leader: Leader<T> | null; readonly revision: number }> {
    const { first, revision } = await headOf(this.#context, this.name, options);
    return { leader: first === null ? null : leaderOf<T>(first), revision };
  }
}

function leaderOf<T>(record: Pick<WireWatchEvent, "key" | "value" | "create_revision" | "mod_revision">): Leader<T> {
  const { value, create_revision, mod_revision } = record;
  return { key: textOf(record), value: value as T, fencingRevision: create_revision, revision: mod_revision };
}
