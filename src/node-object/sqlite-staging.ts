/**
 * A snapshot on its way into a node's SQLite database: its rows stand in the table that is not the state, until that table
 * becomes the state (design 02 §5).
 *
 * J1. What is staged, how far it has come and its rows change together: a crash leaves a whole number of chunks.
 * J2. The swap is one row of meta, whatever the size of the state. Sums, base and log go with it in one transaction: a
 *     crash leaves the old state with its log, or the new one with its own (S53).
 * J3. The table that is no longer the state is garbage, and so are the rows of a snapshot that was given up. They are
 *     removed in bounded steps, before another snapshot is begun.
 */
import { assert } from "../base/assert.ts";
import type { Install, SnapshotChunk, SnapshotManifest } from "./ports.ts";
import { dropLog, replaceLog, type SqliteLog } from "./sqlite-log.ts";
import { corrupt, putMeta, SQL } from "./sqlite-rows.ts";
import { putRows, putSums, type SqliteState, spareTable } from "./sqlite-state.ts";
import { beginStaged, judgeChunk, type Staged, stagedFrom, stagedText } from "./staged-snapshot.ts";

/** @throws CorruptionError */
export function loadStaged(text: string | undefined): Staged | null {
  if (text === undefined) return null;
  const staged = stagedFrom(text);
  if (staged === null) throw corrupt("meta staging", "not a staged snapshot");
  return staged;
}

/** False: the place is not empty yet (J3). */
export function beginStaging(state: SqliteState, manifest: SnapshotManifest): boolean {
  discardStaging(state);
  if (state.exec(spareTable(state).any).length > 0) return false;
  putStaged(state, beginStaged(manifest));
  return true;
}

export function addChunk(state: SqliteState, chunk: SnapshotChunk): "taken" | "stale" | "damaged" {
  const judged = judgeChunk(state.staged, chunk);
  if (judged.outcome !== "taken") return judged.outcome;
  putRows(state.exec, spareTable(state), chunk.rows);
  putStaged(state, judged.staged);
  return "taken";
}

export function discardStaging(state: SqliteState): void {
  if (state.staged === null) return;
  state.exec(SQL.metaDelete, "staging");
  state.staged = null;
}

/** J2 */
export function installStaged(state: SqliteState, log: SqliteLog, { snapshot, keepsSuffix }: Install): void {
  const { staged } = state;
  assert(staged?.status === "complete", `snapshot ${snapshot.index} is staged, but ${staged?.status ?? "nothing"} is`);
  const { position } = staged.manifest;
  assert(
    position.index === snapshot.index && position.term === snapshot.term,
    `snapshot ${snapshot.index} of term ${snapshot.term} is staged, but ${position.index} of ${position.term} is`,
  );
  const table = spareTable(state);
  putMeta(state.exec, "active_state", table.name);
  putSums(state, staged.sums);
  if (keepsSuffix) dropLog(log, snapshot);
  else replaceLog(log, snapshot);
  discardStaging(state);
  state.active = table;
  // Both spoke of the state that is gone.
  state.pin = null;
  state.scrub = null;
}

function putStaged(state: SqliteState, staged: Staged): void {
  putMeta(state.exec, "staging", stagedText(staged));
  state.staged = staged;
}
