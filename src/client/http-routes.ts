/**
 * Operations as requests of the HTTP API: method, path, query and body. The one place of the client that knows paths.
 *
 * Must not: check values; what a path or a query cannot carry is refused here, everything else by the server.
 */
import type { WireKey, WireSelector } from "../api/wire.ts";
import { fault } from "./check.ts";
import type { Method, Operations } from "./operations.ts";

export interface HttpRoute {
  readonly verb: "GET" | "POST" | "DELETE";
  readonly path: string;
  readonly query?: QueryParameters;
  readonly body?: string;
  /** Takes no `timeout_ms`: the answer waits for nothing. */
  readonly isUntimed?: true;
}

export type QueryParameters = Readonly<Record<string, WireKey | number | boolean | undefined>>;

/** The route of an operation; `text` holds its parameters as JSON. */
export function routeOf(method: Method, text: string): HttpRoute {
  const path = BODY_PATHS[method];
  if (path !== undefined) return { verb: "POST", path, body: text };
  return routeByParams(method, JSON.parse(text));
}

/** Operations whose body is their parameters. */
const BODY_PATHS: { readonly [method in Method]?: string } = {
  "kv.batch": "/v1/kv/batch",
  txn: "/v1/txn",
  compact: "/v1/compact",
  "lease.grant": "/v1/leases",
};

/** Operations whose query is their parameters. */
const QUERY_PATHS: { readonly [method in Method]?: string } = {
  "kv.get": "/v1/kv",
  "kv.list": "/v1/kv",
  "kv.history": "/v1/history",
  "txn.result": "/v1/txn/results",
  revision: "/v1/revision",
  cluster: "/v1/cluster",
  "lease.list": "/v1/leases",
};

type AnyParams = QueryParameters &
  WireSelector &
  Operations["topic.publish"]["params"] &
  Operations["administer"]["params"];

function routeByParams(method: Method, params: AnyParams): HttpRoute {
  switch (method) {
    case "changes":
      return { verb: "GET", path: "/v1/changes", query: flatSelector(params) };
    case "lease.keepalive": {
      const { id, ...body } = params;
      return { verb: "POST", path: `/v1/leases/${id}/keepalive`, body: JSON.stringify(body) };
    }
    case "lease.revoke":
      return { verb: "DELETE", path: `/v1/leases/${params.id}` };
    case "lease.info":
      return { verb: "GET", path: `/v1/leases/${params.id}` };
    case "administer":
      return { verb: "POST", path: `/v1/cluster/${params.path}`, body: JSON.stringify(params.body) };
    case "topic.publish":
      return { verb: "POST", path: topicPath(params.topic), body: JSON.stringify(params.payload), isUntimed: true };
    default:
      return { verb: "GET", path: QUERY_PATHS[method] ?? "/", query: params };
  }
}

/** A selector as parameters of a query, beside whatever else stands there. */
export function flatSelector(params: object): QueryParameters {
  const { range, ...rest } = params as QueryParameters & { readonly range?: { start: WireKey; end?: WireKey } };
  return range === undefined ? rest : { ...rest, start: range.start, end: range.end };
}

/** @throws ConcordError `invalid_request` reason `topic_in_path` for the two that URLs give a meaning of their own. */
export function topicPath(topic: string): string {
  if (topic !== "." && topic !== "..") return `/v1/topics/${encodeURIComponent(topic)}`;
  const detail = `The topic ${JSON.stringify(topic)} has no path over HTTP; choose another name, or use a session.`;
  throw fault("invalid_request", "topic_in_path", detail);
}

/** @throws ConcordError `invalid_selector` reason `bytes_in_query`: bytes that are no text go over a session alone. */
export function queryText(parameters: QueryParameters): string {
  const pairs: string[] = [];
  for (const [name, value] of Object.entries(parameters)) {
    if (typeof value === "object") {
      const detail = `${name} is bytes, which no query carries; only a session can be asked for such keys.`;
      throw fault("invalid_selector", "bytes_in_query", detail);
    }
    if (value !== undefined) pairs.push(`${name}=${encodeURIComponent(value)}`);
  }
  return pairs.length === 0 ? "" : `?${pairs.join("&")}`;
}
