/**
 * A call: attempts until an answer, by the rules of retry, and what the client has seen so far. Over any transport.
 *
 * K1. An error's `retry` decides, and nothing else: `no` ends the call, `yes` is repeated, `same-request` is repeated
 *     only for reads, keep-alives and writes under an idempotency key (S24: no write is ever repeated blindly).
 * K2. Once an attempt may have been carried out, the call never ends in an error that says that nothing was done.
 * K3. The highest revision seen travels with serializable reads, so that the client never goes back in time by
 *     changing nodes (S86), and with every keyed write as `idempotency_since`, fixed before the first attempt.
 * K4. What can be seen to be wrong in a request is an error before anything is sent (`check.ts`).
 * K5. A change of cluster id is told once: by `onClusterChanged`, and to a read by the error `cluster_changed`.
 */
import { ConcordError } from "../base/errors.ts";
import { backoffMs } from "./backoff.ts";
import { checkIdempotencyKey, fault, paramsText } from "./check.ts";
import type { Method, Params, Result } from "./operations.ts";
import {
  type CallOptions,
  type ClientClock,
  isDuration,
  type ReadOptions,
  type ResolvedOptions,
  type WriteOptions,
  wrongTime,
} from "./options.ts";
import { type LinkedController, linkedController, startPatience } from "./signals.ts";
import type { Control, Reply, Transport } from "./transport.ts";

interface Call {
  readonly method: Method;
  readonly params: string;
  readonly control: Control;
  readonly isRead: boolean;
  /** Repeating it cannot have a second effect. */
  readonly isRepeatable: boolean;
  /** The revision below which an answer is refused. */
  readonly minRevision: number;
}

const BACKOFF = { minMs: 20, maxMs: 2_000 } as const;

/** Of who repeats a call by itself: this call is that attempt of it, counted from 1, and no more than one. */
export interface AttemptOptions extends WriteOptions {
  readonly attempt?: number;
}

/** Less time than this is not worth an attempt. */
const ATTEMPT_MS_MIN = 1;

export class Caller {
  readonly clock: ClientClock;
  /** In [0, 1). */
  readonly random: () => number;
  readonly #options: ResolvedOptions;
  readonly #transport: Transport;
  readonly #closing = new AbortController();
  readonly #links = new Set<LinkedController>();
  #clusterId: string | null = null;
  #revision: number | null = null;
  #learning: Promise<void> | null = null;

  constructor(options: ResolvedOptions, transport: Transport) {
    this.clock = options.clock;
    this.random = options.random;
    this.#options = options;
    this.#transport = transport;
  }

  /** Id of the cluster that answered last; null before the first reply. */
  get clusterId(): string | null {
    return this.#clusterId;
  }

  /** The highest revision seen in this cluster; 0 before the first reply. */
  get revision(): number {
    return this.#revision ?? 0;
  }

  /** Aborted by {@link close}: whatever runs by itself ends on it. */
  get closing(): AbortSignal {
    return this.#closing.signal;
  }

  /** Ends by {@link close}, or by `signal`. Hundreds at a time would be too many listeners of one signal. */
  link(signal: AbortSignal | undefined): LinkedController {
    const link = linkedController(signal);
    if (this.closing.aborted) link.abort();
    this.#links.add(link);
    const unlink = () => {
      this.#links.delete(link);
      link.unlink();
    };
    return { ...link, unlink };
  }

  close(): void {
    this.#closing.abort();
    for (const link of this.#links) link.abort();
    this.#transport.close();
  }

  /** @throws ConcordError `invalid_request` reason `closed`. */
  checkOpen(): void {
    if (!this.closing.aborted) return;
    throw fault("invalid_request", "closed", "This client has been closed.");
  }

  async read<M extends Method>(method: M, params: Params<M>, options: ReadOptions = {}): Promise<Result<M>> {
    return (await this.readReply(method, params, options)).result;
  }

  /** As {@link read}, with the cluster that answered. */
  async readReply<M extends Method>(
    method: M,
    params: Params<M>,
    options: ReadOptions & { readonly cluster_id?: string },
  ): Promise<{ readonly result: Result<M>; readonly clusterId: string | null }> {
    this.checkOpen();
    const text = paramsText(params);
    const serializable = options.consistency === "serializable";
    const minRevision = serializable ? Math.max(options.minRevision ?? 0, this.revision) : 0;
    const cluster_id = options.cluster_id ?? (serializable ? this.#clusterId : null);
    const control: Control = {
      ...(serializable ? { consistency: "serializable", min_revision: minRevision } : {}),
      ...(cluster_id === null ? {} : { cluster_id }),
    };
    const call: Call = {
      method,
      params: text,
      control,
      isRead: true,
      isRepeatable: true,
      // What an answer about a revision of the past says is the same on every node, whatever revision stands in it.
      minRevision: isPinned(params) ? 0 : minRevision,
    };
    const { result, clusterId } = await this.#perform(call, options, this.#deadlineOf(options));
    return { result: result as Result<M>, clusterId };
  }

  async write<M extends Method>(method: M, params: Params<M>, options: AttemptOptions = {}): Promise<Result<M>> {
    this.checkOpen();
    const deadlineMs = this.#deadlineOf(options);
    const key =
      options.idempotencyKey === undefined && this.#options.idempotency ? randomKey() : options.idempotencyKey;
    const isKeyed = key !== undefined && key !== null;
    if (isKeyed) checkIdempotencyKey(key);
    const text = paramsText(params);
    if (isKeyed) await this.#learnRevision(deadlineMs, options.signal);
    const call: Call = {
      method,
      params: text,
      control: isKeyed ? { idempotency_key: key, idempotency_since: this.revision } : {},
      isRead: false,
      isRepeatable: isKeyed || method === "lease.keepalive",
      minRevision: 0,
    };
    return (await this.#perform(call, options, deadlineMs)).result as Result<M>;
  }

  /**
   * Takes in what was heard of the cluster, by a reply or by a watch; the error is for who would cross into another one
   * unknowingly.
   */
  observe(heard: { readonly clusterId: string | null; readonly revision: number | null }): ConcordError | null {
    const { clusterId, revision } = heard;
    const before = this.#clusterId;
    if (clusterId !== null && before !== null && clusterId !== before) {
      this.#clusterId = clusterId;
      this.#revision = revision;
      this.#options.onClusterChanged({ from: before, to: clusterId });
      const detail = `The cluster is now ${JSON.stringify(clusterId)}; revisions of ${JSON.stringify(before)} mean nothing in it.`;
      return new ConcordError({ code: "cluster_changed", detail });
    }
    if (clusterId !== null) this.#clusterId = clusterId;
    if (revision !== null) this.#revision = Math.max(this.#revision ?? 0, revision);
    return null;
  }

  #deadlineOf({ timeoutMs = this.#options.timeoutMs }: CallOptions): number {
    if (isDuration(timeoutMs) || timeoutMs === 0) return this.clock.nowMs() + timeoutMs;
    throw wrongTime(timeoutMs);
  }

  /**
   * Before the first keyed write: a request that claims to know no revision would be refused as expired once results
   * have been forgotten. One lookup serves all writes that wait for it, each as long as it wants to.
   */
  async #learnRevision(deadlineMs: number, signal: AbortSignal | undefined): Promise<void> {
    if (this.#revision !== null) return;
    this.#learning ??= this.#lookUpRevision().finally(() => {
      this.#learning = null;
    });
    const patience = startPatience(this.clock, Math.max(0, deadlineMs - this.clock.nowMs()), signal);
    try {
      await Promise.race([this.#learning, patience.over]);
    } finally {
      patience.end();
    }
    if (this.#revision !== null || signal?.aborted === true || this.closing.aborted) return;
    const detail = "Nothing was sent: the cluster's revision could not be learned in time.";
    throw fault("overloaded", "not_sent", detail);
  }

  async #lookUpRevision(): Promise<void> {
    await this.#perform(LOOKUP, {}, this.#deadlineOf({}));
    this.#revision ??= 0;
  }

  async #perform(call: Call, options: AttemptOptions, deadlineMs: number): Promise<Reply> {
    const { clock } = this;
    const link = this.link(options.signal);
    const { signal } = link;
    let unknown: ConcordError | null = null;
    try {
      let attempt = options.attempt ?? 1;
      for (let failures = 1; ; failures += 1) {
        const leftMs = Math.max(ATTEMPT_MS_MIN, deadlineMs - clock.nowMs());
        const outcome = await this.#attempt(call, { attempt, leftMs, signal });
        const { reply, error } = outcome;
        const changed = reply === null ? null : this.observe(reply);
        if (error === null) {
          if (changed !== null && call.isRead) throw changed;
          return reply;
        }
        if (error.retry === "same-request") unknown = error;
        // Behind an unknown outcome a refusal to let the caller in settles nothing (K2).
        const settles = error.retry === "no" && !(unknown !== null && (error.status === 401 || error.status === 403));
        if (settles) throw error;
        const mayRepeat = error.retry === "yes" || (error.retry === "same-request" && call.isRepeatable);
        const delayMs = backoffMs(failures, this.random(), BACKOFF);
        const isOver =
          options.attempt !== undefined || clock.nowMs() + delayMs + ATTEMPT_MS_MIN > deadlineMs || signal.aborted;
        if (!mayRepeat || isOver) throw call.isRead ? error : (unknown ?? error);
        if (outcome.isOfLoad !== true) attempt += 1;
        await clock.sleep(delayMs, signal);
      }
    } finally {
      link.unlink();
    }
  }

  async #attempt(
    call: Call,
    { attempt, leftMs, signal }: { readonly attempt: number; readonly leftMs: number; readonly signal: AbortSignal },
  ) {
    const timeoutMs = Math.ceil(Math.min(leftMs, this.#options.attemptTimeoutMs));
    const { method, params, control } = call;
    const outcome = await this.#transport.exchange({ method, params, control, timeoutMs, leftMs, signal, attempt });
    const { reply, error } = outcome;
    const revision = reply?.revision ?? null;
    if (error === null && revision !== null && revision < call.minRevision && reply?.clusterId === this.#clusterId) {
      const detail = `The answer is of revision ${revision}, this client has seen ${call.minRevision}.`;
      return { reply, error: new ConcordError({ code: "behind", detail }) };
    }
    return outcome;
  }
}

const LOOKUP: Call = {
  method: "revision",
  params: "{}",
  control: { consistency: "serializable" },
  isRead: true,
  isRepeatable: true,
  minRevision: 0,
};

function isPinned(params: object): boolean {
  const { revision, cursor, to } = params as { revision?: unknown; cursor?: unknown; to?: unknown };
  return revision !== undefined || cursor !== undefined || to !== undefined;
}

/** 128 random bits. `crypto.randomUUID` would be missing in pages that are not served securely. */
export function randomKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
