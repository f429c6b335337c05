/** `/v1/leases`: grant, info, revoke (design 01 §3). */
import type { Hono } from "hono";
import { ConcordError } from "../base/errors.ts";
import { readJson } from "./body.ts";
import {
  type ApiCall,
  type ApiContext,
  type ApiEnvironment,
  execute,
  parametersOf,
  query,
  READ_PARAMETERS,
  readOptionsOf,
  WRITE_PARAMETERS,
} from "./call.ts";
import { encodeKey } from "./encode.ts";
import { pathRest } from "./parameters.ts";
import { refusal } from "./problem.ts";
import { leaseGrantSchema } from "./schema.ts";
import { shaped } from "./shape.ts";
import type { WireLease, WireLeaseGranted, WireLeaseRevoked } from "./wire.ts";

const LEASES_PATH = "/v1/leases";

export function mountLeases(app: Hono<ApiEnvironment>, context: ApiContext): void {
  app.post(LEASES_PATH, (call) => postLease(context, call));
  app.get(`${LEASES_PATH}/:id`, (call) => getLease(context, call));
  app.delete(`${LEASES_PATH}/:id`, (call) => deleteLease(context, call));
}

async function postLease(context: ApiContext, call: ApiCall): Promise<Response> {
  const code = "invalid_lease";
  const grant = shaped(leaseGrantSchema, await readJson(call.req.raw, code), code);
  const parameters = parametersOf(call, code, WRITE_PARAMETERS);
  const command = {
    kind: "lease_grant",
    ttl_s: grant.ttl_s,
    ...(grant.metadata === undefined || Object.keys(grant.metadata).length === 0 ? {} : { metadata: grant.metadata }),
    ...(grant.id === undefined ? {} : { id: grant.id }),
  } as const;
  const { result, revision } = await execute(context, call, command, { parameters });
  const reply: WireLeaseGranted = {
    id: result.id,
    ttl_s: result.ttl_s,
    expires_at_ms: result.expires_at_ms,
    revision,
  };
  return call.json(reply, 201);
}

async function getLease(context: ApiContext, call: ApiCall): Promise<Response> {
  const id = leaseId(call);
  const parameters = parametersOf(call, "invalid_lease", READ_PARAMETERS);
  const options = readOptionsOf(context, call, parameters);
  const { result, revision } = await query(context, call, { kind: "lease", id }, options);
  const { lease } = result;
  if (lease === null) throw new ConcordError({ code: "unknown_lease", detail: `There is no lease ${id}.`, revision });
  const reply: WireLease = {
    id: lease.id,
    ttl_s: lease.ttl_s,
    expires_at_ms: lease.expires_at_ms,
    remaining_ms: Math.max(0, lease.expires_at_ms - context.nowMs()),
    metadata: lease.metadata,
    keys: lease.keys.map(encodeKey),
    revision,
  };
  return call.json(reply);
}

async function deleteLease(context: ApiContext, call: ApiCall): Promise<Response> {
  const id = leaseId(call);
  const parameters = parametersOf(call, "invalid_lease", WRITE_PARAMETERS);
  const { result, revision } = await execute(context, call, { kind: "lease_revoke", id }, { parameters });
  const reply: WireLeaseRevoked = { deleted: result.deleted, revision };
  return call.json(reply);
}

function leaseId(call: ApiCall): number {
  const text = pathRest(call.req.url, `${LEASES_PATH}/`, "invalid_lease");
  const id = /^[0-9]{1,16}$/.test(text) ? Number(text) : Number.NaN;
  if (Number.isSafeInteger(id) && id > 0) return id;
  throw refusal("invalid_lease", "invalid_lease_id", "A lease id is a positive integer.");
}
