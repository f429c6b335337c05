/**
 * Whether the other end of a socket is still there, and whether anybody cares.
 *
 * L1. While the socket is in use, silence of `PING_AFTER_SILENCE_MS` is tested by a ping; silence of `PONG_MS_MAX` behind
 *     it is death. A ping is also sent when this side has been silent for `SAY_AFTER_MS`, however much it hears: a node
 *     takes clients for gone that have pinged before and then say nothing for 90 s.
 * L2. While it is not in use nothing is sent, and after `IDLE_MS_MAX` it is given up.
 */
import type { ClientClock } from "./options.ts";

const PING_AFTER_SILENCE_MS = 20_000;
const SAY_AFTER_MS = 60_000;
const PONG_MS_MAX = 10_000;
const IDLE_MS_MAX = 60_000;

export interface LivenessEvents {
  isInUse(): boolean;
  ping(): void;
  onDead(): void;
  onIdle(): void;
}

export class Liveness {
  readonly #clock: ClientClock;
  readonly #events: LivenessEvents;
  #heardAtMs: number;
  #saidAtMs: number;
  #pingedAtMs: number | null = null;
  /** When it was last in use; null while it is. */
  #idleSinceMs: number | null;
  #cancel: (() => void) | null = null;
  #isStopped = false;

  constructor(clock: ClientClock, events: LivenessEvents) {
    this.#clock = clock;
    this.#events = events;
    this.#heardAtMs = clock.nowMs();
    this.#saidAtMs = clock.nowMs();
    this.#idleSinceMs = clock.nowMs();
    this.#arm();
  }

  noteHeard(): void {
    // The timer is left as it is: when it fires it sees that there was news.
    this.#heardAtMs = this.#clock.nowMs();
    this.#pingedAtMs = null;
  }

  noteSaid(): void {
    this.#saidAtMs = this.#clock.nowMs();
  }

  /** Something began or ended. */
  noteUse(): void {
    const isInUse = this.#events.isInUse();
    if (isInUse === (this.#idleSinceMs === null)) return;
    this.#idleSinceMs = isInUse ? null : this.#clock.nowMs();
    this.#pingedAtMs = null;
    // Silence counts from here on: nobody listened before.
    if (isInUse) this.#heardAtMs = this.#clock.nowMs();
    this.#arm();
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancel?.();
  }

  #arm(): void {
    this.#cancel?.();
    if (this.#isStopped) return;
    this.#cancel = this.#clock.after(Math.max(0, this.#dueAtMs() - this.#clock.nowMs()), () => this.#onTimer(), true);
  }

  #dueAtMs(): number {
    if (this.#idleSinceMs !== null) return this.#idleSinceMs + IDLE_MS_MAX;
    if (this.#pingedAtMs !== null) return this.#pingedAtMs + PONG_MS_MAX;
    return Math.min(this.#heardAtMs + PING_AFTER_SILENCE_MS, this.#saidAtMs + SAY_AFTER_MS);
  }

  #onDue(): void {
    if (this.#idleSinceMs !== null) this.#events.onIdle();
    else if (this.#pingedAtMs !== null) this.#events.onDead();
    else {
      this.#pingedAtMs = this.#clock.nowMs();
      this.#events.ping();
    }
  }

  #onTimer(): void {
    if (this.#clock.nowMs() >= this.#dueAtMs()) this.#onDue();
    this.#arm();
  }
}
