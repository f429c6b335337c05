/**
 * The Worker in front of the nodes: lets in, finds the cluster, passes on (design 01 §7, 05 Security).
 *
 * E1. Only the paths named here leave for a node. Internal routes are not among them, peer routes only for the processes of
 *     other nodes (peer-entrance.ts), and every `x-concord-` header of a caller is removed: what a node reads there was
 *     written here.
 * E2. No object of a cluster is touched before the cluster is known to exist.
 * E3. Tokens end here; nodes see a principal.
 * E4. In a process that serves one node alone (separate-node.ts), that node is asked and no other: the others have
 *     addresses of their own.
 */
import { ConcordError, type ErrorBody } from "../base/errors.ts";
import { authorize, BEARER_PROTOCOL, localityOf } from "./access.ts";
import { RESTORE_PATH, SNAPSHOT_PATH } from "./backup-paths.ts";
import { parseJson, readBody } from "./body.ts";
import { INTERNAL_HEADER, PRINCIPAL_HEADER } from "./call.ts";
import { DEFAULT_CLUSTER, isClusterName } from "./cluster-name.ts";
import { CALL_TIMEOUT_MS_DEFAULT, CALL_TIMEOUT_MS_MAX } from "./limits.ts";
import { type ClusterPlace, NodeDirectory, type NodeNamespace, placed } from "./node-directory.ts";
import { answerPeer } from "./peer-entrance.ts";
import { problemResponse, refusal, SECURITY_HEADERS } from "./problem.ts";
import { clusterSchema } from "./schema.ts";
import { type SeparateNode, type SeparateVariables, separateNodeOf } from "./separate-node.ts";
import { shaped } from "./shape.ts";
import type { WireCluster } from "./wire.ts";

export interface EdgeEnvironment extends SeparateVariables {
  readonly NODES: NodeNamespace;
  /** Nodes per cluster. Default "5". */
  readonly NODE_COUNT?: string;
  readonly CONCORD_ROOT_TOKEN?: string;
  readonly CONCORD_LOOPBACK_DEV?: string;
}

export interface Edge {
  fetch(request: Request, environment: EdgeEnvironment): Promise<Response>;
}

const CLUSTERS_KNOWN_MAX = 10_000;
/** How much longer than the node the Worker waits, so that the node's own answer wins. */
const DEADLINE_GRACE_MS = 2_000;

const DEFAULT_PLACE: ClusterPlace = { name: DEFAULT_CLUSTER, jurisdiction: null, placement: [] };

export interface EdgeOptions {
  /** In [0, 1); spreads load over nodes. Default `Math.random`. */
  readonly random?: () => number;
  /**
   * The path under which a host serves this edge beside things of its own, for example `/concord`. Default: none.
   * Requests outside of it are answered 404.
   */
  readonly basePath?: string;
}

/**
 * One per isolate: it remembers leaders and clusters, both only as hints or as facts that never change.
 * @throws TypeError for a base path that is none.
 */
export function createEdge(options: EdgeOptions = {}): Edge {
  const { basePath = "" } = options;
  if (!/^(?:\/[^/?#]+)*$/.test(basePath)) throw new TypeError(`the base path ${basePath} is not of the form /a/b`);
  const directory = new NodeDirectory({ random: options.random ?? Math.random });
  const known = new Map<string, ClusterPlace>([[DEFAULT_CLUSTER, DEFAULT_PLACE]]);
  const nodes = new WeakMap<EdgeEnvironment, SeparateNode | null>();
  return {
    async fetch(request, environment) {
      try {
        let separate = nodes.get(environment);
        if (separate === undefined) {
          separate = separateNodeOf(environment, nodesCountOf(environment));
          nodes.set(environment, separate);
        }
        return await answer({ directory, known, environment, separate, basePath }, request);
      } catch (error) {
        if (error instanceof ConcordError) return problemResponse(error.body);
        const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
        console.error(JSON.stringify({ level: "error", message: "a request failed in the Worker", error: text }));
        return problemResponse({ code: "internal", detail: "The request failed for a reason of ours." });
      }
    },
  };
}

interface EdgeState {
  readonly directory: NodeDirectory;
  /** Clusters that were seen to exist; a cluster is never removed. */
  readonly known: Map<string, ClusterPlace>;
  readonly environment: EdgeEnvironment;
  /** The one node of this process; null where all nodes are at hand. */
  readonly separate: SeparateNode | null;
  readonly basePath: string;
}

function nodesCountOf({ NODE_COUNT }: EdgeEnvironment): number {
  return Number(NODE_COUNT ?? "5");
}

async function answer(state: EdgeState, request: Request): Promise<Response> {
  const { environment, separate } = state;
  const rules = accessRules(environment);
  const url = urlOf(request);
  const pathname = pathWithin(state.basePath, url.pathname);
  const base = url.origin + state.basePath;
  if (separate !== null && pathname.startsWith("/peer/")) {
    const answered = await answerPeer(request, { path: pathname, search: url.search }, separate, environment.NODES);
    if (answered !== null) return answered;
  }
  if (pathname === "/livez") return answerLiveness(request, rules);
  if (pathname === "/openapi.json" || pathname === "/docs") return await answerDocs(request, rules, { pathname, base });
  const access = await authorize(request, rules);
  if (!access.granted) return problemResponse(access.error);
  if (pathname === "/") return describe(request, base);
  if (pathname === "/v1/clusters") return await answerClusters(state, request, url, access.principal);
  const { cluster, path } = splitPath(pathname);
  if (!isForNodes(path)) throw noRoute();
  const place = await findCluster(state, cluster, access.principal);
  return await forward(state, place, request, { path, search: url.search, principal: access.principal });
}

/** Two `Host` headers, for one, make an address that is none. */
function urlOf(request: Request): URL {
  const url = URL.parse(request.url);
  if (url === null) throw refusal("invalid_request", "url", "The request's address is no URL; send one Host header.");
  return url;
}

function accessRules(environment: EdgeEnvironment) {
  const rootToken = environment.CONCORD_ROOT_TOKEN;
  return {
    rootToken: rootToken === "" ? undefined : rootToken,
    loopbackDev: environment.CONCORD_LOOPBACK_DEV === "1",
  };
}

/** A route without a token, for those who watch deployments; it says that the Worker runs and nothing else. */
function answerLiveness(request: Request, rules: ReturnType<typeof accessRules>): Response {
  const refused = refusedWithoutToken(request, rules);
  return refused === null ? json({ status: "live" }) : problemResponse(refused);
}

/** What routes without a token ask: a deployment without one still answers nobody from outside. */
function refusedWithoutToken(request: Request, rules: ReturnType<typeof accessRules>): ErrorBody | null {
  return rules.rootToken === undefined ? localityOf(request, rules.loopbackDev) : null;
}

/**
 * The document of the API and its page, without a token: a browser sends none, and they say the same everywhere. Loaded
 * on first use, so that no other request pays for them.
 */
async function answerDocs(
  request: Request,
  rules: ReturnType<typeof accessRules>,
  { pathname, base }: { readonly pathname: string; readonly base: string },
): Promise<Response> {
  const refused = refusedWithoutToken(request, rules);
  if (refused !== null) return problemResponse(refused);
  if (request.method !== "GET" && request.method !== "HEAD") return methodNotAllowed("GET, HEAD");
  const { openApiDocument } = await import("./openapi-document.ts");
  const document = await openApiDocument(base);
  if (pathname === "/openapi.json") return json(document);
  const { docsPage } = await import("./docs-page.ts");
  const { html, contentSecurityPolicy } = await docsPage(document);
  return new Response(html, {
    headers: {
      "content-type": "text/html; charset=utf-8",
      "cache-control": "no-store",
      ...SECURITY_HEADERS,
      "content-security-policy": contentSecurityPolicy,
    },
  });
}

/** @param base the address under which this edge is served. */
function describe(request: Request, base: string): Response {
  if (request.method !== "GET" && request.method !== "HEAD") return methodNotAllowed("GET, HEAD");
  return json({
    name: "Concord Edge",
    api: `${base}/v1`,
    cluster: `${base}/v1/cluster`,
    clusters: `${base}/v1/clusters`,
    other_clusters: `${base}/c/{cluster}/v1`,
    openapi: `${base}/openapi.json`,
    docs: `${base}/docs`,
    health: { live: `${base}/livez`, ready: `${base}/readyz`, health: `${base}/healthz` },
  });
}

function json(body: object, status = 200, headers: Readonly<Record<string, string>> = {}): Response {
  return new Response(JSON.stringify(body), {
    status,
    headers: { "content-type": "application/json", "cache-control": "no-store", ...SECURITY_HEADERS, ...headers },
  });
}

function methodNotAllowed(allow: string): Response {
  return problemResponse({ code: "method_not_allowed", detail: `Allowed here: ${allow}.` }, { allow });
}

function noRoute(): ConcordError {
  return new ConcordError({ code: "not_found", reason: "route", detail: "There is no such route." });
}

/** The path behind the base path; outside of it there is no route. */
function pathWithin(basePath: string, pathname: string): string {
  if (pathname === basePath) return "/";
  if (pathname.startsWith(`${basePath}/`)) return pathname.slice(basePath.length);
  throw noRoute();
}

/** `/c/{cluster}/rest` names a cluster, anything else is the default one's. */
function splitPath(pathname: string): { readonly cluster: string; readonly path: string } {
  if (!pathname.startsWith("/c/")) return { cluster: DEFAULT_CLUSTER, path: pathname };
  const slash = pathname.indexOf("/", 3);
  if (slash < 0) return { cluster: pathname.slice(3), path: "" };
  return { cluster: pathname.slice(3, slash), path: pathname.slice(slash) };
}

function isForNodes(path: string): boolean {
  return path.startsWith("/v1/") || path === "/readyz" || path === "/healthz" || path === "/livez";
}

async function answerClusters(state: EdgeState, request: Request, url: URL, principal: string): Promise<Response> {
  const passing = { path: "/internal/clusters", search: url.search, principal, internal: true };
  if (request.method === "GET" || request.method === "HEAD") {
    return await forward(state, DEFAULT_PLACE, request, passing);
  }
  if (request.method !== "POST") return methodNotAllowed("GET, HEAD, POST");
  const body = await readBody(request);
  const cluster = shaped(clusterSchema, parseJson(body, "invalid_request"), "invalid_request");
  checkJurisdiction(state, cluster.jurisdiction ?? null);
  const response = await forward(state, DEFAULT_PLACE, request, { ...passing, body });
  if (response.status !== 201) return response;
  const created = (await response.json()) as WireCluster;
  remember(state, created);
  const headers = new Headers(response.headers);
  const path = `${state.basePath}/c/${created.name}/v1`;
  headers.set("location", path);
  return new Response(JSON.stringify({ ...created, url: url.origin + path }), {
    status: 201,
    headers,
  });
}

/** Asked before the cluster is written down: one that cannot be placed must not come to exist. */
function checkJurisdiction({ environment, separate }: EdgeState, jurisdiction: string | null): void {
  if (jurisdiction === null || (separate === null && canPlace(environment.NODES, jurisdiction))) return;
  // A process of one node: its peers name an object by its name alone, and a jurisdiction would be part of its id.
  const detail = `The jurisdiction ${JSON.stringify(jurisdiction)} is not available on this platform.`;
  throw refusal("invalid_request", "jurisdiction", detail);
}

function canPlace(namespace: NodeNamespace, jurisdiction: string): boolean {
  try {
    placed(namespace, { jurisdiction });
    return true;
  } catch {
    return false;
  }
}

async function findCluster(state: EdgeState, name: string, principal: string): Promise<ClusterPlace> {
  const place = state.known.get(name);
  if (place !== undefined) return place;
  if (!isClusterName(name)) throw unknownCluster(name);
  const lookup = new Request("http://node/");
  const passing = { path: `/internal/clusters/${name}`, search: "", principal, internal: true };
  const response = await forward(state, DEFAULT_PLACE, lookup, passing);
  if (response.ok) {
    const found = (await response.json()) as WireCluster;
    remember(state, found);
    return found;
  }
  if (response.status === 404) throw unknownCluster(name);
  const detail = "The list of clusters cannot be read now; try again.";
  throw new ConcordError({ code: "cluster_not_ready", reason: "cluster_list", detail });
}

function remember(state: EdgeState, place: ClusterPlace): void {
  if (state.known.size >= CLUSTERS_KNOWN_MAX) {
    state.known.clear();
    state.known.set(DEFAULT_CLUSTER, DEFAULT_PLACE);
  }
  state.known.set(place.name, place);
}

function unknownCluster(name: string): ConcordError {
  const shown = JSON.stringify(name.slice(0, 80));
  return new ConcordError({ code: "unknown_cluster", detail: `There is no cluster ${shown}.` });
}

interface Passing {
  readonly path: string;
  readonly search: string;
  readonly principal: string;
  /** Opens internal routes. */
  readonly internal?: boolean;
  /** The body, if it was read already. */
  readonly body?: Uint8Array<ArrayBuffer>;
}

async function forward(state: EdgeState, place: ClusterPlace, request: Request, passing: Passing): Promise<Response> {
  const { environment, separate } = state;
  const nodesCount = nodesCountOf(environment);
  const { node, query } = pinnedNode(request, passing.search, nodesCount);
  const hasBody = request.method !== "GET" && request.method !== "HEAD";
  const isUpload = hasBody && passing.path === RESTORE_PATH;
  return await state.directory.forward(environment.NODES, nodesCount, place, {
    method: request.method,
    target: passing.path + query,
    headers: headersForNode(request.headers, passing),
    // An upload is larger than memory, and takes the time that it takes.
    body: isUpload ? request.body : hasBody ? (passing.body ?? (await readBody(request))) : null,
    node: separate === null ? node : ownNode(separate, node),
    leaderFirst: isForLeader(passing.path, hasBody, query),
    deadlineMs: isUpload ? null : Date.now() + timeoutMsIn(query) + DEADLINE_GRACE_MS,
  });
}

/** Watches, topics and backups are served by any node; the leader has enough to do. */
function isForLeader(path: string, hasBody: boolean, query: string): boolean {
  if (path === "/v1/watch" || path.startsWith("/v1/topics/") || path === SNAPSHOT_PATH) return false;
  return hasBody || !query.includes("consistency=serializable");
}

function headersForNode(from: Headers, passing: Passing): Headers {
  const headers = new Headers();
  for (const [name, value] of from) {
    if (name.startsWith("x-concord-") || name.startsWith("sec-websocket-") || NOT_FORWARDED.has(name)) continue;
    headers.set(name, value);
  }
  // Of what a handshake says, the platform makes its own; the token in it ends here (E3).
  if (offersBearer(from)) headers.set("sec-websocket-protocol", BEARER_PROTOCOL);
  headers.set(PRINCIPAL_HEADER, passing.principal);
  if (passing.internal === true) headers.set(INTERNAL_HEADER, "1");
  return headers;
}

function offersBearer(headers: Headers): boolean {
  const offered = headers.get("sec-websocket-protocol")?.split(",") ?? [];
  return offered.some((name) => name.trim() === BEARER_PROTOCOL);
}

/** Secrets, and what describes the connection or the body as it came in rather than as it goes on. */
const NOT_FORWARDED: ReadonlySet<string> = new Set([
  "authorization",
  "cookie",
  "concord-prefer-node",
  "connection",
  "content-length",
  "host",
  "transfer-encoding",
]);

/** `concord-prefer-node: N` or `?node=N` asks exactly that node, for tests and diagnosis. */
function pinnedNode(request: Request, search: string, nodesCount: number): { node: number | null; query: string } {
  const pairs = search.slice(1).split("&");
  const rest = pairs.filter((pair) => pair !== "" && !pair.startsWith("node="));
  const query = rest.length === 0 ? "" : `?${rest.join("&")}`;
  const named = pairs.filter((pair) => pair.startsWith("node="));
  if (named.length > 1) throw refusal("invalid_request", "repeated_parameter", "Name one node, once.");
  const inQuery = named[0]?.slice("node=".length);
  const text = request.headers.get("concord-prefer-node") ?? inQuery;
  if (text === undefined) return { node: null, query };
  const node = /^[0-9]$/.test(text) ? Number(text) : 0;
  if (node >= 1 && node <= nodesCount) return { node, query };
  throw refusal("invalid_request", "node", `A node is a number from 1 to ${nodesCount}.`);
}

/** Who asks for another node would be told this one's view of things in its place. */
function ownNode({ id }: SeparateNode, asked: number | null): number {
  if (asked === null || asked === id) return id;
  const detail = `This process serves node ${id}; node ${asked} has an address of its own.`;
  throw refusal("invalid_request", "node", detail);
}

/** Lenient: the node checks the parameter; here it only bounds the wait. */
function timeoutMsIn(query: string): number {
  const asked = Number(/[?&]timeout_ms=([0-9]{1,6})(?:&|$)/.exec(query)?.[1] ?? CALL_TIMEOUT_MS_DEFAULT);
  return Math.min(asked, CALL_TIMEOUT_MS_MAX);
}
