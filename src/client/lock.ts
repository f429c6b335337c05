/** Locks: one holder at a time, in the order of arrival, with a fencing revision for what the holder writes. */
import { checkKind, checkMembers } from "./check.ts";
import { Held } from "./guard.ts";
import { QUEUE, type QueueContext, type QueueOptions, takeTurn } from "./lease-queue.ts";
import type { JsonInput } from "./typed-value.ts";

export interface LockOptions extends QueueOptions {
  /** What others may read in the holder's or waiter's key. Default null. */
  readonly value?: JsonInput;
}

/**
 * `concord.lock`.
 *
 * ```ts
 * const total = await concord.lock.with("/locks/report", { ttl_s: 10, timeoutMs: 60_000 }, async (held) => {
 *   const record = await concord.kv.get<number>("/report/total");
 *   await held.put("/report/total", (record?.value ?? 0) + 1); // only while the lock is held
 *   return record?.value ?? 0;
 * });
 * ```
 *
 * A lock alone does not keep a holder from writing that was paused for longer than its TTL: nothing can. So write through
 * `held.put`, `held.delete` and `held.txn`, which the cluster refuses once the lock is lost, and hand
 * `held.fencingRevision` to systems outside. Stop what else is going on when `held.signal` aborts. The reasons
 * are those of M. Burrows, "The Chubby lock service for loosely-coupled distributed systems", §2.4 (sequencers).
 */
export interface Lock {
  /**
   * Waits for the lock and holds it until `release`. `name` is the prefix of a queue of keys, `<name>/<revision>`, which
   * nothing else may use; it belongs to the key space like any other key, grants included. The oldest waiter is next. A
   * waiter whose own lease ended (its connection was gone for longer than the TTL) begins anew at the end of the queue.
   * @throws ConcordError `precondition_failed` reason `lock_not_acquired` if `timeoutMs` passes first; `timeout` reason
   *   `aborted`; cluster errors. Nothing is left in the queue then, or it ends by the TTL.
   */
  (name: string, options?: LockOptions): Promise<Held>;
  /** Holds the lock while `body` runs, and releases it whatever becomes of it. The result is that of `body`. */
  with<T>(name: string, options: LockOptions, body: (held: Held) => T | Promise<T>): Promise<T>;
}

export function createLock(context: QueueContext): Lock {
  const acquire = async (name: string, options: LockOptions = {}): Promise<Held> => {
    checkMembers(options, `${QUEUE} value`);
    return new Held(context, await takeTurn(context, { value: null, ...options, name }));
  };
  return Object.assign(acquire, {
    async with<T>(name: string, options: LockOptions, body: (held: Held) => T | Promise<T>): Promise<T> {
      checkKind("The third argument", body, "function");
      const held = await acquire(name, options);
      try {
        return await body(held);
      } finally {
        // What was done is done, whether or not the cluster can be told now: the lease ends by itself.
        await held.release().catch(() => {});
      }
    },
  });
}
