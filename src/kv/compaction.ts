/**
 * Compaction, the replicated decision: from now on nothing older than `revision` can be read (design 01 §1).
 *
 * After compact(r) the state at r and every event with a revision > r stay available; anything that needs less is
 * refused, whatever old rows a node still holds. Rows are removed elsewhere, in chunks, at each node's own pace, under
 * these rules, on which reads.ts relies:
 * D1. For each key, the last version at or below r stays if it is a put, with its history row.
 * D2. A tombstone at or below r goes only after every older version of its key (else an older put would reappear).
 * D3. The current revision is in the meta row and is never derived from the rows that are left (S51).
 */
import type { CommandResult } from "./command.ts";
import { refuse } from "./refusal.ts";
import type { Draft } from "./state.ts";

/** Compacting what is compacted already is done, not refused: repeating the command is harmless. */
export function compact(draft: Draft, revision: number): CommandResult {
  const { meta } = draft;
  if (revision > meta.revision) {
    refuse("revision_in_future", `Revision ${revision} does not exist yet; the newest is ${meta.revision}.`, {
      revision: meta.revision,
    });
  }
  if (revision > meta.compactRevision) meta.compactRevision = revision;
  return { kind: "compact", compact_revision: meta.compactRevision };
}
