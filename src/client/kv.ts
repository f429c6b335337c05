/** Records: read, write, list, history. Every write is one txn on the server and has one effect, retries included. */
import type {
  WireBatch,
  WireCompare,
  WireDeleteManyReply,
  WireDeleteReply,
  WireGetManyReply,
  WireHistory,
  WireKey,
  WireList,
  WireListedRecord,
  WireOperation,
  WireOperationResult,
  WirePut,
  WirePutManyReply,
  WirePutOptions,
  WireRecord,
  WireTxn,
  WireTxnResult,
} from "../api/wire.ts";
import type { JsonValue } from "../base/json.ts";
import type { Caller } from "./caller.ts";
import { checkKind, checkMembers, fault, READ, WRITE } from "./check.ts";
import type { GetOptions, HistoryOptions, ListOptions, ListSelector, WriteOptions } from "./options.ts";
import type { ChangeEvent, Input, Put } from "./typed-value.ts";

/** What a put may say: the options of the record, named as on the wire, and those of the call. */
export type PutOptions = WirePutOptions & WriteOptions;

export interface PutResult {
  /** The revision of this write, which is the record's mod_revision. */
  readonly revision: number;
  /** The full key, which differs from the one given under `revision_suffix`. */
  readonly key: WireKey;
  /** With `prev_kv`: the record before; null if there was none. */
  readonly prev_kv?: WireRecord | null;
  /** True when this is the kept result of an earlier attempt, too large to be kept with its values. */
  readonly values_dropped?: boolean;
}

/** One page of the changes of a key whose values are a `T`. */
export type HistoryPage<T = JsonValue> = Omit<WireHistory, "events"> & { readonly events: readonly ChangeEvent<T>[] };

/** The result of a conditional write. A condition that does not hold is a result, not an error. */
export type ConditionalResult<T = JsonValue> =
  | { readonly succeeded: true; readonly revision: number }
  /** `current` is the record as it is; null if there is none. */
  | { readonly succeeded: false; readonly revision: number; readonly current: WireRecord<T> | null };

const GET = `${READ} revision`;
const DELETE = `${WRITE} prev_kv`;
const PUT = `${DELETE} content_type metadata ttl lease ignore_value ignore_lease revision_suffix due_at_ms`;

export class KvClient {
  readonly #caller: Caller;

  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /**
   * Reads one record; null if there is none. Linearizable unless `consistency` says otherwise.
   * @throws ConcordError `compacted` or `revision_in_future` for a `revision` that cannot be read; cluster errors.
   */
  async get<T = JsonValue>(key: WireKey, options: GetOptions = {}): Promise<WireRecord<T> | null> {
    checkMembers(options, GET);
    return await this.#get(key, options);
  }

  async #get<T>(key: WireKey, options: GetOptions): Promise<WireRecord<T> | null> {
    const { revision } = options;
    if (typeof key !== "string") return (await this.getMany<T>([key], options)).records[0] ?? null;
    const { record } = await this.#caller.read("kv.get", { key, revision }, options);
    return record as WireRecord<T> | null;
  }

  /** Reads up to 500 records at one revision, in the order of the keys; null where there is none. */
  async getMany<T = JsonValue>(keys: readonly WireKey[], options: GetOptions = {}): Promise<WireGetManyReply<T>> {
    checkMembers(options, GET);
    const { revision } = options;
    const batch: WireBatch = { op: "get_many", keys, ...(revision === undefined ? {} : { revision }) };
    return (await this.#caller.read("kv.batch", batch, options)) as WireGetManyReply<T>;
  }

  /**
   * Sets `key` to `value`, which is JSON or {@link bytes}. `ttl` is in seconds.
   * @throws ConcordError `invalid_kv`, `unknown_lease`, `no_space`, or `timeout` (outcome unknown).
   */
  async put<V>(key: WireKey, value: Input<V>, options: PutOptions = {}): Promise<PutResult> {
    const { record, call } = splitOptions(options);
    const result = await this.#txn({ success: [{ type: "put", key, value: value as JsonValue, ...record }] }, call);
    const { key: fullKey, prev_kv } = onlyResponse(result, "put");
    return {
      revision: result.revision,
      key: fullKey,
      ...(prev_kv === undefined ? {} : { prev_kv }),
      ...(result.values_dropped === true ? { values_dropped: true } : {}),
    };
  }

  /** Deletes one record; `deleted` is 0 if there was none, and the revision does not move then. */
  async delete(key: WireKey, options: { readonly prev_kv?: boolean } & WriteOptions = {}): Promise<WireDeleteReply> {
    checkMembers(options, DELETE);
    const { prev_kv, ...call } = options;
    const operation: WireOperation = { type: "delete", key, ...(prev_kv === undefined ? {} : { prev_kv }) };
    const result = await this.#txn({ success: [operation] }, call);
    const { deleted, prev_kvs } = onlyResponse(result, "delete");
    return {
      revision: result.revision,
      deleted,
      ...(prev_kvs === undefined ? {} : { prev_kv: prev_kvs[0] ?? null }),
      ...(result.values_dropped === true ? { values_dropped: true } : {}),
    };
  }

  /** Puts only if there is no record of that key. */
  async create<T = JsonValue, V = T>(
    key: WireKey,
    value: Input<V>,
    options: PutOptions = {},
  ): Promise<ConditionalResult<T>> {
    return await this.#putIf({ target: "exists", key, op: "==", value: false }, key, value as JsonValue, options);
  }

  /** Puts only if there is a record of that key. */
  async replace<T = JsonValue, V = T>(
    key: WireKey,
    value: Input<V>,
    options: PutOptions = {},
  ): Promise<ConditionalResult<T>> {
    return await this.#putIf({ target: "exists", key, op: "==", value: true }, key, value as JsonValue, options);
  }

  /** Puts only if the record is still the one of `modRevision`. */
  async updateIf<T = JsonValue, V = T>(
    key: WireKey,
    modRevision: number,
    value: Input<V>,
    options: PutOptions = {},
  ): Promise<ConditionalResult<T>> {
    return await this.#putIf(
      { target: "mod_revision", key, op: "==", value: modRevision },
      key,
      value as JsonValue,
      options,
    );
  }

  /** Deletes only if the record is still the one of `modRevision`. */
  async deleteIf<T = JsonValue>(
    key: WireKey,
    modRevision: number,
    options: WriteOptions = {},
  ): Promise<ConditionalResult<T>> {
    checkMembers(options, WRITE);
    const compare: WireCompare = { target: "mod_revision", key, op: "==", value: modRevision };
    return await this.#conditional(compare, { type: "delete", key }, key, options);
  }

  /** Puts up to 500 records at one revision, in order. */
  async putMany(items: readonly Put[], options: WriteOptions = {}): Promise<WirePutManyReply> {
    checkMembers(options, WRITE);
    const batch: WireBatch = { op: "put_many", items: items as readonly WirePut[] };
    return (await this.#caller.write("kv.batch", batch, options)) as WirePutManyReply;
  }

  /** Deletes up to 500 records at one revision, in order. */
  async deleteMany(
    keys: readonly WireKey[],
    options: { readonly prev_kv?: boolean } & WriteOptions = {},
  ): Promise<WireDeleteManyReply> {
    checkMembers(options, DELETE);
    const { prev_kv, ...call } = options;
    const batch: WireBatch = { op: "delete_many", keys, ...(prev_kv === undefined ? {} : { prev_kv }) };
    return (await this.#caller.write("kv.batch", batch, call)) as WireDeleteManyReply;
  }

  /** One page of records. Later pages (by `cursor`) show the state of the first page, whatever is written meanwhile. */
  async page<T = JsonValue>(
    selector: ListSelector,
    options: ListOptions & { readonly cursor?: string } = {},
  ): Promise<WireList<T>> {
    checkMembers(selector, "prefix start end", "invalid_selector");
    checkMembers(options, `${GET} limit order keys_only count_only cursor`);
    const { limit, order, keys_only, count_only, revision, cursor } = options;
    const params = {
      ...selector,
      // An empty start is the start of the key space: a list always names what it lists.
      ...("prefix" in selector ? {} : { start: selector.start ?? "" }),
      ...{ limit, order, keys_only, count_only, revision: cursor === undefined ? revision : undefined, cursor },
    };
    return (await this.#caller.read("kv.list", params, options)) as WireList<T>;
  }

  /**
   * All records of a selector, page by page, as they were at one revision.
   * @throws ConcordError `compacted` if the iteration takes so long that its revision is compacted: list again.
   */
  async *list<T = JsonValue>(
    selector: ListSelector,
    options: ListOptions = {},
  ): AsyncGenerator<WireListedRecord<T>, void> {
    let cursor: string | null = null;
    do {
      const page: WireList<T> = await this.page<T>(selector, cursor === null ? options : { ...options, cursor });
      yield* page.records;
      cursor = page.cursor;
    } while (cursor !== null);
  }

  /** One page of the changes of a key, oldest first. */
  async historyPage<T = JsonValue>(
    key: string,
    options: HistoryOptions & { readonly cursor?: string } = {},
  ): Promise<HistoryPage<T>> {
    checkKind("key", key, "string or bytes");
    checkMembers(options, `${READ} from to limit cursor`);
    const { from, to, limit, cursor } = options;
    return (await this.#caller.read("kv.history", { key, from, to, limit, cursor }, options)) as HistoryPage<T>;
  }

  /** All changes of a key that are kept, oldest first, up to the revision of the first page. */
  async *history<T = JsonValue>(key: string, options: HistoryOptions = {}): AsyncGenerator<ChangeEvent<T>, void> {
    let cursor: string | null = null;
    do {
      const page: HistoryPage<T> = await this.historyPage<T>(key, cursor === null ? options : { ...options, cursor });
      yield* page.events;
      cursor = page.cursor;
    } while (cursor !== null);
  }

  async #putIf<T>(
    compare: WireCompare,
    key: WireKey,
    value: JsonValue,
    options: PutOptions,
  ): Promise<ConditionalResult<T>> {
    const { record, call } = splitOptions(options);
    return await this.#conditional(compare, { type: "put", key, value, ...record }, key, call);
  }

  async #conditional<T>(
    compare: WireCompare,
    operation: WireOperation,
    key: WireKey,
    options: WriteOptions,
  ): Promise<ConditionalResult<T>> {
    const failure: readonly WireOperation[] = [{ type: "get", key }];
    const result = await this.#txn({ compare: [compare], success: [operation], failure }, options);
    if (result.succeeded) return { succeeded: true, revision: result.revision };
    const { revision } = result;
    // A kept result that was too large has lost the record's value: read the record itself.
    if (result.values_dropped === true)
      return { succeeded: false, revision, current: await this.#get<T>(key, options) };
    const { kvs } = onlyResponse(result, "get");
    return { succeeded: false, revision, current: (kvs[0] ?? null) as WireRecord<T> | null };
  }

  async #txn(txn: WireTxn, options: WriteOptions): Promise<WireTxnResult> {
    return await this.#caller.write("txn", txn, options);
  }
}

/** The answer to a txn of one operation. */
export function onlyResponse<Type extends WireOperationResult["type"]>(result: WireTxnResult, type: Type) {
  const response = result.responses[0];
  if (response?.type === type) return response as Extract<WireOperationResult, { type: Type }>;
  throw fault("internal", "malformed_reply", `The reply answers no ${type}.`);
}

/** @throws ConcordError `invalid_request`. */
export function splitOptions(options: PutOptions): { readonly record: WirePutOptions; readonly call: WriteOptions } {
  checkMembers(options, PUT);
  const { timeoutMs, signal, idempotencyKey, ...record } = options;
  const call = {
    ...(timeoutMs === undefined ? {} : { timeoutMs }),
    ...(signal === undefined ? {} : { signal }),
    ...(idempotencyKey === undefined ? {} : { idempotencyKey }),
  };
  return { record, call };
}
