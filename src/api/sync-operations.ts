/** The past: changes, history of a key, the revision, compaction (design 01 §1, §4), for every surface. */
import type { JsonValue } from "../base/json.ts";
import { RANGE_LIMIT_DEFAULT } from "../base/limits.ts";
import { type ApiContext, type Caller, execute, query, readAtLeast } from "./caller.ts";
import { decodeCursor, encodeCursor } from "./cursor.ts";
import { decodeKey, decodeSelector, type SelectorFields } from "./decode.ts";
import { encodeEvent } from "./encode.ts";
import { decodePosition, positionText } from "./position-text.ts";
import type { WireChanges, WireCompacted, WireHistory, WireKey, WireRevision } from "./wire.ts";

export interface ChangesRequest extends SelectorFields {
  /** `next` of the page before; absent = from the oldest event that is kept. */
  readonly after?: string | undefined;
  readonly limit?: number | undefined;
}

/** @throws ConcordError `compacted` when events behind `after` are gone. */
export async function readChanges(context: ApiContext, caller: Caller, request: ChangesRequest): Promise<WireChanges> {
  const { limit = RANGE_LIMIT_DEFAULT } = request;
  const selector = decodeSelector(request, "invalid_selector", "The request");
  const after = request.after === undefined ? null : decodePosition(request.after, "after");
  const asked = {
    kind: "changes",
    selector,
    limit,
    ...(after === null ? {} : { after: [after.revision, after.opIndex] as const }),
  } as const;
  const { result, revision } = await query(context, caller, asked, readAtLeast(caller, after?.revision));
  const [nextRevision, nextOpIndex] = result.next;
  return {
    events: result.events.map(encodeEvent),
    next: positionText({ revision: nextRevision, opIndex: nextOpIndex }),
    whole: result.whole,
    has_more: result.has_more,
    revision,
  };
}

/** From now on nothing that needs less than `revision` can be read; the rows go little by little. */
export async function compactHistory(
  context: ApiContext,
  caller: Caller,
  request: { readonly revision: number },
): Promise<WireCompacted> {
  const { result, revision } = await execute(context, caller, { kind: "compact", revision: request.revision });
  return { compact_revision: result.compact_revision, revision };
}

export interface HistoryRequest {
  readonly key: WireKey;
  readonly from?: number | undefined;
  readonly to?: number | undefined;
  readonly limit?: number | undefined;
  readonly cursor?: string | undefined;
}

export async function readHistory(context: ApiContext, caller: Caller, request: HistoryRequest): Promise<WireHistory> {
  const { from, to, limit = RANGE_LIMIT_DEFAULT } = request;
  const key = decodeKey(request.key, "invalid_selector");
  const { clusterId } = context.backend.position();
  const asked: JsonValue = ["history", key, from ?? null, to ?? null];
  const cursor = request.cursor === undefined ? null : decodeCursor(request.cursor, asked, clusterId);
  const end = cursor?.revision ?? to;
  const after = cursor === null || typeof cursor.after === "string" ? undefined : cursor.after;
  const history = {
    kind: "history",
    key,
    limit,
    ...(from === undefined ? {} : { from }),
    ...(end === undefined ? {} : { to: end }),
    ...(after === undefined ? {} : { after }),
  } as const;
  const { result, revision } = await query(context, caller, history, readAtLeast(caller, cursor?.revision));
  const last = result.events.at(-1);
  const pinned = end ?? revision;
  return {
    events: result.events.map(encodeEvent),
    cursor:
      result.more && last !== undefined
        ? encodeCursor({ after: [last.revision, last.op_index], revision: pinned, clusterId }, asked)
        : null,
    revision,
  };
}

export async function readRevision(context: ApiContext, caller: Caller): Promise<WireRevision> {
  const { revision } = await query(context, caller, { kind: "revision" });
  return { revision };
}
