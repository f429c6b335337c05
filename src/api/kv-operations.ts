/**
 * Records: get, list, put, delete, batch (design 01 §7), for every surface. Writes are sugar over txn.
 * Parameters have the names of the wire.
 */
import { ConcordError } from "../base/errors.ts";
import type { JsonValue } from "../base/json.ts";
import { BATCH_KEYS_MAX, RANGE_LIMIT_DEFAULT } from "../base/limits.ts";
import type { Compare, Operation, OperationResult, Selector, TxnResult } from "../kv/command.ts";
import type { Sugar } from "./admission.ts";
import { type ApiContext, type Caller, execute, query, readAtLeast } from "./caller.ts";
import { decodeCursor, encodeCursor } from "./cursor.ts";
import { decodeBatchWrite, decodeKey, decodePrefix, decodePut, decodeRange } from "./decode.ts";
import { encodeKey, encodeListed, encodeRecord, previous } from "./encode.ts";
import { refusal } from "./problem.ts";
import type { ParsedBatch, ParsedPut } from "./schema.ts";
import type {
  WireDeleteManyReply,
  WireDeleteReply,
  WireGetManyReply,
  WireGetReply,
  WireKey,
  WireList,
  WirePutManyReply,
  WirePutReply,
} from "./wire.ts";

export type PutOperation = Extract<Operation, { type: "put" }>;
type DeleteOperation = Extract<Operation, { type: "delete" }>;

export interface GetRequest {
  readonly key: WireKey;
  readonly revision?: number | undefined;
}

export async function getRecord(context: ApiContext, caller: Caller, request: GetRequest): Promise<WireGetReply> {
  const key = decodeKey(request.key, "invalid_kv");
  const asked = {
    kind: "get",
    key,
    ...(request.revision === undefined ? {} : { revision: request.revision }),
  } as const;
  const { result, revision } = await query(context, caller, asked);
  return { record: result.record === null ? null : encodeRecord(result.record), revision };
}

export interface ListRequest {
  readonly prefix?: WireKey | undefined;
  readonly start?: WireKey | undefined;
  readonly end?: WireKey | undefined;
  readonly limit?: number | undefined;
  readonly order?: "asc" | "desc" | undefined;
  readonly keys_only?: boolean | undefined;
  readonly count_only?: boolean | undefined;
  readonly revision?: number | undefined;
  readonly cursor?: string | undefined;
}

export async function listRecords(context: ApiContext, caller: Caller, request: ListRequest): Promise<WireList> {
  const { limit = RANGE_LIMIT_DEFAULT, order = "asc", revision } = request;
  const { keys_only = false, count_only = false } = request;
  const selector = listSelector(request);
  const { clusterId } = context.backend.position();
  const asked = ["list", selector, order, keys_only, count_only] as unknown as JsonValue;
  const cursor = request.cursor === undefined ? null : decodeCursor(request.cursor, asked, clusterId);
  if (cursor !== null && revision !== undefined && revision !== cursor.revision) {
    const detail = "The cursor is pinned to a revision; leave the parameter revision out.";
    throw refusal("invalid_selector", "cursor", detail);
  }
  const pinned = cursor?.revision ?? revision;
  const list = {
    kind: "list",
    selector,
    limit,
    order,
    keys_only,
    count_only,
    ...(pinned === undefined ? {} : { revision: pinned }),
    ...(typeof cursor?.after === "string" ? { after: cursor.after } : {}),
  } as const;
  const { result, revision: evaluatedAt } = await query(context, caller, list, readAtLeast(caller, cursor?.revision));
  const last = result.records.at(-1);
  const atRevision = pinned ?? evaluatedAt;
  const hasNext = result.more && last !== undefined && !count_only;
  return {
    records: result.records.map((record) => encodeListed(record, keys_only)),
    count: result.count,
    cursor: hasNext ? encodeCursor({ after: last.key, revision: atRevision, clusterId }, asked) : null,
    revision: atRevision,
  };
}

function listSelector({ prefix, start, end }: ListRequest): Selector {
  const code = "invalid_selector";
  if (prefix !== undefined && start === undefined && end === undefined) return decodePrefix(prefix, code);
  if (prefix === undefined && (start !== undefined || end !== undefined)) return decodeRange(start ?? "", end, code);
  if (prefix !== undefined) throw ambiguousSelector();
  throw refusal(code, "empty_selector", "Name the records by ?key=, by ?prefix=, or by ?start= and ?end=.");
}

export function ambiguousSelector(): ConcordError {
  const detail = "A key, ?prefix=, and ?start= with ?end= exclude each other: name the records in one way.";
  return refusal("invalid_selector", "ambiguous_selector", detail);
}

/** What became of a write under conditions. */
export type Conditional<Reply> =
  | { readonly met: true; readonly reply: Reply }
  /** `modRevision`: of the record as it is; 0 = there is none. */
  | { readonly met: false; readonly modRevision: number; readonly revision: number };

export async function putRecord(context: ApiContext, caller: Caller, put: ParsedPut): Promise<WirePutReply> {
  const { result, response } = await runOne(context, caller, decodePut(put, "invalid_kv"), []);
  const reply = putReply(result, response);
  const isLonger = put.revision_suffix === true && response.type === "put";
  return isLonger ? { ...reply, key: encodeKey(response.key) } : reply;
}

export async function putRecordIf(
  context: ApiContext,
  caller: Caller,
  put: PutOperation,
  compare: readonly Compare[],
): Promise<Conditional<WirePutReply>> {
  const { result, response } = await runOne(context, caller, put, compare);
  return result.succeeded ? { met: true, reply: putReply(result, response) } : unmet(result, response);
}

function putReply(result: TxnResult, response: OperationResult): WirePutReply {
  const before = response.type === "put" ? previous(response.prev_kv) : {};
  return { revision: result.revision, ...before, ...droppedOf(result) };
}

export interface DeleteRequest {
  readonly key: WireKey;
  readonly prev_kv?: boolean | undefined;
}

export async function deleteRecord(
  context: ApiContext,
  caller: Caller,
  request: DeleteRequest,
): Promise<WireDeleteReply> {
  const operation = deletion(decodeKey(request.key, "invalid_kv"), request.prev_kv);
  const { result, response } = await runOne(context, caller, operation, []);
  return deleteReply(result, response, request.prev_kv);
}

/** @param compare under conditions on `request.key`. */
export async function deleteRecordIf(
  context: ApiContext,
  caller: Caller,
  request: DeleteRequest,
  compare: readonly Compare[],
): Promise<Conditional<WireDeleteReply>> {
  const operation = deletion(decodeKey(request.key, "invalid_kv"), request.prev_kv);
  const { result, response } = await runOne(context, caller, operation, compare);
  if (!result.succeeded) return unmet(result, response);
  return { met: true, reply: deleteReply(result, response, request.prev_kv) };
}

function deletion(key: string, prevKv: boolean | undefined): DeleteOperation {
  return { type: "delete", selector: { key }, ...(prevKv === true ? { prev_kv: true } : {}) };
}

function deleteReply(result: TxnResult, response: OperationResult, prevKv: boolean | undefined): WireDeleteReply {
  const deleted = response.type === "delete" ? response.deleted : 0;
  const before = prevKv === true ? previousOfDelete(response) : {};
  return { revision: result.revision, deleted, ...before, ...droppedOf(result) };
}

/** One write, as a txn of its own. Under a failed condition the first response tells what is there now. */
async function runOne(
  context: ApiContext,
  caller: Caller,
  operation: PutOperation | DeleteOperation,
  compare: readonly Compare[],
): Promise<{ readonly result: TxnResult; readonly response: OperationResult }> {
  const key = operation.type === "put" ? { key: operation.key } : operation.selector;
  const failure: Operation[] = compare.length === 0 ? [] : [{ type: "get", selector: key, keys_only: true }];
  const command = { kind: "txn", compare, success: [operation], failure } as const;
  const { result } = await execute(context, caller, command, "record");
  const response = result.responses[0];
  if (response !== undefined) return { result, response };
  throw new ConcordError({ code: "internal", detail: "A txn of one operation answered none." });
}

function unmet(result: TxnResult, response: OperationResult) {
  const modRevision = response.type === "get" ? (response.kvs[0]?.mod_revision ?? 0) : 0;
  return { met: false, modRevision, revision: result.revision } as const;
}

/** A replay of a large result has lost its values, and says so. */
function droppedOf(result: TxnResult): { readonly values_dropped?: true } {
  return result.values_dropped === true ? { values_dropped: true } : {};
}

function previousOfDelete(response: OperationResult) {
  return previous(response.type === "delete" ? (response.prev_kvs?.[0] ?? null) : null);
}

export function runBatch(
  context: ApiContext,
  caller: Caller,
  batch: ParsedBatch,
): Promise<WireGetManyReply | WirePutManyReply | WireDeleteManyReply> {
  checkBatchSize(batch.op === "put_many" ? batch.items.length : batch.keys.length);
  return batch.op === "get_many" ? getMany(context, caller, batch) : writeMany(context, caller, batch);
}

function checkBatchSize(count: number): void {
  if (count >= 1 && count <= BATCH_KEYS_MAX) return;
  const reason = count === 0 ? "empty_batch" : "too_many_keys";
  throw refusal("invalid_kv", reason, `A batch holds 1 to ${BATCH_KEYS_MAX} keys, this one ${count}.`);
}

async function getMany(
  context: ApiContext,
  caller: Caller,
  batch: Extract<ParsedBatch, { op: "get_many" }>,
): Promise<WireGetManyReply> {
  const keys = batch.keys.map((key) => decodeKey(key, "invalid_kv"));
  const asked = {
    kind: "get_many",
    keys,
    ...(batch.revision === undefined ? {} : { revision: batch.revision }),
  } as const;
  const { result, revision } = await query(context, caller, asked);
  return {
    revision: batch.revision ?? revision,
    records: result.records.map((record) => (record === null ? null : encodeRecord(record))),
  };
}

async function writeMany(
  context: ApiContext,
  caller: Caller,
  batch: Exclude<ParsedBatch, { op: "get_many" }>,
): Promise<WirePutManyReply | WireDeleteManyReply> {
  const sugar: Sugar = batch.op === "put_many" ? "items" : "keys";
  const { result } = await execute(context, caller, decodeBatchWrite(batch), sugar);
  const { revision, responses } = result;
  if (batch.op === "put_many") {
    return {
      revision,
      responses: responses.flatMap((response) =>
        response.type === "put" ? [{ key: encodeKey(response.key), ...previous(response.prev_kv) }] : [],
      ),
      ...droppedOf(result),
    };
  }
  const deletions = responses.flatMap((response) => (response.type === "delete" ? [response] : []));
  return {
    revision,
    deleted: deletions.reduce((total, response) => total + response.deleted, 0),
    responses: deletions.map((response) => ({
      deleted: response.deleted,
      ...(batch.prev_kv === true ? previousOfDelete(response) : {}),
    })),
    ...droppedOf(result),
  };
}
