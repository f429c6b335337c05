/**
 * The client of a Concord cluster: over one WebSocket, over HTTP, or within one process.
 *
 * Every method throws `ConcordError` alone. Its `retry` says what a caller may do: `no` do not repeat; `yes` nothing
 * was done, repeat freely; `same-request` the outcome is unknown, repeat only under the same idempotency key. The client
 * has then already retried within `timeoutMs`. What is no JSON data, or has no UTF-8 form, is `invalid_kv` before
 * anything is sent.
 *
 * Must not: import anything but types, codes and limits from `src/api`, nor any package or Node module.
 */
import type { ClusterStatus } from "../api/backend.ts";
import type { WireCompacted, WireTxn, WireTxnResolution, WireTxnResult } from "../api/wire.ts";
import type { JsonValue } from "../base/json.ts";
import { Caller } from "./caller.ts";
import { CALL, checkIdempotencyKey, checkMembers, READ, WRITE } from "./check.ts";
import { Election } from "./election.ts";
import { HttpStreams } from "./http-streams.ts";
import { HttpTransport } from "./http-transport.ts";
import { KvClient } from "./kv.ts";
import { LeaseClient } from "./lease.ts";
import type { QueueContext } from "./lease-queue.ts";
import { createLock, type Lock } from "./lock.ts";
import {
  type CallOptions,
  type ConnectOptions,
  type ReadOptions,
  type ResolvedOptions,
  resolveOptions,
  type WriteOptions,
} from "./options.ts";
import { Session } from "./session.ts";
import { SessionStreams } from "./session-streams.ts";
import { SessionTransport } from "./session-transport.ts";
import type { Streams } from "./streams.ts";
import { SyncClient } from "./sync.ts";
import { TopicClient } from "./topics.ts";
import type { Transport } from "./transport.ts";
import type { JsonInput, Operation, Txn } from "./typed-value.ts";

/**
 * ```ts
 * const concord = Concord.connect({ url: "http://127.0.0.1:8787" });
 *
 * await concord.kv.put("/greeting", { text: "hello" });
 * const record = await concord.kv.get<{ text: string }>("/greeting");
 * for await (const { key, value } of concord.kv.list({ prefix: "/" })) console.log(key, value);
 *
 * const from_revision = (record?.mod_revision ?? 0) + 1;
 * await concord.kv.put("/greeting", { text: "hello again" });
 * for await (const { type, value } of concord.sync.watch({ key: "/greeting" }, { from_revision })) {
 *   console.log(type, value);
 *   break;
 * }
 *
 * concord.close();
 * ```
 */
export class Concord {
  readonly kv: KvClient;
  readonly lease: LeaseClient;
  readonly lock: Lock;
  readonly sync: SyncClient;
  readonly topics: TopicClient;
  readonly #caller: Caller;
  readonly #streams: Streams;
  readonly #queues: QueueContext;

  private constructor(caller: Caller, streams: Streams) {
    this.#caller = caller;
    this.#streams = streams;
    this.kv = new KvClient(caller);
    this.lease = new LeaseClient(caller);
    this.sync = new SyncClient(caller, streams);
    this.topics = new TopicClient(caller, streams);
    const { clock } = caller;
    this.#queues = { clock, lease: this.lease, sync: this.sync, txn: (txn, options) => this.txn(txn, options) };
    this.lock = createLock(this.#queues);
  }

  /** Makes a client. Sends nothing: the first call does. @throws ConcordError `invalid_request` for options that cannot work. */
  static connect(options: ConnectOptions): Concord {
    const resolved = resolveOptions(options);
    const { transport, streams } = createTransport(resolved);
    return new Concord(new Caller(resolved, transport), streams);
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
  async txn(txn: Txn, options: WriteOptions & ReadOptions = {}): Promise<WireTxnResult> {
    checkMembers(txn, "compare success failure", "invalid_txn");
    checkMembers(options, `${WRITE} consistency minRevision`);
    const params = txn as WireTxn;
    const isKeyed = options.idempotencyKey !== undefined && options.idempotencyKey !== null;
    if (isReadOnly(txn) && !isKeyed) return await this.#caller.read("txn", params, options);
    return await this.#caller.write("txn", params, options);
  }

  /** The election of that name, whose candidates and observers are wherever they call this. Sends nothing. */
  election<T extends JsonInput = JsonValue>(name: string): Election<T> {
    return new Election<T>(this.#queues, name);
  }

  /** What became of the write with that idempotency key. Linearizable: `unknown` is final unless it is still on its way. */
  async txnResult(idempotencyKey: string, options: CallOptions = {}): Promise<WireTxnResolution> {
    checkIdempotencyKey(idempotencyKey);
    checkMembers(options, CALL);
    return await this.#caller.read("txn.result", { key: idempotencyKey }, options);
  }

  /** The cluster's revision now. */
  async currentRevision(options: ReadOptions = {}): Promise<number> {
    checkMembers(options, READ);
    const { revision } = await this.#caller.read("revision", {}, options);
    return revision;
  }

  /**
   * Gives up all history below `revision`; the state at it and everything later stay.
   * @throws ConcordError `revision_in_future`; `compacted` if that is done already.
   */
  async compact(revision: number, options: WriteOptions = {}): Promise<WireCompacted> {
    checkMembers(options, WRITE);
    return await this.#caller.write("compact", { revision }, options);
  }

  /** What the answering node knows of the cluster and its peers. */
  async cluster(options: CallOptions = {}): Promise<ClusterStatus> {
    checkMembers(options, CALL);
    return await this.#caller.read("cluster", {}, options);
  }

  /**
   * Ends sockets, watches and subscriptions, whose iterations are then done. Calls under way end as `timeout` (reason
   * `aborted`): what they did is unknown. Later calls are `invalid_request` (reason `closed`). A Node process that does
   * not close its client stays until the session has been idle for a minute.
   */
  close(): void {
    this.#caller.close();
    this.#streams.close();
  }
}

function createTransport(options: ResolvedOptions): { readonly transport: Transport; readonly streams: Streams } {
  const { openSocket } = options;
  const http = { transport: new HttpTransport(options), streams: new HttpStreams(options) };
  if (openSocket === null) return http;
  const main = new Session(options, openSocket);
  return {
    transport: new SessionTransport(options, main, http.transport),
    streams: new SessionStreams(options, { openSocket, main, http: http.streams }),
  };
}

function isReadOnly(txn: Txn): boolean {
  const reads = (operation: Operation | null) => operation?.type === "get";
  return (txn.success ?? []).every(reads) && (txn.failure ?? []).every(reads);
}
