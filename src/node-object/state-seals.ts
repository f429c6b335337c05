/**
 * Seals of state rows, and the sums over all rows of a state. Pure; the same in every storage.
 *
 * H1. A seal is a hash of 53 bits over key and value. It stands before the value, as a prefix of fixed width.
 * H2. The hash of a state is the sum of its seals modulo 2^53, in exact integers: it says the same in any order, and a
 *     change of a row changes it by the difference of two seals.
 */
import { hashText } from "../base/hash.ts";
import { CorruptionError } from "./ports.ts";

/** Of all formats so far: an upgrade rewrites no row. */
export const CHECKSUM_SEED = 1;
/** 53 bits in base 36, padded. */
export const SEAL_UNITS = 11;
const MODULUS = 2 ** 53;

export interface StateSums {
  readonly rowsCount: number;
  readonly hash: number;
}

export const NO_SUMS: StateSums = { rowsCount: 0, hash: 0 };

export function sealOf(key: string, value: string): number {
  return hashText(value, hashText(key, CHECKSUM_SEED));
}

export function sealed(key: string, value: string): string {
  return sealText(sealOf(key, value)) + value;
}

/** @throws CorruptionError */
export function opened(key: string, text: string): string {
  const value = text.slice(SEAL_UNITS);
  if (sealed(key, value) !== text) throw new CorruptionError(`state ${JSON.stringify(key)}: checksum mismatch`);
  return value;
}

/** The seal of a row as it is stored, or null if it is not that of the row. */
export function verifiedSeal(key: string, text: string): number | null {
  const seal = sealOf(key, text.slice(SEAL_UNITS));
  return text.startsWith(sealText(seal)) ? seal : null;
}

function sealText(seal: number): string {
  return seal.toString(36).padStart(SEAL_UNITS, "0");
}

export function withSeal({ rowsCount, hash }: StateSums, seal: number): StateSums {
  return { rowsCount: rowsCount + 1, hash: sum(hash, seal) };
}

export function plus(left: StateSums, right: StateSums): StateSums {
  return { rowsCount: left.rowsCount + right.rowsCount, hash: sum(left.hash, right.hash) };
}

export function minus(left: StateSums, right: StateSums): StateSums {
  const hash = left.hash >= right.hash ? left.hash - right.hash : left.hash + (MODULUS - right.hash);
  return { rowsCount: left.rowsCount - right.rowsCount, hash };
}

export function equalSums(left: StateSums, right: StateSums): boolean {
  return left.rowsCount === right.rowsCount && left.hash === right.hash;
}

/** With a row as it is stored. @throws CorruptionError */
export function withRow(sums: StateSums, [key, text]: readonly [key: string, sealed: string]): StateSums {
  const seal = verifiedSeal(key, text);
  if (seal === null) throw new CorruptionError(`state ${JSON.stringify(key)}: checksum mismatch`);
  return withSeal(sums, seal);
}

/** Of all rows, those that were kept while they were written and those that were found. @throws CorruptionError */
export function verifySums(kept: StateSums, found: StateSums): void {
  if (equalSums(kept, found)) return;
  const text = `${found.rowsCount} rows with hash ${found.hash}`;
  throw new CorruptionError(`state: ${text} instead of ${kept.rowsCount} with hash ${kept.hash}`);
}

/** Of seals as they are stored, one behind the other; null if they are not seals. */
export function sumsOfSeals(seals: string): StateSums | null {
  if (seals.length % SEAL_UNITS !== 0 || !/^[0-9a-z]*$/.test(seals)) return null;
  let hash = 0;
  for (let at = 0; at < seals.length; at += SEAL_UNITS) {
    const seal = Number.parseInt(seals.slice(at, at + SEAL_UNITS), 36);
    if (seal >= MODULUS) return null;
    hash = sum(hash, seal);
  }
  return { rowsCount: seals.length / SEAL_UNITS, hash };
}

/** Never passes 2^53 on the way, so it is exact. */
function sum(left: number, right: number): number {
  const room = MODULUS - right;
  return left >= room ? left - room : left + right;
}
