/** Reading parsed JSON that nobody vouches for: a row of a disk, a frame of the network. Pure; an answer, never a throw. */

export interface JsonRecord {
  readonly [name: string]: unknown;
}

/** Undefined (which JSON cannot say) for text that is not JSON. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch (error) {
    // JSON.parse signals malformed text by a SyntaxError; that is an answer here, not a fault.
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

export function isObject(value: unknown): value is JsonRecord {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function isCounter(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0 && !Object.is(value, -0);
}

export function isNode(value: unknown): value is number {
  return isCounter(value) && value >= 1;
}
