/** What the OpenAPI document says of clusters, nodes and probes, and of the document itself. */
import * as z from "zod";
import { query, READING, SHARED, WRITING } from "./openapi-parameters.ts";
import * as replies from "./openapi-replies.ts";
import { READ_ERRORS, type RouteRow, WRITE_ERRORS } from "./openapi-route.ts";
import * as requests from "./schema.ts";

const ORIGIN = "http://127.0.0.1:8787";
const DEFAULT = { name: "default", jurisdiction: null, placement: [] };
const PLACEMENT = ["weur", "eeur", "weur", "eeur", "weur"];
const NODE = {
  id: 1,
  state: "formed",
  role: "leader",
  member: "voter",
  term: 3,
  leader: 1,
  first_index: 1,
  last_index: 9,
  commit_index: 9,
  applied_index: 9,
  revision: 2,
  digest: "5f0c2a9e",
  digest_index: 9,
  set_hash: 4_870_112_339_581_213,
  set_hash_index: 9,
  incarnation: 1,
  storage_bytes: 57_344,
  quiescent: false,
  halted: null,
  snapshot_out: null,
  snapshot_in: null,
  format: 2,
  protocol: 1,
  colo: null,
  last_contact_ms: 0,
};

export const CLUSTER_ROUTES: readonly RouteRow[] = [
  {
    method: "GET",
    path: "/v1/clusters",
    id: "listClusters",
    tag: "clusters",
    by: "node of default",
    summary: "Clusters in order of name",
    parameters: [query("after", { type: "string" }, "`next` of the page before."), ...READING],
    replies: [
      { status: 200, description: "A page of up to 1000.", content: { "application/json": replies.clusterList } },
    ],
    errors: READ_ERRORS,
    examples: [{ name: "list", summary: "All", status: 200, reply: { clusters: [DEFAULT], next: null } }],
  },
  {
    method: "POST",
    path: "/v1/clusters",
    id: "createCluster",
    tag: "clusters",
    by: "node of default",
    summary: "Creates a cluster",
    description:
      "Its nodes form it at the first request; until then the answer there is 503, to be repeated. Name, jurisdiction and placement are fixed for ever.",
    parameters: WRITING,
    body: { required: true, content: { "application/json": requests.clusterSchema } },
    replies: [
      {
        status: 201,
        description: "Created.",
        content: { "application/json": replies.createdCluster },
        headers: ["location"],
      },
    ],
    errors: ["cluster_exists", "no_space", ...WRITE_ERRORS],
    examples: [
      {
        name: "create",
        summary: "With a place for each node",
        body: { name: "team-a", placement: PLACEMENT },
        status: 201,
        reply: { name: "team-a", jurisdiction: null, placement: PLACEMENT, url: `${ORIGIN}/c/team-a/v1` },
      },
    ],
  },
  {
    method: "GET",
    path: "/v1/cluster",
    id: "clusterStatus",
    tag: "clusters",
    by: "node",
    summary: "Nodes, leader, digests",
    description: "What the answering node knows and what its peers told it. Wakes nobody.",
    parameters: [SHARED.timeout_ms],
    replies: [{ status: 200, description: "The cluster.", content: { "application/json": replies.clusterStatus } }],
    examples: [
      {
        name: "status",
        summary: "A leader and one follower of five",
        status: 200,
        reply: {
          cluster_id: "c-1",
          name: "default",
          leader: 1,
          revision: 2,
          membership: { node: 1, index: 0, committed: true, voters: [1, 2, 3, 4, 5], learners: [] },
          nodes: [NODE, { ...NODE, id: 2, role: "follower", last_contact_ms: 21 }],
          digests: { index: 9, equal: true },
        },
      },
    ],
  },
  {
    method: "GET",
    path: "/livez",
    id: "live",
    tag: "clusters",
    by: "worker",
    access: "open",
    summary: "Whether the Worker runs",
    description: "Below `/c/{cluster}` a node of that cluster answers.",
    replies: [
      {
        status: 200,
        description: "It runs.",
        content: { "application/json": z.object({ status: z.literal("live") }) },
      },
    ],
    examples: [{ name: "live", summary: "It runs", status: 200, reply: { status: "live" } }],
  },
  {
    method: "GET",
    path: "/readyz",
    id: "ready",
    tag: "clusters",
    by: "node",
    summary: "Whether the node that answers serves",
    errors: ["node_halted"],
    replies: [
      {
        status: 200,
        description: "It serves.",
        content: { "application/json": z.object({ status: z.literal("ready") }) },
      },
    ],
    examples: [{ name: "ready", summary: "It serves", status: 200, reply: { status: "ready" } }],
  },
  {
    method: "GET",
    path: "/healthz",
    id: "health",
    tag: "clusters",
    by: "node",
    summary: "How the node that answers is",
    replies: [
      {
        status: 200,
        description: "Always, while the node answers.",
        content: {
          "application/json": z.object({
            status: z.enum(["ready", "not_ready", "halted"]),
            node: z.int(),
            leader: z.int().nullable(),
            revision: z.int(),
            halted: z.boolean(),
          }),
        },
      },
    ],
    examples: [
      {
        name: "health",
        summary: "A node that serves",
        status: 200,
        reply: { status: "ready", node: 1, leader: 2, revision: 2, halted: false },
      },
    ],
  },
  {
    method: "GET",
    path: "/",
    id: "describe",
    tag: "clusters",
    by: "worker",
    summary: "Where things are",
    replies: [
      {
        status: 200,
        description: "Addresses.",
        content: {
          "application/json": z.object({
            name: z.string(),
            api: z.string(),
            cluster: z.string(),
            clusters: z.string(),
            other_clusters: z.string(),
            openapi: z.string(),
            docs: z.string(),
            health: z.object({ live: z.string(), ready: z.string(), health: z.string() }),
          }),
        },
      },
    ],
    examples: [
      {
        name: "addresses",
        summary: "Addresses",
        status: 200,
        reply: {
          name: "Concord Edge",
          api: `${ORIGIN}/v1`,
          cluster: `${ORIGIN}/v1/cluster`,
          clusters: `${ORIGIN}/v1/clusters`,
          other_clusters: `${ORIGIN}/c/{cluster}/v1`,
          openapi: `${ORIGIN}/openapi.json`,
          docs: `${ORIGIN}/docs`,
          health: { live: `${ORIGIN}/livez`, ready: `${ORIGIN}/readyz`, health: `${ORIGIN}/healthz` },
        },
      },
    ],
  },
  {
    method: "GET",
    path: "/openapi.json",
    id: "openapi",
    tag: "clusters",
    by: "worker",
    access: "open",
    summary: "This document",
    replies: [
      {
        status: 200,
        description: "OpenAPI 3.1.",
        content: { "application/json": z.object({ openapi: z.string() }) },
      },
    ],
    examples: [],
  },
  {
    method: "GET",
    path: "/docs",
    id: "docs",
    tag: "clusters",
    by: "worker",
    access: "open",
    summary: "This document as a page",
    replies: [{ status: 200, description: "A page without scripts.", content: { "text/html": null } }],
    examples: [],
  },
];
