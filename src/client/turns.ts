/**
 * Turns: how many requests are under way at once, and who waits to be the next.
 *
 * U1. Whoever asks is told once: to begin, in the order of asking, or that it never will; nothing was sent of it then.
 * U2. At most `limitMax` requests are under way; the others wait, as long as each wants to, within bounds.
 * U3. The limit is halved when requests are late because there are too many, once per round of them, and grows by one
 *     with each round that is in time: a server that is slow with many is not asked by so many that all are late.
 */
import type { ClientClock } from "./options.ts";
import { onAbort } from "./signals.ts";
import { aborted, type Exchange, failedByLoad, notSent } from "./transport.ts";

const LIMIT_MIN = 16;
const WAITING_MAX = 4096;
const WAITING_CHARS_MAX = 32 << 20;

export interface Asking {
  /** Of the text that waits. */
  readonly chars: number;
  readonly waitMs: number;
  readonly signal: AbortSignal | undefined;
  /** Its turn has come; `leftMs` is what is left of `waitMs`. Whoever begins calls {@link Turns.leave} once. */
  begin(leftMs: number): void;
  refuse(exchange: Exchange): void;
}

interface Waiting {
  begin(): void;
  refuse(exchange: Exchange): void;
}

export class Turns {
  readonly #clock: ClientClock;
  readonly #limitMax: number;
  readonly #waiting = new Set<Waiting>();
  #limit: number;
  #reducedAtMs = Number.NEGATIVE_INFINITY;
  #waitingChars = 0;
  #underWay = 0;
  #end: Exchange | null = null;

  constructor(clock: ClientClock, limitMax: number) {
    this.#clock = clock;
    this.#limitMax = limitMax;
    this.#limit = limitMax;
  }

  get areAwaited(): boolean {
    return this.#waiting.size > 0;
  }

  ask(asking: Asking): void {
    const { chars, waitMs, signal } = asking;
    if (this.#end !== null) asking.refuse(this.#end);
    else if (signal?.aborted === true) asking.refuse(aborted());
    else if (this.#waiting.size === 0 && this.#underWay < Math.floor(this.#limit)) {
      this.#underWay += 1;
      asking.begin(waitMs);
    } else if (this.#waiting.size >= WAITING_MAX || this.#waitingChars + chars > WAITING_CHARS_MAX) {
      asking.refuse(failedByLoad("too_many_requests", "Too many calls wait in this client for their turn."));
    } else this.#wait(asking);
  }

  /** One that had begun is over. */
  leave(): void {
    this.#underWay -= 1;
    for (const next of this.#waiting) {
      if (this.#underWay >= Math.floor(this.#limit)) break;
      this.#underWay += 1;
      next.begin();
    }
  }

  noteInTime(): void {
    this.#limit = Math.min(this.#limitMax, this.#limit + 1 / this.#limit);
  }

  /** One that began at `begunAtMs` is late, or was refused, because there are too many. */
  noteLoad(begunAtMs: number): void {
    if (begunAtMs < this.#reducedAtMs) return;
    this.#reducedAtMs = this.#clock.nowMs();
    this.#limit = Math.max(LIMIT_MIN, this.#limit / 2);
  }

  /** Nobody begins any more. */
  endAll(exchange: Exchange): void {
    this.#end = exchange;
    for (const waiting of this.#waiting) waiting.refuse(exchange);
  }

  #wait({ chars, waitMs, signal, begin, refuse }: Asking): void {
    const deadlineMs = this.#clock.nowMs() + waitMs;
    const stop = () => {
      this.#waiting.delete(waiting);
      this.#waitingChars -= chars;
      cancel();
      unlisten();
    };
    const waiting: Waiting = {
      begin: () => {
        stop();
        begin(deadlineMs - this.#clock.nowMs());
      },
      refuse: (exchange) => {
        stop();
        refuse(exchange);
      },
    };
    const cancel = this.#clock.after(waitMs, () =>
      waiting.refuse(notSent(`The request waited ${Math.ceil(waitMs)} ms in this client for its turn.`)),
    );
    const unlisten = onAbort(signal, () => waiting.refuse(aborted()));
    this.#waiting.add(waiting);
    this.#waitingChars += chars;
  }
}
