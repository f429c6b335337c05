/**
 * The meta rows of a node's SQLite database: what there is one of. Read as a whole when the storage is loaded.
 *
 * M1. A row with a wrong checksum is no row; the first such is told beside the rest, so that a halted node can still say
 *     why it halted.
 */
import type { HardState } from "../raft/types.ts";
import { identityOf } from "./codec.ts";
import { isCounter, isNode, isObject, parseJson } from "./json-guards.ts";
import type { Identity, LoadedState, SleepNote } from "./ports.ts";
import { corrupt, type Exec, metaChecksum, numberColumn, SQL, textColumn } from "./sqlite-rows.ts";

export interface LoadedMeta {
  readonly meta: ReadonlyMap<string, string>;
  readonly corruption: Error | null;
}

export function loadMeta(exec: Exec): LoadedMeta {
  const meta = new Map<string, string>();
  let corruption: Error | null = null;
  for (const row of exec(SQL.metaAll)) {
    const key = textColumn(row, "key", "meta");
    const value = textColumn(row, "value", `meta ${key}`);
    if (numberColumn(row, "checksum", `meta ${key}`) === metaChecksum(key, value)) meta.set(key, value);
    else corruption ??= corrupt(`meta ${key}`, "checksum mismatch");
  }
  return { meta, corruption };
}

/** What a halted node says of itself: who it is, if that much is sound, and why it halted. */
export function haltedState(halted: string, meta: ReadonlyMap<string, string>): LoadedState {
  const identity = identityOf(parseJson(meta.get("identity") ?? "")) ?? {
    incarnation: 0,
    membership: { kind: "empty" },
  };
  const log = { base: null, lastIndex: 0, lastTerm: 0, lastTimeMs: 0, memberships: [], sleep: null };
  return { identity, hardState: { term: 0, votedFor: null }, ...log, halted };
}

export function hardStateText(hardState: HardState): string {
  return JSON.stringify([hardState.term, hardState.votedFor]);
}

export function hardStateFrom(text: string | undefined): HardState {
  if (text === undefined) return { term: 0, votedFor: null };
  const value = parseJson(text);
  if (!Array.isArray(value) || value.length !== 2) throw corrupt("meta hard_state", "not a pair");
  const [term, votedFor] = value as unknown[];
  if (!isCounter(term) || !(votedFor === null || isNode(votedFor)))
    throw corrupt("meta hard_state", "not term and vote");
  return { term, votedFor };
}

export function sleepText(sleep: SleepNote | null): string {
  return JSON.stringify(sleep);
}

export function sleepFrom(text: string | undefined): SleepNote | null {
  if (text === undefined) return null;
  const value = parseJson(text);
  if (value === null) return null;
  if (!isObject(value) || !Array.isArray(value.missed) || !value.missed.every(isNode)) {
    throw corrupt("meta sleep", "not a note of a sleeping leader");
  }
  const { missed, probeAfterMs, dueAtWallMs } = value;
  if (!isCounter(probeAfterMs) || !(dueAtWallMs === null || typeof dueAtWallMs === "number")) {
    throw corrupt("meta sleep", "not the times of a sleeping leader");
  }
  return { missed, probeAfterMs, dueAtWallMs };
}

export function identityFrom(text: string | undefined): Identity | null {
  if (text === undefined) return null;
  const value = parseJson(text);
  const identity = isObject(value) ? identityOf(value) : null;
  if (identity === null) throw corrupt("meta identity", "not an identity");
  return identity;
}
