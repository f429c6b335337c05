/**
 * Goal: every error that the document lists for a route can occur there, and what occurs is listed.
 * Method: a case for each pair of route and code, sent through the Worker; the refusals of the other tests, looked up.
 */
import { beforeAll, describe, expect, test, vi } from "vitest";
import { errorsOf, ROUTES } from "../../src/api/openapi-document.ts";
import type { RouteRow } from "../../src/api/openapi-route.ts";
import { ERROR_CODES, type ErrorCode } from "../../src/base/errors.ts";
import { createHarness, expectProblem } from "./harness.ts";
import { answerIn, errorCase } from "./openapi-error-cases.ts";
import * as ofLimits from "./refusals-of-limits.ts";
import * as ofShape from "./refusals-of-shape.ts";
import * as ofSync from "./refusals-of-sync.ts";

beforeAll(() => {
  // The Worker reports faults of ours.
  vi.spyOn(console, "error").mockImplementation(() => {});
});

describe.each(ROUTES.map((row) => ({ title: `${row.method} ${row.path}`, row })))("$title", ({ row }) => {
  test.each(errorsOf(row))("can answer %s", async (code) => {
    const found = errorCase(row, code);
    if (found === null) throw new Error(`no case makes ${row.id} answer ${code}`);
    const { status, retry } = ERROR_CODES[code];
    expectProblem(await answerIn(row, found), { status, code, retry });
  });
});

test("a code that no route answers is not in the document, and is known to be so", () => {
  const listed = new Set(ROUTES.flatMap(errorsOf));
  const others = (Object.keys(ERROR_CODES) as ErrorCode[]).filter((code) => !listed.has(code));
  // Of another method on a known path; and of tokens with grants, which there are none of yet.
  expect(others.sort()).toEqual(["method_not_allowed", "not_admin"]);
});

test("every refusal that the other tests provoke is listed for its route", async () => {
  const missing: string[] = [];
  for (const { claim, ask } of [ofLimits, ofShape, ofSync].flatMap((tables) => Object.values(tables)).flat()) {
    const harness = createHarness();
    let asked = "";
    const spied = { ...harness, send: spy(harness.send) };
    function spy(send: typeof harness.send): typeof harness.send {
      return async (method, target, options) => {
        asked = `${method} ${target.split("?")[0]}`;
        return await send(method, target, options);
      };
    }
    // The others are written over `send`.
    const json =
      (method: string): typeof harness.put =>
      (target, body, headers = {}) =>
        spied.send(method, target, {
          headers: { "content-type": "application/json", ...headers },
          body: JSON.stringify(body),
        });
    const answer = await ask({
      ...spied,
      get: (target, headers = {}) => spied.send("GET", target, { headers }),
      delete: (target, headers = {}) => spied.send("DELETE", target, { headers }),
      put: json("PUT"),
      post: json("POST"),
    });
    const row = rowOf(asked);
    const code = (answer.body as { code: ErrorCode }).code;
    if (row === undefined || !errorsOf(row).includes(code)) missing.push(`${claim}: ${asked} ${code}`);
  }
  expect(missing).toEqual([]);
});

/** The row whose template fits, the one with fewer names first. */
function rowOf(asked: string): RouteRow | undefined {
  return ROUTES.toSorted((a, b) => names(a) - names(b)).find(({ method, path, wide }) => {
    const pattern = path.replace(/\{\w+\}/, wide === true ? ".*" : "[^/]+");
    return new RegExp(`^${method} ${pattern}$`, "s").test(asked);
  });
}

function names({ path }: RouteRow): number {
  return path.split("{").length;
}
