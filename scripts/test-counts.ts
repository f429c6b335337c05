/** Counts of a test run, read from vitest's JSON report, and the line that states them. */

export interface Counts {
  readonly passed: number;
  readonly failed: number;
  /** Skipped and to-do tests. */
  readonly skipped: number;
}

export const NO_TESTS: Counts = { passed: 0, failed: 0, skipped: 0 };

interface Report {
  readonly numPassedTests: number;
  readonly numFailedTests: number;
  readonly numPendingTests: number;
  readonly numTodoTests: number;
}

/**
 * Counts of one run. A run that failed without a failed test (a file that cannot be loaded, an unhandled rejection, a
 * crash before the report) counts as one failure, so that a failure is never counted as none.
 * @param report the JSON text, null if none was written
 * @param passed whether vitest itself ended well
 */
export function countsOfReport(report: string | null, passed: boolean): Counts {
  if (report === null) return { ...NO_TESTS, failed: 1 };
  const { numPassedTests, numFailedTests, numPendingTests, numTodoTests } = JSON.parse(report) as Report;
  return {
    passed: numPassedTests,
    failed: passed ? numFailedTests : Math.max(1, numFailedTests),
    skipped: numPendingTests + numTodoTests,
  };
}

export function addCounts(a: Counts, b: Counts): Counts {
  return { passed: a.passed + b.passed, failed: a.failed + b.failed, skipped: a.skipped + b.skipped };
}

export function countsText(counts: Counts): string {
  return `${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`;
}
