/** Pauses between tries. */

export interface BackoffRange {
  readonly minMs: number;
  readonly maxMs: number;
}

/**
 * Exponential with full jitter: clients that failed together do not come back together. `failures` counts from 1;
 * `random` is in [0, 1).
 */
export function backoffMs(failures: number, random: number, { minMs, maxMs }: BackoffRange): number {
  return Math.ceil(random * Math.min(maxMs, minMs * 2 ** failures));
}
