/**
 * What a storage keeps of snapshots beside rows, out of parsed JSON. Pure.
 * Must not: trust what it reads; what is malformed is null, never an exception.
 */
import { isCounter, isNode, isObject } from "./codec.ts";
import type { SnapshotManifest, SnapshotPosition } from "./ports.ts";

export function positionFrom(value: unknown): SnapshotPosition | null {
  if (!isObject(value) || !isCounter(value.index) || !isCounter(value.term) || !isCounter(value.timeMs)) return null;
  const { index, term, timeMs, membership } = value;
  if (!isObject(membership)) return null;
  const { voters, learners, extra } = membership;
  if (!Array.isArray(voters) || !voters.every(isNode) || !Array.isArray(learners) || !learners.every(isNode))
    return null;
  if (extra === undefined) return { index, term, timeMs, membership: { voters, learners } };
  return typeof extra === "string" ? { index, term, timeMs, membership: { voters, learners, extra } } : null;
}

export function manifestFrom(value: unknown): SnapshotManifest | null {
  if (!isObject(value) || !isCounter(value.rowsCount) || !isCounter(value.hash)) return null;
  const position = positionFrom(value.position);
  return position === null ? null : { position, rowsCount: value.rowsCount, hash: value.hash };
}
