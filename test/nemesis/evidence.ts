/**
 * What the clients of a run saw, as data: recorded beside the calls (load.ts, lease-holders.ts, watchers.ts) and judged
 * afterwards (checks.ts). All times are milliseconds of one monotonic clock, that of the process of the clients.
 *
 * E1. `callMs` is taken before anything is sent, `endMs` after the answer was seen: so what is concluded from "A ended
 *     before B began" is true however busy the process was.
 * E2. Every put has a value that no other write of the run has: `{"op": ID}`, perhaps with more members. So each event
 *     of the feed tells whose it is.
 */

export interface Span {
  /** Position of the client. */
  readonly client: number;
  readonly callMs: number;
  /** Infinity: nothing is known. */
  readonly endMs: number;
  /** The highest revision that this client had seen before the call. */
  readonly seen: number;
}

/** `op`: of the write whose value stands there; null: no record. */
export interface Seen {
  readonly op: string | null;
  readonly modRevision: number;
}

export interface Compare extends Seen {
  readonly key: string;
}

export interface Change {
  readonly key: string;
  readonly kind: "put" | "delete";
  /** The key is a prefix, the cluster adds the revision. */
  readonly suffixed?: true;
  readonly lease?: number;
  /** A number beside the id: the balance of an account. */
  readonly amount?: number;
}

export type WriteEnd =
  | {
      readonly kind: "answered";
      readonly succeeded: boolean;
      /** Something was put, or something was there to be deleted. */
      readonly hadEffect: boolean;
      /** Of each answer under the same idempotency key. */
      readonly revisions: readonly number[];
    }
  /** Nothing was done, for certain. */
  | { readonly kind: "refused"; readonly code: string }
  | { readonly kind: "unknown"; readonly code: string };

export interface WriteRecord extends Span {
  readonly op: string;
  /** For the summary. */
  readonly kind: string;
  readonly compares: readonly Compare[];
  readonly changes: readonly Change[];
  readonly end: WriteEnd;
}

export interface ReadRecord extends Span {
  readonly kind: string;
  readonly isLinearizable: boolean;
  /** Null: the answer did not say it. */
  readonly revision: number | null;
  readonly found: readonly (Seen & { readonly key: string; readonly amount: number | null })[];
}

/** One event, from the feed of one node. */
export interface FeedEvent {
  readonly revision: number;
  readonly opIndex: number;
  readonly kind: "put" | "delete";
  readonly key: string;
  /** Null for a delete, and for a value that nobody of the run has written. */
  readonly op: string | null;
  readonly amount: number | null;
  readonly createRevision: number;
  readonly version: number;
  readonly lease: number | null;
}

export type WatchSelector =
  | { readonly prefix: string }
  | { readonly range: { readonly start: string; readonly end: string } };

export interface WatcherRecord {
  readonly name: string;
  readonly selector: WatchSelector;
  readonly filter: "puts" | "deletes" | null;
  readonly prevValues: boolean;
  /** Everything behind this revision is wanted. */
  startRevision: number;
  /** What came, in order, as `eventText` writes it. */
  readonly texts: string[];
  /** Whether revisions come whole, and where each of them ended in `texts`. */
  readonly groups: number[] | null;
  /** When the end of the lease of such a key was first seen. */
  readonly leaseEnds: Map<string, number>;
  /** The revision of the last event; or what the watch was told to have passed. */
  reached: number;
  resumptions: number;
  /** What ended it although nobody wanted that. */
  failure: string | null;
}

export interface Renewal {
  /** Not before this was the client asked for the call: it may have waited for a connection. */
  readonly askedMs: number;
  readonly sentMs: number;
  readonly endMs: number;
  readonly ttlS: number;
}

export interface LeaseRecord {
  readonly id: number;
  readonly client: number;
  readonly kind: "keeper" | "short";
  readonly ttlS: number;
  readonly keys: readonly string[];
  /** The grant and every keep-alive that was answered well. */
  readonly renewals: Renewal[];
  /** When the holder first asked for its end; null: never. */
  revokedMs: number | null;
  /** Proofs that it had ended by then, other than events of watches. */
  readonly ends: { readonly atMs: number; readonly how: string }[];
  lost: { readonly atMs: number; readonly reason: string } | null;
  /** Its keeper gave it back, and had not been told that it was lost. */
  isKept: boolean;
}

/** When a client's own revision was looked at, in order. */
export interface ClientRecord {
  readonly name: string;
  readonly revisions: number[];
}

export interface Evidence {
  readonly clients: readonly ClientRecord[];
  readonly writes: readonly WriteRecord[];
  readonly reads: readonly ReadRecord[];
  readonly leases: readonly LeaseRecord[];
  readonly watchers: readonly WatcherRecord[];
  /** Of each node, the whole of it. */
  readonly feeds: readonly (readonly FeedEvent[])[];
}

/** Where leases have their keys: nothing but the end of a lease deletes there. */
export const LEASE_PREFIX = "/n/lease/";

/** Equal texts are equal events. */
export function eventText(event: {
  readonly revision: number;
  readonly opIndex: number;
  readonly kind: "put" | "delete";
  readonly key: string;
  readonly op: string | null;
  /** Undefined: was not asked for. */
  readonly previous?: string | null;
}): string {
  const { revision, opIndex, kind, key, op, previous } = event;
  const was = previous === undefined ? "" : ` was ${previous ?? "nothing"}`;
  return `${revision}.${opIndex} ${kind} ${key} ${op ?? "-"}${was}`;
}

/** The id and the number that a value of this run carries. */
export function valueParts(value: unknown): { readonly op: string | null; readonly amount: number | null } {
  if (typeof value !== "object" || value === null) return { op: null, amount: null };
  const { op, amount } = value as { readonly op?: unknown; readonly amount?: unknown };
  return { op: typeof op === "string" ? op : null, amount: typeof amount === "number" ? amount : null };
}
