/**
 * The proof that the simulator sees: each deliberate bug is caught, and the same seeds without the bug are green, so it
 * was the bug that was caught and not the weather.
 */
import { describe, expect, test } from "vitest";
import { MUTANT_SEEDS_MAX, MUTANTS, type Mutant } from "./mutants.ts";
import { runSeed } from "./simulation.ts";

const STEPS = 3000;
const TIMEOUT_MS = 120_000;

function seedThatCatches(mutant: Mutant): number | null {
  for (let seed = 1; seed <= MUTANT_SEEDS_MAX; seed += 1) {
    const { mutation, profile } = mutant;
    if (runSeed({ seed, steps: STEPS, mutation, profile }).violation !== null) return seed;
  }
  return null;
}

describe("the simulator catches a node that would", () => {
  test.each(MUTANTS.map((mutant) => [mutant.name, mutant] as const))("%s", { timeout: TIMEOUT_MS }, (_name, mutant) => {
    const seed = seedThatCatches(mutant);
    expect(seed).not.toBeNull();
    const { profile } = mutant;
    const control = runSeed({ seed: seed!, steps: STEPS, profile });
    expect(control.violation).toBeNull();
  });
});
