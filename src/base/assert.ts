/**
 * Assertions for our own bugs. They stay on in production: a node that has broken an invariant halts
 * (design 02 §1) and never goes on with wrong data. Errors of the world are `ConcordError`, not these.
 */

/** Thrown when the program itself is wrong. The node runtime turns it into a halt. */
export class AssertionError extends Error {
  override readonly name = "AssertionError";
}

/** Throws {@link AssertionError} unless `condition` holds. The message names the values involved. */
export function assert(condition: boolean, message: string): asserts condition {
  if (!condition) throw new AssertionError(message);
}

/** The end of an exhaustive `switch`: the compiler proves that `value` cannot exist. */
export function unreachable(value: never): never {
  throw new AssertionError(`unreachable case: ${JSON.stringify(value)}`);
}

/** Asserts that a counter is a safe, non-negative integer (design 02 §2: integers stay within 2^53-1). */
export function assertCounter(value: number, name: string): void {
  assert(Number.isSafeInteger(value) && value >= 0, `${name} must be a safe counter, is ${value}`);
}
