/**
 * A slow pass through all rows of the state, step by step while writes go on (design 02 §5).
 *
 * U1. Every row is verified by its seal as the pass meets it.
 * U2. What is passed is summed up and kept up with later changes (sqlite-state.ts), so at the end of the pass it equals
 *     the sums that were kept all along, or a row has come or gone by itself.
 * U3. Where there are no sums yet, those of the first pass become them (D7).
 */
import type { ScrubStep } from "./ports.ts";
import { LIVE, readStretch } from "./sqlite-snapshot.ts";
import { putSums, type SqliteState } from "./sqlite-state.ts";
import { NO_SUMS, type StateSums, verifySums, withRow } from "./state-seals.ts";

const STEP_BYTES_MAX = 2 << 20;

/** @throws CorruptionError */
export function scrubStep(state: SqliteState, rowsMax: number): ScrubStep {
  const { exec, active } = state;
  const from = state.scrub ?? { afterKey: "", sums: NO_SUMS };
  const { rows, through, isEnd } = readStretch(exec, active, LIVE, from.afterKey, rowsMax, STEP_BYTES_MAX);
  let { sums } = from;
  for (const row of rows) sums = withRow(sums, row);
  if (isEnd) endPass(state, sums);
  else state.scrub = { afterKey: through, sums };
  return { afterKey: isEnd ? null : through, ...sums };
}

function endPass(state: SqliteState, sums: StateSums): void {
  state.scrub = null;
  if (state.sums === null) putSums(state, sums);
  else verifySums(state.sums, sums);
}
