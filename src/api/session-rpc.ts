/**
 * JSON-RPC 2.0 as text (design 01 §7): requests in, responses and notifications out. No batches, no positional
 * parameters, no unknown members: what is misread silently is worse than what is refused.
 */
import { ConcordError, type ErrorBody } from "../base/errors.ts";
import type { JsonObject, JsonValue } from "../base/json.ts";
import { flattened, parseJsonText } from "./body.ts";
import { BODY_NESTING_MAX } from "./limits.ts";
import { quoted } from "./parameters.ts";
import { problemOf, refusal } from "./problem.ts";

export type RequestId = number | string;

export interface RpcRequest {
  /** Null: a notification, which nobody answers. */
  readonly id: RequestId | null;
  readonly method: string;
  readonly params: JsonObject;
}

export type RpcCode = -32700 | -32600 | -32601 | -32602 | -32000;

export type ParsedRequest =
  | { readonly ok: true; readonly request: RpcRequest }
  | { readonly ok: false; readonly id: RequestId | null; readonly code: RpcCode; readonly error: ErrorBody };

const MEMBERS: ReadonlySet<string> = new Set(["jsonrpc", "id", "method", "params"]);
/** The params of a request stand one level below it. */
const NESTING_MAX = BODY_NESTING_MAX + 1;

export function parseRequest(text: string): ParsedRequest {
  let value: JsonValue;
  try {
    value = parseJsonText(text, "invalid_request", NESTING_MAX);
  } catch (error) {
    if (!(error instanceof ConcordError)) throw error;
    if (error.body.reason === "malformed_json") {
      const detail = "The message is not JSON.";
      return { ok: false, id: null, code: -32700, error: { ...error.body, detail } };
    }
    return { ok: false, id: idWithin(text), code: -32602, error: error.body };
  }
  const fault = faultOf(value);
  if (fault !== null) {
    const { body } = refusal("invalid_request", "invalid_rpc", fault);
    return { ok: false, id: idOf(value), code: -32600, error: body };
  }
  const { method, params } = value as { readonly method: string; readonly params?: JsonObject };
  return { ok: true, request: { id: idOf(value), method, params: params ?? {} } };
}

/** What is wrong with the envelope; null = nothing. */
function faultOf(value: JsonValue): string | null {
  if (Array.isArray(value)) return "There are no batches: send requests one by one, they run side by side.";
  if (!isObject(value)) return "A request is a JSON object.";
  if (value.jsonrpc !== "2.0") return 'A request says "jsonrpc":"2.0".';
  if (typeof value.method !== "string") return "A request names its method as a string.";
  if (value.id !== undefined && idOf(value) === null) return "The id of a request is a number or a string.";
  if (value.params !== undefined && !isObject(value.params)) return "The params of a request are a JSON object.";
  const unknown = Object.keys(value).find((name) => !MEMBERS.has(name));
  return unknown === undefined ? null : `A request does not have the member ${quoted(unknown)}.`;
}

function idOf(value: JsonValue): RequestId | null {
  if (!isObject(value)) return null;
  const { id } = value;
  return typeof id === "string" || (typeof id === "number" && Number.isFinite(id)) ? id : null;
}

/** The id of a message that is nested too deep to be parsed; null if what is not nested is no JSON either. */
function idWithin(text: string): RequestId | null {
  try {
    return idOf(JSON.parse(flattened(text)) as JsonValue);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return null;
  }
}

function isObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function resultText(id: RequestId, result: object): string {
  return `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":${JSON.stringify(result)}}`;
}

export function errorText(id: RequestId | null, code: RpcCode, error: ErrorBody): string {
  const problem = problemOf(error);
  return JSON.stringify({ jsonrpc: "2.0", id, error: { code, message: problem.title, data: problem } });
}

/** `params`: JSON text of an object. */
export function notificationText(method: string, params: string): string {
  return `{"jsonrpc":"2.0","method":"${method}","params":${params}}`;
}

/** The code for a request that was understood and failed. */
export function codeOf(error: ConcordError): RpcCode {
  return error.status === 400 ? -32602 : -32000;
}
