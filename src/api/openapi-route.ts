/** What is said of one route: the rows that the OpenAPI document is made of. Types, and the errors that routes share. */
import type { ZodType } from "zod";
import type { ErrorCode } from "../base/errors.ts";
import type { JsonObject, JsonValue } from "../base/json.ts";

export type RouteMethod = "GET" | "PUT" | "POST" | "DELETE";

export interface RouteRow {
  readonly method: RouteMethod;
  /** With `{name}` for what varies; a name in `wide` may hold slashes. */
  readonly path: string;
  readonly wide?: true;
  /** The operation's id in the document. */
  readonly id: string;
  readonly tag: Tag;
  readonly summary: string;
  /** Markdown. */
  readonly description?: string;
  /** Who answers: the Worker itself, a node of the cluster that the path names, or one of the cluster `default`. */
  readonly by: "worker" | "node" | "node of default";
  /** Default `token`: a bearer token, where one is set. */
  readonly access?: "token" | "open";
  readonly parameters?: readonly Parameter[];
  readonly body?: RequestBody;
  readonly replies: readonly Reply[];
  /** Codes beside those of {@link sharedErrors}. */
  readonly errors?: readonly ErrorCode[];
  readonly examples: readonly Example[];
  /** Members of the operation that OpenAPI does not define; each begins with `x-`. */
  readonly extensions?: (schemaOf: SchemaOf) => JsonObject;
}

/** A schema as it stands in the document: a reference if it has a name, unless it is wanted inline. */
export type SchemaOf = (schema: ZodType, form?: "inline") => JsonObject;

export type Tag = (typeof TAGS)[number]["name"];

export const TAGS = [
  { name: "records", description: "One record, lists, and many keys at one revision." },
  { name: "transactions", description: "Compare any number of keys, then write one branch or the other." },
  { name: "sync", description: "The past and what follows: changes, history, watches, compaction." },
  { name: "session", description: "Every operation over one WebSocket." },
  { name: "leases", description: "Keys that end with their owner." },
  { name: "topics", description: "Lossy messages, kept nowhere." },
  { name: "clusters", description: "Clusters, nodes and probes." },
  { name: "administration", description: "Membership, leadership, repair: with the root token, at any node." },
] as const;

/** A JSON Schema, as far as parameters need it. */
export interface ParameterSchema {
  readonly type: "string" | "integer" | "boolean";
  readonly enum?: string[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly default?: string | number | boolean;
  readonly pattern?: string;
}

export interface Parameter {
  readonly name: string;
  readonly in: "query" | "path" | "header";
  readonly description: string;
  readonly schema: ParameterSchema;
  readonly required?: true;
}

export interface RequestBody {
  readonly description?: string;
  /** Larger than memory: there is no limit. */
  readonly isStream?: true;
  readonly required: boolean;
  /** By media type; null: any bytes. */
  readonly content: Readonly<Record<string, ZodType | null>>;
}

export interface Reply {
  readonly status: number;
  readonly description: string;
  /** By media type; null: text or bytes. */
  readonly content?: Readonly<Record<string, ZodType | null>>;
  /** Names of {@link REPLY_HEADERS} beside those of every node's reply. */
  readonly headers?: readonly ReplyHeader[];
}

/**
 * A request and what is answered. Every one holds on a cluster at revision 2 that has the records
 * `/work/items/42/state` (revision 1) and, written by a txn under the key `claim-agent_7`, `/work/items/42/holder`
 * (revision 2) under lease 1 of 30 s. A test sends them all.
 */
export interface Example {
  readonly name: string;
  readonly summary: string;
  /** Values of parameters, by name. */
  readonly parameters?: Readonly<Record<string, string>>;
  /** Sent as `application/json` unless `mediaType` says otherwise. */
  readonly body?: JsonValue;
  readonly mediaType?: string;
  readonly status: number;
  /** Text for a reply that is not JSON. */
  readonly reply?: JsonValue;
}

export type ReplyHeader = keyof typeof REPLY_HEADERS;

export const REPLY_HEADERS = {
  "concord-cluster": "Id of the cluster. Another id means another history: forget all revisions.",
  "concord-revision": "A revision that the answering node, or this write, has reached.",
  "concord-node": "The node that answered.",
  "concord-leader": "The node that it takes for the leader.",
  etag: '`"<mod_revision>"` of the record that was read or written.',
  location: "The path of the new cluster.",
  "concord-backup-revision": "The revision that the backup is of.",
  "concord-backup-index": "The last log entry in it.",
  "retry-after": "Seconds; with every error whose `retry` is `yes`.",
  "www-authenticate": "`Bearer`, with 401.",
  upgrade: "`websocket`, with 426.",
} as const;

export const NODE_HEADERS = ["concord-cluster", "concord-revision", "concord-node", "concord-leader"] as const;

/** What any route of that kind can answer: how it is reached, not what it does. */
export function sharedErrors(row: RouteRow): readonly ErrorCode[] {
  const { by, access = "token", method, body } = row;
  const codes: ErrorCode[] = ["forbidden"];
  if (access === "token") codes.push("unauthenticated");
  if (by !== "worker") {
    codes.push(
      "invalid_request",
      "cluster_changed",
      "no_leader",
      "overloaded",
      "cluster_not_ready",
      "timeout",
      "internal",
    );
  }
  if (by === "node") codes.push("unknown_cluster");
  if (method !== "GET" && body?.isStream !== true) codes.push("body_too_large");
  if (body !== undefined && !("*/*" in body.content)) codes.push("unsupported_media_type");
  return codes;
}

/** Of reads of the state that take the parameters of consistency. */
export const READ_ERRORS = ["behind", "revision_in_future", "node_halted"] as const satisfies readonly ErrorCode[];
/** Of writes, which may be under an idempotency key. */
export const WRITE_ERRORS = [
  "idempotency_conflict",
  "idempotency_expired",
  "node_halted",
] as const satisfies readonly ErrorCode[];
