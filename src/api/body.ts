/**
 * Reading request bodies within bounds (design 01 §5, 05 Security).
 *
 * Y1. At most `BODY_BYTES_MAX` bytes and one chunk are read, whatever Content-Length claims.
 * Y2. Nesting is measured on the text, by a loop, before any recursive code sees the value.
 * Y3. What is returned is plain JSON: finite numbers only.
 */
import type { ErrorCode } from "../base/errors.ts";
import type { JsonValue } from "../base/json.ts";
import { BODY_BYTES_MAX, NESTING_MAX } from "../base/limits.ts";
import { BODY_NESTING_MAX } from "./limits.ts";
import { refusal } from "./problem.ts";

/** @throws ConcordError `body_too_large`. */
export async function readBody(request: Request): Promise<Uint8Array<ArrayBuffer>> {
  const declared = Number(request.headers.get("content-length") ?? "0");
  if (declared > BODY_BYTES_MAX) throw bodyTooLarge();
  if (request.body === null) return new Uint8Array(0);
  const chunks: Uint8Array[] = [];
  let length = 0;
  const reader = request.body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    length += value.byteLength;
    if (length > BODY_BYTES_MAX) {
      await reader.cancel();
      throw bodyTooLarge();
    }
    chunks.push(value);
  }
  const body = new Uint8Array(length);
  let offset = 0;
  for (const chunk of chunks) {
    body.set(chunk, offset);
    offset += chunk.byteLength;
  }
  return body;
}

function bodyTooLarge() {
  return refusal("body_too_large", "body_too_large", `A request body holds at most ${BODY_BYTES_MAX} bytes.`);
}

/** Reads a JSON request. `code` is the family of the route: it names the error of a body that is no JSON. */
export async function readJson(request: Request, code: ErrorCode): Promise<JsonValue> {
  checkJsonType(request);
  return parseJson(await readBody(request), code);
}

/** As {@link readJson}; an empty body, whatever its type, stands for `{}`. */
export async function readOptionalJson(request: Request, code: ErrorCode): Promise<JsonValue> {
  const body = await readBody(request);
  if (body.byteLength === 0) return {};
  checkJsonType(request);
  return parseJson(body, code);
}

function checkJsonType(request: Request): void {
  const type = mediaType(request.headers.get("content-type"));
  if (type === null || isJsonType(type)) return;
  throw refusal("unsupported_media_type", "content_type", `Send the body as application/json, not ${type}.`);
}

/** @throws ConcordError `code` with reason `malformed_json`, `depth_exceeded` or `number_out_of_range`. */
export function parseJson(body: Uint8Array, code: ErrorCode): JsonValue {
  const text = decodeUtf8(body);
  if (text === null) throw refusal(code, "malformed_json", "The body is not UTF-8 text.");
  return parseJsonText(text, code);
}

/** @throws as {@link parseJson}. */
export function parseJsonText(text: string, code: ErrorCode, nestingMax = BODY_NESTING_MAX): JsonValue {
  if (nestsDeeperThan(text, nestingMax)) {
    throw refusal(code, "depth_exceeded", `A value is nested at most ${NESTING_MAX} levels deep.`);
  }
  let value: JsonValue;
  try {
    value = JSON.parse(text) as JsonValue;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    throw refusal(
      code,
      "malformed_json",
      text === "" ? "The body is empty; it must be JSON." : "The body is not JSON.",
    );
  }
  // JSON.parse turns a number that is too large into Infinity, which would be stored as null.
  if (MAYBE_INFINITE.test(text) && holdsInfinity(value)) {
    throw refusal(code, "number_out_of_range", "A number in the body is too large for a 64-bit float.");
  }
  return value;
}

const MAYBE_INFINITE = /[0-9][eE]|[0-9]{300}/;

/** Media type in lower case, without parameters; null if the header is absent or empty. */
export function mediaType(header: string | null): string | null {
  const essence = header?.split(";")[0]?.trim().toLowerCase() ?? "";
  return essence === "" ? null : essence;
}

export function isJsonType(type: string): boolean {
  return type === "application/json" || type.endsWith("+json");
}

function decodeUtf8(body: Uint8Array): string | null {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: false }).decode(body);
  } catch (error) {
    // The decoder signals malformed input by a TypeError; that is an answer here, not a fault.
    if (error instanceof TypeError) return null;
    throw error;
  }
}

/** True if brackets outside strings nest deeper. On text that is no JSON the answer does not matter: parsing refuses it. */
export function nestsDeeperThan(text: string, levels: number): boolean {
  let isDeeper = false;
  walkBrackets(text, (_, depth) => {
    isDeeper = depth > levels;
    return !isDeeper;
  });
  return isDeeper;
}

/** The text of an object with `null` for whatever is nested in it: quick to parse, however deep that was. */
export function flattened(text: string): string {
  let kept = "";
  let from = 0;
  const depth = walkBrackets(text, (position, level, opens) => {
    if (level === 2 && opens) kept += `${text.slice(from, position)}null`;
    else if (level === 2) from = position + 1;
    return true;
  });
  return depth > 1 ? kept : kept + text.slice(from);
}

/**
 * Visits each bracket outside strings, with the level that it opens or closes, until the visitor says false; the depth at
 * the end.
 */
function walkBrackets(text: string, visit: (position: number, level: number, opens: boolean) => boolean): number {
  let depth = 0;
  let inString = false;
  for (let position = 0; position < text.length; position += 1) {
    const code = text.charCodeAt(position);
    if (inString) {
      if (code === BACKSLASH) position += 1;
      else if (code === QUOTE) inString = false;
    } else if (code === QUOTE) inString = true;
    else if (code === OPEN_BRACE || code === OPEN_BRACKET) {
      depth += 1;
      if (!visit(position, depth, true)) return depth;
    } else if (code === CLOSE_BRACE || code === CLOSE_BRACKET) {
      if (!visit(position, depth, false)) return depth;
      depth -= 1;
    }
  }
  return depth;
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

function holdsInfinity(root: JsonValue): boolean {
  const pending: JsonValue[] = [root];
  for (let value = pending.pop(); value !== undefined; value = pending.pop()) {
    if (typeof value === "number" && !Number.isFinite(value)) return true;
    if (value === null || typeof value !== "object") continue;
    for (const member of Object.values(value)) pending.push(member);
  }
  return false;
}
