/**
 * A cluster as its clients see it: nodes that have applied some of one history, serving watches over sessions and as
 * server-sent events, topics, and a few reads. Everything that may go wrong is done by a test by hand. No time passes
 * here, and nothing is checked of what the real server checks.
 */
import type { WireKey, WireRecord, WireWatchEvent, WireWatchFrame } from "../../src/api/wire.ts";
import type { JsonValue } from "../../src/client/index.ts";
import { eventResponse } from "./model-events.ts";
import { ModelSocket } from "./model-socket.ts";
import { type ModelWatch, parsePosition, type WatchTerms } from "./model-watch.ts";

export const URL_BASE = "http://model.example";

export interface Opened {
  readonly node: number;
  readonly transport: "session" | "events";
  readonly terms: WatchTerms;
}

/** A write as a test names it; a value of undefined deletes. */
export type Change = readonly [key: string, value: JsonValue | undefined];

export interface Asked {
  readonly method: string;
  readonly params: Readonly<Record<string, unknown>>;
}

/** What becomes of one call of a session. */
export type Answer =
  | { readonly result: object }
  | {
      readonly problem: {
        readonly code: string;
        readonly retry: string;
        readonly reason?: string;
        readonly [name: string]: unknown;
      };
    }
  | "silence"
  /** The socket closes without an answer. */
  | "break";

export class ModelCluster {
  clusterId = "c-1";
  revision = 0;
  compactRevision = 0;
  events: WireWatchEvent[] = [];
  readonly records = new Map<string, WireRecord>();
  /** How many revisions each node is behind, by node from 1. */
  lags = [0, 0, 0];
  leader: number | null = 1;
  /** The node that the next connection reaches. */
  nextNode = 1;
  /** Sockets and requests that were let in or not. */
  refusesSockets = false;
  refusesEvents = false;
  /** Bytes come, but the greeting does not. */
  greets = true;
  /** Nodes answer pings, or send comments. */
  isAlive = true;
  /** Watches are created and then forgotten without a word. */
  losesWatches = false;
  /** Problem that refuses watches of this prefix. */
  forbiddenPrefix: string | null = null;
  /** Watches get no frames. */
  isHolding = false;
  /** Frames that a watch gets without acknowledging. */
  creditFrames = 1_000;
  /** Characters of a message beyond which it is sent in parts. */
  messageCharsMax = Number.POSITIVE_INFINITY;
  /** Events of the next frame, given how many there are. */
  cut: (count: number) => number = (count) => count;
  /** Answers calls of sessions; undefined: as a node would. */
  answer: (asked: Asked) => Answer | Promise<Answer> | undefined = () => undefined;

  readonly opened: Opened[] = [];
  readonly sockets = new Set<ModelSocket>();
  /** Every socket that was ever opened. */
  readonly socketsOpened: ModelSocket[] = [];
  readonly watches = new Set<ModelWatch>();
  /** Ends of topics that are served as events. */
  readonly topicStreams = new Set<() => void>();
  readonly asked: Asked[] = [];
  readonly requests: Request[] = [];
  readonly #topics = new Set<{ readonly topic: string; readonly tell: (payload: JsonValue) => void }>();

  readonly openSocket = (url: string, protocols: string[]): ModelSocket => {
    const socket = new ModelSocket(this, { url, protocols, node: this.#takeNode() });
    this.socketsOpened.push(socket);
    return socket;
  };

  readonly fetch = async (request: Request): Promise<Response> => {
    this.requests.push(request);
    const url = new URL(request.url);
    if (url.pathname === "/v1/watch") return this.#fetchWatch(request, url.searchParams);
    if (url.pathname.startsWith("/v1/topics/") && request.method === "GET") {
      return this.#fetchTopic(request, decodeURIComponent(url.pathname.slice("/v1/topics/".length)));
    }
    const asked = askedOf(url, request.method, await request.text());
    const outcome = this.handle(asked);
    return "problem" in outcome ? this.problemResponse(outcome.problem) : this.json(outcome.result);
  };

  /** Commits one revision. */
  commit(...changes: readonly Change[]): number {
    this.revision += 1;
    const { revision } = this;
    for (const [op_index, [key, value]] of changes.entries()) {
      const before = this.records.get(key);
      const record: WireRecord = {
        key,
        value: value ?? null,
        create_revision: before?.create_revision ?? revision,
        mod_revision: revision,
        version: (before?.version ?? 0) + 1,
        lease_id: null,
        expires_at_ms: null,
        content_type: null,
        metadata: {},
      };
      if (value === undefined) this.records.delete(key);
      else this.records.set(key, record);
      this.events.push({ revision, op_index, type: value === undefined ? "delete" : "put", ...record });
    }
    this.pump();
    return revision;
  }

  compact(revision: number): void {
    this.compactRevision = revision;
    this.events = this.events.filter((event) => event.revision > revision);
  }

  /** Another cluster in the place of this one: what a restore leaves. Connections are lost. */
  restore(clusterId: string, revision: number): void {
    this.clusterId = clusterId;
    this.revision = revision;
    this.compactRevision = revision;
    this.events = [];
    for (const [key, record] of this.records)
      this.records.set(key, { ...record, mod_revision: Math.min(record.mod_revision, revision) });
    this.breakAll();
  }

  applied(node: number): number {
    return this.revision - (this.lags[node - 1] ?? 0);
  }

  pump(): void {
    for (const watch of this.watches) watch.pump();
  }

  /** Every watch gets `frame`; the position is filled in where there is one. */
  tell(frame: WireWatchFrame): void {
    for (const watch of [...this.watches]) watch.tell(frame);
  }

  /** Every watch is told its progress as soon as everything before it has been sent. */
  tellProgress(): void {
    for (const watch of [...this.watches]) watch.tellProgress();
  }

  changeLeader(leader: number | null): void {
    this.leader = leader;
    for (const socket of this.sockets) socket.notify("leader_changed", { leader });
    for (const watch of this.watches) if (watch.transport === "events") watch.tell({ kind: "leader_changed", leader });
  }

  /** Every connection breaks. */
  breakAll(): void {
    for (const socket of [...this.sockets]) socket.fail();
    for (const watch of [...this.watches]) watch.break();
    for (const close of [...this.topicStreams]) close();
  }

  /** Nobody answers anything any more, and nobody says so. */
  freeze(): void {
    this.isAlive = false;
    for (const socket of this.sockets) socket.isFrozen = true;
    for (const watch of [...this.watches]) watch.forget();
  }

  publish(topic: string, payload: JsonValue): void {
    for (const subscriber of this.#topics) if (subscriber.topic === topic) subscriber.tell(payload);
  }

  subscribe(topic: string, tell: (payload: JsonValue) => void): () => void {
    const subscriber = { topic, tell };
    this.#topics.add(subscriber);
    return () => void this.#topics.delete(subscriber);
  }

  subscribersOf(topic: string): number {
    return [...this.#topics].filter((subscriber) => subscriber.topic === topic).length;
  }

  /** Operations that are no matter of a connection. */
  handle(asked: Asked): Exclude<Answer, "silence" | "break"> {
    this.asked.push(asked);
    const { method, params } = asked;
    switch (method) {
      case "revision":
        return { result: { revision: this.revision } };
      case "kv.list":
        return { result: this.#list(params) };
      case "topic.publish":
        this.publish(String(params.topic), params.payload as JsonValue);
        return { result: { revision: this.revision } };
      case "txn": {
        const [put] = (params.success ?? []) as readonly { readonly key: string; readonly value: JsonValue }[];
        if (put === undefined) throw new Error("the model knows txns of one put");
        const revision = this.commit([put.key, put.value]);
        return { result: { succeeded: true, revision, responses: [{ type: "put", key: put.key }] } };
      }
      default:
        throw new Error(`the model does not know ${method}`);
    }
  }

  readonly #lists = new Map<string, { readonly revision: number; readonly records: readonly WireRecord[] }>();

  #list(params: Readonly<Record<string, unknown>>): object {
    const { prefix, start, end, cursor, limit = 100, keys_only } = params;
    // Later pages show the state of the first one, as they do on a node: the cursor is pinned to its revision.
    const [id = "", after = ""] = cursor === undefined ? [] : String(cursor).split(" ");
    const pinned = this.#lists.get(id) ?? { revision: this.revision, records: [...this.records.values()] };
    const pin = id === "" ? String(this.#lists.size + 1) : id;
    this.#lists.set(pin, pinned);
    const inside = pinned.records
      .filter(({ key }) => matches({ prefix, range: { start, end } }, key) && String(key) > after)
      .sort((left, right) => (String(left.key) < String(right.key) ? -1 : 1));
    const records = inside.slice(0, Number(limit));
    const last = records.at(-1);
    return {
      records: keys_only === true || keys_only === "true" ? records.map(({ value: _, ...record }) => record) : records,
      count: records.length,
      cursor: inside.length > records.length && last !== undefined ? `${pin} ${String(last.key)}` : null,
      revision: pinned.revision,
    };
  }

  #takeNode(): number {
    return 1 + ((this.nextNode - 1) % this.lags.length);
  }

  #fetchWatch(request: Request, query: URLSearchParams): Response {
    if (this.refusesEvents) throw new TypeError("fetch failed");
    const node = this.#takeNode();
    const number = (name: string) => (query.has(name) ? Number(query.get(name)) : undefined);
    const text = (name: string) => query.get(name) ?? undefined;
    const terms: WatchTerms = {
      key: text("key"),
      prefix: text("prefix"),
      range: query.has("start") ? { start: text("start"), end: text("end") } : undefined,
      from_revision: number("from_revision"),
      after: text("after"),
      include_values: query.has("include_values") ? query.get("include_values") === "true" : undefined,
      filter: text("filter"),
      cluster_id: text("cluster_id"),
    };
    const refused = this.refusalOf(terms);
    if (refused !== null) return this.problemResponse(refused);
    if (this.isCompacted(terms)) {
      return this.problemResponse({ code: "compacted", retry: "no", compact_revision: this.compactRevision });
    }
    return eventResponse(this, { request, node, terms });
  }

  #fetchTopic(request: Request, topic: string): Response {
    if (this.refusesEvents) throw new TypeError("fetch failed");
    return eventResponse(this, { request, node: this.#takeNode(), topic });
  }

  refusalOf(terms: WatchTerms): { readonly code: string; readonly retry: string } | null {
    if (terms.prefix !== undefined && terms.prefix === this.forbiddenPrefix) return { code: "forbidden", retry: "no" };
    if (terms.cluster_id !== undefined && terms.cluster_id !== this.clusterId)
      return { code: "cluster_changed", retry: "no" };
    return null;
  }

  isCompacted({ after, from_revision }: WatchTerms): boolean {
    const revision =
      after !== undefined ? parsePosition(after).revision : (from_revision ?? Number.POSITIVE_INFINITY) - 1;
    return revision < this.compactRevision;
  }

  json(body: object): Response {
    const headers = { "concord-cluster": this.clusterId, "concord-revision": String(this.revision) };
    return Response.json(body, { headers });
  }

  problemResponse(problem: {
    readonly code: string;
    readonly retry: string;
    readonly [name: string]: unknown;
  }): Response {
    const body = { detail: "It is so.", ...problem };
    return Response.json(body, {
      status: problem.retry === "no" ? 403 : 503,
      headers: { "content-type": "application/problem+json", "concord-cluster": this.clusterId },
    });
  }
}

export function matches(
  selector: { key?: unknown; prefix?: unknown; range?: { start?: unknown; end?: unknown } | undefined },
  key: WireKey,
): boolean {
  const text = String(key);
  if (selector.key !== undefined) return text === selector.key;
  if (selector.prefix !== undefined) return text.startsWith(String(selector.prefix));
  const { start = "", end } = selector.range ?? {};
  return text >= String(start) && (end === undefined || text < String(end));
}

function askedOf(url: URL, verb: string, body: string): Asked {
  const query = Object.fromEntries(url.searchParams);
  if (url.pathname === "/v1/revision") return { method: "revision", params: query };
  if (url.pathname === "/v1/kv" && verb === "GET") return { method: "kv.list", params: query };
  if (url.pathname === "/v1/txn") return { method: "txn", params: JSON.parse(body) };
  if (url.pathname.startsWith("/v1/topics/")) {
    const topic = decodeURIComponent(url.pathname.slice("/v1/topics/".length));
    return { method: "topic.publish", params: { topic, payload: JSON.parse(body) } };
  }
  throw new Error(`the model has no ${verb} ${url.pathname}`);
}
