/**
 * Cursors of lists and histories: opaque to the caller, pinned to the revision of the first page, bound to what was
 * asked (design 01 §1). The check finds mistakes and tampering; it guards no secret, because a cursor grants nothing
 * that its request does not already ask for.
 */
import { ConcordError } from "../base/errors.ts";
import { hashText } from "../base/hash.ts";
import { canonicalJson, type JsonValue } from "../base/json.ts";
import { refusal } from "./problem.ts";

/** `after` is a byte string (list) or a position (history). */
export interface Cursor {
  readonly after: string | readonly [revision: number, opIndex: number];
  readonly revision: number;
  readonly clusterId: string | null;
}

const VERSION = 1;
const SEED = 0x636f6e63;

/** `asked` is the request that the cursor belongs to, without its page size. */
export function encodeCursor(cursor: Cursor, asked: JsonValue): string {
  const { after, revision, clusterId } = cursor;
  const text = JSON.stringify([VERSION, after, revision, clusterId, check(cursor, asked)]);
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** @throws ConcordError `invalid_selector` reason `cursor`; `cluster_changed` for a cursor of another cluster. */
export function decodeCursor(text: string, asked: JsonValue, clusterId: string | null): Cursor {
  const cursor = parse(text);
  if (cursor === null || cursor.check !== check(cursor, asked)) {
    throw refusal("invalid_selector", "cursor", "The cursor does not belong to this request; start again without it.");
  }
  if (cursor.clusterId !== clusterId && clusterId !== null) {
    throw new ConcordError({ code: "cluster_changed", detail: "The cursor belongs to another cluster; list again." });
  }
  return cursor;
}

function check(cursor: Cursor, asked: JsonValue): number {
  const { after, revision, clusterId } = cursor;
  return hashText(canonicalJson([VERSION, after, revision, clusterId, asked]), SEED);
}

function parse(text: string): (Cursor & { readonly check: number }) | null {
  let fields: unknown;
  try {
    fields = JSON.parse(atob(text.replaceAll("-", "+").replaceAll("_", "/")));
  } catch {
    return null; // whatever is wrong with it, it is not a cursor of ours
  }
  if (!Array.isArray(fields) || fields.length !== 5) return null;
  const [version, after, revision, clusterId, sum] = fields;
  if (version !== VERSION || typeof revision !== "number" || typeof sum !== "number") return null;
  if (clusterId !== null && typeof clusterId !== "string") return null;
  if (typeof after === "string") return { after, revision, clusterId, check: sum };
  if (!Array.isArray(after) || typeof after[0] !== "number" || typeof after[1] !== "number") return null;
  return { after: [after[0], after[1]], revision, clusterId, check: sum };
}
