/**
 * `/v1/kv` over HTTP: one record by `?key=` or by path, lists, and batches (design 01 §7). Reads the URL, headers and
 * body; the work is done by kv-operations.ts.
 */
import type { Hono } from "hono";
import { arrayFromBytes } from "../base/bytes.ts";
import { ConcordError } from "../base/errors.ts";
import type { Value } from "../kv/command.ts";
import { isJsonType, mediaType, parseJson, readBody, readJson } from "./body.ts";
import {
  type ApiCall,
  type ApiEnvironment,
  parametersOf,
  READ_PARAMETERS,
  readerOf,
  WRITE_PARAMETERS,
  writerOf,
} from "./call.ts";
import type { ApiContext } from "./caller.ts";
import { comparesOf, etagOf, matches, readEtags } from "./condition.ts";
import { checkContentType, decodeKey, decodeValue, isWireBytes, valueFromBytes } from "./decode.ts";
import {
  ambiguousSelector,
  type Conditional,
  deleteRecordIf,
  getRecord,
  listRecords,
  type PutOperation,
  putRecordIf,
  runBatch,
} from "./kv-operations.ts";
import { choiceOf, flagOf, integerOf, type Parameters, pathRest, textOf } from "./parameters.ts";
import { refusal } from "./problem.ts";
import { batchSchema } from "./schema.ts";
import { shaped } from "./shape.ts";
import type { WireRecord } from "./wire.ts";

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
    app.put(path, (call) => putKv(context, call));
    app.delete(path, (call) => deleteKv(context, call));
  }
}

function isByPath(call: ApiCall): boolean {
  return new URL(call.req.url).pathname !== KV_PATH;
}

/** The key, from the path or from `?key=`; the parameters, with `key` allowed only where it is used. */
function target(call: ApiCall, allowed: readonly string[]): { key: string; parameters: Parameters } {
  if (isByPath(call)) {
    const parameters = parametersOf(call, "invalid_kv", allowed);
    return { key: pathRest(call.req.url, `${KV_PATH}/`, "invalid_kv"), parameters };
  }
  const parameters = parametersOf(call, "invalid_kv", [...allowed, "key"]);
  const key = textOf(parameters, "key");
  if (key === undefined) throw refusal("invalid_kv", "missing_key", "Name the key by ?key=, percent-encoded.");
  return { key, parameters };
}

function getKv(context: ApiContext, call: ApiCall): Promise<Response> {
  const { searchParams } = new URL(call.req.url);
  const isList = !isByPath(call) && !searchParams.has("key");
  if (!isList && ["prefix", "start", "end"].some((name) => searchParams.has(name))) throw ambiguousSelector();
  return isList ? getList(context, call) : getOne(context, call);
}

async function getOne(context: ApiContext, call: ApiCall): Promise<Response> {
  const { key, parameters } = target(call, GET_PARAMETERS);
  const request = { key, revision: integerOf(parameters, "revision") };
  const raw = flagOf(parameters, "raw");
  const ifMatch = readEtags(call.req.header("if-match"), "if_match");
  const ifNoneMatch = readEtags(call.req.header("if-none-match"), "if_none_match");
  const { record, revision } = await getRecord(context, readerOf(context, call, parameters), request);
  const modRevision = record?.mod_revision ?? 0;
  if (ifMatch !== null && !matches(ifMatch, modRevision)) return preconditionFailed(call, { modRevision, revision });
  if (record === null) {
    throw new ConcordError({ code: "not_found", detail: "There is no record of that key.", revision });
  }
  call.set("etag", etagOf(record.mod_revision));
  call.header("cache-control", RECORD_CACHING);
  if (ifNoneMatch !== null && matches(ifNoneMatch, record.mod_revision)) return call.body(null, 304);
  return raw ? rawValue(call, record) : call.json(record);
}

function rawValue(call: ApiCall, { value, content_type }: WireRecord): Response {
  if (isWireBytes(value)) {
    call.header("content-type", content_type ?? "application/octet-stream");
    return call.body(arrayFromBytes(atob(value.data)).buffer as ArrayBuffer);
  }
  call.header("content-type", content_type ?? "application/json");
  return call.body(JSON.stringify(value));
}

/** 412, with the tag of what is there now. */
function preconditionFailed(
  call: ApiCall,
  current: { readonly modRevision: number; readonly revision: number },
): never {
  const { modRevision, revision } = current;
  if (modRevision > 0) call.set("etag", etagOf(modRevision));
  const now = modRevision > 0 ? `The record is at mod_revision ${modRevision}` : "There is no record of that key";
  throw new ConcordError({ code: "precondition_failed", detail: `${now}; read it again and decide.`, revision });
}

async function putKv(context: ApiContext, call: ApiCall): Promise<Response> {
  const { key: keyText, parameters } = target(call, PUT_PARAMETERS);
  const key = decodeKey(keyText, "invalid_kv");
  const ttl = integerOf(parameters, "ttl");
  const lease = integerOf(parameters, "lease");
  const prevKv = flagOf(parameters, "prev_kv");
  const { value, contentType } = await readValue(call);
  const put: PutOperation = {
    type: "put",
    key,
    value,
    ...(prevKv ? { prev_kv: true } : {}),
    ...(contentType === null ? {} : { content_type: contentType }),
    ...(ttl === undefined ? {} : { ttl }),
    ...(lease === undefined ? {} : { lease }),
  };
  const compare = conditionsOf(call, key);
  const reply = metOrFail(call, await putRecordIf(context, writerOf(context, call, parameters), put, compare));
  call.set("etag", etagOf(reply.revision));
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

async function deleteKv(context: ApiContext, call: ApiCall): Promise<Response> {
  const { key, parameters } = target(call, DELETE_PARAMETERS);
  const request = { key, prev_kv: flagOf(parameters, "prev_kv") };
  const compare = conditionsOf(call, decodeKey(key, "invalid_kv"));
  const caller = writerOf(context, call, parameters);
  return call.json(metOrFail(call, await deleteRecordIf(context, caller, request, compare)));
}

/** @param key as byte string. */
function conditionsOf(call: ApiCall, key: string) {
  const ifMatch = readEtags(call.req.header("if-match"), "if_match");
  const ifNoneMatch = readEtags(call.req.header("if-none-match"), "if_none_match");
  return comparesOf(key, ifMatch, ifNoneMatch);
}

/** @throws ConcordError `precondition_failed`. */
function metOrFail<Reply>(call: ApiCall, outcome: Conditional<Reply>): Reply {
  return outcome.met ? outcome.reply : preconditionFailed(call, outcome);
}

async function getList(context: ApiContext, call: ApiCall): Promise<Response> {
  const parameters = parametersOf(call, "invalid_selector", LIST_PARAMETERS);
  const request = {
    prefix: textOf(parameters, "prefix"),
    start: textOf(parameters, "start"),
    end: textOf(parameters, "end"),
    order: choiceOf(parameters, "order", ["asc", "desc"]),
    limit: integerOf(parameters, "limit"),
    keys_only: flagOf(parameters, "keys_only"),
    count_only: flagOf(parameters, "count_only"),
    cursor: textOf(parameters, "cursor"),
    revision: integerOf(parameters, "revision"),
  };
  return call.json(await listRecords(context, readerOf(context, call, parameters), request));
}

async function postBatch(context: ApiContext, call: ApiCall): Promise<Response> {
  const batch = shaped(batchSchema, await readJson(call.req.raw, "invalid_kv"), "invalid_kv");
  const isRead = batch.op === "get_many";
  const parameters = parametersOf(call, "invalid_kv", isRead ? READ_PARAMETERS : WRITE_PARAMETERS);
  const caller = isRead ? readerOf(context, call, parameters) : writerOf(context, call, parameters);
  return call.json(await runBatch(context, caller, batch));
}
