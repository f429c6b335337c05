/** `/v1/txn` and the reads of the log's past: results by idempotency key, history of a key, the revision. */
import type { Hono } from "hono";
import type { JsonValue } from "../base/json.ts";
import { RANGE_LIMIT_DEFAULT } from "../base/limits.ts";
import type { Operation, Txn } from "../kv/command.ts";
import { readJson } from "./body.ts";
import {
  type ApiCall,
  type ApiContext,
  type ApiEnvironment,
  atLeast,
  checkedIdempotencyKey,
  execute,
  idempotencyKeyOf,
  parametersOf,
  principalOf,
  query,
  READ_PARAMETERS,
  readOptionsOf,
  WRITE_PARAMETERS,
} from "./call.ts";
import { decodeCursor, encodeCursor } from "./cursor.ts";
import { decodeKey, decodeTxn } from "./decode.ts";
import { encodeEvent, encodeResolution, encodeTxnResult } from "./encode.ts";
import { integerOf, pathRest, textOf } from "./parameters.ts";
import { refusal } from "./problem.ts";
import { txnSchema } from "./schema.ts";
import { shaped } from "./shape.ts";
import type { WireHistory, WireRevision } from "./wire.ts";

const HISTORY_PARAMETERS = [...READ_PARAMETERS, "key", "from", "to", "limit", "cursor"];
const RESULTS_PATH = "/v1/txn/results";

export function mountTxn(app: Hono<ApiEnvironment>, context: ApiContext): void {
  app.post("/v1/txn", (call) => postTxn(context, call));
  app.get(RESULTS_PATH, (call) => getResult(context, call));
  app.get(`${RESULTS_PATH}/*`, (call) => getResult(context, call));
  app.get("/v1/history", (call) => getHistory(context, call));
  app.get("/v1/revision", (call) => getRevision(context, call));
}

async function postTxn(context: ApiContext, call: ApiCall): Promise<Response> {
  const parsed = shaped(txnSchema, await readJson(call.req.raw, "invalid_txn"), "invalid_txn");
  const txn = decodeTxn(parsed);
  const parameters = parametersOf(call, "invalid_txn", READ_PARAMETERS);
  // A txn that cannot write needs no log entry, unless its result is to be kept under a key.
  if (isReadOnly(txn) && idempotencyKeyOf(call) === null) {
    const options = readOptionsOf(context, call, parameters);
    const { result } = await query(context, call, { kind: "txn", ...txn }, options);
    return call.json(encodeTxnResult(result, result.succeeded ? txn.success : txn.failure));
  }
  if (textOf(parameters, "consistency") === "serializable" || textOf(parameters, "min_revision") !== undefined) {
    const detail = "consistency and min_revision are for txns that only read; one that writes is always linearizable.";
    throw refusal("invalid_txn", "consistency", detail);
  }
  const { result } = await execute(context, call, { kind: "txn", ...txn }, { parameters });
  return call.json(encodeTxnResult(result, result.succeeded ? txn.success : txn.failure));
}

function isReadOnly(txn: Txn): boolean {
  const reads = (operation: Operation) => operation.type === "get";
  return txn.success.every(reads) && txn.failure.every(reads);
}

/** Decides what was in the leader's log before it, and changes nothing. */
const EMPTY_TXN = { kind: "txn", compare: [], success: [], failure: [] } as const;

/**
 * Resolves an unknown outcome; always linearizable, for a stale "unknown" would be a wrong answer. An entry that is in
 * the leader's log can still commit after a read, so "unknown" is said only behind an entry of our own (S27).
 */
async function getResult(context: ApiContext, call: ApiCall): Promise<Response> {
  const code = "invalid_request";
  const byPath = new URL(call.req.url).pathname !== RESULTS_PATH;
  const parameters = parametersOf(call, code, byPath ? WRITE_PARAMETERS : [...WRITE_PARAMETERS, "key"]);
  const named = byPath ? pathRest(call.req.url, `${RESULTS_PATH}/`, code) : textOf(parameters, "key");
  const key = checkedIdempotencyKey(named ?? "");
  const scope = principalOf(context, call);
  const options = readOptionsOf(context, call, parameters);
  const asked = { kind: "txn_result", scope, key } as const;
  let found = await query(context, call, asked, options);
  if (found.result.status === "unknown") {
    await context.backend.execute(EMPTY_TXN, null, options);
    found = await query(context, call, asked, options);
  }
  return call.json(encodeResolution(found.result, found.revision));
}

async function getHistory(context: ApiContext, call: ApiCall): Promise<Response> {
  const code = "invalid_selector";
  const parameters = parametersOf(call, code, HISTORY_PARAMETERS);
  const keyText = textOf(parameters, "key");
  if (keyText === undefined) throw refusal(code, "missing_key", "Name the key by ?key=, percent-encoded.");
  const key = decodeKey(keyText, code);
  const from = integerOf(parameters, "from");
  const to = integerOf(parameters, "to");
  const limit = integerOf(parameters, "limit") ?? RANGE_LIMIT_DEFAULT;
  const cursorText = textOf(parameters, "cursor");
  const readOptions = readOptionsOf(context, call, parameters);
  const { clusterId } = context.backend.position();
  const asked: JsonValue = ["history", key, from ?? null, to ?? null];
  const cursor = cursorText === undefined ? null : decodeCursor(cursorText, asked, clusterId);
  const end = cursor?.revision ?? to;
  const after = cursor === null || typeof cursor.after === "string" ? undefined : cursor.after;
  const history = {
    kind: "history",
    key,
    limit,
    ...(from === undefined ? {} : { from }),
    ...(end === undefined ? {} : { to: end }),
    ...(after === undefined ? {} : { after }),
  } as const;
  const { result, revision } = await query(context, call, history, atLeast(readOptions, cursor?.revision));
  const last = result.events.at(-1);
  const pinned = end ?? revision;
  const reply: WireHistory = {
    events: result.events.map(encodeEvent),
    cursor:
      result.more && last !== undefined
        ? encodeCursor({ after: [last.revision, last.op_index], revision: pinned, clusterId }, asked)
        : null,
    revision,
  };
  return call.json(reply);
}

async function getRevision(context: ApiContext, call: ApiCall): Promise<Response> {
  const parameters = parametersOf(call, "invalid_request", READ_PARAMETERS);
  const { revision } = await query(context, call, { kind: "revision" }, readOptionsOf(context, call, parameters));
  const reply: WireRevision = { revision };
  return call.json(reply);
}
