/** Waits for what other turns bring about: by handing over the thread, not by sleeping a guessed time. */
import { expect } from "vitest";

/** Resolves once `read` equals `expected`; fails after `timeoutMs` with what it was instead. */
export async function eventually<T>(read: () => T | Promise<T>, expected: T, timeoutMs = 2000): Promise<void> {
  const endMs = Date.now() + timeoutMs;
  for (;;) {
    const value = await read();
    try {
      expect(value).toEqual(expected);
      return;
    } catch (error) {
      if (Date.now() >= endMs) throw error;
    }
    await scheduler.wait(0);
  }
}
