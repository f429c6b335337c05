/** `/v1/changes`, `/v1/history`, `/v1/revision` and `/v1/compact` over HTTP (design 01 §4). */
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
import { integerOf, SELECTOR_PARAMETERS, selectorOf, textOf } from "./parameters.ts";
import { refusal } from "./problem.ts";
import { compactSchema } from "./schema.ts";
import { shaped } from "./shape.ts";
import { compactHistory, readChanges, readHistory, readRevision } from "./sync-operations.ts";

const CHANGES_PARAMETERS = [...READ_PARAMETERS, ...SELECTOR_PARAMETERS, "after", "limit"];
const HISTORY_PARAMETERS = [...READ_PARAMETERS, "key", "from", "to", "limit", "cursor"];

export function mountSync(app: Hono<ApiEnvironment>, context: ApiContext): void {
  app.get("/v1/changes", (call) => getChanges(context, call));
  app.get("/v1/history", (call) => getHistory(context, call));
  app.get("/v1/revision", (call) => getRevision(context, call));
  app.post("/v1/compact", (call) => postCompact(context, call));
}

async function getChanges(context: ApiContext, call: ApiCall): Promise<Response> {
  const parameters = parametersOf(call, "invalid_selector", CHANGES_PARAMETERS);
  const request = {
    ...selectorOf(parameters),
    after: textOf(parameters, "after"),
    limit: integerOf(parameters, "limit"),
  };
  return call.json(await readChanges(context, readerOf(context, call, parameters), request));
}

async function getHistory(context: ApiContext, call: ApiCall): Promise<Response> {
  const code = "invalid_selector";
  const parameters = parametersOf(call, code, HISTORY_PARAMETERS);
  const key = textOf(parameters, "key");
  if (key === undefined) throw refusal(code, "missing_key", "Name the key by ?key=, percent-encoded.");
  const request = {
    key,
    from: integerOf(parameters, "from"),
    to: integerOf(parameters, "to"),
    limit: integerOf(parameters, "limit"),
    cursor: textOf(parameters, "cursor"),
  };
  return call.json(await readHistory(context, readerOf(context, call, parameters), request));
}

async function getRevision(context: ApiContext, call: ApiCall): Promise<Response> {
  const parameters = parametersOf(call, "invalid_request", READ_PARAMETERS);
  return call.json(await readRevision(context, readerOf(context, call, parameters)));
}

async function postCompact(context: ApiContext, call: ApiCall): Promise<Response> {
  const code = "invalid_request";
  const request = shaped(compactSchema, await readJson(call.req.raw, code), code);
  const parameters = parametersOf(call, code, WRITE_PARAMETERS);
  return call.json(await compactHistory(context, writerOf(context, call, parameters), request));
}
