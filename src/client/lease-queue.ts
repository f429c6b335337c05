/**
 * The queue behind locks and elections: whoever wants a turn puts a key under `<name>/`, with a lease of its own, and
 * waits until no key stands before it. Keys are named by the revision that creates them, so the order of keys is the
 * order of arrival, and who stands before is one read of one key.
 *
 * Q1. The turn of a place has come when, at one revision, its own key is there and none before it.
 * Q2. A waiter watches the one key before it, so the end of one holder wakes one waiter.
 * Q3. A place whose lease may have ended never gets its turn, whatever the queue looks like (S38).
 * Q4. Whoever leaves takes the key along; only a cluster that cannot be told leaves it to the TTL.
 */
import type { WireKey, WireListedRecord, WireOperation, WireTxnResult } from "../api/wire.ts";
import { ConcordError } from "../base/errors.ts";
import { CALL, checkKind, fault } from "./check.ts";
import type { Place, TxnRunner } from "./guard.ts";
import { onlyResponse } from "./kv.ts";
import type { LeaseClient } from "./lease.ts";
import { isUnknownLease } from "./lease-keeper.ts";
import { callAt } from "./lease-timer.ts";
import { type CallOptions, type ClientClock, wrongTime } from "./options.ts";
import { linkedController } from "./signals.ts";
import type { SyncClient } from "./sync.ts";
import type { JsonInput, Operation } from "./typed-value.ts";

export interface QueueOptions {
  /** Seconds after which a holder or waiter that is gone makes room; whole, at least 1. Default 15. Renewed by itself. */
  readonly ttl_s?: number;
  /**
   * How long to wait for the turn, in milliseconds; 0: only if nobody holds it or waits for it. Default: without end. The
   * calls before and behind the waiting have the client's own `timeoutMs`.
   */
  readonly timeoutMs?: number;
  /** Gives the waiting up and leaves the queue: the error is `timeout`, reason `aborted`. */
  readonly signal?: AbortSignal;
}

/** What the queue needs of a client. */
export interface QueueContext extends TxnRunner {
  readonly clock: ClientClock;
  readonly lease: Pick<LeaseClient, "keep">;
  readonly sync: Pick<SyncClient, "watch">;
}

interface Wish extends QueueOptions {
  /** The prefix of the queue, which nothing else may use. */
  readonly name: string;
  /** What others may read of a holder or waiter. */
  readonly value: JsonInput;
}

/** The first key of a queue, and the revision at which it was. */
export interface Head {
  readonly first: WireListedRecord | null;
  readonly revision: number;
}

/** The names of {@link QueueOptions}. */
export const QUEUE = `${CALL} ttl_s`;

const TTL_S_DEFAULT = 15;

/**
 * Waits for the first place of the queue. A waiter whose lease ended meanwhile begins anew, at the end of the queue, for
 * as long as there is time.
 * @throws ConcordError `precondition_failed` reason `lock_not_acquired` when the time is over; `timeout` reason `aborted`.
 */
export async function takeTurn(context: QueueContext, wish: Wish): Promise<Place> {
  const { clock } = context;
  const { name, timeoutMs = Number.POSITIVE_INFINITY, signal } = wish;
  checkKind("The name", name, "string");
  if (typeof timeoutMs !== "number" || Number.isNaN(timeoutMs)) throw wrongTime(timeoutMs);
  const late = new AbortController();
  let cancel = () => {};
  if (timeoutMs <= 0) {
    if ((await headOf(context, name, wish)).first !== null) throw notAcquired(name);
    late.abort();
  } else if (timeoutMs < Number.POSITIVE_INFINITY) {
    cancel = callAt(clock, clock.nowMs() + timeoutMs, () => late.abort());
  }
  try {
    for (;;) {
      const place = await stayInQueue(context, wish, late.signal);
      if (place !== null) return place;
      endIfOver(name, late.signal, signal);
    }
  } finally {
    cancel();
  }
}

/** One stay in the queue; null if the lease ended before the turn came. */
async function stayInQueue(context: QueueContext, wish: Wish, late: AbortSignal): Promise<Place | null> {
  const { name, value, ttl_s = TTL_S_DEFAULT } = wish;
  const keeper = context.lease.keep({ ttl_s, metadata: { queue: name } });
  let isGranted = false;
  let isTaken = false;
  try {
    const lease = await keeper.ready;
    isGranted = true;
    const put: Operation = { type: "put", key: `${name}/`, value, lease, revision_suffix: true };
    const result = await context.txn({ success: [put] }, callOptions(wish));
    const place = { key: textOf(onlyResponse(result, "put")), revision: result.revision, keeper };
    isTaken = await isTurnReached(context, wish, place, late);
    return isTaken ? place : null;
  } catch (error) {
    if (isUnknownLease(error)) return null;
    throw error;
  } finally {
    // A lease that was perhaps granted has no key yet, and one that cannot be revoked is renewed no more: both end (Q4).
    if (isGranted && !isTaken) await keeper.close().catch(() => {});
  }
}

/** True once the turn has come, false once the place is gone. */
async function isTurnReached(context: QueueContext, wish: Wish, place: Place, late: AbortSignal): Promise<boolean> {
  const { key, revision, keeper } = place;
  const own: WireOperation = { type: "get", key, keys_only: true };
  const before: WireOperation = { ...rangeOf(wish.name, key), type: "get", order: "desc", limit: 1, keys_only: true };
  // Ordered by arrival, so the last one before the own key is the one to wait for.
  for (;;) {
    const seen = await context.txn({ success: [own, before] }, callOptions(wish));
    if (recordOf(seen, 0)?.create_revision !== revision || keeper.isLost) return false;
    const ahead = recordOf(seen, 1);
    if (ahead === null) return true;
    endIfOver(wish.name, late, wish.signal);
    const { signal, unlink } = linkedController(late, keeper.signal, wish.signal);
    const watch = context.sync.watch(
      { key: textOf(ahead) },
      { from_revision: seen.revision + 1, filter: "deletes", include_values: false, signal },
    );
    try {
      await watch.next();
    } catch (error) {
      if (!isToBeReadAgain(error)) throw error;
    } finally {
      unlink();
      await watch.return();
    }
  }
}

/** Who stands first, linearizable; null if the queue is empty. */
export async function headOf(context: TxnRunner, name: string, options: CallOptions = {}): Promise<Head> {
  const get: WireOperation = { ...rangeOf(name), type: "get", limit: 1 };
  const result = await context.txn({ success: [get] }, callOptions(options));
  return { first: recordOf(result, 0), revision: result.revision };
}

/** The keys of a queue, or those before `end`: sixteen digits behind the name. */
export function rangeOf(name: string, end = `${name}/:`) {
  return { range: { start: `${name}/${"0".repeat(16)}`, end } };
}

/** A watch that ends so missed something, or may have: what it was about must be read again. */
export function isToBeReadAgain(error: unknown): boolean {
  return error instanceof ConcordError && (error.code === "compacted" || error.code === "cluster_changed");
}

/** Keys of a queue are text, because its name is. */
export function textOf({ key }: { readonly key: WireKey }): string {
  return key as string;
}

function recordOf(result: WireTxnResult, index: number): WireListedRecord | null {
  return onlyResponse({ ...result, responses: result.responses.slice(index) }, "get").kvs[0] ?? null;
}

/** Of a wish, whose `timeoutMs` is about waiting, only the signal is about calls. */
function callOptions({ signal }: CallOptions): CallOptions {
  return signal === undefined ? {} : { signal };
}

function endIfOver(name: string, late: AbortSignal, signal: AbortSignal | undefined): void {
  if (signal?.aborted === true) {
    throw fault("timeout", "aborted", "The caller gave the waiting up.");
  }
  if (late.aborted) throw notAcquired(name);
}

function notAcquired(name: string): ConcordError {
  const detail = `The turn in ${JSON.stringify(name)} did not come in time; nothing is left in its queue.`;
  return fault("precondition_failed", "lock_not_acquired", detail);
}
