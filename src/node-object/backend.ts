/**
 * The node runtime as the HTTP routes see it: promises instead of callbacks (api/backend.ts).
 *
 * Cluster errors reject with ConcordError, because the caller learns nothing of the state from them; apply errors (a
 * lease that does not exist, an expired idempotency key) are outcomes at a revision and resolve.
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
} from "../api/backend.ts";
import { ConcordError, type ErrorBody, type ErrorCode } from "../base/errors.ts";
import type {
  Command,
  CommandResult,
  Idempotency,
  Outcome,
  Proposal,
  Query,
  QueryResult,
  RestoreCommand,
} from "../kv/command.ts";
import type { NodeId } from "../raft/types.ts";
import { type AskNode, administer } from "./administration.ts";
import { createBackupSource } from "./backup-source.ts";
import { compareDigests, gatherNodes, leaderOf, type StatusSource } from "./cluster-status.ts";
import { restoreUpload } from "./restore-upload.ts";
import type { Runtime } from "./runtime.ts";
import { PROTOCOL_MAX } from "./versions.ts";

export interface BackendParts {
  readonly runtime: Runtime;
  /** Runs one call into the runtime as a turn: what throws there ends the instance. */
  readonly turn: <T>(work: () => T) => T;
  readonly clusterName: string;
  readonly members: readonly NodeId[];
  /** Own status included. */
  readonly source: StatusSource;
  /** The own node included. */
  readonly ask: AskNode;
  readonly nowMs: () => number;
  readonly connections: { connect(sink: ConnectionSink): Connection };
  wait(ms: number): Promise<void>;
}

const BARRIER_TIMEOUT_MS = 10_000;

/** Codes that say something of the cluster and nothing of the data. */
const CLUSTER_CODES: ReadonlySet<ErrorCode> = new Set([
  "no_leader",
  "timeout",
  "overloaded",
  "cluster_not_ready",
  "node_halted",
  "behind",
  "internal",
]);

export class NodeBackend implements Backend {
  readonly #parts: BackendParts;

  constructor(parts: BackendParts) {
    this.#parts = parts;
  }

  async execute(
    command: Command,
    idempotency: Idempotency | null,
    options: CallOptions,
  ): Promise<Outcome<CommandResult>> {
    const proposal: Proposal = idempotency === null ? { format: 1, command } : { format: 1, command, idempotency };
    return settled(await this.#propose(proposal, options.timeoutMs));
  }

  #propose(proposal: Proposal, timeoutMs: number): Promise<Outcome<CommandResult>> {
    const { turn, runtime } = this.#parts;
    return new Promise((respond) => {
      turn(() => runtime.execute({ proposal, timeoutMs, respond }));
    });
  }

  async query(query: Query, options: ReadOptions): Promise<Outcome<QueryResult>> {
    const { turn, runtime } = this.#parts;
    const { timeoutMs, minRevision } = options;
    if (options.consistency === "linearizable") {
      await this.#wait((respond) => runtime.barrier({ timeoutMs, respond }));
    } else if (minRevision !== undefined) {
      await this.#wait((respond) => runtime.waitRevision({ revision: minRevision, timeoutMs, respond }));
    }
    // A turn of its own: the state can only have moved forward since the barrier, which keeps the read linearizable.
    return settled(turn(() => runtime.query(query)));
  }

  position(): NodePosition {
    return this.#parts.turn(() => this.#parts.runtime.position());
  }

  async cluster(): Promise<ClusterStatus> {
    const { source, members, clusterName } = this.#parts;
    const { nodes, membership } = await gatherNodes(members, source);
    const digests = await compareDigests(nodes, source);
    const position = this.position();
    return {
      cluster_id: position.clusterId,
      name: clusterName,
      leader: leaderOf(nodes),
      revision: position.revision,
      membership,
      nodes,
      digests,
    };
  }

  async administer(action: AdminAction, { timeoutMs }: CallOptions): Promise<AdminOutcome> {
    const { members, source, ask, nowMs, wait } = this.#parts;
    const position = () => this.position();
    return await administer({ members, source, ask, nowMs, wait, position }, action, timeoutMs);
  }

  async openBackup({ timeoutMs }: CallOptions): Promise<BackupSource> {
    const { turn, runtime } = this.#parts;
    await this.#wait((respond) => runtime.barrier({ timeoutMs, respond }));
    const opened = turn(() => runtime.backup.open());
    if (!opened.ok) throw new ConcordError(opened.error);
    return createBackupSource(inTurns(turn, runtime.backup), opened);
  }

  async restore(text: ReadableStream<Uint8Array>, wish: RestoreWish): Promise<Restored> {
    const { turn, runtime, wait, members, source } = this.#parts;
    refuseOlder(await gatherNodes(members, source));
    // So that it is known whether anything was ever written.
    await this.#wait((respond) => runtime.barrier({ timeoutMs: BARRIER_TIMEOUT_MS, respond }));
    const parts = {
      steps: inTurns(turn, runtime.spool),
      propose: (command: RestoreCommand, timeoutMs: number) => this.#propose({ format: 1, command }, timeoutMs),
      wait,
      newId: () => crypto.randomUUID(),
    };
    return await restoreUpload(parts, text, wish);
  }

  connect(sink: ConnectionSink): Connection {
    return this.#parts.connections.connect(sink);
  }

  publish({ topic, payload }: TopicMessage): void {
    this.#parts.turn(() => this.#parts.runtime.publishTopic(topic, payload));
  }

  async #wait(start: (respond: (error: ErrorBody | null) => void) => void): Promise<void> {
    const error = await new Promise<ErrorBody | null>((respond) => {
      this.#parts.turn(() => start(respond));
    });
    if (error !== null) throw new ConcordError(error);
  }
}

/** The steps of an object, each call a turn. */
function inTurns<Steps extends object>(turn: BackendParts["turn"], steps: Steps): Steps {
  const names = Object.entries(steps) as [string, (...given: unknown[]) => unknown][];
  return Object.fromEntries(
    names.map(([name, step]) => [name, (...given: unknown[]) => turn(() => step(...given))]),
  ) as Steps;
}

/** Commands of a restore are new in this version; members that do not answer count as speaking it, as everywhere. */
function refuseOlder({ nodes }: Pick<ClusterStatus, "nodes">): void {
  const older = nodes.filter(({ state, protocol }) => state === "formed" && protocol < PROTOCOL_MAX);
  if (older.length === 0) return;
  const detail = `Nodes ${older.map(({ id }) => id).join(", ")} run an older version; upgrade every node first.`;
  throw new ConcordError({ code: "precondition_failed", reason: "older_member", detail });
}

function settled<T>(outcome: Outcome<T>): Outcome<T> {
  if (!outcome.ok && CLUSTER_CODES.has(outcome.error.code)) throw new ConcordError(outcome.error);
  return outcome;
}
