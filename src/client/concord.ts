/**
 * The client of a Concord cluster, over HTTP or within one process.
 *
 * ```ts
 * const concord = Concord.connect({ url: "http://127.0.0.1:8787" });
 * await concord.kv.put("/greeting", { text: "hello" });
 * const record = await concord.kv.get<{ text: string }>("/greeting");
 * for await (const { key, value } of concord.kv.list({ prefix: "/" })) console.log(key, value);
 * ```
 *
 * Every method throws `ConcordError` alone. Its `retry` says what a caller may do: `no` do not repeat; `yes` nothing
 * was done, repeat freely; `same-request` the outcome is unknown, repeat only under the same idempotency key. The client
 * has then already retried within `timeoutMs`. What is no JSON data, or has no UTF-8 form, is `invalid_kv` before
 * anything is sent.
 *
 * Must not: import anything but types, codes and limits from `src/api`, nor any package or Node module.
 */
import type { ClusterStatus } from "../api/backend.ts";
import type { WireOperation, WireRevision, WireTxn, WireTxnResolution, WireTxnResult } from "../api/wire.ts";
import { Caller } from "./caller.ts";
import { checkIdempotencyKey } from "./check.ts";
import { KvClient } from "./kv.ts";
import { LeaseClient } from "./lease.ts";
import {
  type CallOptions,
  type ConnectOptions,
  type ReadOptions,
  resolveOptions,
  type WriteOptions,
} from "./options.ts";

export class Concord {
  readonly kv: KvClient;
  readonly lease: LeaseClient;
  readonly #caller: Caller;

  private constructor(caller: Caller) {
    this.#caller = caller;
    this.kv = new KvClient(caller);
    this.lease = new LeaseClient(caller);
  }

  /** Makes a client. Sends nothing: the first call does. @throws TypeError for options that cannot work. */
  static connect(options: ConnectOptions): Concord {
    return new Concord(new Caller(resolveOptions(options)));
  }

  /** Id of the cluster that answered last; null before the first reply. */
  get clusterId(): string | null {
    return this.#caller.clusterId;
  }

  /** The highest revision that this client has seen; 0 before the first reply. */
  get revision(): number {
    return this.#caller.revision;
  }

  /**
   * Runs a txn: all compares, then one of two branches, as one step at one revision. A compare that fails is a result
   * (`succeeded: false`). A txn that only reads may be `serializable` and leaves nothing in the log.
   * @throws ConcordError `invalid_txn`, `invalid_kv`, `unknown_lease`, `result_too_large`, `idempotency_conflict`, …;
   *   `timeout` if the outcome is unknown: {@link txnResult} resolves it.
   */
  async txn(txn: WireTxn, options: WriteOptions & ReadOptions = {}): Promise<WireTxnResult> {
    const isKeyed = options.idempotencyKey !== undefined && options.idempotencyKey !== null;
    if (isReadOnly(txn) && !isKeyed) return await this.#caller.read({ path: "/v1/txn", body: txn }, options);
    return await this.#caller.write({ method: "POST", path: "/v1/txn", body: txn }, options);
  }

  /** What became of the write with that idempotency key. Linearizable: `unknown` is final unless it is still on its way. */
  async txnResult(idempotencyKey: string, options: CallOptions = {}): Promise<WireTxnResolution> {
    checkIdempotencyKey(idempotencyKey);
    return await this.#caller.read({ path: "/v1/txn/results", parameters: { key: idempotencyKey } }, options);
  }

  /** The cluster's revision now. */
  async currentRevision(options: ReadOptions = {}): Promise<number> {
    const { revision } = await this.#caller.read<WireRevision>({ path: "/v1/revision" }, options);
    return revision;
  }

  /** What the answering node knows of the cluster and its peers. */
  async cluster(options: CallOptions = {}): Promise<ClusterStatus> {
    return await this.#caller.read({ path: "/v1/cluster" }, options);
  }
}

function isReadOnly(txn: WireTxn): boolean {
  const reads = (operation: WireOperation) => operation.type === "get";
  return (txn.success ?? []).every(reads) && (txn.failure ?? []).every(reads);
}
