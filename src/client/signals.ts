/**
 * What ends other things: signals that are listened to, signals that end on one another, and patience. `AbortSignal.any` would do for
 * the former, but not in every browser that has the rest; and its links live as long as the longest signal, here they end
 * with the work.
 */
import type { ClientClock } from "./options.ts";

/** What waits for each signal that anybody waits for. */
const WAITING = new WeakMap<AbortSignal, Set<() => void>>();

/**
 * Calls `act` once `signal` aborts, unless told otherwise by the function that it returns; never if it has aborted
 * before. A caller may use one signal for hundreds of calls: it has one listener for all of them, since platforms warn
 * of a leak from the eleventh on.
 */
export function onAbort(signal: AbortSignal | undefined, act: () => void): () => void {
  if (signal === undefined) return () => {};
  const waiting = WAITING.get(signal) ?? listen(signal);
  waiting.add(act);
  return () => void waiting.delete(act);
}

function listen(signal: AbortSignal): Set<() => void> {
  const waiting = new Set<() => void>();
  WAITING.set(signal, waiting);
  signal.addEventListener("abort", () => {
    for (const act of waiting) act();
  });
  return waiting;
}

export interface LinkedController {
  readonly signal: AbortSignal;
  abort(): void;
  /** Lets go of the other signals. */
  unlink(): void;
}

/** Aborted by itself, or when one of `signals` is. */
export function linkedController(...signals: readonly (AbortSignal | undefined)[]): LinkedController {
  const controller = new AbortController();
  const abort = () => controller.abort();
  const links = signals.map((signal) => {
    if (signal?.aborted === true) abort();
    return onAbort(signal, abort);
  });
  const unlink = () => {
    for (const stop of links) stop();
  };
  return { signal: controller.signal, abort, unlink };
}

/** How long something is waited for: `over` resolves after `delayMs`, or when `signal` aborts. */
export function startPatience(clock: ClientClock, delayMs: number, signal: AbortSignal | undefined) {
  let give: () => void = () => {};
  const over = new Promise<void>((resolve) => {
    give = resolve;
  });
  const cancel = clock.after(delayMs, give);
  if (signal?.aborted === true) give();
  const stop = onAbort(signal, give);
  const end = () => {
    cancel();
    stop();
  };
  return { over, end };
}
