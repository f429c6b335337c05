/**
 * The public interface of `concord-edge/worker`: the cluster inside a Worker of one's own.
 *
 * ```ts
 * import { createEdge } from "concord-edge/worker";
 * export { ConcordNode } from "concord-edge/worker";
 *
 * const concord = createEdge({ basePath: "/concord" });
 *
 * export default {
 *   async fetch(request, env) {
 *     const { pathname } = new URL(request.url);
 *     return pathname.startsWith("/concord/") ? await concord.fetch(request, env) : new Response("mine");
 *   },
 * };
 * ```
 *
 * The Worker's configuration needs the Durable Object binding `NODES` of the class `ConcordNode`, a migration with
 * `new_sqlite_classes`, a compatibility date of 2026-10-01 or later, and the secret `CONCORD_ROOT_TOKEN`.
 */
export { createEdge, type Edge, type EdgeEnvironment, type EdgeOptions } from "../api/edge.ts";
export { ConcordNode, type NodeBindings } from "../node-object/durable-object.ts";
export { default } from "../worker.ts";
