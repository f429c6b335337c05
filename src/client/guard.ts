/**
 * What the holder of a lock, or a leader, writes with: every write is carried out only if the place in the queue is still
 * held, decided by the cluster in the same step (S38).
 *
 * G1. The fencing revision is the create_revision of the holder's own key. Of two holders the later one has the higher.
 * G2. A write through here compares it, so it fails once the key is gone, whatever this process still believes.
 * G3. Nothing is written in the branch that a failed compare chooses: that one runs also when the lock is lost.
 */
import type { WireCompare, WireDeleteReply, WireKey, WireOperation, WireTxnResult } from "../api/wire.ts";
import type { ConcordError } from "../base/errors.ts";
import type { JsonValue } from "../base/json.ts";
import { checkMembers, fault, WRITE } from "./check.ts";
import { onlyResponse, type PutOptions, type PutResult, splitOptions } from "./kv.ts";
import type { LeaseKeeper, LeaseLost } from "./lease-keeper.ts";
import type { WriteOptions } from "./options.ts";
import type { Input, Txn } from "./typed-value.ts";

/** Runs a txn. `Concord` has this shape. */
export interface TxnRunner {
  txn(txn: Txn, options?: WriteOptions): Promise<WireTxnResult>;
}

/** A key in a queue whose turn has come, and the lease that it lives by. */
export interface Place {
  readonly key: string;
  /** create_revision of `key`. */
  readonly revision: number;
  readonly keeper: LeaseKeeper;
}

/** A txn under a guard. Up to 63 compares of its own; `failure` may only read, up to 127 times. */
export interface GuardedTxn extends Omit<Txn, "failure"> {
  readonly failure?: readonly Extract<WireOperation, { readonly type: "get" }>[];
}

/** A lock that is held, or a leadership. */
export class Held {
  /** The holder's own key; it exists exactly while the lock is held. */
  readonly key: string;
  /** The fencing number: higher for every later holder. Hand it to systems outside that refuse smaller ones. */
  readonly fencingRevision: number;
  readonly #client: TxnRunner;
  readonly #keeper: LeaseKeeper;

  /** Made by `concord.lock` and by `campaign`. */
  constructor(client: TxnRunner, { key, revision, keeper }: Place) {
    this.key = key;
    this.fencingRevision = revision;
    this.#client = client;
    this.#keeper = keeper;
  }

  /** The compares that hold exactly while this lock is held: for txns that are written by hand. */
  get guard(): readonly WireCompare[] {
    return [{ target: "create_revision", key: this.key, op: "==", value: this.fencingRevision }];
  }

  /** The lease of the lock, for further keys that shall end with it; null once the lock is lost or released. */
  get leaseId(): number | null {
    return this.#keeper.id;
  }

  /**
   * Resolves once the lock may be lost, at most once: by the local clock no later than the TTL behind the last renewal
   * that was sent, or when the cluster says so. Stays pending behind {@link release}. A key that somebody else deletes
   * while its lease lives is noticed by the next guarded write.
   */
  get lost(): Promise<LeaseLost> {
    return this.#keeper.lost;
  }

  /** Aborted together with `lost`: give it to whatever must stop then. */
  get signal(): AbortSignal {
    return this.#keeper.signal;
  }

  /** Whether the lock may be lost, by the clock of this moment; also true behind {@link release}. */
  get isLost(): boolean {
    return this.#keeper.isLost || this.#keeper.id === null;
  }

  /**
   * Runs a txn if the lock is still held; {@link guard} is ANDed with its own compares. A failed compare of its own is a
   * result (`succeeded: false`), as in `concord.txn`.
   * @throws ConcordError `precondition_failed` reason `lock_lost`: nothing was written, and `lost` is told; else as
   *   `concord.txn`. `invalid_txn` reason `unguarded_failure` for a `failure` branch that writes.
   */
  async txn(txn: GuardedTxn, options: WriteOptions = {}): Promise<WireTxnResult> {
    checkMembers(txn, "compare success failure", "invalid_txn");
    checkMembers(options, WRITE);
    const { compare = [], success = [], failure = [] } = txn;
    if (failure.some((operation: WireOperation | null) => operation?.type !== "get")) {
      const detail = "The failure branch of a guarded txn may only get: it also runs when the lock is lost.";
      throw fault("invalid_txn", "unguarded_failure", detail);
    }
    if (this.isLost) throw this.#lockLost();
    const own: WireOperation = { type: "get", key: this.key, keys_only: true };
    const guarded: Txn = { compare: [...this.guard, ...compare], success, failure: [own, ...failure] };
    const result = await this.#client.txn(guarded, options);
    if (result.succeeded) return result;
    const [first, ...responses] = result.responses;
    if (first?.type !== "get" || first.kvs[0]?.create_revision !== this.fencingRevision) {
      this.#keeper.abandon();
      throw this.#lockLost();
    }
    return { ...result, responses };
  }

  /** Puts one record if the lock is still held. Options as of `kv.put`. @throws as {@link txn}, and as `kv.put`. */
  async put<V>(key: WireKey, value: Input<V>, options: PutOptions = {}): Promise<PutResult> {
    const { record, call } = splitOptions(options);
    const result = await this.txn({ success: [{ type: "put", key, value: value as JsonValue, ...record }] }, call);
    const { key: fullKey, prev_kv } = onlyResponse(result, "put");
    return { revision: result.revision, key: fullKey, ...(prev_kv === undefined ? {} : { prev_kv }) };
  }

  /** Deletes one record if the lock is still held; `deleted` is 0 if there was none. @throws as {@link txn}. */
  async delete(key: WireKey, options: WriteOptions = {}): Promise<WireDeleteReply> {
    const result = await this.txn({ success: [{ type: "delete", key }] }, options);
    return { revision: result.revision, deleted: onlyResponse(result, "delete").deleted };
  }

  /**
   * Gives the lock up: the next in the queue gets it at once. Idempotent.
   * @throws ConcordError if the cluster could not be told; the lock then ends with its lease, by the TTL.
   */
  release(): Promise<void> {
    return this.#keeper.close();
  }

  #lockLost(): ConcordError {
    const detail = `${JSON.stringify(this.key)} of revision ${this.fencingRevision} is not held any more.`;
    return fault("precondition_failed", "lock_lost", detail);
  }
}
