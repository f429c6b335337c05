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
  CallOptions,
  ClusterStatus,
  Connection,
  ConnectionSink,
  NodePosition,
  ReadOptions,
  TopicMessage,
} from "../api/backend.ts";
import { ConcordError, type ErrorBody, type ErrorCode } from "../base/errors.ts";
import type { Command, CommandResult, Idempotency, Outcome, Proposal, Query, QueryResult } from "../kv/command.ts";
import type { NodeId } from "../raft/types.ts";
import { type AskNode, administer } from "./administration.ts";
import { compareDigests, gatherNodes, leaderOf, type StatusSource } from "./cluster-status.ts";
import type { Runtime } from "./runtime.ts";

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
}

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
    const { turn, runtime } = this.#parts;
    const outcome = await new Promise<Outcome<CommandResult>>((respond) => {
      turn(() => runtime.execute({ proposal, timeoutMs: options.timeoutMs, respond }));
    });
    return settled(outcome);
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
    const { members, source, ask, nowMs } = this.#parts;
    return await administer({ members, source, ask, nowMs, position: () => this.position() }, action, timeoutMs);
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

function settled<T>(outcome: Outcome<T>): Outcome<T> {
  if (!outcome.ok && CLUSTER_CODES.has(outcome.error.code)) throw new ConcordError(outcome.error);
  return outcome;
}
