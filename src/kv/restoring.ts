/**
 * Restoring a backup into an empty cluster, as commands of its log (design 02 §5). A node that has verified the whole backup,
 * and has made the first part of restore.ts with it, proposes them one by one.
 *
 * R1. Only a state in which nothing was ever written gives way. From `restore_begin` to the end of `restore_end` it is a
 *     place for rows: every other command and every query is refused (`cluster_not_ready`, reason `restoring`).
 * R2. Each try has an id. The last `restore_begin` counts: it takes away what an earlier try has left, and commands of that
 *     one are refused from then on.
 * R3. Every command may be repeated: rows are taken only behind what has come, and the end of a try that has ended is
 *     answered as before. So whoever heard no outcome asks again.
 * R4. Each entry does a bounded piece of work, whatever the size of the state.
 * R5. Leases have their full TTL at the end. Where renewing takes more than one entry, they are renewed for a time ahead;
 *     if the end comes behind that time, they are renewed once more, for one further ahead.
 * R6. Rows were verified where the backup was taken in; here they are not looked at.
 */
import { unreachable } from "../base/assert.ts";
import type { ErrorBody } from "../base/errors.ts";
import type { Command, CommandResult, RestoreCommand, RestorePosition } from "./command.ts";
import { refuse } from "./refusal.ts";
import { RENEWAL_BEGIN, RENEWAL_OF_LEASES, type Renewal, type RenewalBudget, renew, restoredMeta } from "./restore.ts";
import { type Bounds, META_ROW, ORIGIN_ROW, ROWS_BEFORE_META, ROWS_BEHIND_ORIGIN } from "./rows.ts";
import { type Draft, decodeMeta, EMPTY_META, type Meta } from "./state.ts";
import type { OrderedStore } from "./store.ts";

/** The row of that name (rows.ts): by which name the cluster goes, and what is under way. */
export interface Origin {
  /** That of the last restore; null: the one that the cluster was formed under. */
  readonly clusterId: string | null;
  readonly restoring: Restoring | null;
}

export interface Restoring {
  readonly id: string;
  readonly phase: "clearing" | "rows" | "renewing";
  /** While clearing: everything up to this key is gone. */
  readonly position: RestorePosition;
  readonly rowsCount: number;
  /** Of the backup; null: that row has not come. */
  readonly meta: Meta | null;
  readonly renewal: { readonly at: Renewal; readonly fromMs: number; readonly beganAtMs: number } | null;
}

export const NO_ORIGIN: Origin = { clusterId: null, restoring: null };
const NOTHING: RestorePosition = { key: "", units: 0 };

/** One entry takes away so much at most (R4). */
const CLEAR_ROWS_MAX = 1000;
const CLEAR_CHARACTERS_MAX = 4 << 20;
/** Rows fetched per step: each may be 1.4 MB. */
const CLEAR_STEP_ROWS = 16;
const RENEWAL_BUDGET: RenewalBudget = { rowsMax: 4000, charactersMax: 2 << 20 };
/** R5: ahead of what renewing has taken the time before. */
const RENEWAL_AHEAD_MS = 1000;

export const RESTORING: ErrorBody = {
  code: "cluster_not_ready",
  reason: "restoring",
  detail:
    "A backup is being restored into this cluster; it serves when that is done. If it was interrupted, begin anew.",
};

export function readOrigin(store: OrderedStore): Origin {
  const row = store.get(ORIGIN_ROW);
  return row === undefined ? NO_ORIGIN : JSON.parse(row);
}

export function isRestore(command: Command): command is RestoreCommand {
  return command.kind === "restore_begin" || command.kind === "restore_rows" || command.kind === "restore_end";
}

/** Nothing was ever written: no record, no lease, no history. Results of commands that did nothing do not count. */
export function isUnwritten(meta: Readonly<Pick<Meta, "revision" | "leasesCount" | "leaseCounter">>): boolean {
  return meta.revision === 0 && meta.leasesCount === 0 && meta.leaseCounter === 0;
}

/** @throws ConcordError `precondition_failed` */
export function refuseWritten(): never {
  const detail =
    "A backup is restored only into a cluster in which nothing was ever written: no record, lease or history.";
  refuse("precondition_failed", detail, { reason: "cluster_not_empty" });
}

export function runRestore(draft: Draft, command: RestoreCommand): CommandResult {
  const origin = readOrigin(draft.store);
  switch (command.kind) {
    case "restore_begin":
      return begin(draft, origin, command.id);
    case "restore_rows":
      return takeRows(draft, origin, command);
    case "restore_end":
      return end(draft, origin, command);
    default:
      return unreachable(command);
  }
}

function writeOrigin(draft: Draft, origin: Origin): void {
  draft.store.put(ORIGIN_ROW, JSON.stringify(origin));
}

// --- before the rows -------------------------------------------------------------------------------------------------

function begin(draft: Draft, origin: Origin, id: string): CommandResult {
  let { restoring } = origin;
  if (restoring?.id !== id) {
    if (restoring === null && !isUnwritten(draft.meta)) refuseWritten();
    const { index, timeMs, digest } = draft.meta;
    Object.assign(draft.meta, EMPTY_META, { index, timeMs, digest });
    restoring = { id, phase: "clearing", position: NOTHING, rowsCount: 0, meta: null, renewal: null };
  }
  if (restoring.phase === "clearing") {
    const key = clear(draft.store, restoring.position.key);
    restoring =
      key === null ? { ...restoring, phase: "rows", position: NOTHING } : { ...restoring, position: { key, units: 0 } };
  }
  writeOrigin(draft, { ...origin, restoring });
  return { kind: "restore_begin", done: restoring.phase !== "clearing" };
}

/** Takes some rows away, in the order of their keys behind `after`; the last of them, or null: none are left. */
function clear(store: OrderedStore, after: string): string | null {
  const left = { rows: CLEAR_ROWS_MAX, characters: CLEAR_CHARACTERS_MAX };
  let last = after;
  for (const bounds of [ROWS_BEFORE_META, ROWS_BEHIND_ORIGIN]) {
    last = clearWithin(store, bounds, last, left);
    if (left.rows <= 0 || left.characters <= 0) return last;
  }
  return null;
}

function clearWithin(
  store: OrderedStore,
  { start, end }: Bounds,
  after: string,
  left: { rows: number; characters: number },
): string {
  let last = after;
  while (left.rows > 0 && left.characters > 0) {
    const from = last < start ? start : `${last}\u0001`;
    if (from >= end) break;
    const rows = store.scan({ start: from, end, limit: CLEAR_STEP_ROWS });
    for (const [key, text] of rows) {
      store.delete(key);
      left.rows -= 1;
      left.characters -= text.length;
      last = key;
    }
    if (rows.length < CLEAR_STEP_ROWS) break;
  }
  return last;
}

// --- the rows --------------------------------------------------------------------------------------------------------

function takeRows(
  draft: Draft,
  origin: Origin,
  { id, after, rows }: RestoreCommand & { readonly kind: "restore_rows" },
): CommandResult {
  const restoring = expected(origin, id);
  const { position } = restoring;
  // R3
  const isNext = restoring.phase === "rows" && position.key === after.key && position.units === after.units;
  if (!isNext) return { kind: "restore_rows", position };
  let { key, units } = position;
  let { rowsCount, meta } = restoring;
  for (const [row, part] of rows) {
    if (row < key) refuseIncomplete(`A row of the restore comes behind one that it stands before.`);
    const text = row === key ? (draft.store.get(row) ?? "") + part : part;
    if (row !== key) rowsCount += 1;
    if (row === META_ROW) meta = decodeMeta(text);
    else draft.store.put(row, text);
    key = row;
    units = text.length;
  }
  writeOrigin(draft, { ...origin, restoring: { ...restoring, position: { key, units }, rowsCount, meta } });
  return { kind: "restore_rows", position: { key, units } };
}

/** R2 */
function expected({ restoring }: Origin, id: string): Restoring {
  if (restoring?.id === id) return restoring;
  const detail = "This restore has been given up: another one has begun, or has ended.";
  return refuse("precondition_failed", detail, { reason: "restore_superseded" });
}

function refuseIncomplete(detail: string): never {
  refuse("precondition_failed", detail, { reason: "restore_incomplete" });
}

// --- behind the rows -------------------------------------------------------------------------------------------------

function end(draft: Draft, origin: Origin, command: RestoreCommand & { readonly kind: "restore_end" }): CommandResult {
  const { id, cluster_id, rows_count, revision_jump: revisionJump } = command;
  if (origin.restoring === null && origin.clusterId === cluster_id) return { kind: "restore_end", done: true };
  const restoring = expected(origin, id);
  const { phase, rowsCount } = restoring;
  if (restoring.meta === null || phase === "clearing" || rowsCount !== rows_count) {
    refuseIncomplete(`Of ${rows_count} rows of the restore ${rowsCount} have come.`);
  }
  const { timeMs } = draft;
  const meta = { ...restoring.meta };
  const renewal = restoring.renewal ?? { at: RENEWAL_BEGIN, fromMs: timeMs, beganAtMs: timeMs };
  const at = renewAll(draft, meta, renewal, revisionJump);
  if (at !== null || timeMs > renewal.fromMs) {
    const next = at === null ? furtherAhead(renewal, timeMs) : { ...renewal, at };
    writeOrigin(draft, { ...origin, restoring: { ...restoring, phase: "renewing", meta, renewal: next } });
    return { kind: "restore_end", done: false };
  }
  const { index, digest } = draft.meta;
  Object.assign(draft.meta, restoredMeta(meta, { index, nowMs: timeMs, revisionJump }), { digest });
  writeOrigin(draft, { clusterId: cluster_id, restoring: null });
  return { kind: "restore_end", done: true };
}

/** One piece of each table: a small state needs one entry. Null: all is renewed. */
function renewAll(
  draft: Draft,
  meta: Meta,
  { at, fromMs }: NonNullable<Restoring["renewal"]>,
  revisionJump: number,
): Renewal | null {
  const isResults = at.table === "results";
  // A result is not stored in the future; an order of times is kept, since entries come in order.
  const nowMs = isResults ? draft.timeMs : fromMs;
  const next = renew(draft.store, meta, { from: at, nowMs, revisionJump }, RENEWAL_BUDGET);
  if (!isResults || next?.table !== "leases") return next;
  return renew(draft.store, meta, { from: next, nowMs: fromMs, revisionJump }, RENEWAL_BUDGET);
}

/** R5 */
function furtherAhead({ beganAtMs }: NonNullable<Restoring["renewal"]>, timeMs: number): Restoring["renewal"] {
  return { at: RENEWAL_OF_LEASES, fromMs: timeMs + 2 * (timeMs - beganAtMs) + RENEWAL_AHEAD_MS, beganAtMs: timeMs };
}
