/** The one error class and its closed set of codes (design 01 section 6). */
import { describe, expect, test } from "vitest";
import { AssertionError, assert, assertCounter, unreachable } from "../../src/base/assert.ts";
import { ConcordError, ERROR_CODES, type ErrorBody, type ErrorCode } from "../../src/base/errors.ts";

const CODES = Object.keys(ERROR_CODES) as ErrorCode[];

describe("error codes", () => {
  test.each(CODES)("%s has a status and a retry rule", (code) => {
    const { status, retry } = ERROR_CODES[code];
    expect(status).toBeGreaterThanOrEqual(400);
    expect(status).toBeLessThan(600);
    expect(["no", "yes", "same-request"]).toContain(retry);
    expect(code).toMatch(/^[a-z]+(_[a-z]+)*$/);
  });

  test("what the caller did wrong is never worth a repeat", () => {
    for (const code of CODES) if (ERROR_CODES[code].status < 500) expect(ERROR_CODES[code].retry).toBe("no");
  });

  test("503 says that nothing was proposed, so it may be repeated freely", () => {
    for (const code of CODES) if (ERROR_CODES[code].status === 503) expect(ERROR_CODES[code].retry).toBe("yes");
  });

  test("an unknown outcome may be repeated only as the same request", () => {
    const unknown = CODES.filter((code) => ERROR_CODES[code].retry === "same-request");
    expect(unknown.sort()).toEqual(["internal", "timeout"]);
  });
});

describe("ConcordError", () => {
  test("takes status and retry from its code", () => {
    const error = new ConcordError({ code: "timeout", detail: "no answer within 5000 ms" });
    expect(error).toMatchObject({ code: "timeout", status: 504, retry: "same-request", name: "ConcordError" });
    expect(error.message).toBe("timeout: no answer within 5000 ms");
    expect(error).toBeInstanceOf(Error);
  });

  test("names its reason and keeps its cause and its data", () => {
    const cause = new Error("disk");
    const body: ErrorBody = { code: "compacted", reason: "too_old", detail: "gone", revision: 4, compact_revision: 9 };
    const error = new ConcordError(body, { cause });
    expect(error.message).toBe("compacted (too_old): gone");
    expect(error.reason).toBe("too_old");
    expect(new ConcordError({ code: "compacted", detail: "gone" }).reason).toBeNull();
    expect(error.cause).toBe(cause);
    expect(error.body).toEqual(body);
  });

  test("its body is plain data that survives JSON", () => {
    const { body } = new ConcordError({ code: "no_leader", detail: "none", leader: 3 });
    expect(JSON.parse(JSON.stringify(body))).toEqual({ code: "no_leader", detail: "none", leader: 3 });
  });
});

describe("assertions", () => {
  test("a condition that holds passes, one that does not throws its message", () => {
    expect(() => assert(true, "fine")).not.toThrow();
    expect(() => assert(false, "commit 5 beyond 4")).toThrow(new AssertionError("commit 5 beyond 4"));
  });

  test("an assertion is not an error of the world", () => {
    expect(new AssertionError("x")).not.toBeInstanceOf(ConcordError);
    expect(new AssertionError("x").name).toBe("AssertionError");
  });

  test.each([0, 1, Number.MAX_SAFE_INTEGER])("%d is a counter", (value) => {
    expect(() => assertCounter(value, "revision")).not.toThrow();
  });

  test.each([-1, 0.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 53])("%d is no counter", (value) => {
    expect(() => assertCounter(value, "revision")).toThrow(/revision must be a safe counter/);
  });

  test("a case that cannot exist is named", () => {
    expect(() => unreachable({ kind: "new" } as never)).toThrow('unreachable case: {"kind":"new"}');
  });
});
