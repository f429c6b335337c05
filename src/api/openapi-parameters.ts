/** Parameters of the routes, for the OpenAPI document; those with one meaning everywhere become components of it. */
import { IDEMPOTENCY_KEY_BYTES_MAX, KEY_BYTES_MAX, RANGE_LIMIT_DEFAULT, RANGE_LIMIT_MAX } from "../base/limits.ts";
import {
  CALL_TIMEOUT_MS_DEFAULT,
  CALL_TIMEOUT_MS_MAX,
  MESSAGE_BYTES_MAX_MAX,
  MESSAGE_BYTES_MAX_MIN,
} from "./limits.ts";
import type { Parameter, ParameterSchema } from "./openapi-route.ts";

export const REVISION: ParameterSchema = { type: "integer", minimum: 0, maximum: Number.MAX_SAFE_INTEGER };
export const FLAG: ParameterSchema = { type: "boolean", default: false };
const TEXT: ParameterSchema = { type: "string" };
const KEY: ParameterSchema = { type: "string", minLength: 1, maxLength: KEY_BYTES_MAX };

export function query(name: string, schema: ParameterSchema, description: string): Parameter {
  return { name, in: "query", schema, description };
}

export function header(name: string, schema: ParameterSchema, description: string): Parameter {
  return { name, in: "header", schema, description };
}

export function inPath(name: string, schema: ParameterSchema, description: string): Parameter {
  return { name, in: "path", required: true, schema, description };
}

export function required(parameter: Parameter): Parameter {
  return { ...parameter, required: true };
}

/** Shared parameters, by the name of their component. */
export const SHARED = {
  timeout_ms: query(
    "timeout_ms",
    { type: "integer", minimum: 1, maximum: CALL_TIMEOUT_MS_MAX, default: CALL_TIMEOUT_MS_DEFAULT },
    "How long to wait for the answer. A write that was sent does not end with the waiting.",
  ),
  consistency: query(
    "consistency",
    { type: "string", enum: ["linearizable", "serializable"], default: "linearizable" },
    "`linearizable`: the newest state, whichever node answers. `serializable`: the state of the node that answers; may be old, works without a majority.",
  ),
  min_revision: query(
    "min_revision",
    REVISION,
    "With `serializable`: wait until the node has applied it, else 503 `behind`. With `linearizable`: 400 `revision_in_future` if it is above the newest.",
  ),
  node: query(
    "node",
    { type: "integer", minimum: 1, maximum: 7 },
    "Asks exactly that node, from 1 to the number of nodes (5). For tests and diagnosis: no other one stands in.",
  ),
  concord_prefer_node: header(
    "concord-prefer-node",
    { type: "integer", minimum: 1, maximum: 7 },
    "As `node`, which it wins over.",
  ),
  concord_cluster: header(
    "concord-cluster",
    TEXT,
    "The id of the cluster that the request means, and that its revisions belong to; in another one the answer is 410 `cluster_changed`.",
  ),
  idempotency_key: header(
    "Idempotency-Key",
    { type: "string", minLength: 1, maxLength: IDEMPOTENCY_KEY_BYTES_MAX, pattern: "^[\\x20-\\x7e]+$" },
    "The same request under the same key has one effect and gets the first answer, from any node.",
  ),
  idempotency_since: header(
    "Idempotency-Since",
    REVISION,
    "A revision known before the first attempt: if results of that age are gone, the answer is 409 `idempotency_expired` and nothing runs.",
  ),
  if_match: header(
    "If-Match",
    TEXT,
    'The entity tag that the record must have, `*` for any record, `"0"` for none; else 412.',
  ),
  if_none_match: header("If-None-Match", TEXT, "`*`, or entity tags that the record must not have."),
  prev_kv: query("prev_kv", FLAG, "Answer the record before."),
  prefix: query("prefix", TEXT, "Keys that begin with it; empty = all keys."),
  start: query("start", TEXT, "First key of a range, inclusive; default: the first key there is."),
  end: query("end", TEXT, "End of a range, exclusive; default: behind the last key."),
  limit: query(
    "limit",
    { type: "integer", minimum: 1, maximum: RANGE_LIMIT_MAX, default: RANGE_LIMIT_DEFAULT },
    "Items of a page at most; a page also ends before it would be over 4 MiB.",
  ),
  cursor: query("cursor", TEXT, "Of the page before. Only `limit` may differ from its request."),
  max_message_bytes: query(
    "max_message_bytes",
    { type: "integer", minimum: MESSAGE_BYTES_MAX_MIN, maximum: MESSAGE_BYTES_MAX_MAX },
    "WebSocket alone: longer messages come as chunks. Default: whole.",
  ),
} as const satisfies Readonly<Record<string, Parameter>>;

export const READING = [SHARED.consistency, SHARED.min_revision, SHARED.timeout_ms];
export const WRITING = [SHARED.timeout_ms, SHARED.idempotency_key, SHARED.idempotency_since];
export const RANGE = [SHARED.prefix, SHARED.start, SHARED.end];
/** Of every route that a node answers. */
export const OF_NODES = [SHARED.node, SHARED.concord_prefer_node, SHARED.concord_cluster];

export const KEY_IN_QUERY = query("key", KEY, "The key, percent-encoded.");
export const KEY_IN_PATH = inPath(
  "key",
  KEY,
  "The rest of the path, percent-decoded once. A path cannot carry every key; `?key=` can.",
);
