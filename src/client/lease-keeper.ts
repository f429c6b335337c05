/**
 * Keeps one lease alive, and tells its owner when it may have ended (design 01 §3).
 *
 * L1. A lease counts as alive until `trustedMs` after the last call that succeeded was SENT, on the local monotonic
 *     clock: the cluster counts from a later moment, and `trustedMs` is shorter than the TTL by the allowed clock skew.
 * L2. Loss is told at most once, never before L1 unless the cluster says `unknown_lease`, never after `close`.
 * L3. Every keep-alive has a fresh deadline of its own; none is inherited, none outlives L1 (S84).
 * L4. Only an answer to a keep-alive renews: a connection that is open, or answers pings, says nothing (S84).
 * L5. After the end no timer is left, and by `close` no lease, also if its grant was still on the way (S34).
 * L6. A late answer is an answer: while a keep-alive is waited for, further ones are sent beside it, a bounded number, and
 *     whichever succeeds renews from when it was sent. Behind a burst of others all are late, and none is lost.
 *
 * Must not: renew under an idempotency key. A kept result would say "alive" of a lease that ended since (S30).
 */
import type { WireLeaseGrant, WireLeaseGranted, WireLeaseKeptAlive } from "../api/wire.ts";
import { ConcordError } from "../base/errors.ts";
import { backoffMs } from "./backoff.ts";
import { randomKey } from "./caller.ts";
import { callAt, sleepUntil } from "./lease-timer.ts";
import type { ClientClock, WriteOptions } from "./options.ts";
import type { LinkedController } from "./signals.ts";

/** The allowed clock skew of a leader, `MAX_SKEW_MS` of design 02 §3. */
const SKEW_MS_MAX = 1_000;
/** A keep-alive is waited for as long as so many attempts take. */
const ATTEMPTS_BESIDE = 4;

export interface KeepOptions {
  /** Time to live of the lease, in whole seconds, at least 1. */
  readonly ttl_s: number;
  /** Kept with the lease, for whoever lists leases. */
  readonly metadata?: WireLeaseGrant["metadata"];
  /**
   * Puts the keys again, under the new lease of that id: with it, a lost lease is replaced by a new one, for as long as
   * it takes, and `lost` is told only if this function fails for good (by an error that is no ConcordError, or whose
   * `retry` is `no`). It may be called several times for one lease. Meant for keys that say "I am here"; for exclusive
   * ownership it is wrong, because somebody else may have owned in between.
   */
  readonly regrant?: (id: number) => Promise<unknown>;
  /** The grant with all its retries, in milliseconds. Default: that of the client. Keep-alives do not inherit it. */
  readonly timeoutMs?: number;
}

export interface LeaseLost {
  /** The lease that is lost. */
  readonly id: number;
  /**
   * `time_over`: by the local clock it may have ended; `unknown_lease`: the cluster says that it has; `key_gone`: its key
   * was deleted under a lock or a leadership; `regrant_failed`: a new lease or its keys could not be had.
   */
  readonly reason: "time_over" | "unknown_lease" | "key_gone" | "regrant_failed";
  /** What the last keep-alive, or the re-grant, failed by; null if nothing failed. */
  readonly cause: unknown;
}

/** The calls that a keeper makes. */
export interface LeaseCalls {
  grant(lease: WireLeaseGrant, options: WriteOptions): Promise<WireLeaseGranted>;
  /** One attempt. The higher `attempt` is, the more ways were tried in vain: the transport takes another one. */
  keepAlive(id: number, options: KeepAliveOptions): Promise<WireLeaseKeptAlive>;
  revoke(id: number): Promise<unknown>;
}

export interface KeepAliveOptions {
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
  readonly attempt: number;
}

/** What a keeper needs besides. A `Caller` has this shape. */
export interface KeeperContext {
  readonly clock: ClientClock;
  /** In [0, 1). */
  readonly random: () => number;
  /** Aborted when the client is closed. */
  readonly closing: AbortSignal;
  /** A controller that is aborted with `closing`, until it is unlinked. */
  link(signal: undefined): LinkedController;
}

/** One lease, from its grant to its end. */
interface Term {
  readonly id: number;
  ttlS: number;
  /** When the last call that succeeded was sent. */
  sentMs: number;
  /** What the last keep-alive failed by. */
  cause: unknown;
  readonly ended: AbortController;
}

/**
 * A lease that is renewed by itself, until `close` or until it is lost. See `concord.lease.keep`.
 *
 * It trusts the local monotonic clock. Where that stands still while the machine is asleep, the loss of a long sleep is
 * told by the first keep-alive behind it; what must never be written too late is written under a guard (`concord.lock`).
 */
export class LeaseKeeper {
  /**
   * The id of the lease once it is granted. Rejects with what the grant failed by; the keeper is of no use then.
   * @throws ConcordError `invalid_lease`, `lease_limit_exceeded`, cluster errors; `timeout` reason `closed` if `close`
   *   came first; `unknown_lease` if the answer took longer than the TTL and the lease had ended meanwhile.
   */
  readonly ready: Promise<number>;
  /** Resolves once the lease may have ended, at most once, no later than its TTL; stays pending after `close`. */
  readonly lost: Promise<LeaseLost>;
  readonly #calls: LeaseCalls;
  readonly #context: KeeperContext;
  readonly #options: KeepOptions;
  readonly #loss = new AbortController();
  #tellLost: (lost: LeaseLost) => void = () => {};
  #term: Term | null = null;
  #grantKey = randomKey();
  #grantSentMs: number | null = null;
  #granting: Promise<WireLeaseGranted> | null = null;
  #closed: Promise<void> | null = null;

  /** Made by `concord.lease.keep`. */
  constructor(calls: LeaseCalls, context: KeeperContext, options: KeepOptions) {
    this.#calls = calls;
    this.#context = context;
    this.#options = options;
    this.lost = new Promise((resolve) => {
      this.#tellLost = resolve;
    });
    this.ready = this.#obtain().then(({ id }) => id);
    // Who needs the lease awaits `ready`. Who has closed the keeper instead must not be hit by an unhandled rejection.
    this.ready.catch(() => {});
  }

  /** Aborted together with `lost`; its reason is a ConcordError `unknown_lease`. */
  get signal(): AbortSignal {
    return this.#loss.signal;
  }

  /** Whether the lease may have ended, by the clock of this moment: also if no timer could run meanwhile (S84). */
  get isLost(): boolean {
    if (this.#term !== null) this.#isAlive(this.#term);
    return this.signal.aborted;
  }

  /** The lease at present; null before its grant, behind its end, and between two leases of a `regrant`. */
  get id(): number | null {
    return this.#term?.id ?? null;
  }

  /**
   * Stops renewing and revokes the lease with its keys. Also before the grant is done: what it grants is revoked.
   * Idempotent; `lost` is not told any more.
   * @throws ConcordError if the cluster could not be told; the lease then ends by its TTL.
   */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  /** Stops renewing and tells `lost`, for an owner who has learned that its key is gone. No effect behind the end. */
  abandon(): void {
    if (this.#term !== null) this.#end(this.#term, "key_gone", null);
  }

  /** One grant with its retries. Repeated under the same key until its outcome is known, it makes one lease (S34). */
  async #obtain(): Promise<Term> {
    const { clock } = this.#context;
    this.#grantSentMs ??= clock.nowMs();
    this.#granting = this.#grant();
    const { id, ttl_s } = await this.#granting;
    const term = { id, ttlS: ttl_s, sentMs: this.#grantSentMs, cause: null, ended: new AbortController() };
    // After so long only the cluster knows whether the lease lives. Nobody holds anything by it yet.
    if (clock.nowMs() >= deadlineOf(term)) await this.#keepAlive(term, leaseTimes(ttl_s).attemptMs, 1);
    if (this.#isOver) throw new ConcordError({ code: "timeout", reason: "closed", detail: "The keeper was closed." });
    this.#term = term;
    this.#begin(term);
    return term;
  }

  #grant(): Promise<WireLeaseGranted> {
    const { ttl_s, metadata, timeoutMs } = this.#options;
    const lease = metadata === undefined ? { ttl_s } : { ttl_s, metadata };
    const options = timeoutMs === undefined ? {} : { timeoutMs };
    return this.#calls.grant(lease, { ...options, idempotencyKey: this.#grantKey });
  }

  #begin(term: Term): void {
    const { clock } = this.#context;
    const link = this.#context.link(undefined);
    let cancel = () => {};
    const watchTime = () => {
      if (this.#isAlive(term)) cancel = callAt(clock, deadlineOf(term), watchTime);
    };
    watchTime();
    link.signal.addEventListener("abort", () => {
      this.#term = null;
      term.ended.abort();
    });
    term.ended.signal.addEventListener("abort", () => {
      cancel();
      link.unlink();
    });
    void this.#renew(term);
  }

  async #renew(term: Term): Promise<void> {
    const { clock, random } = this.#context;
    let dueMs = term.sentMs + leaseTimes(term.ttlS).renewAfterMs;
    for (let failures = 0; ; ) {
      await sleepUntil(clock, dueMs, term.ended.signal);
      // After a sleep of the machine the clock comes first, then the network (S84).
      if (!this.#isAlive(term)) return;
      // Each failure counts twice: a short lease has no time to try a way again.
      await this.#attempt(term, 2 * failures + 1);
      if (term.ended.signal.aborted) return;
      const { pauses, renewAfterMs } = leaseTimes(term.ttlS);
      // It may be an earlier attempt that was answered.
      const isRenewed = term.sentMs + renewAfterMs > clock.nowMs();
      failures = isRenewed ? 0 : failures + 1;
      dueMs = isRenewed ? term.sentMs + renewAfterMs : clock.nowMs() + backoffMs(failures, random(), pauses);
    }
  }

  /** One keep-alive, until it has ended or is late: then it goes on beside the next one (L6). */
  #attempt(term: Term, attempt: number): Promise<void> {
    const { clock } = this.#context;
    const { attemptMs } = leaseTimes(term.ttlS);
    const nowMs = clock.nowMs();
    const timeoutMs = Math.max(1, Math.min(ATTEMPTS_BESIDE * attemptMs, deadlineOf(term) - nowMs));
    return new Promise((resolve) => {
      const cancel = callAt(clock, nowMs + attemptMs, () => {
        const detail = `A keep-alive of lease ${term.id} has no answer for ${attemptMs} ms.`;
        term.cause ??= new ConcordError({ code: "timeout", reason: "late", detail });
        resolve();
      });
      const done = () => {
        cancel();
        resolve();
      };
      this.#keepAlive(term, timeoutMs, attempt).then(done, (error: unknown) => {
        if (isUnknownLease(error)) this.#end(term, "unknown_lease", error);
        // Whatever else it was: only time decides (L2).
        else term.cause = error;
        done();
      });
    });
  }

  async #keepAlive(term: Term, timeoutMs: number, attempt: number): Promise<void> {
    const sentMs = this.#context.clock.nowMs();
    const { ttl_s } = await this.#calls.keepAlive(term.id, { timeoutMs, signal: term.ended.signal, attempt });
    if (sentMs < term.sentMs) return; // a later one was faster
    term.sentMs = sentMs;
    term.ttlS = ttl_s;
    term.cause = null;
  }

  /** Looks at the clock; a lease that may be over ends here. */
  #isAlive(term: Term): boolean {
    if (!term.ended.signal.aborted && this.#context.clock.nowMs() >= deadlineOf(term)) {
      this.#end(term, "time_over", term.cause);
    }
    return !term.ended.signal.aborted;
  }

  #end(term: Term, reason: LeaseLost["reason"], cause: unknown): void {
    if (term.ended.signal.aborted) return;
    term.ended.abort();
    this.#term = null;
    const { regrant } = this.#options;
    if (regrant === undefined || reason === "key_gone") this.#tell({ id: term.id, reason, cause });
    else void this.#replace(term.id, regrant);
  }

  #tell(lost: LeaseLost): void {
    const detail = `Lease ${lost.id} is lost (${lost.reason}).`;
    this.#loss.abort(new ConcordError({ code: "unknown_lease", reason: lost.reason, detail }, { cause: lost.cause }));
    this.#tellLost(lost);
  }

  /** A new lease in place of lease `id`, then its keys. */
  async #replace(id: number, regrant: (id: number) => Promise<unknown>): Promise<void> {
    const { clock, random, closing } = this.#context;
    this.#forgetGrant();
    let term: Term | null = null;
    for (let failures = 1; !this.#isOver; failures += 1) {
      try {
        term ??= await this.#obtain();
        await regrant(term.id);
        return;
      } catch (error) {
        // A lease that ended meanwhile is replaced by a turn of its own.
        if (this.#isOver || term?.ended.signal.aborted === true) return;
        if (isUnknownLease(error)) {
          if (term !== null) return this.#end(term, "unknown_lease", error);
          this.#forgetGrant();
        } else if (!isPassing(error)) {
          term?.ended.abort();
          this.#term = null;
          return this.#tell({ id, reason: "regrant_failed", cause: error });
        }
      }
      const pauseMs = backoffMs(failures, random(), leaseTimes(this.#options.ttl_s).pauses);
      await sleepUntil(clock, clock.nowMs() + pauseMs, term?.ended.signal ?? closing);
    }
  }

  #forgetGrant(): void {
    this.#grantKey = randomKey();
    this.#grantSentMs = null;
  }

  get #isOver(): boolean {
    return this.#closed !== null || this.#context.closing.aborted;
  }

  async #close(): Promise<void> {
    this.#term?.ended.abort();
    this.#term = null;
    const id = await this.#lastGranted();
    if (id === null) return;
    await this.#calls.revoke(id).catch((error: unknown) => {
      if (!isUnknownLease(error)) throw error;
    });
  }

  async #lastGranted(): Promise<number | null> {
    try {
      return (await this.#granting)?.id ?? null;
    } catch (error) {
      // Refused: nothing is left. Unknown: the same request again tells the id of the lease that it made, if any.
      if (!(error instanceof ConcordError) || error.retry !== "same-request") return null;
      return (await this.#grant()).id;
    }
  }
}

/**
 * What follows from a TTL, in milliseconds. `trustedMs`: how long a lease counts as alive behind the sending of its last
 * success, which is the TTL less the allowed clock skew, or less a third of a TTL under 3 s.
 */
export function leaseTimes(ttlS: number) {
  const ttlMs = ttlS * 1_000;
  return {
    trustedMs: ttlMs - Math.min(SKEW_MS_MAX, ttlMs / 3),
    renewAfterMs: ttlMs / 3,
    /** Before one keep-alive is late; several fit between the first that is and the end. */
    attemptMs: between(500, ttlMs / 6, 5_000),
    /** Between failures: short against the TTL, so that what comes back late is still used. */
    pauses: { minMs: 20, maxMs: between(50, ttlMs / 20, 1_000) },
  } as const;
}

function deadlineOf(term: Term): number {
  return term.sentMs + leaseTimes(term.ttlS).trustedMs;
}

function between(least: number, value: number, most: number): number {
  return Math.min(Math.max(least, value), most);
}

export function isUnknownLease(error: unknown): boolean {
  return error instanceof ConcordError && error.code === "unknown_lease";
}

function isPassing(error: unknown): boolean {
  return error instanceof ConcordError && error.retry !== "no";
}
