/** `/v1/txn` over HTTP: transactions, and results by idempotency key (design 01 §2). */
import type { Hono } from "hono";
import { readJson } from "./body.ts";
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
import { pathRest, textOf } from "./parameters.ts";
import { txnSchema } from "./schema.ts";
import { shaped } from "./shape.ts";
import { resolveTransaction, runTransaction } from "./txn-operations.ts";

const RESULTS_PATH = "/v1/txn/results";

export function mountTxn(app: Hono<ApiEnvironment>, context: ApiContext): void {
  app.post("/v1/txn", (call) => postTxn(context, call));
  app.get(RESULTS_PATH, (call) => getResult(context, call));
  app.get(`${RESULTS_PATH}/*`, (call) => getResult(context, call));
}

async function postTxn(context: ApiContext, call: ApiCall): Promise<Response> {
  const txn = shaped(txnSchema, await readJson(call.req.raw, "invalid_txn"), "invalid_txn");
  const parameters = parametersOf(call, "invalid_txn", READ_PARAMETERS);
  return call.json(await runTransaction(context, writerOf(context, call, parameters), txn));
}

async function getResult(context: ApiContext, call: ApiCall): Promise<Response> {
  const code = "invalid_request";
  const byPath = new URL(call.req.url).pathname !== RESULTS_PATH;
  const parameters = parametersOf(call, code, byPath ? WRITE_PARAMETERS : [...WRITE_PARAMETERS, "key"]);
  const key = byPath ? pathRest(call.req.url, `${RESULTS_PATH}/`, code) : (textOf(parameters, "key") ?? "");
  return call.json(await resolveTransaction(context, readerOf(context, call, parameters), { key }));
}
