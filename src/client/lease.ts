/** Leases: owners of keys that end, by time or by revoke, with all their keys at one revision. */
import type {
  WireLease,
  WireLeaseGrant,
  WireLeaseGranted,
  WireLeaseKeptAlive,
  WireLeaseList,
  WireLeaseRevoked,
  WireListedLease,
} from "../api/wire.ts";
import type { Caller } from "./caller.ts";
import { CALL, checkKind, checkMembers, READ, WRITE } from "./check.ts";
import { isUnknownLease, type KeepOptions, type LeaseCalls, LeaseKeeper } from "./lease-keeper.ts";
import type { CallOptions, ReadOptions, WriteOptions } from "./options.ts";

export interface LeaseListOptions extends ReadOptions {
  /** Leases per page. */
  readonly limit?: number;
  /** Also the leases behind records with a `ttl`. Default false. */
  readonly anonymous?: boolean;
}

/**
 * `concord.lease`.
 *
 * ```ts
 * const keeper = concord.lease.keep({ ttl_s: 30 });
 * await concord.kv.put("/work/agents/7/status", "up", { lease: await keeper.ready });
 * keeper.signal.addEventListener("abort", () => console.log("somebody may have taken over"));
 * // … work …
 * await keeper.close(); // the key goes at once
 * ```
 */
export class LeaseClient {
  readonly #caller: Caller;

  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /**
   * Grants a lease of `ttl_s` seconds (whole, at least 1). Put keys with `{ lease: id }`; they are deleted when it ends.
   * Nothing renews it: see {@link keep} and {@link keepAliveOnce}. Repeated by itself as any write (docs/api.md, "Writes that may be repeated").
   * @throws ConcordError `invalid_lease`, `lease_exists` (an `id` of the caller's that is taken), `lease_limit_exceeded`.
   */
  async grant(lease: WireLeaseGrant, options: WriteOptions = {}): Promise<WireLeaseGranted> {
    checkMembers(options, WRITE);
    return await this.#caller.write("lease.grant", lease, options);
  }

  /**
   * Grants a lease and renews it every third of its TTL until `close`, through elections and over every node, for as
   * long as the local clock says that it must still live. Then `lost` is told, once. Begins at once; sends from then on
   * without being asked, so whoever keeps a lease closes it (docs/api.md, "TypeScript client").
   */
  keep(options: KeepOptions): LeaseKeeper {
    checkMembers(options, "ttl_s metadata regrant timeoutMs");
    const caller = this.#caller;
    const calls: LeaseCalls = {
      grant: (lease, call) => caller.write("lease.grant", lease, call),
      keepAlive: (id, call) => caller.write("lease.keepalive", { id }, { ...call, idempotencyKey: null }),
      revoke: (id) => caller.write("lease.revoke", { id }),
    };
    return new LeaseKeeper(calls, caller, options);
  }

  /**
   * Renews a lease for its TTL, or for a new one of `ttl_s` seconds, from now on: for callers that live too shortly for
   * {@link keep}, such as a Worker's request. Repeated by itself within `timeoutMs`, since once more does no harm, but
   * never under an idempotency key, whose kept result could be of a lease that has ended since.
   * @throws ConcordError `unknown_lease` if it has ended, for good; `invalid_lease`; cluster errors.
   */
  async keepAliveOnce(
    id: number,
    options: { readonly ttl_s?: number } & CallOptions = {},
  ): Promise<WireLeaseKeptAlive> {
    checkKind("id", id, "number");
    checkMembers(options, `${CALL} ttl_s`);
    const { ttl_s, ...call } = options;
    const params = ttl_s === undefined ? { id } : { id, ttl_s };
    return await this.#caller.write("lease.keepalive", params, { ...call, idempotencyKey: null });
  }

  /**
   * Ends a lease and deletes its keys at one revision.
   * @throws ConcordError `unknown_lease` if it has ended already.
   */
  async revoke(id: number, options: WriteOptions = {}): Promise<WireLeaseRevoked> {
    checkKind("id", id, "number");
    checkMembers(options, WRITE);
    return await this.#caller.write("lease.revoke", { id }, options);
  }

  /** The lease with its remaining milliseconds and its keys; null if it has ended. Linearizable by default. */
  async info(id: number, options: ReadOptions = {}): Promise<WireLease | null> {
    checkKind("id", id, "number");
    checkMembers(options, READ);
    try {
      return await this.#caller.read("lease.info", { id }, options);
    } catch (error) {
      if (isUnknownLease(error)) return null;
      throw error;
    }
  }

  /** One page of leases in order of id; the next one is `after` this one's `next`. Linearizable by default. */
  async page(options: LeaseListOptions & { readonly after?: number } = {}): Promise<WireLeaseList> {
    checkMembers(options, `${READ} limit after anonymous`);
    const { limit, after, anonymous } = options;
    checkKind("after", after ?? 0, "number");
    return await this.#caller.read("lease.list", { limit, after, anonymous }, options);
  }

  /** All leases in order of id, page by page, each page as of its own moment. */
  async *list(options: LeaseListOptions = {}): AsyncGenerator<WireListedLease, void> {
    let next: number | null = null;
    do {
      const page: WireLeaseList = await this.page(next === null ? options : { ...options, after: next });
      yield* page.leases;
      next = page.next;
    } while (next !== null);
  }
}
