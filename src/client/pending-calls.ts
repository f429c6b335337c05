/**
 * The calls of one session: which are written and unanswered; others wait for their turn (turns.ts).
 *
 * P1. Every call ends: by its answer, its deadline, its signal, or the end of the session. One that was written is
 *     `timeout` then, for it may have been carried out; one that still waited for its turn was `not_sent`.
 * P2. At most `IN_FLIGHT_MAX` requests are unanswered. A call whose caller has gone keeps its place until the node
 *     answers, because the node counts it too.
 * P3. A call's time runs from when it is written. One that is late while others are answered shows that they are many,
 *     not that the socket is dead; a session that has answered nothing since is left a little later (S84).
 */

import { fault } from "./check.ts";
import type { ClientClock } from "./options.ts";
import { onAbort } from "./signals.ts";
import { aborted, broken, type Exchange, errorOfProblem, late, notSent } from "./transport.ts";
import { Turns } from "./turns.ts";

const IN_FLIGHT_MAX = 256;
/** So many calls whose callers are gone, and no answer to any, are as good as a dead socket. */
const ABANDONED_MAX = 64;
/** How long after a call's deadline its answer may still come. */
const STUCK_GRACE_MS = 2_000;
/** What is late after less time says nothing of load. */
const LOAD_MS_MIN = 500;

export interface SessionRequest {
  readonly method: string;
  /** JSON text of an object. */
  readonly params: string;
  /** From when it is written. */
  readonly timeoutMs: number;
  /** From now on, with the time that it waits to be written. Default: `timeoutMs`. */
  readonly leftMs?: number;
  readonly signal?: AbortSignal;
}

export interface CallsEvents {
  send(text: string): void;
  /** When the node last sent anything but a pong. */
  heardAtMs(): number;
  /** The node takes calls and answers none. */
  onStuck(): void;
}

/** A call that was written. */
interface Pending {
  readonly sentAtMs: number;
  readonly timeoutMs: number;
  /** Also ends the waiting for its deadline. */
  readonly settle: (exchange: Exchange) => void;
}

export class PendingCalls {
  readonly #clock: ClientClock;
  readonly #events: CallsEvents;
  readonly #turns: Turns;
  readonly #sent = new Map<number, Pending>();
  readonly #abandoned = new Set<Pending>();
  #answeredAtMs = Number.NEGATIVE_INFINITY;
  #nextId = 1;

  constructor(clock: ClientClock, events: CallsEvents) {
    this.#clock = clock;
    this.#events = events;
    this.#turns = new Turns(clock, IN_FLIGHT_MAX);
  }

  /** Whether any caller waits. */
  get isInUse(): boolean {
    return this.#turns.areAwaited || this.#sent.size > this.#abandoned.size;
  }

  add(request: SessionRequest): Promise<Exchange> {
    const { params, timeoutMs, leftMs: waitMs = timeoutMs, signal } = request;
    return new Promise((resolve) => {
      const begin = (leftMs: number) => this.#write(request, Math.min(timeoutMs, leftMs), resolve);
      this.#turns.ask({ chars: params.length, waitMs, signal, begin, refuse: resolve });
    });
  }

  /** Takes a response; one to nobody is nothing. */
  answer(message: Readonly<Record<string, unknown>>): void {
    const call = this.#sent.get(message.id as number);
    if (call === undefined) return;
    this.#answeredAtMs = this.#clock.nowMs();
    this.#sent.delete(message.id as number);
    const exchange = exchangeOf(message);
    const isLate = this.#abandoned.delete(call);
    if (exchange.error?.code === "overloaded") this.#turns.noteLoad(call.sentAtMs);
    else if (!isLate) this.#turns.noteInTime();
    call.settle(exchange);
    this.#turns.leave();
  }

  endAll(cause: unknown): void {
    const sent = [...this.#sent.values()];
    this.#sent.clear();
    this.#abandoned.clear();
    for (const { settle } of sent) settle(broken(cause));
    this.#turns.endAll(notSent("The session ended before the request was sent."));
  }

  #write({ method, params, signal }: SessionRequest, leftMs: number, resolve: (exchange: Exchange) => void): void {
    const id = this.#nextId;
    this.#nextId += 1;
    const timeoutMs = Math.max(1, Math.ceil(leftMs));
    const settle = (exchange: Exchange) => {
      cancel();
      unlisten();
      resolve(exchange);
    };
    const call: Pending = { sentAtMs: this.#clock.nowMs(), timeoutMs, settle };
    const cancel = this.#clock.after(timeoutMs, () => this.#onLate(call));
    const unlisten = onAbort(signal, () => this.#abandon(call, aborted()));
    this.#sent.set(id, call);
    // The parameters are text already; the time that is left is known only now.
    const all = `${params.slice(0, -1)}${params === "{}" ? "" : ","}"timeout_ms":${timeoutMs}}`;
    this.#events.send(`{"jsonrpc":"2.0","id":${id},"method":"${method}","params":${all}}`);
  }

  #onLate(call: Pending): void {
    const { sentAtMs, timeoutMs } = call;
    const isOfLoad = this.#answeredAtMs > sentAtMs;
    if (isOfLoad && timeoutMs >= LOAD_MS_MIN) this.#turns.noteLoad(sentAtMs);
    this.#abandon(call, { ...late(timeoutMs), isOfLoad });
  }

  #abandon(call: Pending, exchange: Exchange): void {
    const { sentAtMs, timeoutMs, settle } = call;
    this.#abandoned.add(call);
    const untilStuckMs = sentAtMs + timeoutMs + STUCK_GRACE_MS - this.#clock.nowMs();
    this.#clock.after(untilStuckMs, () => this.#testStuck(call), true);
    settle(exchange);
  }

  /** The node answers every request within its time; what has said nothing since this one was sent is stuck. */
  #testStuck(call: Pending): void {
    if (!this.#abandoned.has(call)) return;
    const isSilent = this.#events.heardAtMs() <= call.sentAtMs;
    const isDeaf = this.#abandoned.size > ABANDONED_MAX && this.#answeredAtMs <= call.sentAtMs;
    if (isSilent || isDeaf) this.#events.onStuck();
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
  if (known !== null) return { reply: null, error: known, isOfLoad: known.code === "overloaded" };
  const detail = "The node answered with an error that says nothing.";
  return { reply: null, error: fault("internal", "no_problem_document", detail) };
}
