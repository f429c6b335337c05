/**
 * What the HTTP routes (and every later surface) need of a node. Types only: the Durable Object implements it over the
 * runtime, tests implement it over a bare state machine.
 */
import type { BackupManifest } from "../kv/backup-format.ts";
import type { Command, CommandResult, Idempotency, Outcome, Query, QueryResult } from "../kv/command.ts";
import type { Position } from "../kv/position.ts";
import type { Frame } from "../watch/frames.ts";
import type { Subscribed, WatchOptions } from "../watch/hub.ts";

export type Consistency = "linearizable" | "serializable";

export interface CallOptions {
  /** How long the caller waits; the entry itself does not end. */
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
  /** What an administrator asks of the cluster or of one node. Rejects with ConcordError if it is refused. */
  administer(action: AdminAction, options: CallOptions): Promise<AdminOutcome>;
  /** Watches and topics for one client, until `close`. */
  connect(sink: ConnectionSink): Connection;
  /** The state behind everything acknowledged so far, as text. @throws ConcordError: not now, or not here. */
  openBackup(options: CallOptions): Promise<BackupSource>;
  /**
   * Restores the text into this cluster, which must be empty (kv/restore.ts). Nothing happens before all of it was
   * verified; what is interrupted behind that leaves a cluster that serves nothing until a restore has come to its end.
   * @throws ConcordError
   */
  restore(text: ReadableStream<Uint8Array>, wish: RestoreWish): Promise<Restored>;
  /** Tells every subscriber of the topic, on every node that can be reached now; lossy, kept nowhere. */
  publish(message: TopicMessage): void;
}

/** A backup that is being read; the node holds what it was opened for until it is complete or closed. */
export interface BackupSource {
  readonly manifest: BackupManifest;
  /** The next piece of the text, which may be empty; null: it is complete. @throws ConcordError: the backup is lost. */
  next(): string | null;
  close(): void;
}

export interface RestoreWish {
  /** Default RESTORE_REVISION_JUMP_DEFAULT. */
  readonly revisionJump: number | null;
}

export interface Restored {
  readonly clusterId: string;
  readonly revision: number;
  readonly manifest: BackupManifest;
}

/** Where a connection's news go. Both are called within a turn of the node: they must neither throw nor wait. */
export interface ConnectionSink {
  /** In the order in which the client must see them. */
  onFrames(frames: readonly Frame[]): void;
  onTopic(message: TopicMessage): void;
  /** The node lets go of a stream: nothing more comes, whoever reads it connects again. Sockets are closed by their host. */
  onDropped?(): void;
}

/** One client's watches and topics on this node; `watchId` and topics are its own name space. */
export interface Connection {
  readonly id: string;
  subscribe(subscription: ConnectionSubscription): Subscribed;
  /** False: there is no such watch (any more). No frame of it follows either way. */
  cancel(watchId: number): boolean;
  /** The client has everything up to `position`: its credit comes back. */
  acknowledge(watchId: number, position: Position): void;
  /** Asks for a `progress` frame as soon as the watch has caught up. False: there is no such watch (any more). */
  requestProgress(watchId: number): boolean;
  /** @throws ConcordError `invalid_request` (`too_many_topics`) or `overloaded`. */
  subscribeTopic(topic: string): void;
  unsubscribeTopic(topic: string): void;
  close(): void;
}

export interface ConnectionSubscription extends Omit<WatchOptions, "connection"> {
  /** First revision wanted; null = from now on. A future one waits. */
  readonly fromRevision: number | null;
  /** Resume behind this position; wins over `fromRevision`. */
  readonly afterPosition?: Position;
}

export interface TopicMessage {
  readonly topic: string;
  /** JSON text. */
  readonly payload: string;
}

export interface NodePosition {
  readonly clusterId: string | null;
  readonly node: number;
  readonly leader: number | null;
  readonly revision: number;
  /** A leader is known, or the node sleeps and would find one. */
  readonly ready: boolean;
  /** A backup is on its way into the cluster, or was interrupted: nothing is served. */
  readonly restoring: boolean;
  readonly halted: string | null;
}

/** What a node says of itself from memory. */
export interface NodeSummary {
  readonly id: number;
  readonly state: "empty" | "forming" | "formed" | "lost" | "halted" | "unreachable";
  readonly role: "leader" | "follower" | "candidate" | "pre_candidate" | null;
  /** What it is in the cluster by its own log: a node that lost its storage is none, then a learner, then a voter. */
  readonly member: "voter" | "learner" | null;
  readonly term: number;
  readonly leader: number | null;
  /** The first entry that the log still holds; one more than `last_index` if it is empty. */
  readonly first_index: number;
  readonly last_index: number;
  readonly commit_index: number;
  readonly applied_index: number;
  readonly revision: number;
  /** Digest of the state after `digest_index`: equal on all nodes for equal indexes. */
  readonly digest: string;
  readonly digest_index: number;
  readonly incarnation: number;
  readonly storage_bytes: number;
  /** Sleeps until it is wanted. */
  readonly quiescent: boolean;
  readonly halted: string | null;
  /** A snapshot that it holds ready for members which need entries that are gone from its log. */
  readonly snapshot_out: { readonly index: number; readonly rows_total: number } | null;
  /** A snapshot that it takes in, and how far that has come. */
  readonly snapshot_in: { readonly index: number; readonly rows: number; readonly rows_total: number } | null;
  /** Versions of its storage's format and of what nodes say to each other. */
  readonly format: number;
  readonly protocol: number;
  /** Where on the network it runs; null where the platform does not say. */
  readonly colo: string | null;
}

export interface NodeStatus extends NodeSummary {
  /** Sum of the seals of all durable rows, those after entry `set_hash_index`: equal on all nodes for equal indexes. */
  readonly set_hash: number | null;
  readonly set_hash_index: number;
  /** How long ago the leader heard it; null: there is no leader that could say. */
  readonly last_contact_ms: number | null;
}

/** Who takes part, by the newest entry about it in the log of `node`. */
export interface MembershipStatus {
  /** The leader, if there is one that answers; else the node that knows most. */
  readonly node: number;
  /** 0: the cluster was formed with it. */
  readonly index: number;
  readonly committed: boolean;
  readonly voters: readonly number[];
  readonly learners: readonly number[];
}

export type AdminAction =
  | { readonly kind: "add" | "remove" | "promote"; readonly node: number }
  /** Null: to any voter that could lead. */
  | { readonly kind: "transfer"; readonly to: number | null }
  | { readonly kind: "restart"; readonly node: number }
  /** `force`: also if it has not halted. */
  | { readonly kind: "repair"; readonly node: number; readonly force: boolean }
  | { readonly kind: "init"; readonly members: readonly number[] };

export interface AdminOutcome {
  /** `done`: committed, or in force. `unchanged`: it was so before. `under_way`: begun, its end has to be looked for. */
  readonly outcome: "done" | "unchanged" | "under_way";
  /** One or two sentences for a person. */
  readonly detail: string;
  readonly leader: number | null;
  /** As the node has it that did it; null where that one knows none. */
  readonly membership: Omit<MembershipStatus, "node"> | null;
}

export interface ClusterStatus {
  readonly cluster_id: string | null;
  readonly name: string;
  readonly leader: number | null;
  readonly revision: number;
  /** Null: no node that answers knows of any. */
  readonly membership: MembershipStatus | null;
  readonly nodes: readonly NodeStatus[];
  /** The highest applied index for which every reachable node named its digest, and whether they are equal. */
  readonly digests: { readonly index: number; readonly equal: boolean } | null;
}
