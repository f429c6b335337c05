/**
 * The HTTP API of one node (design 01 §7): every route over a {@link Backend}, as a Hono app that takes Requests and
 * gives Responses, in a Durable Object and in a plain test alike.
 *
 * A1. Every error leaves as a problem document. What is not a ConcordError is logged and told as `internal`; no stack,
 *     no text of ours reaches the caller.
 * A2. Every reply carries the cluster's id, its revision, this node and its leader.
 * A3. A request that names another cluster (`concord-cluster`) is refused by every route, before it is looked at.
 */
import { Hono } from "hono";
import { ConcordError } from "../base/errors.ts";
import { mountAdmin } from "./admin-routes.ts";
import type { Backend } from "./backend.ts";
import { mountBackup } from "./backup-routes.ts";
import type { ApiCall, ApiEnvironment } from "./call.ts";
import { type ApiContext, checkClusterId, type LogFields, type LogLevel } from "./caller.ts";
import { mountCluster } from "./cluster-routes.ts";
import { mountInternal } from "./internal-routes.ts";
import { mountKv } from "./kv-routes.ts";
import { mountLeases } from "./lease-routes.ts";
import { problemResponse, SECURITY_HEADERS } from "./problem.ts";
import { mountStreams } from "./stream-routes.ts";
import type { SocketHost } from "./stream-socket.ts";
import { mountSync } from "./sync-routes.ts";
import { mountTxn } from "./txn-routes.ts";

export interface ApiOptions {
  /** Who calls when the request carries no principal header. Absent: such a request is refused (401). */
  readonly principal?: string;
  /** Mounts the routes that only the Worker may use (`internal-routes.ts`). Default false. */
  readonly internal?: boolean;
  /** Absent: the host has no WebSockets; watches and topics are server-sent events alone. */
  readonly sockets?: SocketHost;
  /** Default: one JSON line on the console. */
  readonly log?: (level: LogLevel, message: string, fields: LogFields) => void;
}

export type Api = Hono<ApiEnvironment>;

export function createApi(backend: Backend, options: ApiOptions = {}): Api {
  const context: ApiContext = {
    backend,
    log: options.log ?? logToConsole,
    ...(options.principal === undefined ? {} : { principal: options.principal }),
  };
  const app: Api = new Hono<ApiEnvironment>();
  app.onError((error, call) => onError(context, error, call));
  app.notFound((call) => problemResponse({ code: "not_found", reason: "route", detail: noRoute(call) }));
  app.use(async (call, next) => {
    try {
      checkClusterId(context, call.req.header("concord-cluster"));
      await next();
    } catch (error) {
      // Hono hands on what is no Error at all; it is answered like every other surprise.
      call.res = onError(context, error, call);
    }
    setReplyHeaders(context, call);
  });
  mountKv(app, context);
  mountTxn(app, context);
  mountSync(app, context);
  mountStreams(app, context, options.sockets);
  mountLeases(app, context);
  mountCluster(app, context);
  mountAdmin(app, context);
  mountBackup(app, context);
  if (options.internal === true) mountInternal(app, context);
  refuseOtherMethods(app);
  return app;
}

function noRoute(call: ApiCall): string {
  return `There is no route ${JSON.stringify(new URL(call.req.url).pathname.slice(0, 80))}.`;
}

/** A known path with another method is 405 and says what is allowed. Registered last, so real routes win. */
function refuseOtherMethods(app: Api): void {
  const methods = new Map<string, string[]>();
  for (const { method, path } of app.routes) {
    if (method === "ALL") continue;
    // Hono answers HEAD with the headers of GET.
    const served = method === "GET" ? ["GET", "HEAD"] : [method];
    methods.set(path, [...new Set([...(methods.get(path) ?? []), ...served])]);
  }
  for (const [path, allowed] of methods) {
    const allow = allowed.join(", ");
    const detail = `Allowed here: ${allow}.`;
    // A literal path below a wildcard serves the wildcard's methods too; the wildcard answers for it.
    if (path === "/v1/kv/batch") continue;
    app.all(path, () => problemResponse({ code: "method_not_allowed", detail }, { allow }));
  }
}

function onError(context: ApiContext, error: unknown, call: ApiCall): Response {
  if (error instanceof ConcordError) return problemResponse(error.body);
  context.log("error", "a request failed unexpectedly", {
    method: call.req.method,
    path: new URL(call.req.url).pathname.slice(0, 200),
    error: error instanceof Error ? (error.stack ?? error.message) : String(error),
  });
  return problemResponse({
    code: "internal",
    detail: "The request failed for a reason of ours; the node's log has it.",
  });
}

function setReplyHeaders(context: ApiContext, call: ApiCall): void {
  const { headers } = call.res;
  const { clusterId, node, leader, revision } = context.backend.position();
  if (clusterId !== null) headers.set("concord-cluster", clusterId);
  // A forwarded write is known by its outcome before this node has applied it.
  headers.set("concord-revision", String(Math.max(revision, call.get("revision") ?? 0)));
  headers.set("concord-node", String(node));
  if (leader !== null) headers.set("concord-leader", String(leader));
  const etag = call.get("etag");
  if (etag !== undefined && !headers.has("etag")) headers.set("etag", etag);
  if (!headers.has("cache-control")) headers.set("cache-control", "no-store");
  for (const [name, value] of Object.entries(SECURITY_HEADERS)) headers.set(name, value);
}

function logToConsole(level: LogLevel, message: string, fields: LogFields): void {
  console[level](JSON.stringify({ level, message, ...fields }));
}
