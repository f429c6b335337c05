/**
 * The calls of one session: which are written and unanswered, which wait for their turn.
 *
 * P1. Every call ends: by its answer, its deadline, its signal, or the end of the session. One that was written is
 *     `timeout` then, for it may have been carried out; one that still waited for its turn was `not_sent`.
 * P2. At most `IN_FLIGHT_MAX` requests are unanswered; others wait within bounds. A call whose caller has gone keeps its
 *     place until the node answers, because the node counts it too.
 */
import { ConcordError } from "../base/errors.ts";
import type { ClientClock } from "./options.ts";
import { aborted, broken, type Exchange, errorOfProblem, failed, late, notSent } from "./transport.ts";

const IN_FLIGHT_MAX = 256;
const WAITING_MAX = 4096;
const WAITING_CHARS_MAX = 32 << 20;
/** So many calls whose callers are gone, and no answer to any, are as good as a dead socket. */
const ABANDONED_MAX = 64;
/** How long after a call's deadline its answer may still come. */
const STUCK_GRACE_MS = 2_000;

export interface SessionRequest {
  readonly method: string;
  /** JSON text of an object. */
  readonly params: string;
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
}

export interface CallsEvents {
  send(text: string): void;
  /** When the node last sent anything but a pong. */
  heardAtMs(): number;
  /** The node takes calls and answers none. */
  onStuck(): void;
}

interface Pending {
  readonly request: SessionRequest;
  readonly deadlineMs: number;
  readonly settle: (exchange: Exchange) => void;
  sentAtMs: number;
}

export class PendingCalls {
  readonly #clock: ClientClock;
  readonly #events: CallsEvents;
  readonly #sent = new Map<number, Pending>();
  readonly #abandoned = new Set<Pending>();
  readonly #waiting = new Set<Pending>();
  #waitingChars = 0;
  #answeredAtMs = Number.NEGATIVE_INFINITY;
  #nextId = 1;

  constructor(clock: ClientClock, events: CallsEvents) {
    this.#clock = clock;
    this.#events = events;
  }

  /** Whether any caller waits. */
  get isInUse(): boolean {
    return this.#waiting.size > 0 || this.#sent.size > this.#abandoned.size;
  }

  add(request: SessionRequest): Promise<Exchange> {
    const { timeoutMs, signal } = request;
    return new Promise((resolve) => {
      const settle = (exchange: Exchange) => {
        cancel();
        signal?.removeEventListener("abort", onAbort);
        resolve(exchange);
      };
      const call: Pending = { request, deadlineMs: this.#clock.nowMs() + timeoutMs, settle, sentAtMs: 0 };
      const onAbort = () => this.#abandon(call, aborted());
      const cancel = this.#clock.after(timeoutMs, () => this.#onLate(call));
      signal?.addEventListener("abort", onAbort, { once: true });
      if (signal?.aborted === true) settle(aborted());
      else if (this.#sent.size < IN_FLIGHT_MAX) this.#write(call);
      else this.#wait(call);
    });
  }

  /** Takes a response; one to nobody is nothing. */
  answer(message: Readonly<Record<string, unknown>>): void {
    const call = this.#sent.get(message.id as number);
    if (call === undefined) return;
    this.#answeredAtMs = this.#clock.nowMs();
    this.#sent.delete(message.id as number);
    this.#abandoned.delete(call);
    call.settle(exchangeOf(message));
    const [next] = this.#waiting;
    if (next === undefined) return;
    this.#unwait(next);
    this.#write(next);
  }

  endAll(cause: unknown): void {
    const sent = [...this.#sent.values()];
    const waiting = [...this.#waiting];
    this.#sent.clear();
    this.#waiting.clear();
    this.#abandoned.clear();
    for (const { settle } of sent) settle(broken(cause));
    for (const { settle } of waiting) settle(notSent("The session ended before the request was sent."));
  }

  #write(call: Pending): void {
    const { method, params } = call.request;
    const id = this.#nextId;
    this.#nextId += 1;
    call.sentAtMs = this.#clock.nowMs();
    this.#sent.set(id, call);
    const timeoutMs = Math.max(1, Math.ceil(call.deadlineMs - call.sentAtMs));
    // The parameters are text already; the time that is left is known only now.
    const all = `${params.slice(0, -1)}${params === "{}" ? "" : ","}"timeout_ms":${timeoutMs}}`;
    this.#events.send(`{"jsonrpc":"2.0","id":${id},"method":"${method}","params":${all}}`);
  }

  #wait(call: Pending): void {
    const chars = call.request.params.length;
    if (this.#waiting.size >= WAITING_MAX || this.#waitingChars + chars > WAITING_CHARS_MAX) {
      call.settle(failed("overloaded", "too_many_requests", "Too many calls wait in this client for their turn."));
      return;
    }
    this.#waiting.add(call);
    this.#waitingChars += chars;
  }

  #unwait(call: Pending): boolean {
    const wasWaiting = this.#waiting.delete(call);
    if (wasWaiting) this.#waitingChars -= call.request.params.length;
    return wasWaiting;
  }

  #onLate(call: Pending): void {
    if (this.#waiting.has(call)) {
      this.#abandon(call, notSent(`The request waited ${call.request.timeoutMs} ms for its turn.`));
      return;
    }
    this.#abandon(call, late(call.request.timeoutMs));
    const isDeaf = this.#abandoned.size > ABANDONED_MAX && this.#answeredAtMs <= call.sentAtMs;
    if (isDeaf) this.#events.onStuck();
    else this.#clock.after(STUCK_GRACE_MS, () => this.#testStuck(call), true);
  }

  /** The node answers every request within its time; what has said nothing since this one was sent is stuck. */
  #testStuck(call: Pending): void {
    if (this.#abandoned.has(call) && this.#events.heardAtMs() <= call.sentAtMs) this.#events.onStuck();
  }

  #abandon(call: Pending, exchange: Exchange): void {
    if (!this.#unwait(call)) this.#abandoned.add(call);
    call.settle(exchange);
  }
}

function exchangeOf(message: Readonly<Record<string, unknown>>): Exchange {
  const { result, error } = message;
  if (typeof result === "object" && result !== null) {
    const { revision } = result as { readonly revision?: unknown };
    const reply = { result, clusterId: null, revision: typeof revision === "number" ? revision : null };
    return { reply, error: null };
  }
  const problem = (error as { readonly data?: unknown } | undefined)?.data;
  const known = errorOfProblem(problem);
  if (known !== null) return { reply: null, error: known };
  const detail = "The node answered with an error that says nothing.";
  return { reply: null, error: new ConcordError({ code: "internal", reason: "no_problem_document", detail }) };
}
