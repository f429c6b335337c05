/**
 * Errors as problem documents (RFC 9457, design 01 §6).
 * Must not: put a stack, a cause or an internal address into a document.
 */
import { assert } from "../base/assert.ts";
import { ConcordError, ERROR_CODES, type ErrorBody, type ErrorCode } from "../base/errors.ts";
import { ERROR_TITLES } from "./error-titles.ts";
import type { WireProblem } from "./wire.ts";

export const PROBLEM_CONTENT_TYPE = "application/problem+json";

/**
 * Headers of every reply. The API serves data, never a page: a stored value of any content type, opened in a browser,
 * can run nothing and is framed by nobody.
 */
export const SECURITY_HEADERS: Readonly<Record<string, string>> = {
  "x-content-type-options": "nosniff",
  "content-security-policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
  "referrer-policy": "no-referrer",
  "cross-origin-resource-policy": "same-origin",
};

export function problemOf(body: ErrorBody): WireProblem {
  const rule = ERROR_CODES[body.code];
  assert(rule !== undefined, `unknown error code ${body.code}`);
  return {
    type: `urn:concord:problem:${body.code}`,
    title: ERROR_TITLES[body.code],
    status: rule.status,
    detail: body.detail,
    code: body.code,
    ...(body.reason === undefined ? {} : { reason: body.reason }),
    retry: rule.retry,
    ...(body.leader === undefined ? {} : { leader: body.leader }),
    ...(body.revision === undefined ? {} : { revision: body.revision }),
    ...(body.compact_revision === undefined ? {} : { compact_revision: body.compact_revision }),
  };
}

export function problemResponse(body: ErrorBody, headers: Readonly<Record<string, string>> = {}): Response {
  const problem = problemOf(body);
  return new Response(JSON.stringify(problem), {
    status: problem.status,
    headers: {
      "content-type": PROBLEM_CONTENT_TYPE,
      "cache-control": "no-store",
      ...(problem.retry === "yes" ? { "retry-after": "1" } : {}),
      ...(body.code === "unauthenticated" ? { "www-authenticate": 'Bearer realm="concord"' } : {}),
      ...SECURITY_HEADERS,
      ...headers,
    },
  });
}

/** A refusal with the rule that was broken and one sentence that says what would be right. */
export function refusal(code: ErrorCode, reason: string, detail: string): ConcordError {
  return new ConcordError({ code, reason, detail });
}
