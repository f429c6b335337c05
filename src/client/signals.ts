/**
 * What ends other things: signals that end on one another, and patience. `AbortSignal.any` would do for
 * the former, but not in every browser that has the rest; and its links live as long as the longest signal, here they end
 * with the work.
 */
import type { ClientClock } from "./options.ts";

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
  for (const signal of signals) {
    if (signal?.aborted === true) abort();
    signal?.addEventListener("abort", abort, { once: true });
  }
  const unlink = () => {
    for (const signal of signals) signal?.removeEventListener("abort", abort);
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
  signal?.addEventListener("abort", give, { once: true });
  const end = () => {
    cancel();
    signal?.removeEventListener("abort", give);
  };
  return { over, end };
}
