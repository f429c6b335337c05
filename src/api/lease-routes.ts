/** `/v1/leases` over HTTP: grant, keep alive, info, list, revoke (design 01 §3). */
import type { Hono } from "hono";
import { readJson, readOptionalJson } from "./body.ts";
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
import { describeLease, grantLease, keepLeaseAlive, listLeases, revokeLease } from "./lease-operations.ts";
import { flagOf, integerIn, integerOf, pathRest } from "./parameters.ts";
import { refusal } from "./problem.ts";
import { keepAliveSchema, leaseGrantSchema } from "./schema.ts";
import { shaped } from "./shape.ts";

const LEASES_PATH = "/v1/leases";
const CODE = "invalid_lease";
const LIST_PARAMETERS = [...READ_PARAMETERS, "limit", "after", "anonymous"];

export function mountLeases(app: Hono<ApiEnvironment>, context: ApiContext): void {
  app.get(LEASES_PATH, (call) => getLeases(context, call));
  app.post(LEASES_PATH, (call) => postLease(context, call));
  app.post(`${LEASES_PATH}/:id/keepalive`, (call) => postKeepAlive(context, call));
  app.get(`${LEASES_PATH}/:id`, (call) => getLease(context, call));
  app.delete(`${LEASES_PATH}/:id`, (call) => deleteLease(context, call));
}

async function postLease(context: ApiContext, call: ApiCall): Promise<Response> {
  const grant = shaped(leaseGrantSchema, await readJson(call.req.raw, CODE), CODE);
  const parameters = parametersOf(call, CODE, WRITE_PARAMETERS);
  return call.json(await grantLease(context, writerOf(context, call, parameters), grant), 201);
}

async function postKeepAlive(context: ApiContext, call: ApiCall): Promise<Response> {
  const id = leaseId(call, "/keepalive");
  const { ttl_s } = shaped(keepAliveSchema, await readOptionalJson(call.req.raw, CODE), CODE);
  const parameters = parametersOf(call, CODE, WRITE_PARAMETERS);
  return call.json(await keepLeaseAlive(context, writerOf(context, call, parameters), { id, ttl_s }));
}

async function getLeases(context: ApiContext, call: ApiCall): Promise<Response> {
  const parameters = parametersOf(call, CODE, LIST_PARAMETERS);
  const request = {
    limit: integerOf(parameters, "limit"),
    after: integerOf(parameters, "after"),
    anonymous: flagOf(parameters, "anonymous"),
  };
  return call.json(await listLeases(context, readerOf(context, call, parameters), request));
}

async function getLease(context: ApiContext, call: ApiCall): Promise<Response> {
  const id = leaseId(call);
  const parameters = parametersOf(call, CODE, READ_PARAMETERS);
  return call.json(await describeLease(context, readerOf(context, call, parameters), { id }));
}

async function deleteLease(context: ApiContext, call: ApiCall): Promise<Response> {
  const id = leaseId(call);
  const parameters = parametersOf(call, CODE, WRITE_PARAMETERS);
  return call.json(await revokeLease(context, writerOf(context, call, parameters), { id }));
}

function leaseId(call: ApiCall, ending = ""): number {
  const rest = pathRest(call.req.url, `${LEASES_PATH}/`, CODE);
  const text = rest.slice(0, rest.length - ending.length);
  const id = integerIn(text);
  if (id !== null && id > 0) return id;
  throw refusal(CODE, "invalid_lease_id", "A lease id is a positive integer, in decimal without leading zeros.");
}
