/**
 * `/v1/kv`: one record by `?key=` or by path, lists, and batches (design 01 §7). Writes are sugar over txn.
 */
import type { Hono } from "hono";
import { arrayFromBytes } from "../base/bytes.ts";
import { ConcordError } from "../base/errors.ts";
import type { JsonValue } from "../base/json.ts";
import { BATCH_KEYS_MAX, RANGE_LIMIT_DEFAULT } from "../base/limits.ts";
import type { KeyRecord, Operation, OperationResult, Selector, TxnResult, Value } from "../kv/command.ts";
import { isJsonType, mediaType, parseJson, readBody, readJson } from "./body.ts";
import {
  type ApiCall,
  type ApiContext,
  type ApiEnvironment,
  atLeast,
  execute,
  parametersOf,
  query,
  READ_PARAMETERS,
  readOptionsOf,
  WRITE_PARAMETERS,
} from "./call.ts";
import { comparesOf, etagOf, matches, readEtags } from "./condition.ts";
import { decodeCursor, encodeCursor } from "./cursor.ts";
import {
  checkContentType,
  decodeBatchWrite,
  decodeKey,
  decodePrefix,
  decodeRange,
  decodeValue,
  valueFromBytes,
} from "./decode.ts";
import { encodeKey, encodeListed, encodeRecord, previous } from "./encode.ts";
import { choiceOf, flagOf, integerOf, type Parameters, pathRest, textOf } from "./parameters.ts";
import { refusal } from "./problem.ts";
import { batchSchema, type ParsedBatch } from "./schema.ts";
import { shaped } from "./shape.ts";
import type {
  WireDeleteManyReply,
  WireDeleteReply,
  WireGetManyReply,
  WireList,
  WirePutManyReply,
  WirePutReply,
} from "./wire.ts";

const KV_PATH = "/v1/kv";
/** Records may be kept by the caller's cache, but are asked for again each time. */
const RECORD_CACHING = "private, no-cache";

const GET_PARAMETERS = [...READ_PARAMETERS, "revision", "raw"];
const PUT_PARAMETERS = [...WRITE_PARAMETERS, "ttl", "lease", "prev_kv"];
const DELETE_PARAMETERS = [...WRITE_PARAMETERS, "prev_kv"];
const LIST_PARAMETERS = [
  ...READ_PARAMETERS,
  ...["prefix", "start", "end", "limit", "order", "keys_only", "count_only", "revision", "cursor"],
];

export function mountKv(app: Hono<ApiEnvironment>, context: ApiContext): void {
  app.post(`${KV_PATH}/batch`, (call) => postBatch(context, call));
  for (const path of [KV_PATH, `${KV_PATH}/*`]) {
    app.get(path, (call) => getKv(context, call));
    app.put(path, (call) => putRecord(context, call));
    app.delete(path, (call) => deleteRecord(context, call));
  }
}

function isByPath(call: ApiCall): boolean {
  return new URL(call.req.url).pathname !== KV_PATH;
}

/** The key, from the path or from `?key=`; the parameters, with `key` allowed only where it is used. */
function target(call: ApiCall, allowed: readonly string[]): { key: string; parameters: Parameters } {
  if (isByPath(call)) {
    const parameters = parametersOf(call, "invalid_kv", allowed);
    const key = pathRest(call.req.url, `${KV_PATH}/`, "invalid_kv");
    return { key: decodeKey(key, "invalid_kv"), parameters };
  }
  const parameters = parametersOf(call, "invalid_kv", [...allowed, "key"]);
  const key = textOf(parameters, "key");
  if (key === undefined) throw refusal("invalid_kv", "missing_key", "Name the key by ?key=, percent-encoded.");
  return { key: decodeKey(key, "invalid_kv"), parameters };
}

function getKv(context: ApiContext, call: ApiCall): Promise<Response> {
  const { searchParams } = new URL(call.req.url);
  const isList = !isByPath(call) && !searchParams.has("key");
  if (!isList && ["prefix", "start", "end"].some((name) => searchParams.has(name))) throw ambiguousSelector();
  return isList ? getList(context, call) : getRecord(context, call);
}

async function getRecord(context: ApiContext, call: ApiCall): Promise<Response> {
  const { key, parameters } = target(call, GET_PARAMETERS);
  const revision = integerOf(parameters, "revision");
  const raw = flagOf(parameters, "raw");
  const ifMatch = readEtags(call.req.header("if-match"), "if_match");
  const ifNoneMatch = readEtags(call.req.header("if-none-match"), "if_none_match");
  const asked = { kind: "get", key, ...(revision === undefined ? {} : { revision }) } as const;
  const { result, revision: evaluatedAt } = await query(context, call, asked, readOptionsOf(context, call, parameters));
  const { record } = result;
  if (ifMatch !== null && !matches(ifMatch, record?.mod_revision ?? 0)) {
    return preconditionFailed(call, record?.mod_revision ?? 0, evaluatedAt);
  }
  if (record === null) {
    throw new ConcordError({ code: "not_found", detail: "There is no record of that key.", revision: evaluatedAt });
  }
  call.set("etag", etagOf(record.mod_revision));
  call.header("cache-control", RECORD_CACHING);
  if (ifNoneMatch !== null && matches(ifNoneMatch, record.mod_revision)) return call.body(null, 304);
  return raw ? rawValue(call, record) : call.json(encodeRecord(record));
}

function rawValue(call: ApiCall, record: KeyRecord): Response {
  if ("json" in record.value) {
    call.header("content-type", record.content_type ?? "application/json");
    return call.body(JSON.stringify(record.value.json));
  }
  call.header("content-type", record.content_type ?? "application/octet-stream");
  return call.body(arrayFromBytes(atob(record.value.base64)).buffer as ArrayBuffer);
}

/** 412, with the tag of what is there now. */
function preconditionFailed(call: ApiCall, modRevision: number, revision: number): never {
  if (modRevision > 0) call.set("etag", etagOf(modRevision));
  const now = modRevision > 0 ? `The record is at mod_revision ${modRevision}` : "There is no record of that key";
  throw new ConcordError({ code: "precondition_failed", detail: `${now}; read it again and decide.`, revision });
}

async function putRecord(context: ApiContext, call: ApiCall): Promise<Response> {
  const { key, parameters } = target(call, PUT_PARAMETERS);
  const ttl = integerOf(parameters, "ttl");
  const lease = integerOf(parameters, "lease");
  const prevKv = flagOf(parameters, "prev_kv");
  const { value, contentType } = await readValue(call);
  const put: Operation = {
    type: "put",
    key,
    value,
    ...(prevKv ? { prev_kv: true } : {}),
    ...(contentType === null ? {} : { content_type: contentType }),
    ...(ttl === undefined ? {} : { ttl }),
    ...(lease === undefined ? {} : { lease }),
  };
  const { response, revision, dropped } = await writeIfConditions(context, call, parameters, key, put);
  call.set("etag", etagOf(revision));
  const reply: WirePutReply = { revision, ...(response.type === "put" ? previous(response.prev_kv) : {}), ...dropped };
  return call.json(reply);
}

/** JSON bodies are JSON values, everything else is bytes that keep their content type. */
async function readValue(call: ApiCall): Promise<{ value: Value; contentType: string | null }> {
  const header = call.req.header("content-type")?.trim() ?? "";
  const type = mediaType(header);
  const body = await readBody(call.req.raw);
  if (type !== null) checkContentType(header, "invalid_kv");
  if (type === null || !isJsonType(type))
    return { value: valueFromBytes(body), contentType: type === null ? null : header };
  const value = decodeValue(parseJson(body, "invalid_kv"), "invalid_kv");
  return { value, contentType: type === "application/json" ? null : header };
}

async function deleteRecord(context: ApiContext, call: ApiCall): Promise<Response> {
  const { key, parameters } = target(call, DELETE_PARAMETERS);
  const prevKv = flagOf(parameters, "prev_kv");
  const operation: Operation = { type: "delete", selector: { key }, ...(prevKv ? { prev_kv: true } : {}) };
  const { response, revision, dropped } = await writeIfConditions(context, call, parameters, key, operation);
  const deleted = response.type === "delete" ? response.deleted : 0;
  const reply: WireDeleteReply = { revision, deleted, ...(prevKv ? previousOfDelete(response) : {}), ...dropped };
  return call.json(reply);
}

/** One write under the request's If-Match and If-None-Match, as one txn. @throws ConcordError `precondition_failed`. */
async function writeIfConditions(
  context: ApiContext,
  call: ApiCall,
  parameters: Parameters,
  key: string,
  operation: Operation,
): Promise<{ readonly response: OperationResult; readonly revision: number; readonly dropped: ValuesDropped }> {
  const ifMatch = readEtags(call.req.header("if-match"), "if_match");
  const ifNoneMatch = readEtags(call.req.header("if-none-match"), "if_none_match");
  const compare = comparesOf(key, ifMatch, ifNoneMatch);
  // Under a failed condition the reply tells the current tag: read it in the same txn.
  const failure: Operation[] = compare.length === 0 ? [] : [{ type: "get", selector: { key }, keys_only: true }];
  const command = { kind: "txn", compare, success: [operation], failure } as const;
  const { result } = await execute(context, call, command, { parameters, sugar: "record" });
  const response = firstResponse(result);
  if (result.succeeded) return { response, revision: result.revision, dropped: droppedOf(result) };
  const current = response.type === "get" ? (response.kvs[0]?.mod_revision ?? 0) : 0;
  return preconditionFailed(call, current, result.revision);
}

type ValuesDropped = { readonly values_dropped?: true };

/** A replay of a large result has lost its values, and says so. */
function droppedOf(result: TxnResult): ValuesDropped {
  return result.values_dropped === true ? { values_dropped: true } : {};
}

function firstResponse(result: TxnResult): OperationResult {
  const response = result.responses[0];
  if (response === undefined)
    throw new ConcordError({ code: "internal", detail: "A txn of one operation answered none." });
  return response;
}

function previousOfDelete(response: OperationResult) {
  return previous(response.type === "delete" ? (response.prev_kvs?.[0] ?? null) : null);
}

async function getList(context: ApiContext, call: ApiCall): Promise<Response> {
  const code = "invalid_selector";
  const parameters = parametersOf(call, code, LIST_PARAMETERS);
  const selector = listSelector(parameters);
  const order = choiceOf(parameters, "order", ["asc", "desc"]) ?? "asc";
  const limit = integerOf(parameters, "limit") ?? RANGE_LIMIT_DEFAULT;
  const keysOnly = flagOf(parameters, "keys_only");
  const countOnly = flagOf(parameters, "count_only");
  const cursorText = textOf(parameters, "cursor");
  const revision = integerOf(parameters, "revision");
  const readOptions = readOptionsOf(context, call, parameters);
  const { clusterId } = context.backend.position();
  const asked = ["list", selector, order, keysOnly, countOnly] as unknown as JsonValue;
  const cursor = cursorText === undefined ? null : decodeCursor(cursorText, asked, clusterId);
  if (cursor !== null && revision !== undefined && revision !== cursor.revision) {
    throw refusal(code, "cursor", "The cursor is pinned to a revision; leave the parameter revision out.");
  }
  const pinned = cursor?.revision ?? revision;
  const list = {
    kind: "list",
    selector,
    limit,
    order,
    keys_only: keysOnly,
    count_only: countOnly,
    ...(pinned === undefined ? {} : { revision: pinned }),
    ...(typeof cursor?.after === "string" ? { after: cursor.after } : {}),
  } as const;
  const { result, revision: evaluatedAt } = await query(context, call, list, atLeast(readOptions, cursor?.revision));
  const last = result.records.at(-1);
  const atRevision = pinned ?? evaluatedAt;
  const reply: WireList = {
    records: result.records.map((record) => encodeListed(record, keysOnly)),
    count: result.count,
    cursor:
      result.more && last !== undefined && !countOnly
        ? encodeCursor({ after: last.key, revision: atRevision, clusterId }, asked)
        : null,
    revision: atRevision,
  };
  return call.json(reply);
}

function listSelector(parameters: Parameters): Selector {
  const { code } = parameters;
  const prefix = textOf(parameters, "prefix");
  const start = textOf(parameters, "start");
  const end = textOf(parameters, "end");
  if (prefix !== undefined && start === undefined && end === undefined) return decodePrefix(prefix, code);
  if (prefix === undefined && (start !== undefined || end !== undefined)) return decodeRange(start ?? "", end, code);
  if (prefix !== undefined) throw ambiguousSelector();
  throw refusal(code, "empty_selector", "Name the records by ?key=, by ?prefix=, or by ?start= and ?end=.");
}

function ambiguousSelector() {
  const detail = "A key, ?prefix=, and ?start= with ?end= exclude each other: name the records in one way.";
  return refusal("invalid_selector", "ambiguous_selector", detail);
}

async function postBatch(context: ApiContext, call: ApiCall): Promise<Response> {
  const parsed = shaped(batchSchema, await readJson(call.req.raw, "invalid_kv"), "invalid_kv");
  checkBatchSize(parsed.op === "put_many" ? parsed.items.length : parsed.keys.length);
  return parsed.op === "get_many" ? getMany(context, call, parsed) : writeMany(context, call, parsed);
}

function checkBatchSize(count: number): void {
  if (count >= 1 && count <= BATCH_KEYS_MAX) return;
  const reason = count === 0 ? "empty_batch" : "too_many_keys";
  throw refusal("invalid_kv", reason, `A batch holds 1 to ${BATCH_KEYS_MAX} keys, this one ${count}.`);
}

async function getMany(
  context: ApiContext,
  call: ApiCall,
  batch: Extract<ParsedBatch, { op: "get_many" }>,
): Promise<Response> {
  const parameters = parametersOf(call, "invalid_kv", READ_PARAMETERS);
  const keys = batch.keys.map((key) => decodeKey(key, "invalid_kv"));
  const asked = {
    kind: "get_many",
    keys,
    ...(batch.revision === undefined ? {} : { revision: batch.revision }),
  } as const;
  const { result, revision } = await query(context, call, asked, readOptionsOf(context, call, parameters));
  const reply: WireGetManyReply = {
    revision: batch.revision ?? revision,
    records: result.records.map((record) => (record === null ? null : encodeRecord(record))),
  };
  return call.json(reply);
}

async function writeMany(
  context: ApiContext,
  call: ApiCall,
  batch: Exclude<ParsedBatch, { op: "get_many" }>,
): Promise<Response> {
  const parameters = parametersOf(call, "invalid_kv", WRITE_PARAMETERS);
  const command = decodeBatchWrite(batch);
  const { result } = await execute(context, call, command, {
    parameters,
    sugar: batch.op === "put_many" ? "items" : "keys",
  });
  const { revision, responses } = result;
  if (batch.op === "put_many") {
    const reply: WirePutManyReply = {
      revision,
      responses: responses.flatMap((response) =>
        response.type === "put" ? [{ key: encodeKey(response.key), ...previous(response.prev_kv) }] : [],
      ),
      ...droppedOf(result),
    };
    return call.json(reply);
  }
  const deletions = responses.flatMap((response) => (response.type === "delete" ? [response] : []));
  const reply: WireDeleteManyReply = {
    revision,
    deleted: deletions.reduce((total, response) => total + response.deleted, 0),
    responses: deletions.map((response) => ({
      deleted: response.deleted,
      ...(batch.prev_kv === true ? previousOfDelete(response) : {}),
    })),
    ...droppedOf(result),
  };
  return call.json(reply);
}
