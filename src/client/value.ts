/** Bytes in and out of JSON. */
import type { WireBytes } from "../api/wire.ts";
import { arrayFromBytes, bytesFromArray } from "../base/bytes.ts";
import type { JsonValue } from "../base/json.ts";

/** Bytes as a value (or key) of the wire: `kv.put("logo", bytes(png))`. */
export function bytes(data: Uint8Array): WireBytes {
  return { encoding: "base64", data: btoa(bytesFromArray(data)) };
}

/** The bytes of a value that is bytes; null for every other JSON value. */
export function bytesOf(value: JsonValue): Uint8Array | null {
  if (value === null || typeof value !== "object" || !("encoding" in value) || !("data" in value)) return null;
  const { encoding, data } = value;
  if (encoding !== "base64" || typeof data !== "string" || Object.keys(value).length !== 2) return null;
  return arrayFromBytes(atob(data));
}
