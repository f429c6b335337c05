/**
 * A node without consensus for tests of the API: the real state machine over memory, every command applied at once, and
 * the real watch hub. Time is set by hand. What was logged is kept, so that a test can claim that nothing was.
 *
 * Frames reach the sinks before the answer of the write that made them. What a client asks of its watches (subscribe,
 * acknowledge, progress) is followed by a pump in a microtask, never within the call; `pump()` does it at once.
 */
import type {
  AdminAction,
  AdminOutcome,
  Backend,
  BackupSource,
  CallOptions,
  ClusterStatus,
  Connection,
  ConnectionSink,
  NodePosition,
  ReadOptions,
  Restored,
  RestoreWish,
  TopicMessage,
} from "../../src/api/backend.ts";
import { encodeWatchEvent } from "../../src/api/encode.ts";
import { assert } from "../../src/base/assert.ts";
import { ConcordError } from "../../src/base/errors.ts";
import { manifestOf } from "../../src/kv/backup-format.ts";
import { beginIntake, endIntake, takeBackupText } from "../../src/kv/backup-intake.ts";
import { beginBackup, endBackup, writeBackupRows } from "../../src/kv/backup-writer.ts";
import type {
  Command,
  CommandResult,
  Idempotency,
  Outcome,
  Proposal,
  Query,
  QueryResult,
} from "../../src/kv/command.ts";
import { applyEntries, evaluateQuery, type Machine, openMachine } from "../../src/kv/machine.ts";
import { MemoryStore } from "../../src/kv/memory-store.ts";
import { readMeta } from "../../src/kv/state.ts";
import { createHistoryView } from "../../src/watch/history-view.ts";
import {
  acknowledge,
  cancel,
  closeConnection,
  createHub,
  type Hub,
  requestProgress,
  subscribe,
} from "../../src/watch/hub.ts";
import type { HubLimits } from "../../src/watch/limits.ts";
import { publish } from "../../src/watch/publish.ts";
import { pump } from "../../src/watch/pump.ts";

export const CLUSTER_ID = "c-1";
const TOPICS_PER_CONNECTION_MAX = 100;

export class MachineBackend implements Backend {
  /** Payloads of the log, oldest first. */
  readonly logged: string[] = [];
  readonly queries: { readonly query: Query; readonly options: ReadOptions }[] = [];
  readonly commands: { readonly command: Command; readonly options: CallOptions }[] = [];
  readonly actions: { readonly action: AdminAction; readonly options: CallOptions }[] = [];
  nowMs = 1_700_000_000_000;
  clusterId: string | null = CLUSTER_ID;
  leader: number | null = 2;
  node = 1;
  ready = true;
  halted: string | null = null;
  restoring = false;
  /** Backups that are open: opened, neither complete nor closed. */
  openBackups = 0;
  /** A backup that is read loses its state after so many pieces. */
  backupPiecesMax = Number.POSITIVE_INFINITY;
  /** What restores were asked for, and how much text came. */
  readonly restores: { readonly wish: RestoreWish; readonly bytes: number }[] = [];
  /** Thrown by the next call, once. */
  failure: unknown = null;
  readonly hub: Hub;
  /** Messages of topics that were published, oldest first. */
  readonly published: TopicMessage[] = [];
  readonly #machine: Machine = openMachine(new MemoryStore());
  readonly #connections = new Map<string, { readonly sink: ConnectionSink; readonly topics: Set<string> }>();
  #connectionsCount = 0;
  #pumpIsDue = false;

  constructor(limits: Partial<HubLimits> = {}) {
    this.hub = createHub({ revision: 0, encode: encodeWatchEvent, limits });
  }

  get revision(): number {
    return this.#machine.revision;
  }

  get connectionsCount(): number {
    return this.#connections.size;
  }

  async execute(
    command: Command,
    idempotency: Idempotency | null,
    options: CallOptions,
  ): Promise<Outcome<CommandResult>> {
    this.#throwOnce();
    this.commands.push({ command, options });
    const proposal: Proposal = idempotency === null ? { format: 1, command } : { format: 1, command, idempotency };
    const payload = JSON.stringify(proposal);
    this.logged.push(payload);
    const entry = { index: this.#machine.appliedIndex + 1, timeMs: this.nowMs, payload };
    const [applied] = applyEntries(this.#machine, [entry]);
    const outcome = applied?.outcome;
    assert(applied !== undefined && outcome !== undefined && outcome !== null, "a proposal has an outcome");
    publish(this.hub, applied.events);
    this.pump();
    return outcome;
  }

  async query(query: Query, options: ReadOptions): Promise<Outcome<QueryResult>> {
    this.#throwOnce();
    this.queries.push({ query, options });
    const least = options.minRevision ?? 0;
    if (options.consistency === "serializable" && least > this.revision) {
      throw new ConcordError({ code: "behind", detail: `This node is at revision ${this.revision}.` });
    }
    return evaluateQuery(this.#machine, query, this.nowMs);
  }

  position(): NodePosition {
    const { clusterId, node, leader, revision, ready, restoring, halted } = this;
    return { clusterId, node, leader, revision, ready, restoring, halted };
  }

  async cluster(): Promise<ClusterStatus> {
    return {
      cluster_id: this.clusterId,
      name: "default",
      leader: this.leader,
      revision: this.revision,
      membership: null,
      nodes: [],
      digests: null,
    };
  }

  async administer(action: AdminAction, options: CallOptions): Promise<AdminOutcome> {
    this.#throwOnce();
    this.actions.push({ action, options });
    return { outcome: "done", detail: "It is done.", leader: this.leader, membership: null };
  }

  async openBackup(): Promise<BackupSource> {
    this.#throwOnce();
    const { store } = this.#machine;
    const manifest = manifestOf({ id: this.clusterId ?? "", term: 1 }, readMeta(store));
    const writer = beginBackup(manifest);
    const rows = store.scan({ start: "\u0001", end: "\u{10FFFF}", limit: Number.MAX_SAFE_INTEGER });
    let isOpen = true;
    let pieces = 0;
    this.openBackups += 1;
    const close = () => {
      if (isOpen) this.openBackups -= 1;
      isOpen = false;
    };
    return {
      manifest,
      next: () => {
        if (!isOpen) return null;
        if (pieces >= this.backupPiecesMax) throw new ConcordError({ code: "overloaded", detail: "Lost." });
        pieces += 1;
        const row = rows.shift();
        if (row !== undefined) return writeBackupRows(writer, [row]);
        close();
        return endBackup(writer);
      },
      close,
    };
  }

  async restore(text: ReadableStream<Uint8Array>, wish: RestoreWish): Promise<Restored> {
    this.#throwOnce();
    const bytes = await new Response(text).arrayBuffer();
    this.restores.push({ wish, bytes: bytes.byteLength });
    const intake = beginIntake();
    takeBackupText(intake, new TextDecoder().decode(bytes));
    const manifest = endIntake(intake);
    return { clusterId: "c-2", revision: manifest.revision + (wish.revisionJump ?? 0), manifest };
  }

  connect(sink: ConnectionSink): Connection {
    this.#connectionsCount += 1;
    const id = `connection-${this.#connectionsCount}`;
    const topics = new Set<string>();
    this.#connections.set(id, { sink, topics });
    const { hub } = this;
    return {
      id,
      subscribe: (subscription) => {
        this.#pumpSoon();
        return subscribe(hub, { ...subscription, connection: id });
      },
      cancel: (watchId) => cancel(hub, id, watchId),
      acknowledge: (watchId, position) => {
        this.#pumpSoon();
        acknowledge(hub, { connection: id, watchId, position, nowMs: this.nowMs });
      },
      requestProgress: (watchId) => {
        this.#pumpSoon();
        return requestProgress(hub, id, watchId);
      },
      subscribeTopic: (topic) => {
        if (!topics.has(topic) && topics.size >= TOPICS_PER_CONNECTION_MAX) {
          const detail = `A connection subscribes to at most ${TOPICS_PER_CONNECTION_MAX} topics.`;
          throw new ConcordError({ code: "invalid_request", reason: "too_many_topics", detail });
        }
        topics.add(topic);
      },
      unsubscribeTopic: (topic) => void topics.delete(topic),
      close: () => {
        closeConnection(hub, id);
        this.#connections.delete(id);
      },
    };
  }

  publish(message: TopicMessage): void {
    this.published.push(message);
    for (const { sink, topics } of this.#connections.values()) {
      if (topics.has(message.topic)) sink.onTopic(message);
    }
  }

  /** Sends what the hub has, until it rests. */
  pump(): void {
    this.#pumpIsDue = false;
    for (let more = true; more; ) {
      const pumped = pump(this.hub, createHistoryView(this.#machine), this.nowMs);
      more = pumped.more;
      for (const [id, { sink }] of [...this.#connections]) {
        const frames = pumped.frames.filter((frame) => frame.connection === id);
        if (frames.length > 0) sink.onFrames(frames);
      }
    }
  }

  /** Another leader, as the clients of this node hear of it. */
  changeLeader(leader: number | null): void {
    this.leader = leader;
    for (const [connection, { sink }] of [...this.#connections]) {
      sink.onFrames([{ kind: "leader_changed", connection, leader }]);
    }
  }

  #pumpSoon(): void {
    if (this.#pumpIsDue) return;
    this.#pumpIsDue = true;
    queueMicrotask(() => {
      if (this.#pumpIsDue) this.pump();
    });
  }

  #throwOnce(): void {
    if (this.failure === null) return;
    const { failure } = this;
    this.failure = null;
    throw failure;
  }
}
