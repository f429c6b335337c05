/** One log, applied in every way in which nodes apply it: the same digests, outcomes and rows (S12). */
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type Applied, type AppliedEntry, applyEntries, openMachine } from "../../src/kv/machine.ts";
import { MemoryStore } from "../../src/kv/memory-store.ts";
import { applyChanges, Overlay } from "../../src/kv/overlay.ts";
import type { OrderedStore } from "../../src/kv/store.ts";
import { type Step, steps } from "./arbitraries.ts";
import { Harness, put, txnCommand } from "./harness.ts";

function logOf(sequence: readonly Step[]): AppliedEntry[] {
  let timeMs = 1_000_000;
  return sequence.map(({ command, idempotency, elapsedMs }, position) => {
    timeMs += elapsedMs;
    const proposal = { format: 1, command, ...(idempotency === null ? {} : { idempotency }) };
    return { index: position + 1, timeMs, payload: command === null ? "" : JSON.stringify(proposal) };
  });
}

/** Applies the log in batches that `sizes` names, with a restart after each when `restart`. */
function applyLog(
  log: readonly AppliedEntry[],
  store: OrderedStore,
  options: { readonly sizes: readonly number[]; readonly restart: boolean; readonly flush?: () => void },
): Applied[] {
  const applied: Applied[] = [];
  let machine = openMachine(store);
  let turn = 0;
  for (let from = 0; from < log.length; turn += 1) {
    const size = options.sizes[turn % options.sizes.length] ?? 1;
    applied.push(...applyEntries(machine, log.slice(from, from + size)));
    from += size;
    options.flush?.();
    if (options.restart) machine = openMachine(store);
  }
  return applied;
}

describe("equal logs make equal states", () => {
  test("entry by entry, in batches, with restarts anywhere, and through a write-back buffer", () => {
    const sizes = fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 5 });
    void fc.assert(
      fc.property(steps, sizes, (sequence, batches) => {
        const log = logOf(sequence);
        const one = new MemoryStore();
        const applied = applyLog(log, one, { sizes: [1], restart: false });

        const batched = new MemoryStore();
        expect(applyLog(log, batched, { sizes: batches, restart: false })).toEqual(applied);
        expect(batched.rows()).toEqual(one.rows());

        const restarted = new MemoryStore();
        expect(applyLog(log, restarted, { sizes: [1], restart: true })).toEqual(applied);
        expect(restarted.rows()).toEqual(one.rows());

        const disk = new MemoryStore();
        const buffer = new Overlay(disk);
        let turns = 0;
        const flush = () => {
          turns += 1;
          if (turns % 3 === 0) applyChanges(disk, buffer.drain());
        };
        expect(applyLog(log, buffer, { sizes: batches, restart: true, flush })).toEqual(applied);
        buffer.commitInto(disk);
        expect(disk.rows()).toEqual(one.rows());
      }),
      { numRuns: 200 },
    );
  });

  test("a node that crashed before a flush catches up from the log to the same state", () => {
    void fc.assert(
      fc.property(steps, fc.nat(), (sequence, crash) => {
        const log = logOf(sequence);
        const whole = new MemoryStore();
        applyLog(log, whole, { sizes: [log.length], restart: false });
        const disk = new MemoryStore();
        const kept = log.length === 0 ? 0 : crash % log.length;
        applyLog(log.slice(0, kept), disk, { sizes: [2], restart: false });
        // The buffer of the crashed instance is simply gone.
        applyLog(log.slice(kept), new Overlay(disk), { sizes: [3], restart: false });
        const machine = openMachine(disk);
        expect(machine.appliedIndex).toBe(kept);
        applyEntries(machine, log.slice(kept));
        expect(disk.rows()).toEqual(whole.rows());
      }),
      { numRuns: 100 },
    );
  });
});

describe("the digest", () => {
  test("differs as soon as one entry differs, and stays different", () => {
    const [left, right] = [new Harness(), new Harness()];
    for (const h of [left, right]) h.put("a", 1);
    expect(left.machine.digest).toBe(right.machine.digest);
    left.put("b", 1);
    right.put("b", 2);
    expect(left.machine.digest).not.toBe(right.machine.digest);
    for (const h of [left, right]) h.put("b", 3);
    expect(left.machine.digest).not.toBe(right.machine.digest);
  });

  test("moves with every entry, also with one that changes no row", () => {
    const h = new Harness();
    h.put("a", 1);
    const seen = new Set([h.machine.digest]);
    applyEntries(h.machine, [{ index: 2, timeMs: h.timeMs, payload: "" }]);
    seen.add(h.machine.digest);
    h.delete("absent");
    seen.add(h.machine.digest);
    h.apply({ kind: "compact", revision: 1 });
    seen.add(h.machine.digest);
    expect(seen.size).toBe(4);
    expect(h.machine.digest).toMatch(/^[0-9a-f]{14}$/);
  });
});

describe("a leader_start entry", () => {
  test("moves position and time and nothing else", () => {
    const h = new Harness();
    h.put("a", 1);
    const rows = h.store.rows().filter(([row]) => row !== "m");
    const [applied] = applyEntries(h.machine, [{ index: 2, timeMs: h.timeMs + 5, payload: "" }]);
    expect(applied).toMatchObject({ index: 2, outcome: null, events: [] });
    expect(h.machine).toMatchObject({ appliedIndex: 2, revision: 1, timeMs: h.timeMs + 5 });
    expect(h.store.rows().filter(([row]) => row !== "m")).toEqual(rows);
  });
});

describe("the machine halts on what cannot be", () => {
  const entry = (index: number, timeMs: number, payload = "") => ({ index, timeMs, payload });

  test("an index out of order, a time that falls, a payload of another format", () => {
    const h = new Harness();
    applyEntries(h.machine, [entry(1, 100)]);
    expect(() => applyEntries(h.machine, [entry(3, 100)])).toThrow("entry 3 applied after 1");
    expect(() => applyEntries(h.machine, [entry(1, 100)])).toThrow("entry 1 applied after 1");
    expect(() => applyEntries(h.machine, [entry(2, 99)])).toThrow("fell from 100 to 99");
    const command = txnCommand({ success: [put("k", 1)] });
    expect(() => applyEntries(h.machine, [entry(2, 100, JSON.stringify({ format: 2, command }))])).toThrow("format 2");
  });

  test("rows of another format", () => {
    const store = new MemoryStore();
    applyEntries(openMachine(store), [entry(1, 100)]);
    store.put("m", (store.get("m") ?? "").replace(/"format":\d/, '"format":9'));
    expect(() => openMachine(store)).toThrow("state format 9");
  });
});

test("applying no entries writes nothing", () => {
  const store = new MemoryStore();
  expect(applyEntries(openMachine(store), [])).toEqual([]);
  expect(store.size).toBe(0);
});
