/**
 * `/internal/clusters`: the list of clusters, which the Worker keeps as system records in the cluster `default`.
 *
 * I1. These routes exist only where the host mounts them, and answer only under the internal header, which the Worker
 *     sets itself and removes from outside requests. Without it they look like any unknown path.
 */
import type { Hono } from "hono";
import { ConcordError } from "../base/errors.ts";
import type { JsonObject } from "../base/json.ts";
import type { Command, KeyRecord } from "../kv/command.ts";
import { readJson } from "./body.ts";
import {
  type ApiCall,
  type ApiEnvironment,
  INTERNAL_HEADER,
  parametersOf,
  READ_PARAMETERS,
  readerOf,
  WRITE_PARAMETERS,
  writerOf,
} from "./call.ts";
import { type ApiContext, execute, query } from "./caller.ts";
import { DEFAULT_CLUSTER, isClusterName } from "./cluster-name.ts";
import { CLUSTERS_PAGE_MAX } from "./limits.ts";
import { textOf } from "./parameters.ts";
import { refusal } from "./problem.ts";
import { clusterSchema, type ParsedCluster } from "./schema.ts";
import { shaped } from "./shape.ts";
import type { WireCluster, WireClusterList } from "./wire.ts";

const CLUSTERS_PATH = "/internal/clusters";
const CLUSTERS_PREFIX = "\0clusters/";

export function mountInternal(app: Hono<ApiEnvironment>, context: ApiContext): void {
  app.use("/internal/*", async (call, next) => {
    if (call.req.header(INTERNAL_HEADER) !== "1") return call.notFound();
    return await next();
  });
  app.get(CLUSTERS_PATH, (call) => listClusters(context, call));
  app.post(CLUSTERS_PATH, (call) => createCluster(context, call));
  app.get(`${CLUSTERS_PATH}/:name`, (call) => getCluster(context, call, call.req.param("name")));
}

async function createCluster(context: ApiContext, call: ApiCall): Promise<Response> {
  const parsed = shaped(clusterSchema, await readJson(call.req.raw, "invalid_request"), "invalid_request");
  const parameters = parametersOf(call, "invalid_request", WRITE_PARAMETERS);
  if (!isClusterName(parsed.name)) {
    const detail = "The name of a cluster is 1 to 63 characters of a-z, 0-9 and -.";
    throw refusal("invalid_request", "cluster_name", detail);
  }
  const cluster = clusterOf(parsed);
  if (cluster.name === DEFAULT_CLUSTER) throw clusterExists(cluster.name);
  const key = CLUSTERS_PREFIX + cluster.name;
  const command: Extract<Command, { kind: "txn" }> = {
    kind: "txn",
    compare: [{ target: "exists", key, op: "==", value: false }],
    success: [{ type: "put", key, value: { json: { ...cluster } } }],
    failure: [],
  };
  const { result } = await execute(context, writerOf(context, call, parameters), command);
  if (!result.succeeded) throw clusterExists(cluster.name);
  return call.json(cluster, 201);
}

function clusterOf(parsed: ParsedCluster): WireCluster {
  return { name: parsed.name, jurisdiction: parsed.jurisdiction ?? null, placement: parsed.placement ?? [] };
}

function clusterExists(name: string): ConcordError {
  return new ConcordError({ code: "cluster_exists", detail: `There is a cluster ${JSON.stringify(name)} already.` });
}

async function getCluster(context: ApiContext, call: ApiCall, name: string): Promise<Response> {
  const caller = readerOf(context, call, parametersOf(call, "invalid_request", READ_PARAMETERS));
  const { result } = await query(context, caller, { kind: "get", key: CLUSTERS_PREFIX + name });
  const cluster = result.record === null ? null : clusterOfRecord(result.record);
  if (cluster !== null) return call.json(cluster);
  throw new ConcordError({ code: "unknown_cluster", detail: `There is no cluster ${JSON.stringify(name)}.` });
}

/** One page in order of name; `after` is the last name of the page before. */
async function listClusters(context: ApiContext, call: ApiCall): Promise<Response> {
  const parameters = parametersOf(call, "invalid_request", [...READ_PARAMETERS, "after"]);
  const after = textOf(parameters, "after");
  const { result } = await query(context, readerOf(context, call, parameters), {
    kind: "list",
    selector: { prefix: CLUSTERS_PREFIX },
    limit: CLUSTERS_PAGE_MAX,
    order: "asc",
    keys_only: false,
    count_only: false,
    ...(after !== undefined && isClusterName(after) ? { after: CLUSTERS_PREFIX + after } : {}),
  });
  const clusters = result.records.flatMap((record) => clusterOfRecord(record) ?? []);
  if (after === undefined) clusters.unshift({ name: DEFAULT_CLUSTER, jurisdiction: null, placement: [] });
  const reply: WireClusterList = { clusters, next: result.more ? (clusters.at(-1)?.name ?? null) : null };
  return call.json(reply);
}

/** Written by createCluster alone; read with care all the same, for versions may differ. */
function clusterOfRecord(record: KeyRecord): WireCluster | null {
  if (!("json" in record.value)) return null;
  const fields = record.value.json as JsonObject | null;
  const name = fields?.name;
  if (typeof name !== "string") return null;
  const jurisdiction = typeof fields?.jurisdiction === "string" ? fields.jurisdiction : null;
  const placement = Array.isArray(fields?.placement) ? fields.placement.filter((hint) => typeof hint === "string") : [];
  return { name, jurisdiction, placement };
}
