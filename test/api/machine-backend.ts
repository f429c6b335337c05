/**
 * A node without consensus for tests of the API: the real state machine over memory, every command applied at once.
 * Time is set by hand. What was logged is kept, so that a test can claim that nothing was.
 */
import type { Backend, CallOptions, ClusterStatus, NodePosition, ReadOptions } from "../../src/api/backend.ts";
import { assert } from "../../src/base/assert.ts";
import { ConcordError } from "../../src/base/errors.ts";
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

export const CLUSTER_ID = "c-1";

export class MachineBackend implements Backend {
  /** Payloads of the log, oldest first. */
  readonly logged: string[] = [];
  readonly queries: { readonly query: Query; readonly options: ReadOptions }[] = [];
  readonly commands: { readonly command: Command; readonly options: CallOptions }[] = [];
  nowMs = 1_700_000_000_000;
  clusterId: string | null = CLUSTER_ID;
  leader: number | null = 2;
  node = 1;
  ready = true;
  halted: string | null = null;
  /** Thrown by the next call, once. */
  failure: unknown = null;
  readonly #machine: Machine = openMachine(new MemoryStore());

  get revision(): number {
    return this.#machine.revision;
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
    const outcome = applyEntries(this.#machine, [entry])[0]?.outcome;
    assert(outcome !== undefined && outcome !== null, "a proposal has an outcome");
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
    const { clusterId, node, leader, revision, ready, halted } = this;
    return { clusterId, node, leader, revision, ready, halted };
  }

  async cluster(): Promise<ClusterStatus> {
    return {
      cluster_id: this.clusterId,
      name: "default",
      leader: this.leader,
      revision: this.revision,
      nodes: [],
      digests: null,
    };
  }

  #throwOnce(): void {
    if (this.failure === null) return;
    const { failure } = this;
    this.failure = null;
    throw failure;
  }
}
