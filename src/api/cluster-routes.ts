/** Status of the cluster and the probes of one node. Probes answer from memory and wake nobody. */
import type { Hono } from "hono";
import { ConcordError, type ErrorBody } from "../base/errors.ts";
import { RESTORING } from "../kv/restoring.ts";
import type { NodePosition } from "./backend.ts";
import { type ApiCall, type ApiEnvironment, parametersOf, principalOf, WRITE_PARAMETERS } from "./call.ts";
import type { ApiContext } from "./caller.ts";

export function mountCluster(app: Hono<ApiEnvironment>, context: ApiContext): void {
  app.get("/v1/cluster", (call) => getCluster(context, call));
  app.get("/livez", (call) => call.json({ status: "live" }));
  app.get("/readyz", (call) => getReadiness(context, call));
  app.get("/healthz", (call) => getHealth(context, call));
}

async function getCluster(context: ApiContext, call: ApiCall): Promise<Response> {
  principalOf(context, call);
  parametersOf(call, "invalid_request", WRITE_PARAMETERS);
  const status = await context.backend.cluster();
  return call.json(status);
}

function getReadiness(context: ApiContext, call: ApiCall): Response {
  const error = unreadiness(context.backend.position());
  if (error !== null) throw new ConcordError(error);
  return call.json({ status: "ready" });
}

function unreadiness(position: NodePosition): ErrorBody | null {
  if (position.halted !== null) return { code: "node_halted", detail: "This node found wrong data and has halted." };
  if (position.ready) return null;
  if (position.restoring) return RESTORING;
  if (position.clusterId === null)
    return { code: "cluster_not_ready", detail: "This node has not joined a cluster yet." };
  return { code: "no_leader", detail: "This node knows no leader, or has not caught up with it." };
}

/** Always 200 while the node answers: the body says how it is. */
function getHealth(context: ApiContext, call: ApiCall): Response {
  const { node, leader, revision, ready, halted } = context.backend.position();
  const status = halted !== null ? "halted" : ready ? "ready" : "not_ready";
  return call.json({ status, node, leader, revision, halted: halted !== null });
}
