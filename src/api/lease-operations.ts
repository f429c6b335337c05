/**
 * Leases: grant, keep alive, info, list, revoke (design 01 §3), for every surface.
 *
 * L1. The lease behind a record's TTL is seen by info and by a list that asks for it, but cannot be renewed or revoked:
 *     it belongs to its record.
 */
import { ConcordError } from "../base/errors.ts";
import { RANGE_LIMIT_DEFAULT } from "../base/limits.ts";
import type { LeaseInfo } from "../kv/command.ts";
import { type ApiContext, type Caller, execute, query } from "./caller.ts";
import { encodeKey } from "./encode.ts";
import type { ParsedLeaseGrant } from "./schema.ts";
import type {
  WireLease,
  WireLeaseGranted,
  WireLeaseKeptAlive,
  WireLeaseList,
  WireLeaseRevoked,
  WireListedLease,
} from "./wire.ts";

export interface LeaseRequest {
  readonly id: number;
}

export async function grantLease(
  context: ApiContext,
  caller: Caller,
  grant: ParsedLeaseGrant,
): Promise<WireLeaseGranted> {
  const { ttl_s, metadata, id } = grant;
  const command = {
    kind: "lease_grant",
    ttl_s,
    ...(metadata === undefined || Object.keys(metadata).length === 0 ? {} : { metadata }),
    ...(id === undefined ? {} : { id }),
  } as const;
  const { result, revision } = await execute(context, caller, command);
  return { id: result.id, ttl_s: result.ttl_s, expires_at_ms: result.expires_at_ms, revision };
}

/** Renews the lease for its TTL, or for `ttl_s`, which replaces it. */
export async function keepLeaseAlive(
  context: ApiContext,
  caller: Caller,
  request: LeaseRequest & { readonly ttl_s?: number | undefined },
): Promise<WireLeaseKeptAlive> {
  const { id, ttl_s } = request;
  const command = { kind: "lease_keep_alive", items: [{ id, ...(ttl_s === undefined ? {} : { ttl_s }) }] } as const;
  const { result, revision } = await execute(context, caller, command, "lease");
  const [renewed] = result.items;
  if (renewed === undefined || "not_found" in renewed) throw unknownLease(id, revision);
  return { id, ttl_s: renewed.ttl_s, expires_at_ms: renewed.expires_at_ms, revision };
}

function unknownLease(id: number, revision: number): ConcordError {
  return new ConcordError({ code: "unknown_lease", detail: `There is no lease ${id}.`, revision });
}

export async function describeLease(context: ApiContext, caller: Caller, { id }: LeaseRequest): Promise<WireLease> {
  const { result, revision } = await query(context, caller, { kind: "lease", id });
  const { lease } = result;
  if (lease === null) throw unknownLease(id, revision);
  return { ...encodeLease(lease), keys: lease.keys.map(encodeKey), revision };
}

export interface LeaseListRequest {
  readonly limit?: number | undefined;
  /** `next` of the page before. */
  readonly after?: number | undefined;
  readonly anonymous?: boolean | undefined;
}

export async function listLeases(
  context: ApiContext,
  caller: Caller,
  request: LeaseListRequest,
): Promise<WireLeaseList> {
  const { limit = RANGE_LIMIT_DEFAULT, after, anonymous } = request;
  const asked = {
    kind: "lease_list",
    limit,
    ...(after === undefined ? {} : { after }),
    ...(anonymous === true ? { anonymous } : {}),
  } as const;
  const { result, revision } = await query(context, caller, asked);
  return { leases: result.leases.map(encodeLease), next: result.next, revision };
}

function encodeLease(lease: LeaseInfo): WireListedLease {
  return {
    id: lease.id,
    ttl_s: lease.ttl_s,
    expires_at_ms: lease.expires_at_ms,
    remaining_ms: lease.remaining_ms,
    metadata: lease.metadata,
    keys_count: lease.keys_count,
    ...(lease.anonymous ? { anonymous: true } : {}),
  };
}

export async function revokeLease(
  context: ApiContext,
  caller: Caller,
  { id }: LeaseRequest,
): Promise<WireLeaseRevoked> {
  const { result, revision } = await execute(context, caller, { kind: "lease_revoke", id });
  return { deleted: result.deleted, revision };
}
