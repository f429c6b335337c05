/** Limits hold each other: what passes one never fails at the next (design 01 section 5). */
import { describe, expect, test } from "vitest";
import * as limits from "../../src/base/limits.ts";

const LIMITS = Object.entries(limits);

describe("limits", () => {
  test.each(LIMITS)("%s = %d is a positive safe integer", (_name, limit) => {
    expect(Number.isSafeInteger(limit)).toBe(true);
    expect(limit).toBeGreaterThan(0);
  });

  test.each(LIMITS)("%s says what it bounds: unit first, then MAX, MIN or DEFAULT", (name) => {
    expect(name).toMatch(/^[A-Z0-9]+(_[A-Z0-9]+)*_(MAX|MIN|DEFAULT)$/);
  });

  test("the largest entry fits a log row, an append and a request", () => {
    expect(limits.TXN_BYTES_MAX).toBeLessThan(limits.LOG_ROW_BYTES_MAX);
    expect(limits.TXN_BYTES_MAX).toBeLessThan(limits.BODY_BYTES_MAX);
    expect(limits.TXN_BYTES_MAX).toBeLessThan(limits.PROPOSALS_IN_FLIGHT_BYTES_MAX);
  });

  test("a log row stays below the platform's two megabytes", () => {
    expect(limits.LOG_ROW_BYTES_MAX).toBeLessThan(2_000_000);
  });

  test("one record with the longest of everything fits a txn and a reply", () => {
    const record =
      limits.KEY_BYTES_MAX + limits.VALUE_BYTES_MAX + limits.METADATA_BYTES_MAX + limits.CONTENT_TYPE_BYTES_MAX;
    expect(record).toBeLessThan(limits.TXN_BYTES_MAX);
    expect(record).toBeLessThan(limits.REPLY_BYTES_MAX);
  });

  test("a new voter is one append behind at most", () => {
    expect(limits.PROMOTION_LAG_ENTRIES_MAX).toBeLessThanOrEqual(limits.APPEND_ENTRIES_MAX);
  });

  test("the largest lease fits one expiry, whose events all have op indexes", () => {
    expect(limits.LEASE_KEYS_MAX).toBeLessThanOrEqual(limits.LEASE_EXPIRE_KEYS_MAX);
    expect(limits.LEASE_EXPIRE_KEYS_MAX).toBeLessThanOrEqual(limits.DELETE_KEYS_MAX);
  });

  test("history marks are finer than what they bound", () => {
    expect(limits.HISTORY_MARK_BYTES_MAX).toBeLessThan(limits.COMPACTION_HISTORY_BYTES_DEFAULT);
  });

  test("rows of a restore fit an entry, also if all of them is escapes", () => {
    expect(6 * limits.RESTORE_ENTRY_UNITS_MAX).toBeLessThan(limits.TXN_BYTES_MAX);
  });

  test("defaults lie within their limits", () => {
    expect(limits.RANGE_LIMIT_DEFAULT).toBeLessThanOrEqual(limits.RANGE_LIMIT_MAX);
    expect(limits.LEASE_TTL_S_MIN).toBeLessThan(limits.LEASE_TTL_S_MAX);
  });

  test("a lease of the longest life is a safe number of milliseconds even far in the future", () => {
    const farFutureMs = Date.UTC(9999, 0);
    expect(Number.isSafeInteger(farFutureMs + limits.LEASE_TTL_S_MAX * 1000)).toBe(true);
  });

  test("an idempotency result of the largest size fits its store many times", () => {
    expect(limits.IDEMPOTENCY_RESULT_BYTES_MAX * 1000).toBeLessThanOrEqual(limits.IDEMPOTENCY_BYTES_MAX);
    expect(limits.IDEMPOTENCY_KEPT_REVISIONS_MIN).toBeLessThanOrEqual(limits.IDEMPOTENCY_ENTRIES_MAX);
  });
});
