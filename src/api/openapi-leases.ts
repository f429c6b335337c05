/** What the OpenAPI document says of leases. */
import { FLAG, inPath, query, READING, SHARED, WRITING } from "./openapi-parameters.ts";
import * as replies from "./openapi-replies.ts";
import { READ_ERRORS, type RouteRow, WRITE_ERRORS } from "./openapi-route.ts";
import * as requests from "./schema.ts";

const ID = inPath("id", { type: "integer", minimum: 1, maximum: Number.MAX_SAFE_INTEGER }, "The lease.");
const FIRST = { id: "1" };
const LISTED = {
  id: 1,
  ttl_s: 30,
  expires_at_ms: 1_700_000_030_000,
  remaining_ms: 30_000,
  metadata: { owner: "agent_7" },
  keys_count: 1,
};

export const LEASE_ROUTES: readonly RouteRow[] = [
  {
    method: "POST",
    path: "/v1/leases",
    id: "grantLease",
    tag: "leases",
    by: "node",
    summary: "Grants a lease",
    description: "Records that are put under it end with it: when nobody keeps it alive for `ttl_s`, or by revocation.",
    parameters: WRITING,
    body: { required: true, content: { "application/json": requests.leaseGrantSchema } },
    replies: [{ status: 201, description: "Granted.", content: { "application/json": replies.leaseGranted } }],
    errors: ["invalid_lease", "lease_exists", "lease_limit_exceeded", "no_space", ...WRITE_ERRORS],
    examples: [
      {
        name: "grant",
        summary: "For 30 seconds",
        body: { ttl_s: 30, metadata: { owner: "agent_8" } },
        status: 201,
        reply: { id: 2, ttl_s: 30, expires_at_ms: 1_700_000_030_000, revision: 2 },
      },
    ],
  },
  {
    method: "GET",
    path: "/v1/leases",
    id: "listLeases",
    tag: "leases",
    by: "node",
    summary: "Leases in order of id",
    description: "A page may be short, or empty, before the last one: go on until `next` is null.",
    parameters: [
      SHARED.limit,
      query("after", { type: "integer", minimum: 1 }, "`next` of the page before."),
      query("anonymous", FLAG, "Also the leases behind records with a `ttl`."),
      ...READING,
    ],
    replies: [{ status: 200, description: "A page.", content: { "application/json": replies.leaseList } }],
    errors: ["invalid_lease", "invalid_selector", ...READ_ERRORS],
    examples: [
      { name: "list", summary: "All leases", status: 200, reply: { leases: [LISTED], next: null, revision: 2 } },
    ],
  },
  {
    method: "GET",
    path: "/v1/leases/{id}",
    id: "getLease",
    tag: "leases",
    by: "node",
    summary: "A lease and its keys",
    parameters: [ID, ...READING],
    replies: [{ status: 200, description: "The lease.", content: { "application/json": replies.lease } }],
    errors: ["invalid_lease", "unknown_lease", ...READ_ERRORS],
    examples: [
      {
        name: "info",
        summary: "The first lease",
        parameters: FIRST,
        status: 200,
        reply: { ...LISTED, keys: ["/work/items/42/holder"], revision: 2 },
      },
    ],
  },
  {
    method: "DELETE",
    path: "/v1/leases/{id}",
    id: "revokeLease",
    tag: "leases",
    by: "node",
    summary: "Ends a lease, and its keys at one revision",
    parameters: [ID, ...WRITING],
    replies: [{ status: 200, description: "Revoked.", content: { "application/json": replies.leaseRevoked } }],
    errors: ["invalid_lease", "unknown_lease", ...WRITE_ERRORS],
    examples: [
      {
        name: "revoke",
        summary: "The first lease",
        parameters: FIRST,
        status: 200,
        reply: { deleted: 1, revision: 3 },
      },
    ],
  },
  {
    method: "POST",
    path: "/v1/leases/{id}/keepalive",
    id: "keepLeaseAlive",
    tag: "leases",
    by: "node",
    summary: "Renews a lease",
    description: "For its TTL, or for `ttl_s`, which replaces it. The body may be empty.",
    parameters: [ID, ...WRITING],
    body: { required: false, content: { "application/json": requests.keepAliveSchema } },
    replies: [{ status: 200, description: "Renewed.", content: { "application/json": replies.leaseKeptAlive } }],
    errors: ["invalid_lease", "unknown_lease", ...WRITE_ERRORS],
    examples: [
      {
        name: "renew",
        summary: "For the TTL that it has",
        parameters: FIRST,
        status: 200,
        reply: { id: 1, ttl_s: 30, expires_at_ms: 1_700_000_030_000, revision: 2 },
      },
      {
        name: "longer",
        summary: "For a new TTL",
        parameters: FIRST,
        body: { ttl_s: 60 },
        status: 200,
        reply: { id: 1, ttl_s: 60, expires_at_ms: 1_700_000_060_000, revision: 2 },
      },
    ],
  },
];
