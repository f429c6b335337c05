/**
 * The record of one watch, and what it owes and is owed.
 *
 * W1. A watch is in one phase: `live` (everything up to the hub's revision is sent or waits in `fresh` for the pump of
 *     this turn), `future` (its position is not reached yet), `behind` (it reads history from its position), `ended`.
 * W2. What waits for a watch is its position, never copies: `fresh` is empty between turns.
 * W3. `unacknowledged` is the sum of `ledger`, whose entries are in order of position.
 */
import type { ChangeEvent, Selector } from "../kv/command.ts";
import type { Position } from "../kv/position.ts";
import type { Shape, SharedEvent } from "./encoded-event.ts";

export type EventFilter = "puts" | "deletes";

export interface Watch {
  readonly connection: string;
  readonly id: number;
  readonly selector: Selector;
  readonly shape: Shape;
  /** Sees events of one type only; null = both. */
  readonly filter: EventFilter | null;
  phase: "live" | "future" | "behind" | "ended";
  /** Everything up to here is sent. Exact for `future` and `behind`; see `sentPosition` for the others. */
  position: Position;
  /** `ready` has been sent. */
  ready: boolean;
  /** Wants a `progress` when it has caught up. */
  progressWanted: boolean;
  fresh: SharedEvent[];
  unacknowledged: number;
  readonly ledger: LedgerEntry[];
  /** Bytes that the frame needs for which it waits; 0 = it does not wait for credit. */
  lacking: number;
  /** Last acknowledgement, or since when something is unacknowledged, whichever is later. */
  silentSinceMs: number;
  /** Matching events behind `position`: exact while `lagThrough` is null, else counted up to there. */
  lagEvents: number;
  lagBytes: number;
  lagThrough: Position | null;
  /** The revision that the client knows to be complete, and when it was told. */
  toldRevision: number;
  toldAtMs: number;
}

export interface LedgerEntry {
  /** Acknowledging this or more releases the bytes. */
  end: Position;
  bytes: number;
}

/** Whether a watch that selects the key of `event` sees it. */
export function wantsType(watch: Watch, event: ChangeEvent): boolean {
  return watch.filter === null || (watch.filter === "puts") === (event.type === "put");
}
