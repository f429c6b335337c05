/**
 * What a node does for its storage while it is awake anyway (design 02 §5): rows of states that were replaced are taken
 * away, and the rows of the present one are read again and again, so that a disk that lies is found before it is needed.
 *
 * K1. One bounded step in `housekeepingMs`, in a turn that something else has brought; nobody is woken and no timer set for it.
 * K2. A row that does not match its seal, or rows that do not add up to what was written, halt the node (design 02 §2).
 */
import type { NodeState, Running } from "./runtime-state.ts";

/** While something is to be cleared, which a snapshot may be waiting for. */
const CLEARING_PAUSE_MS = 50;
const SCRUB_ROWS = 500;

/** Called in every turn. @throws CorruptionError */
export function keepHouse(state: NodeState, running: Running, nowMs: number): void {
  if (running.asleep || nowMs < running.houseAtMs || state.config.housekeepingMs === Number.POSITIVE_INFINITY) return;
  const { storage } = state.ports;
  const isClearing = storage.cleanUp();
  running.houseAtMs = nowMs + (isClearing ? CLEARING_PAUSE_MS : state.config.housekeepingMs);
  if (isClearing) return;
  const { afterKey, rowsCount } = storage.scrub.step(SCRUB_ROWS);
  if (afterKey === null && rowsCount > SCRUB_ROWS) state.ports.log("info", "state verified", { rows: rowsCount });
}
