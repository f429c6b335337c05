/**
 * Long messages in parts, for clients with a limit on what a socket delivers (S43): `{"kind":"chunk",…}` whose `data`,
 * joined, is the message. The client names the limit as `max_message_bytes`.
 */
import { assert } from "../base/assert.ts";
import { utf8Length } from "../base/bytes.ts";
import { MESSAGE_BYTES_MAX_MIN } from "./limits.ts";
import type { WireChunk } from "./wire.ts";

/** What a chunk holds beside its data, with the longest index. */
const CHUNK_OVERHEAD_BYTES = 64;

/** The message itself if it is within `bytesMax`, else its chunks, each within it. */
export function messageParts(text: string, bytesMax: number | null): readonly string[] {
  // A code unit is at most three bytes: most messages need no counting.
  if (bytesMax === null || text.length * 3 <= bytesMax || utf8Length(text) <= bytesMax) return [text];
  assert(bytesMax >= MESSAGE_BYTES_MAX_MIN, `messages of ${bytesMax} bytes hold no chunk worth sending`);
  const pieces = cut(text, bytesMax - CHUNK_OVERHEAD_BYTES);
  return pieces.map((data, index) => {
    const chunk: WireChunk = { kind: "chunk", index, last: index === pieces.length - 1, data };
    return JSON.stringify(chunk);
  });
}

/** Pieces whose JSON strings are at most `bytesMax` bytes each; no pair of surrogates is torn. */
function cut(text: string, bytesMax: number): string[] {
  const pieces: string[] = [];
  let start = 0;
  let bytes = 0;
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    const isPair = code >= 0xd800 && code <= 0xdbff && isLowSurrogate(text.charCodeAt(at + 1));
    const cost = isPair ? 4 : costOf(code);
    if (bytes + cost > bytesMax) {
      pieces.push(text.slice(start, at));
      start = at;
      bytes = 0;
    }
    bytes += cost;
    if (isPair) at += 1;
  }
  pieces.push(text.slice(start));
  return pieces;
}

/** Bytes of one code unit inside a JSON string. */
function costOf(code: number): number {
  if (code === 0x22 || code === 0x5c) return 2;
  if (code < 0x20 || (code >= 0xd800 && code <= 0xdfff)) return 6; // escaped: \u0000
  return code < 0x80 ? 1 : code < 0x800 ? 2 : 3;
}

function isLowSurrogate(code: number): boolean {
  return code >= 0xdc00 && code <= 0xdfff;
}
