/**
 * The clocks of a node, derived from virtual time. The monotonic one belongs to an instance: it starts anywhere and may
 * run fast or slow. The wall clock belongs to the node and may be wrong and jump. Both show whole milliseconds, as the
 * platform gives them, and stand still within a turn.
 */

export interface MonotonicClock {
  /** Local ms at `anchorAt`. */
  anchorMs: number;
  /** Virtual time of the anchor. */
  anchorAt: number;
  /** Local ms per virtual ms. */
  rate: number;
}

/** An arbitrary date: nothing may depend on it, but it has the size of a real one. */
export const WALL_EPOCH_MS = 1_800_000_000_000;

/** Keeps a timer that was computed for exactly one millisecond from being a rounding error early. */
const ROUNDING_MS = 1e-6;

export function monotonicMs(clock: MonotonicClock, at: number): number {
  return Math.floor(clock.anchorMs + (at - clock.anchorAt) * clock.rate + ROUNDING_MS);
}

/** The virtual time at which the clock shows `localMs`. */
export function virtualTimeOf(clock: MonotonicClock, localMs: number): number {
  return clock.anchorAt + (localMs - clock.anchorMs) / clock.rate;
}

/** Changes the speed from now on, without a jump. */
export function setRate(clock: MonotonicClock, at: number, rate: number): void {
  clock.anchorMs += (at - clock.anchorAt) * clock.rate;
  clock.anchorAt = at;
  clock.rate = rate;
}

export function wallMs(skewMs: number, at: number): number {
  return Math.floor(WALL_EPOCH_MS + skewMs + at + ROUNDING_MS);
}
