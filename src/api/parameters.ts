/**
 * Query parameters, read strictly: an unknown, repeated or badly encoded parameter is an error, so that a typo never
 * silently changes what a request means. (URLSearchParams would turn broken UTF-8 into U+FFFD: two keys become one.)
 */
import type { ErrorCode } from "../base/errors.ts";
import type { SelectorFields } from "./decode.ts";
import { refusal } from "./problem.ts";

export interface Parameters {
  /** The family of the route, for errors about its parameters. */
  readonly code: ErrorCode;
  readonly values: ReadonlyMap<string, string>;
}

/** @throws ConcordError `code` with reason `unknown_parameter`, `repeated_parameter` or `malformed_encoding`. */
export function readParameters(url: string, code: ErrorCode, allowed: readonly string[]): Parameters {
  const values = new Map<string, string>();
  for (const pair of rawQuery(url).split("&")) {
    if (pair === "") continue;
    const equals = pair.indexOf("=");
    const name = decodeComponent(equals < 0 ? pair : pair.slice(0, equals), code);
    const value = equals < 0 ? "" : decodeComponent(pair.slice(equals + 1), code);
    if (!allowed.includes(name)) {
      const known = allowed.join(", ");
      throw refusal(code, "unknown_parameter", `There is no parameter ${quoted(name)} here; there are: ${known}.`);
    }
    if (values.has(name)) {
      throw refusal(code, "repeated_parameter", `The parameter ${quoted(name)} is given twice.`);
    }
    values.set(name, value);
  }
  return { code, values };
}

export function textOf(parameters: Parameters, name: string): string | undefined {
  return parameters.values.get(name);
}

/** As {@link integerIn}; the reason is `invalid_` and the parameter's name. */
export function integerOf(parameters: Parameters, name: string): number | undefined {
  const text = parameters.values.get(name);
  if (text === undefined) return undefined;
  const value = integerIn(text);
  if (value !== null) return value;
  throw refusal(parameters.code, `invalid_${name}`, `${name} must be an integer, is ${quoted(text)}.`);
}

/** A safe integer in decimal, in its one form: `01` and `-0` name none, as two texts for one thing mislead caches. */
export function integerIn(text: string): number | null {
  const value = /^(?:0|-?[1-9][0-9]{0,15})$/.test(text) ? Number(text) : Number.NaN;
  return Number.isSafeInteger(value) ? value : null;
}

/** `true` or `false`; absent is false. A bare `?raw` counts as true. */
export function flagOf(parameters: Parameters, name: string): boolean {
  const text = parameters.values.get(name);
  if (text === undefined || text === "false") return false;
  if (text === "true" || text === "") return true;
  throw refusal(parameters.code, `invalid_${name}`, `${name} must be true or false, is ${quoted(text)}.`);
}

export function choiceOf<T extends string>(parameters: Parameters, name: string, choices: readonly T[]): T | undefined {
  const text = parameters.values.get(name);
  if (text === undefined) return undefined;
  const choice = choices.find((candidate) => candidate === text);
  if (choice === undefined) {
    throw refusal(
      parameters.code,
      `invalid_${name}`,
      `${name} must be one of ${choices.join(", ")}, is ${quoted(text)}.`,
    );
  }
  return choice;
}

export const SELECTOR_PARAMETERS = ["key", "prefix", "start", "end"] as const;

/** `key`, `prefix`, and `start` with `end`, as a body would name them; whether one is named alone, decoding checks. */
export function selectorOf(parameters: Parameters): SelectorFields {
  const start = textOf(parameters, "start");
  const end = textOf(parameters, "end");
  return {
    key: textOf(parameters, "key"),
    prefix: textOf(parameters, "prefix"),
    range: start === undefined && end === undefined ? undefined : { start: start ?? "", end },
  };
}

/** The part of the path behind `prefix`, percent-decoded once; routers decode twice or not at all. */
export function pathRest(url: string, prefix: string, code: ErrorCode): string {
  const path = new URL(url).pathname;
  return decodePercent(path.slice(prefix.length), code);
}

function rawQuery(url: string): string {
  // A URL's search is what the caller wrote, percent-encoding included.
  return new URL(url).search.slice(1);
}

/** Form encoding: libraries write a space as `+` and a plus as `%2B`. */
function decodeComponent(text: string, code: ErrorCode): string {
  return decodePercent(text.replaceAll("+", " "), code);
}

function decodePercent(text: string, code: ErrorCode): string {
  try {
    return decodeURIComponent(text);
  } catch (error) {
    if (!(error instanceof URIError)) throw error;
    throw refusal(code, "malformed_encoding", `${quoted(text)} is not percent-encoded UTF-8.`);
  }
}

/** A caller's text inside a sentence: quoted, and cut so that a detail stays short. */
export function quoted(text: string): string {
  return JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}…` : text);
}
