/**
 * Entries of the log as text: for rows of the log and for frames between nodes. Pure.
 *
 * B1. A block is one line of JSON and then raw text. The line holds the lengths, so payloads (JSON text themselves) are
 *     neither escaped nor parsed again.
 * B2. Decoding never throws and trusts nothing: what is not exactly a block of entries is null.
 * B3. decode(encode(x)) equals x.
 */
import { parseMembership } from "../raft/membership.ts";
import type { Entry } from "../raft/types.ts";
import { isCounter, parseJson } from "./json-guards.ts";

/** Positions in this list are written to disk and to the network: append only. */
const ENTRY_KINDS = ["leader_start", "command", "membership"] as const satisfies readonly Entry["kind"][];

export function encodeEntries(entries: readonly Entry[]): string {
  const heads: (readonly number[])[] = [];
  let payloads = "";
  for (const entry of entries) {
    const kind = ENTRY_KINDS.indexOf(entry.kind);
    heads.push([entry.index, entry.term, entry.timeMs, kind, entry.payload.length, entry.payloadBytes]);
    payloads += entry.payload;
  }
  return `${JSON.stringify(heads)}\n${payloads}`;
}

/** Null if `text` is not exactly what {@link encodeEntries} writes. */
export function decodeEntries(text: string): Entry[] | null {
  const block = splitBlock(text);
  if (block === null || !Array.isArray(block.head)) return null;
  const entries: Entry[] = [];
  let position = 0;
  for (const head of block.head) {
    const entry = entryOf(head, block.tail, position);
    if (entry === null) return null;
    position += entry.payload.length;
    entries.push(entry);
  }
  return position === block.tail.length ? entries : null;
}

function entryOf(head: unknown, tail: string, position: number): Entry | null {
  if (!Array.isArray(head) || head.length !== 6) return null;
  const [index, term, timeMs, kindNumber, units, payloadBytes] = head as unknown[];
  if (!isCounter(index) || !isCounter(term) || !isCounter(timeMs) || !isCounter(kindNumber)) return null;
  if (!isCounter(units) || !isCounter(payloadBytes)) return null;
  const kind = ENTRY_KINDS[kindNumber];
  // A UTF-16 unit takes one to three bytes; counting them again would cost a pass over every payload.
  if (kind === undefined || payloadBytes < units || payloadBytes > units * 3) return null;
  if (position + units > tail.length) return null;
  const payload = tail.slice(position, position + units);
  if (kind === "membership" && parseMembership(payload) === null) return null;
  return { index, term, timeMs, kind, payload, payloadBytes };
}

/** Entries follow each other without a gap, and terms never fall nor pass the message's own (paper 5.3). */
export function isRun(entries: readonly Entry[], prevIndex: number, prevTerm: number, termMax: number): boolean {
  let index = prevIndex;
  let term = prevTerm;
  for (const entry of entries) {
    index += 1;
    if (entry.index !== index || entry.term < term || entry.term > termMax) return false;
    term = entry.term;
  }
  return true;
}

/** Null if there is no line, or no JSON in it. */
export function splitBlock(text: string): { readonly head: unknown; readonly tail: string } | null {
  const end = text.indexOf("\n");
  if (end < 0) return null;
  const head = parseJson(text.slice(0, end));
  return head === undefined ? null : { head, tail: text.slice(end + 1) };
}
