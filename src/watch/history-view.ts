/**
 * History as the hub reads it: a narrow, synchronous view over the rows of one node's state. The walk itself is the
 * database's (kv/history-walk.ts H1..H3).
 *
 * H4. Compacted rows are removed only after a pump that came behind the compaction: until then a hub may hold new events
 *     at or below the compacted revision, whose previous records it has not looked up yet.
 */
import type { KeyRecord } from "../kv/command.ts";
import {
  type HistorySource,
  recordBefore,
  type Visit,
  type Walked,
  type WalkRequest,
  walkHistory,
} from "../kv/history-walk.ts";
import type { Position } from "../kv/position.ts";

export interface HistoryView {
  readonly revision: number;
  readonly compactRevision: number;
  walk(request: WalkRequest, visit: Visit): Walked;
  /** The record of `key` as it was just before the event at `position`; null if it was not there. */
  recordBefore(key: string, position: Position): KeyRecord | null;
}

export function createHistoryView(source: HistorySource): HistoryView {
  return {
    get revision() {
      return source.revision;
    },
    get compactRevision() {
      return source.compactRevision;
    },
    walk: (request, visit) => walkHistory(source, request, visit),
    recordBefore: (key, position) => recordBefore(source.store, key, position),
  };
}
