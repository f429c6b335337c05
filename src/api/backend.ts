/**
 * What the HTTP routes (and every later surface) need of a node. Types only: the Durable Object implements it over the
 * runtime, tests implement it over a bare state machine.
 */
import type { Command, CommandResult, Idempotency, Outcome, Query, QueryResult } from "../kv/command.ts";

export type Consistency = "linearizable" | "serializable";

export interface CallOptions {
  /** How long the caller waits; the entry itself does not end (design 02 §2). */
  readonly timeoutMs: number;
}

export interface ReadOptions extends CallOptions {
  readonly consistency: Consistency;
  /** Serializable only: wait until this revision is applied, or fail `behind`. */
  readonly minRevision?: number;
}

/** Both promises reject with ConcordError for cluster errors (`no_leader`, `timeout`, …); apply errors are outcomes. */
export interface Backend {
  execute(command: Command, idempotency: Idempotency | null, options: CallOptions): Promise<Outcome<CommandResult>>;
  query(query: Query, options: ReadOptions): Promise<Outcome<QueryResult>>;
  /** From this node's own memory; wakes nobody. */
  position(): NodePosition;
  /** `GET /v1/cluster`: what this node knows and what its peers answered. */
  cluster(): Promise<ClusterStatus>;
}

export interface NodePosition {
  readonly clusterId: string | null;
  readonly node: number;
  readonly leader: number | null;
  readonly revision: number;
  readonly ready: boolean;
  readonly halted: string | null;
}

export interface NodeStatus {
  readonly id: number;
  readonly state: "empty" | "forming" | "formed" | "lost" | "halted" | "unreachable";
  readonly role: "leader" | "follower" | "candidate" | "pre_candidate" | null;
  readonly term: number;
  readonly leader: number | null;
  readonly last_index: number;
  readonly commit_index: number;
  readonly applied_index: number;
  readonly revision: number;
  /** Digest of the state after `digest_index`: equal on all nodes for equal indexes. */
  readonly digest: string;
  readonly digest_index: number;
  readonly incarnation: number;
  readonly storage_bytes: number;
  readonly halted: string | null;
}

export interface ClusterStatus {
  readonly cluster_id: string | null;
  readonly name: string;
  readonly leader: number | null;
  readonly revision: number;
  readonly nodes: readonly NodeStatus[];
  /** The highest applied index for which every reachable node named its digest, and whether they are equal. */
  readonly digests: { readonly index: number; readonly equal: boolean } | null;
}
