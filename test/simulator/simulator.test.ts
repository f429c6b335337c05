/**
 * The seeds that every check-in must survive, and that they are worth surviving: every kind of fault, and every pair of
 * kinds within one seed, is among them. The soak (`npm run sim`) runs many more.
 */
import { describe, expect, test } from "vitest";
import { addSeed, createReport, missingFaults, replayCommand, SEEDS_FOR_COVERAGE, summarize } from "./report.ts";
import { runSeed, STEPS_DEFAULT } from "./simulation.ts";

const SEEDS = SEEDS_FOR_COVERAGE;
const SEEDS_PER_TEST = 20;
const TIMEOUT_MS = 120_000;
const ACKNOWLEDGED_WRITES_MIN = 100;

const report = createReport();

describe("no rule is broken", () => {
  for (let first = 1; first <= SEEDS; first += SEEDS_PER_TEST) {
    const last = first + SEEDS_PER_TEST - 1;
    test(`by seeds ${first} to ${last}`, { timeout: TIMEOUT_MS }, () => {
      for (let seed = first; seed <= last; seed += 1) {
        const result = runSeed({ seed, steps: STEPS_DEFAULT });
        addSeed(report, summarize(result));
        const { violation, trace } = result;
        if (violation !== null) {
          expect.fail(`${violation.message}\n${trace}\nreplay: ${replayCommand(seed, STEPS_DEFAULT)}`);
        }
      }
    });
  }
});

describe("those seeds", () => {
  test("inject every kind of fault, and every pair of kinds within one seed", () => {
    expect(report.seeds).toBe(SEEDS);
    expect(missingFaults(report)).toEqual([]);
  });

  test(`acknowledge at least ${ACKNOWLEDGED_WRITES_MIN} writes each, on average`, () => {
    expect(report.acknowledgedWrites / report.seeds).toBeGreaterThan(ACKNOWLEDGED_WRITES_MIN);
  });
});

describe("a seed", () => {
  test("is repeatable event for event", { timeout: TIMEOUT_MS }, () => {
    for (const seed of [3, 17, 42]) {
      const first = runSeed({ seed, steps: 2000 });
      const second = runSeed({ seed, steps: 2000 });
      expect(second.hash).toBe(first.hash);
      expect(second.steps).toBe(first.steps);
      expect(second.virtualMs).toBe(first.virtualMs);
      expect(second.acknowledgedWrites).toBe(first.acknowledgedWrites);
      expect([...second.faults]).toEqual([...first.faults]);
    }
  });

  test("differs from another seed", () => {
    expect(runSeed({ seed: 1, steps: 500 }).hash).not.toBe(runSeed({ seed: 2, steps: 500 }).hash);
  });

  test("changes no message after it was sent", { timeout: TIMEOUT_MS }, () => {
    for (const seed of [5, 6]) {
      const result = runSeed({ seed, steps: 2000, freeze: true });
      expect(result.violation).toBeNull();
    }
  });
});
