/**
 * Non-cryptographic hashes for checksums of rows and digests of state. Pure, synchronous, the same everywhere.
 * They find corruption and divergence, not forgery.
 */

/** 53-bit hash of a string, chained from `seed` (a safe integer). Two 32-bit lanes, finalised and joined. */
export function hashText(text: string, seed: number): number {
  let high = 0x9e3779b9 ^ (seed >>> 0);
  let low = 0x85ebca6b ^ Math.floor(seed / 4294967296);
  for (let position = 0; position < text.length; position += 1) {
    const code = text.charCodeAt(position);
    high = Math.imul(high ^ code, 0x9e3779b1);
    low = Math.imul(low ^ code, 0x5f356495);
  }
  high = Math.imul(high ^ (high >>> 16), 0x85ebca6b) ^ Math.imul(low ^ (low >>> 13), 0xc2b2ae35);
  low = Math.imul(low ^ (low >>> 16), 0x85ebca6b) ^ Math.imul(high ^ (high >>> 13), 0xc2b2ae35);
  return 4294967296 * (2097151 & low) + (high >>> 0);
}

const HASH_RANGE = 2 ** 53;

/** Sum of two hashes in the range of one: with {@link hashOut}, a hash of a set whose elements come in any order. */
export function hashIn(sum: number, hash: number): number {
  // The plain sum may not be a safe integer; neither difference leaves that range.
  const over = sum - (HASH_RANGE - hash);
  return over < 0 ? over + HASH_RANGE : over;
}

/** Undoes {@link hashIn}. */
export function hashOut(sum: number, hash: number): number {
  const rest = sum - hash;
  return rest < 0 ? rest + HASH_RANGE : rest;
}

/** 14 hexadecimal digits. In two halves: turning a whole 53-bit number into another radix is slow. */
export function hashDigits(hash: number): string {
  const high = Math.floor(hash / 4294967296);
  return high.toString(16).padStart(6, "0") + (hash >>> 0).toString(16).padStart(8, "0");
}
