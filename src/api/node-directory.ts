/**
 * From the Worker to a node: which node to ask, and what to do when it cannot be reached.
 *
 * F1. A request is sent to another node only if it cannot run twice: reads, writes under an idempotency key, and what
 *     the first node certainly did not take on. Anything else whose connection breaks has an unknown outcome.
 *     A body that comes as a stream is sent once, to one node.
 * F2. Every attempt takes a fresh stub: one whose object was reset fails for ever (platform: broken stubs).
 * F3. What is remembered here (leaders) is a hint of this isolate; being wrong costs one hop.
 */
import { ConcordError, type ErrorCode } from "../base/errors.ts";
import { OBJECT_HEADER } from "./call.ts";

/** What is used of a Durable Object namespace; `DurableObjectNamespace` fits. */
export interface NodeNamespace {
  idFromName(name: string): object;
  get(id: object, options?: { locationHint?: string }): NodeStub;
  jurisdiction?(name: string): NodeNamespace;
}

export interface NodeStub {
  fetch(request: Request): Promise<Response>;
}

/** A cluster as the Worker needs it. */
export interface ClusterPlace {
  readonly name: string;
  readonly jurisdiction: string | null;
  readonly placement: readonly string[];
}

export interface ForwardRequest {
  readonly method: string;
  /** Path and query as the node sees them. */
  readonly target: string;
  readonly headers: Headers;
  readonly body: Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array> | null;
  /** The one node to ask, or null for a choice. */
  readonly node: number | null;
  /** Ask the leader if it is known: writes and linearizable reads. */
  readonly leaderFirst: boolean;
  /** Null: as long as it takes. */
  readonly deadlineMs: number | null;
}

export interface DirectoryOptions {
  /** In [0, 1); spreads load over nodes. */
  readonly random: () => number;
}

const LEADERS_MAX = 1000;
/** The node answered that it took nothing on and will not soon: another one may. */
const ELSEWHERE: ReadonlySet<ErrorCode> = new Set(["node_halted", "cluster_not_ready"]);

export class NodeDirectory {
  readonly #leaders = new Map<string, number>();
  readonly #random: () => number;

  constructor(options: DirectoryOptions) {
    this.#random = options.random;
  }

  /** @throws ConcordError `no_leader`, `overloaded` or `timeout` when no node answered. */
  async forward(
    namespace: NodeNamespace,
    nodesCount: number,
    cluster: ClusterPlace,
    request: ForwardRequest,
  ): Promise<Response> {
    const isRepeatable =
      request.method === "GET" || request.method === "HEAD" || request.headers.has("idempotency-key");
    let overloaded = false;
    let answered: Response | null = null;
    for (const node of this.#candidates(cluster.name, nodesCount, request)) {
      const attempt = await this.#attempt(namespace, cluster, node, request);
      if (attempt.kind === "timeout") throw unknownOutcome("No node answered in time.");
      if (attempt.kind === "response") {
        this.#learn(cluster.name, nodesCount, attempt.response);
        if (attempt.response.status !== 503) return attempt.response;
        const text = await attempt.response.text();
        answered = new Response(text, attempt.response);
        if (!isElsewhere(text)) return answered;
        continue;
      }
      if (this.#leaders.get(cluster.name) === node) this.#leaders.delete(cluster.name);
      overloaded ||= attempt.overloaded;
      // An overloaded object turns requests away before it takes them on.
      if (!isRepeatable && !attempt.overloaded) throw unknownOutcome("The connection to a node broke.");
    }
    if (answered !== null) return answered;
    if (overloaded) throw new ConcordError({ code: "overloaded", detail: "The nodes turn requests away; try later." });
    if (request.method !== "GET" && request.method !== "HEAD") throw unknownOutcome("No node could be reached.");
    throw new ConcordError({ code: "no_leader", reason: "unreachable", detail: "No node could be reached." });
  }

  #candidates(cluster: string, nodesCount: number, request: ForwardRequest): number[] {
    if (request.node !== null) return [request.node];
    const leader = request.leaderFirst ? this.#leaders.get(cluster) : undefined;
    const first = leader ?? 1 + Math.floor(this.#random() * nodesCount);
    if (request.body instanceof ReadableStream) return [first];
    return Array.from({ length: nodesCount }, (_, step) => 1 + ((first - 1 + step) % nodesCount));
  }

  async #attempt(
    namespace: NodeNamespace,
    cluster: ClusterPlace,
    node: number,
    request: ForwardRequest,
  ): Promise<Attempt> {
    const name = `${cluster.name}/${node}`;
    const headers = new Headers(request.headers);
    headers.set(OBJECT_HEADER, name);
    const { method, body } = request;
    // `duplex`: what is sent as it comes must say so, by the standard.
    const init = body === null ? { method, headers } : { method, headers, body, duplex: "half" as const };
    const sent = send(placed(namespace, cluster), cluster, node, new Request(`http://node${request.target}`, init));
    return request.deadlineMs === null ? await sent : await withDeadline(sent, request.deadlineMs - Date.now());
  }

  #learn(cluster: string, nodesCount: number, response: Response): void {
    const leader = Number(response.headers.get("concord-leader") ?? "0");
    if (!Number.isSafeInteger(leader) || leader < 1 || leader > nodesCount) return;
    if (this.#leaders.size >= LEADERS_MAX) this.#leaders.clear();
    this.#leaders.set(cluster, leader);
  }
}

type Attempt =
  | { readonly kind: "response"; readonly response: Response }
  | { readonly kind: "broken"; readonly overloaded: boolean }
  | { readonly kind: "timeout" };

async function send(namespace: NodeNamespace, cluster: ClusterPlace, node: number, request: Request): Promise<Attempt> {
  const hint = cluster.placement[node - 1];
  try {
    const id = namespace.idFromName(`${cluster.name}/${node}`);
    const stub = hint === undefined ? namespace.get(id) : namespace.get(id, { locationHint: hint });
    return { kind: "response", response: await stub.fetch(request) };
  } catch (error) {
    // Whatever the platform throws here means that no answer came; its flags say whether the request was taken on.
    const overloaded = typeof error === "object" && error !== null && Reflect.get(error, "overloaded") === true;
    return { kind: "broken", overloaded };
  }
}

async function withDeadline(sent: Promise<Attempt>, leftMs: number): Promise<Attempt> {
  const late = Promise.withResolvers<Attempt>();
  const timer = setTimeout(() => late.resolve({ kind: "timeout" }), Math.max(0, leftMs));
  try {
    return await Promise.race([sent, late.promise]);
  } finally {
    clearTimeout(timer);
  }
}

/** @throws whatever the platform says to a jurisdiction that it does not know. */
export function placed(namespace: NodeNamespace, cluster: { readonly jurisdiction: string | null }): NodeNamespace {
  if (cluster.jurisdiction === null) return namespace;
  if (namespace.jurisdiction === undefined) throw new TypeError("the namespace knows no jurisdictions");
  return namespace.jurisdiction(cluster.jurisdiction);
}

/** Reads the code of a problem document; a 503 of another kind is passed on as it is. */
function isElsewhere(text: string): boolean {
  const code = /"code":"([a-z_]+)"/.exec(text)?.[1];
  return ELSEWHERE.has(code as ErrorCode);
}

function unknownOutcome(what: string): ConcordError {
  const detail = `${what} Whether the request was carried out is unknown; repeat it under its idempotency key.`;
  return new ConcordError({ code: "timeout", detail });
}
