/**
 * The proof that the simulator sees: each deliberate bug is caught, and the same seeds without the bug are green, so it
 * was the bug that was caught and not the weather.
 */
import { describe, expect, test } from "vitest";
import { MUTANT_SEEDS_MAX, MUTANTS, type Mutant } from "./mutants.ts";
import { runSeed } from "./simulation.ts";

const STEPS = 3000;
const CONTROL_SEEDS_MAX = 5;
const TIMEOUT_MS = 120_000;

function seedThatCatches(mutant: Mutant, direct: boolean): number | null {
  for (let seed = 1; seed <= MUTANT_SEEDS_MAX; seed += 1) {
    const { mutation, profile } = mutant;
    if (runSeed({ seed, steps: STEPS, mutation, profile, direct }).violation !== null) return seed;
  }
  return null;
}

const CASES = MUTANTS.map((mutant) => [mutant.name, mutant] as const);

describe("the simulator catches a node that would", () => {
  test.each(CASES)("%s", { timeout: TIMEOUT_MS }, (_name, mutant) => {
    const seed = seedThatCatches(mutant, true);
    expect(seed).not.toBeNull();
    const { profile } = mutant;
    for (let green = 1; green <= Math.min(seed!, CONTROL_SEEDS_MAX); green += 1) {
      const control = runSeed({ seed: seed! + 1 - green, steps: STEPS, profile });
      expect(control.violation).toBeNull();
    }
  });
});

describe("by its consequences alone, without looking at votes and acknowledgements, it catches a node that would", () => {
  test.each(CASES)("%s", { timeout: TIMEOUT_MS }, (_name, mutant) => {
    expect(seedThatCatches(mutant, false)).not.toBeNull();
  });
});
