/**
 * What counts as `logical_bytes`, and which commands a full cluster refuses (design 01 §5).
 *
 * Counted, per row: its text and its user key in bytes, with a flat charge for the rest of the row key. That is
 *   - each change that is still in history: its history row and its version row, until compaction removes them;
 *   - each live record: its current row, and in advance the tombstone that will end it;
 *   - each lease: its row with the metadata and its row in the expiry index; each attached key; each due entry.
 * Not counted, because their size is bounded on its own: idempotency results, history marks, the meta row.
 *
 * Q1. The number is a function of the rows: it falls with each delete (by more than the tombstone adds), with each end of
 * a lease, and with each removal of history; it never depends on the way in which the rows came about.
 * Q2. A put grows it even where the value is the same or smaller: the older version stays until it is removed.
 */
import { unreachable } from "../base/assert.ts";
import type { Command, Operation } from "./command.ts";

/** Letter, zero-padded numbers and small values of a row. */
export const ROW_OVERHEAD_BYTES = 32;

/** A row that is a user key in some index, and nothing else. */
export function indexBytes(key: string): number {
  return key.length + ROW_OVERHEAD_BYTES;
}

/** Of a lease without its attachments. */
export function leaseBytes(metadataBytes: number): number {
  return metadataBytes + 2 * ROW_OVERHEAD_BYTES;
}

/**
 * True for what is refused with `no_space` at admission while the quota is used up. By the shape of the command alone: a
 * txn counts if either branch could write a version. What frees room or keeps an owner alive always goes on.
 */
export function isGrowing(command: Command): boolean {
  switch (command.kind) {
    case "txn":
      return command.success.some(isGrowingOperation) || command.failure.some(isGrowingOperation);
    case "lease_grant":
      return true;
    case "lease_revoke":
    case "lease_keep_alive":
    case "lease_expire":
    case "lease_floor":
    case "compact":
    case "compact_remove":
    // Where a backup comes from it had its place.
    case "restore_begin":
    case "restore_rows":
    case "restore_end":
      return false;
    default:
      return unreachable(command);
  }
}

function isGrowingOperation(operation: Operation): boolean {
  return operation.type === "put" || operation.type === "touch";
}
