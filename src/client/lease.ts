/** Leases: keys that end together, by time or by revoke. */
import type { WireLease, WireLeaseGrant, WireLeaseGranted, WireLeaseRevoked } from "../api/wire.ts";
import { ConcordError } from "../base/errors.ts";
import type { Caller } from "./caller.ts";
import type { ReadOptions, WriteOptions } from "./options.ts";

export class LeaseClient {
  readonly #caller: Caller;

  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /**
   * Grants a lease of `ttl_s` seconds (whole, at least 1). Put keys with `{ lease: id }`; they are deleted when it ends.
   * @throws ConcordError `invalid_lease`, `lease_exists` (an `id` of the caller's that is taken), `lease_limit_exceeded`.
   */
  async grant(lease: WireLeaseGrant, options: WriteOptions = {}): Promise<WireLeaseGranted> {
    return await this.#caller.write({ method: "POST", path: "/v1/leases", body: lease }, options);
  }

  /**
   * Ends a lease and deletes its keys at one revision.
   * @throws ConcordError `unknown_lease` if it has ended already.
   */
  async revoke(id: number, options: WriteOptions = {}): Promise<WireLeaseRevoked> {
    return await this.#caller.write({ method: "DELETE", path: `/v1/leases/${id}` }, options);
  }

  /** The lease with its remaining milliseconds and its keys; null if it has ended. */
  async info(id: number, options: ReadOptions = {}): Promise<WireLease | null> {
    try {
      return await this.#caller.read({ path: `/v1/leases/${id}` }, options);
    } catch (error) {
      if (error instanceof ConcordError && error.code === "unknown_lease") return null;
      throw error;
    }
  }
}
