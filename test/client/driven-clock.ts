/** A client's clock that moves only when a test says so, and the pauses that a machine makes. */
import type { ClientClock } from "../../src/client/index.ts";

interface Timer {
  readonly atMs: number;
  readonly callback: () => void;
}

export class DrivenClock implements ClientClock {
  /** Lets everything happen that needs no time. */
  readonly #settle: () => Promise<void>;
  readonly #timers = new Set<Timer>();
  #nowMs: number;

  constructor(settle: () => Promise<void> = settleMicrotasks, nowMs = 5_000.25) {
    this.#settle = settle;
    this.#nowMs = nowMs;
  }

  get timersCount(): number {
    return this.#timers.size;
  }

  nowMs(): number {
    return this.#nowMs;
  }

  after(delayMs: number, callback: () => void): () => void {
    // As the platform does (S35).
    const timer = { atMs: this.#nowMs + (delayMs > 2 ** 31 - 1 ? 1 : Math.max(0, delayMs)), callback };
    this.#timers.add(timer);
    return () => void this.#timers.delete(timer);
  }

  sleep(delayMs: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const cancel = this.after(delayMs, done);
      signal?.addEventListener("abort", done, { once: true });
      function done(): void {
        cancel();
        signal?.removeEventListener("abort", done);
        resolve();
      }
    });
  }

  /** Time passes, and everything happens at its moment. */
  async advance(durationMs: number, visit: () => void | Promise<void> = () => {}): Promise<void> {
    const untilMs = this.#nowMs + durationMs;
    for (;;) {
      await this.#settle();
      await visit();
      const next = this.#nextTimer();
      if (next === null || next.atMs > untilMs) break;
      this.#fire(next);
    }
    this.#nowMs = Math.max(this.#nowMs, untilMs);
    await this.#settle();
    await visit();
  }

  /** The machine, or the process, stands still: time passes and nothing happens, not even behind it. */
  leap(durationMs: number): void {
    this.#nowMs += durationMs;
  }

  #nextTimer(): Timer | null {
    let next: Timer | null = null;
    for (const timer of this.#timers) if (next === null || timer.atMs < next.atMs) next = timer;
    return next;
  }

  #fire(timer: Timer): void {
    this.#timers.delete(timer);
    this.#nowMs = Math.max(this.#nowMs, timer.atMs);
    timer.callback();
  }
}

export async function settleMicrotasks(): Promise<void> {
  for (let turns = 0; turns < 30; turns += 1) await Promise.resolve();
}
