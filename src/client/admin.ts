/**
 * The administration of a cluster and its backups, as an entry of its own (`concord-edge/admin`): applications do not carry
 * it. Over HTTP alone. Needs the root token.
 */
import type { AdminOutcome, ClusterStatus } from "../api/backend.ts";
import { Caller } from "./caller.ts";
import { CALL, checkKind, checkMembers } from "./check.ts";
import { HttpTransport } from "./http-transport.ts";
import { type CallOptions, type ConnectOptions, resolveOptions } from "./options.ts";

export type { AdminOutcome, ClusterStatus, MembershipStatus, NodeStatus } from "../api/backend.ts";
export { ConcordError } from "../base/errors.ts";
export {
  type Backup,
  type BackupOptions,
  openBackup,
  type Restored,
  type RestoreOptions,
  restoreBackup,
} from "./backup.ts";
export type { CallOptions, ConnectOptions } from "./options.ts";

/**
 * ```ts
 * const { cluster } = ConcordAdmin.connect({ url: "http://127.0.0.1:8787" });
 *
 * const { leader, nodes } = await cluster.status();
 * for (const { id, halted } of nodes) if (halted !== null) await cluster.repair(id);
 * await cluster.transfer();
 * ```
 */
export class ConcordAdmin {
  readonly cluster: ClusterAdmin;
  readonly #caller: Caller;

  private constructor(caller: Caller) {
    this.#caller = caller;
    this.cluster = new ClusterAdmin(caller);
  }

  /** Sends nothing: the first call does. @throws ConcordError `invalid_request` for options that cannot work. */
  static connect(options: ConnectOptions): ConcordAdmin {
    const resolved = resolveOptions({ ...options, transport: "http" });
    return new ConcordAdmin(new Caller(resolved, new HttpTransport(resolved)));
  }

  /** Ends calls under way; later ones are `invalid_request` (reason `closed`). */
  close(): void {
    this.#caller.close();
  }
}

/**
 * Calls may go to any node, also one that has halted. Each can be repeated: what is so already is `unchanged`.
 *
 * All throw ConcordError: `admin_refused` with a reason if the cluster does not do it now, and nothing was begun;
 * `invalid_request` reason `unknown_node`; `no_leader`, `cluster_not_ready`; `timeout` if the outcome is unknown.
 */
export class ClusterAdmin {
  readonly members: MemberAdmin;
  readonly #caller: Caller;

  constructor(caller: Caller) {
    this.#caller = caller;
    this.members = new MemberAdmin(caller);
  }

  /** What the answering node knows of the cluster, and what the others say of themselves. Wakes nobody. */
  async status(options: CallOptions = {}): Promise<ClusterStatus> {
    checkMembers(options, CALL);
    return await this.#caller.read("cluster", {}, options);
  }

  /** Hands leadership to that voter; without one, to the one that has most. */
  async transfer(to?: number, options: CallOptions = {}): Promise<AdminOutcome> {
    if (to !== undefined) checkKind("to", to, "number");
    return await ask(this.#caller, "leader/transfer", { to }, options);
  }

  /** Ends the instance of a node; another one starts on its storage. */
  async restart(node: number, options: CallOptions = {}): Promise<AdminOutcome> {
    checkKind("node", node, "number");
    return await ask(this.#caller, `nodes/${node}/restart`, {}, options);
  }

  /**
   * A halted node gives up its state, takes in that of the others and then votes again; `force`: also one that is well.
   * Refused (`would_cost_majority`) unless a majority of the voters without it is heard.
   */
  async repair(node: number, options: CallOptions & { readonly force?: boolean } = {}): Promise<AdminOutcome> {
    checkKind("node", node, "number");
    const { force = false, ...rest } = options;
    checkKind("force", force, "boolean");
    return await ask(this.#caller, `nodes/${node}/repair`, { force }, rest);
  }

  /** Forms a new cluster of fewer nodes than are configured, while there is none. Never with disjoint sets of them. */
  async init(members: readonly number[], options: CallOptions = {}): Promise<AdminOutcome> {
    checkKind("members", members, "array");
    return await ask(this.#caller, "init", { members }, options);
  }
}

export class MemberAdmin {
  readonly #caller: Caller;

  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** The node becomes a learner, and votes by itself as soon as it has caught up. */
  async add(node: number, options: CallOptions = {}): Promise<AdminOutcome> {
    return await this.#change("add", node, options);
  }

  /** The node is no member any more, and is not taken in again by itself. */
  async remove(node: number, options: CallOptions = {}): Promise<AdminOutcome> {
    return await this.#change("remove", node, options);
  }

  /** Waits until a learner has caught up and votes. */
  async promote(node: number, options: CallOptions = {}): Promise<AdminOutcome> {
    return await this.#change("promote", node, options);
  }

  async #change(kind: string, node: number, options: CallOptions): Promise<AdminOutcome> {
    checkKind("node", node, "number");
    return await ask(this.#caller, "members", { [kind]: node }, options);
  }
}

/** By the rules of a read: it may be repeated, and needs no idempotency key, which a cluster that is not formed cannot keep. */
async function ask(caller: Caller, path: string, body: object, options: CallOptions): Promise<AdminOutcome> {
  checkMembers(options, CALL);
  return await caller.read("administer", { path, body }, options);
}
