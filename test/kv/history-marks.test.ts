import { beforeAll, describe, expect, test } from "vitest";
import { HISTORY_MARK_REVISIONS_MAX } from "../../src/base/limits.ts";
import { COMPACTION_POLICY, type CompactionPolicy, compactionTarget } from "../../src/kv/history-marks.ts";
import { applyEntries, type Machine, openMachine } from "../../src/kv/machine.ts";
import { MemoryStore } from "../../src/kv/memory-store.ts";
import { Harness, okResult, put, txnCommand } from "./harness.ts";

const MINUTE = 60_000;

function policy(keepRevisions: number, keepMs: number, historyBytesMax = 0): CompactionPolicy {
  return { keepRevisions, keepMs, historyBytesMax };
}

/** `perMinute` puts of one key in each of `minutes`. */
function write(machine: Machine, minutes: number, perMinute: number): void {
  const payload = JSON.stringify({ format: 1, command: txnCommand({ success: [put("k", 1)] }) });
  for (let minute = 0; minute < minutes; minute += 1) {
    const timeMs = machine.timeMs + MINUTE;
    const start = machine.appliedIndex + 1;
    const entry = (_: unknown, at: number) => ({ index: start + at, timeMs, payload });
    applyEntries(machine, Array.from({ length: perMinute }, entry));
  }
}

describe("by revisions and time", () => {
  const store = new MemoryStore();
  let machine = openMachine(store);
  beforeAll(() => write(machine, 10, 1000));
  const target = (...args: Parameters<typeof policy>) => compactionTarget(machine, policy(...args));

  test("the target is the newest mark that neither rule keeps: whichever keeps more decides", () => {
    expect(machine.revision).toBe(10_000);
    expect(target(3000, 0)).toBe(7000);
    expect(target(2999, 0)).toBe(7000);
    expect(target(3001, 0)).toBe(6000);
    expect(target(1, 4 * MINUTE)).toBe(6000);
    expect(target(3000, 8 * MINUTE)).toBe(2000);
    expect(target(9000, 1 * MINUTE)).toBe(1000);
  });

  test("there is none while all is to be kept, and none when it is off", () => {
    expect(target(10_000, 0)).toBeNull();
    expect(target(1, 10 * MINUTE)).toBeNull();
    expect(target(0, 0, 1)).toBeNull();
    expect(compactionTarget(machine, COMPACTION_POLICY)).toBeNull();
  });

  test("too much history moves the target over what the rules would keep, to the first mark that is within", () => {
    const perMark = machine.historyBytes / 10;
    expect(target(100_000, 0, perMark * 4.5)).toBe(6000);
    expect(target(100_000, 0, perMark * 3.5)).toBe(7000);
    expect(target(100_000, 0, 1)).toBe(10_000);
    expect(target(100_000, 0, perMark * 9.5)).toBeNull();
    expect(target(2000, 0, perMark * 4.5)).toBe(8000);
    expect(target(5000, 0, perMark * 9.5)).toBe(5000);
  });

  test("is the same after a restart, lies behind the last compaction, and removal takes the marks along", () => {
    machine = openMachine(store);
    expect(target(3000, 0)).toBe(7000);
    const apply = (command: object) => {
      const payload = JSON.stringify({ format: 1, command });
      return applyEntries(machine, [{ index: machine.appliedIndex + 1, timeMs: machine.timeMs, payload }]);
    };
    apply({ kind: "compact", revision: 7000 });
    expect([target(3000, 0), target(2000, 0)]).toEqual([null, 8000]);
    while (machine.removalPending) apply({ kind: "compact_remove", rows_max: 2000 });
    const marks = store.rows().filter(([row]) => row.startsWith("h"));
    expect(marks.map(([row]) => Number(row.slice(1)))).toEqual([8000, 9000, 10_000]);
    expect(target(2000, 0)).toBe(8000);
  });
});

test("a stretch of large values is marked by its bytes, long before a thousand revisions", () => {
  const h = new Harness();
  for (let count = 0; count < 20; count += 1) h.put("k", "v".repeat((1 << 20) - 2));
  expect(h.machine.revision).toBeLessThan(HISTORY_MARK_REVISIONS_MAX);
  const target = compactionTarget(h.machine, policy(100_000, 0, 8 << 20));
  expect(target).toBe(16);
  okResult(h.apply({ kind: "compact", revision: 16 }));
  expect(compactionTarget(h.machine, policy(100_000, 0, 8 << 20))).toBeNull();
});

test("a cluster that writes seldom keeps everything: age alone compacts nothing", () => {
  const h = new Harness();
  for (let count = 0; count < 100; count += 1) {
    h.timeMs += 60 * MINUTE;
    h.put("k", count);
  }
  expect(compactionTarget(h.machine, COMPACTION_POLICY)).toBeNull();
});
