/**
 * A call: attempts until an answer, by the rules of retry, and what the client has seen so far.
 *
 * K1. An error's `retry` decides, and nothing else: `no` ends the call, `yes` is repeated, `same-request` is repeated
 *     only for reads and for writes under an idempotency key (S24: no write is ever repeated blindly).
 * K2. Once an attempt may have been carried out, the call never ends in an error that says that nothing was done.
 * K3. The highest revision seen travels with serializable reads, so that the client never goes back in time by
 *     changing nodes (S86), and with every keyed write as `idempotency-since`, fixed before the first attempt.
 * K4. What can be seen to be wrong in a request is an error before anything is sent (`check.ts`).
 * K5. A change of cluster id is told once: by `onClusterChanged`, and to a read by the error `cluster_changed`.
 */
import { ConcordError } from "../base/errors.ts";
import { bodyText, checkIdempotencyKey, checkText } from "./check.ts";
import { type Attempt, exchange, type Reply } from "./exchange.ts";
import type { CallOptions, ReadOptions, ResolvedOptions, WriteOptions } from "./options.ts";

export type QueryParameters = Readonly<Record<string, string | number | boolean | undefined>>;

interface Call {
  readonly method: Attempt["method"];
  readonly path: string;
  readonly parameters: QueryParameters;
  readonly body: string | null;
  readonly headers: Readonly<Record<string, string>>;
  readonly isRead: boolean;
  /** Repeating it cannot have a second effect. */
  readonly isRepeatable: boolean;
  /** The revision below which an answer is refused. */
  readonly minRevision: number;
}

const BACKOFF_MS_MIN = 20;
const BACKOFF_MS_MAX = 2_000;
/** Less time than this is not worth an attempt. */
const ATTEMPT_MS_MIN = 1;

export class Caller {
  readonly #options: ResolvedOptions;
  #clusterId: string | null = null;
  #revision: number | null = null;
  #learning: Promise<void> | null = null;

  constructor(options: ResolvedOptions) {
    this.#options = options;
  }

  /** Id of the cluster that answered last; null before the first reply. */
  get clusterId(): string | null {
    return this.#clusterId;
  }

  /** The highest revision seen in this cluster; 0 before the first reply. */
  get revision(): number {
    return this.#revision ?? 0;
  }

  async read<T>(
    request: { readonly path: string; readonly parameters?: QueryParameters; readonly body?: object },
    options: ReadOptions = {},
  ): Promise<T> {
    const { path, parameters = {}, body } = request;
    for (const value of Object.values(parameters)) checkText(value);
    const serializable = options.consistency === "serializable";
    const minRevision = serializable ? Math.max(options.minRevision ?? 0, this.revision) : 0;
    const call: Call = {
      method: body === undefined ? "GET" : "POST",
      path,
      parameters: {
        ...parameters,
        ...(serializable ? { consistency: "serializable", min_revision: minRevision } : {}),
      },
      body: body === undefined ? null : bodyText(body),
      headers: serializable && this.#clusterId !== null ? { "concord-cluster": this.#clusterId } : {},
      isRead: true,
      isRepeatable: true,
      minRevision,
    };
    return (await this.#perform(call, options, this.#deadlineOf(options))) as T;
  }

  async write<T>(
    request: { readonly method: "POST" | "PUT" | "DELETE"; readonly path: string; readonly body?: object },
    options: WriteOptions = {},
  ): Promise<T> {
    const { method, path, body } = request;
    const deadlineMs = this.#deadlineOf(options);
    const key =
      options.idempotencyKey === undefined && this.#options.idempotency ? randomKey() : options.idempotencyKey;
    const isKeyed = key !== undefined && key !== null;
    if (isKeyed) checkIdempotencyKey(key);
    const text = body === undefined ? null : bodyText(body);
    if (isKeyed) await this.#learnRevision(deadlineMs);
    const call: Call = {
      method,
      path,
      parameters: {},
      body: text,
      headers: isKeyed ? { "idempotency-key": key, "idempotency-since": String(this.revision) } : {},
      isRead: false,
      isRepeatable: isKeyed,
      minRevision: 0,
    };
    return (await this.#perform(call, options, deadlineMs)) as T;
  }

  #deadlineOf(options: CallOptions): number {
    return this.#options.clock.nowMs() + (options.timeoutMs ?? this.#options.timeoutMs);
  }

  /**
   * Before the first keyed write: a request that claims to know no revision would be refused as expired once results
   * have been forgotten. One lookup serves all writes that wait for it.
   */
  async #learnRevision(deadlineMs: number): Promise<void> {
    if (this.#revision !== null) return;
    this.#learning ??= this.#lookUpRevision(deadlineMs).finally(() => {
      this.#learning = null;
    });
    await this.#learning;
  }

  async #lookUpRevision(deadlineMs: number): Promise<void> {
    const parameters = { consistency: "serializable" };
    const call: Call = { method: "GET", path: "/v1/revision", parameters, body: null, headers: {}, ...LOOKUP };
    await this.#perform(call, {}, deadlineMs);
    this.#revision ??= 0;
  }

  async #perform(call: Call, options: CallOptions, deadlineMs: number): Promise<unknown> {
    const { clock } = this.#options;
    let unknown: ConcordError | null = null;
    for (let attempts = 1; ; attempts += 1) {
      const leftMs = deadlineMs - clock.nowMs();
      const { reply, error } = await this.#attempt(call, options, Math.max(ATTEMPT_MS_MIN, leftMs));
      const changed = reply === null ? null : this.#observe(reply);
      if (error === null) {
        if (changed !== null && call.isRead) throw changed;
        return reply?.body;
      }
      if (error.retry === "same-request") unknown = error;
      // Behind an unknown outcome a refusal to let the caller in settles nothing (K2).
      const settles = error.retry === "no" && !(unknown !== null && (error.status === 401 || error.status === 403));
      if (settles) throw error;
      const mayRepeat = error.retry === "yes" || (error.retry === "same-request" && call.isRepeatable);
      const delayMs = this.#backoffMs(attempts);
      const isOver = clock.nowMs() + delayMs + ATTEMPT_MS_MIN > deadlineMs || options.signal?.aborted === true;
      if (!mayRepeat || isOver) throw call.isRead ? error : (unknown ?? error);
      await clock.sleep(delayMs, options.signal);
    }
  }

  async #attempt(call: Call, options: CallOptions, leftMs: number) {
    const timeoutMs = Math.ceil(Math.min(leftMs, this.#options.attemptTimeoutMs));
    const { method, headers, body } = call;
    const target = call.path + queryText({ ...call.parameters, timeout_ms: timeoutMs });
    const result = await exchange(this.#options, { method, target, headers, body, timeoutMs, signal: options.signal });
    const revision = result.reply?.revision ?? null;
    if (
      result.error === null &&
      revision !== null &&
      revision < call.minRevision &&
      this.#isSameCluster(result.reply)
    ) {
      const detail = `The answer is of revision ${revision}, this client has seen ${call.minRevision}.`;
      return { reply: result.reply, error: new ConcordError({ code: "behind", detail }) };
    }
    return result;
  }

  #isSameCluster(reply: Reply | null): boolean {
    return reply?.clusterId === this.#clusterId;
  }

  /** Takes in what the reply tells of the cluster; the error is for a read that would cross into another one. */
  #observe(reply: Reply): ConcordError | null {
    const { clusterId, revision } = reply;
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

  /** Exponential with full jitter: clients that failed together do not come back together. */
  #backoffMs(attempts: number): number {
    const ceiling = Math.min(BACKOFF_MS_MAX, BACKOFF_MS_MIN * 2 ** attempts);
    return Math.ceil(this.#options.random() * ceiling);
  }
}

const LOOKUP = { isRead: true, isRepeatable: true, minRevision: 0 } as const;

export function queryText(parameters: QueryParameters): string {
  const pairs: string[] = [];
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== undefined) pairs.push(`${name}=${encodeURIComponent(value)}`);
  }
  return pairs.length === 0 ? "" : `?${pairs.join("&")}`;
}

/** 128 random bits. `crypto.randomUUID` would be missing in pages that are not served securely. */
function randomKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
