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
