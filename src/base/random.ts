/** Seeded randomness as a record that lives in the state it belongs to (mulberry32). Pure and repeatable. */

export interface Random {
  state: number;
}

export function createRandom(seed: number): Random {
  return { state: seed >>> 0 };
}

/** The next number in [0, 1). */
export function nextFloat(random: Random): number {
  random.state = (random.state + 0x6d2b79f5) >>> 0;
  let mixed = random.state;
  mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
  mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
  return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
}

/** The next integer in [low, high]. */
export function nextInteger(random: Random, low: number, high: number): number {
  return low + Math.floor(nextFloat(random) * (high - low + 1));
}
