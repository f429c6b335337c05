/**
 * Leases behind a network that tests script: what a keeper calls, without HTTP. Time is that of one driven clock, so that
 * "the lease lives" can be compared with "the keeper believes so" at every moment.
 */
import { ConcordError } from "../../src/base/errors.ts";
import type { KeeperContext, LeaseCalls } from "../../src/client/lease-keeper.ts";
import { linkedController } from "../../src/client/signals.ts";
import { DrivenClock } from "./driven-clock.ts";

/** What happens to one call. */
export interface Fate {
  /** Until the request arrives. Null: it never does. */
  readonly requestMs: number | null;
  /** Until the reply arrives, behind the request. Null: it never does. */
  readonly replyMs: number | null;
  /** The node answers so, without doing anything. */
  readonly refusal?: "no_leader" | "timeout" | "forbidden";
}

export const GOOD: Fate = { requestMs: 1, replyMs: 1 };
export const SILENT: Fate = { requestMs: null, replyMs: null };

export type CallKind = "grant" | "keepAlive" | "revoke";

export interface SentCall {
  readonly kind: CallKind;
  readonly sentMs: number;
  readonly timeoutMs: number;
  readonly attempt: number;
  /** When the caller had its success; null if it never did. */
  succeededMs: number | null;
}

interface Lease {
  ttlS: number;
  expiresAtMs: number;
}

const CALL_TIMEOUT_MS = 10_000;

export class LeaseServer implements LeaseCalls {
  readonly clock = new DrivenClock();
  readonly sent: SentCall[] = [];
  /** Every lease that was ever granted. */
  readonly leases = new Map<number, Lease>();
  /** So much earlier than promised leases end: what clocks may differ by. */
  aheadMs = 0;
  /** The fate of the next call. */
  fateOf: (kind: CallKind, nowMs: number) => Fate = () => GOOD;
  readonly #granted = new Map<string, number>();

  isAlive(id: number | null): boolean {
    const lease = id === null ? undefined : this.leases.get(id);
    return lease !== undefined && this.clock.nowMs() + this.aheadMs < lease.expiresAtMs;
  }

  get aliveCount(): number {
    return [...this.leases.keys()].filter((id) => this.isAlive(id)).length;
  }

  /** When the last grant or keep-alive that succeeded was sent. */
  get lastSuccessSentMs(): number {
    const successes = this.sent.filter(({ kind, succeededMs }) => kind !== "revoke" && succeededMs !== null);
    return Math.max(...successes.map(({ sentMs }) => sentMs));
  }

  grant: LeaseCalls["grant"] = (lease, { idempotencyKey, timeoutMs }) =>
    this.#call("grant", { ...(timeoutMs === undefined ? {} : { timeoutMs }) }, () => {
      const key = idempotencyKey ?? "";
      const id = this.#granted.get(key) ?? this.leases.size + 1;
      const expiresAtMs = this.clock.nowMs() + lease.ttl_s * 1_000;
      if (!this.#granted.has(key)) this.leases.set(id, { ttlS: lease.ttl_s, expiresAtMs });
      this.#granted.set(key, id);
      return { id, ttl_s: lease.ttl_s, expires_at_ms: this.leases.get(id)?.expiresAtMs ?? 0, revision: 0 };
    });

  keepAlive: LeaseCalls["keepAlive"] = (id, options) =>
    this.#call("keepAlive", options, () => {
      const lease = this.#alive(id);
      lease.expiresAtMs = this.clock.nowMs() + lease.ttlS * 1_000;
      return { id, ttl_s: lease.ttlS, expires_at_ms: lease.expiresAtMs, revision: 0 };
    });

  revoke: LeaseCalls["revoke"] = (id) =>
    this.#call("revoke", {}, () => {
      this.#alive(id).expiresAtMs = 0;
    });

  #alive(id: number): Lease {
    const lease = this.leases.get(id);
    if (lease !== undefined && this.isAlive(id)) return lease;
    throw new ConcordError({ code: "unknown_lease", detail: `There is no lease ${id}.` });
  }

  #call<T>(
    kind: CallKind,
    options: { readonly timeoutMs?: number; readonly signal?: AbortSignal; readonly attempt?: number },
    perform: () => T,
  ): Promise<T> {
    const { clock } = this;
    const { timeoutMs = CALL_TIMEOUT_MS, signal, attempt = 1 } = options;
    const call: SentCall = { kind, sentMs: clock.nowMs(), timeoutMs, attempt, succeededMs: null };
    this.sent.push(call);
    const { requestMs, replyMs, refusal } = this.fateOf(kind, clock.nowMs());
    return new Promise((resolve, reject) => {
      let isOver = false;
      const late = () => {
        isOver = true;
        reject(new ConcordError({ code: "timeout", reason: "late", detail: "No answer." }));
      };
      clock.after(timeoutMs, late);
      signal?.addEventListener("abort", late);
      if (requestMs === null) return;
      clock.after(requestMs, () => {
        const answer = answerOf(refusal, perform);
        if (replyMs === null) return;
        clock.after(replyMs, () => {
          if (isOver) return;
          if (!answer.ok) return reject(answer.error);
          call.succeededMs = clock.nowMs();
          resolve(answer.value);
        });
      });
    });
  }
}

/** What a keeper needs beside the calls. */
export function contextOf(
  { clock }: LeaseServer,
  options: { readonly chance?: number; readonly closing?: AbortSignal } = {},
): KeeperContext {
  const { chance = 0.5, closing = new AbortController().signal } = options;
  return { clock, random: () => chance, closing, link: (signal) => linkedController(closing, signal) };
}

function answerOf<T>(refusal: Fate["refusal"], perform: () => T) {
  try {
    if (refusal !== undefined) throw new ConcordError({ code: refusal, detail: "The node says so." });
    return { ok: true, value: perform() } as const;
  } catch (error) {
    return { ok: false, error } as const;
  }
}
