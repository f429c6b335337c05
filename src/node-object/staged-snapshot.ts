/**
 * A snapshot on its way in: which chunk comes next, whether it is sound, and whether the whole is what was promised. Pure;
 * where the rows are kept is the business of each storage.
 *
 * G1. A chunk counts once and in its place: it follows the last one, and is of the same snapshot (S53).
 * G2. Every row is verified by its seal, the whole by count and hash of the manifest.
 * G3. What is read back from storage is trusted no more than a row of it: malformed is null, never an exception.
 */
import { isCounter, isNode, isObject, parseJson } from "./json-guards.ts";
import type { SnapshotChunk, SnapshotManifest, SnapshotPosition, StagingState } from "./ports.ts";
import { equalSums, NO_SUMS, type StateSums, verifiedSeal, withSeal } from "./state-seals.ts";

export interface Staged {
  readonly manifest: SnapshotManifest;
  readonly afterKey: string | null;
  /** Of the rows so far. */
  readonly sums: StateSums;
  readonly status: StagingState["status"];
}

export type Judged =
  | { readonly outcome: "stale" | "damaged" }
  /** What is staged once the rows of the chunk are. */
  | { readonly outcome: "taken"; readonly staged: Staged };

const STALE: Judged = { outcome: "stale" };
const DAMAGED: Judged = { outcome: "damaged" };

export function beginStaged(manifest: SnapshotManifest): Staged {
  return { manifest, afterKey: null, sums: NO_SUMS, status: "receiving" };
}

export function judgeChunk(staged: Staged | null, chunk: SnapshotChunk): Judged {
  if (staged?.status !== "receiving") return STALE;
  const { manifest } = staged;
  const isSame = chunk.index === manifest.position.index && chunk.term === manifest.position.term;
  if (!isSame || chunk.after !== staged.afterKey) return STALE;
  let { sums } = staged;
  let after = staged.afterKey ?? "";
  for (const [key, text] of chunk.rows) {
    const seal = key > after ? verifiedSeal(key, text) : null;
    if (seal === null) return DAMAGED;
    sums = withSeal(sums, seal);
    after = key;
  }
  const isAll = equalSums(sums, manifest);
  const status = !chunk.last ? "receiving" : isAll ? "complete" : "damaged";
  return { outcome: "taken", staged: { manifest, afterKey: after === "" ? null : after, sums, status } };
}

export function stagingState(staged: Staged | null): StagingState | null {
  if (staged === null) return null;
  const { manifest, afterKey, sums, status } = staged;
  return { manifest, afterKey, rowsCount: sums.rowsCount, status };
}

export function stagedText(staged: Staged): string {
  return JSON.stringify(staged);
}

export function stagedFrom(text: string): Staged | null {
  const value = parseJson(text);
  if (!isObject(value) || !isObject(value.manifest)) return null;
  const { afterKey, status } = value;
  const position = positionFrom(value.manifest.position);
  const promised = sumsOf(value.manifest);
  const sums = sumsOf(value.sums);
  if (position === null || promised === null || sums === null) return null;
  if (!(afterKey === null || typeof afterKey === "string")) return null;
  if (status !== "receiving" && status !== "complete" && status !== "damaged") return null;
  return { manifest: { position, ...promised }, afterKey, sums, status };
}

function sumsOf(value: unknown): StateSums | null {
  if (!isObject(value) || !isCounter(value.rowsCount) || !isCounter(value.hash)) return null;
  return { rowsCount: value.rowsCount, hash: value.hash };
}

/**
 * Of the own disk. More lenient than what the codec takes from a peer: a node that was taken in late may not know who took
 * part where its log begins, so "nobody" stands here too.
 */
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
