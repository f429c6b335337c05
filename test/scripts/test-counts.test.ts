/** Goal: the last line of `npm test` never hides a failure. Method: reports as vitest writes them. */
import { expect, test } from "vitest";
import { addCounts, countsOfReport, countsText, NO_TESTS } from "../../scripts/test-counts.ts";

function report(passed: number, failed: number, skipped: number, todo: number): string {
  return JSON.stringify({
    numPassedTests: passed,
    numFailedTests: failed,
    numPendingTests: skipped,
    numTodoTests: todo,
  });
}

test("counts of several runs add up, to-do tests among the skipped", () => {
  const total = addCounts(countsOfReport(report(5, 0, 1, 2), true), countsOfReport(report(7, 2, 0, 0), false));
  expect(countsText(total)).toBe("12 passed, 2 failed, 3 skipped");
});

test("a run that fails without a failed test counts as one failure", () => {
  expect(countsOfReport(report(5, 0, 0, 0), false)).toEqual({ passed: 5, failed: 1, skipped: 0 });
});

test("a run that wrote no report counts as one failure", () => {
  expect(countsOfReport(null, true)).toEqual({ ...NO_TESTS, failed: 1 });
});
