/**
 * Positions on the wire: `"12"` stands behind the whole revision 12, `"12.3"` behind its event 3, after which the
 * revision may go on. Clients hand them back as they are.
 */
import { endOf, isWhole, type Position, REVISION_END } from "../kv/position.ts";
import { quoted } from "./parameters.ts";
import { refusal } from "./problem.ts";

export function positionText(position: Position): string {
  return isWhole(position) ? String(position.revision) : `${position.revision}.${position.opIndex}`;
}

/** Null unless it is the text of a position, in the one form that {@link positionText} gives it. */
export function parsePosition(text: string): Position | null {
  const match = /^(0|[1-9][0-9]{0,15})(?:\.(0|[1-9][0-9]{0,4}))?$/.exec(text);
  const revision = Number(match?.[1] ?? Number.NaN);
  if (!Number.isSafeInteger(revision)) return null;
  if (match?.[2] === undefined) return endOf(revision);
  const opIndex = Number(match[2]);
  // Revision 0 is the start: it has no events to stand behind.
  return revision > 0 && opIndex < REVISION_END ? { revision, opIndex } : null;
}

/** @throws ConcordError `invalid_request` reason `invalid_position`. */
export function decodePosition(text: string, name: string): Position {
  const position = parsePosition(text);
  if (position !== null) return position;
  const detail = `${name} must be a position as it was received, such as "12" or "12.3", is ${quoted(text)}.`;
  throw refusal("invalid_request", "invalid_position", detail);
}
