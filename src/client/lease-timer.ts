/**
 * Timers for leases, whose times may lie years ahead: a platform's timer of more than 2^31 - 1 ms fires at once (S35),
 * so long waits are made of short ones, and each looks at the clock again.
 */
import type { ClientClock } from "./options.ts";

const TIMER_MS_MAX = 24 * 60 * 60 * 1000;

/** Calls back at or after `atMs` of the clock, unless cancelled by the function that it returns. */
export function callAt(clock: ClientClock, atMs: number, callback: () => void): () => void {
  let cancel = wait();
  return () => cancel();

  function wait(): () => void {
    const delayMs = Math.min(Math.max(0, atMs - clock.nowMs()), TIMER_MS_MAX);
    return clock.after(delayMs, () => {
      if (clock.nowMs() >= atMs) callback();
      else cancel = wait();
    });
  }
}

/** Resolves at or after `atMs`, or once `signal` has aborted. */
export async function sleepUntil(clock: ClientClock, atMs: number, signal: AbortSignal): Promise<void> {
  while (!signal.aborted && clock.nowMs() < atMs) {
    await clock.sleep(Math.min(atMs - clock.nowMs(), TIMER_MS_MAX), signal);
  }
}
