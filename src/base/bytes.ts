/**
 * Byte strings: the one representation of keys inside the system.
 *
 * B1. A byte string is a JavaScript string whose every char code is one byte (0..255). `<` on two byte strings is
 *     therefore byte order, in memory, in JSON and in SQLite TEXT columns alike (design 01 §1: one order everywhere).
 * B2. User keys (UTF-8 text on the JSON API, any bytes on the etcd gateway) become byte strings at the edge only.
 */

/** Byte string of the UTF-8 encoding of `text`; null if `text` holds a lone surrogate and so has no encoding. */
export function bytesFromText(text: string): string | null {
  let ascii = true;
  for (let position = 0; position < text.length; position += 1) {
    if (text.charCodeAt(position) > 0x7f) {
      ascii = false;
      break;
    }
  }
  if (ascii) return text;
  if (!text.isWellFormed()) return null;
  return bytesFromArray(encoder.encode(text));
}

/** Text of a byte string that holds valid UTF-8; null if it does not. */
export function textFromBytes(bytes: string): string | null {
  let ascii = true;
  for (let position = 0; position < bytes.length; position += 1) {
    if (bytes.charCodeAt(position) > 0x7f) {
      ascii = false;
      break;
    }
  }
  if (ascii) return bytes;
  try {
    return strictDecoder.decode(arrayFromBytes(bytes));
  } catch (error) {
    // The decoder signals malformed input by a TypeError; that is an answer here, not a fault.
    if (error instanceof TypeError) return null;
    throw error;
  }
}

export function bytesFromArray(array: Uint8Array): string {
  let bytes = "";
  for (let start = 0; start < array.length; start += 8192) {
    bytes += String.fromCharCode(...array.subarray(start, start + 8192));
  }
  return bytes;
}

export function arrayFromBytes(bytes: string): Uint8Array {
  const array = new Uint8Array(bytes.length);
  for (let position = 0; position < bytes.length; position += 1) array[position] = bytes.charCodeAt(position);
  return array;
}

/** The smallest byte string greater than every one that starts with `prefix`; null if there is none. */
export function prefixEnd(prefix: string): string | null {
  for (let length = prefix.length; length > 0; length -= 1) {
    const last = prefix.charCodeAt(length - 1);
    if (last < 0xff) return prefix.slice(0, length - 1) + String.fromCharCode(last + 1);
  }
  return null;
}

/** Length of `text` in UTF-8 bytes, without encoding it. */
export function utf8Length(text: string): number {
  let length = text.length;
  for (let position = 0; position < text.length; position += 1) {
    const code = text.charCodeAt(position);
    if (code < 0x80) continue;
    if (code < 0x800) length += 1;
    else {
      length += 2; // three bytes; a pair of surrogates is two code units and four bytes
      if (code >= 0xd800 && code <= 0xdbff && isLowSurrogate(text.charCodeAt(position + 1))) position += 1;
    }
  }
  return length;
}

function isLowSurrogate(code: number): boolean {
  return code >= 0xdc00 && code <= 0xdfff;
}

const encoder = new TextEncoder();
const strictDecoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
