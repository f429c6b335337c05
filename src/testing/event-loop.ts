/** One turn of the real event loop, after which everything that needed no more than that has happened. */

/** Taken when this module is loaded: a test may put fake timers in their place later. */
const { setImmediate, setTimeout } = globalThis as unknown as {
  readonly setImmediate?: (callback: () => void) => unknown;
  readonly setTimeout: (callback: () => void, delayMs: number) => unknown;
};

export function eventLoopTurn(): Promise<void> {
  return new Promise((resolve) => {
    if (setImmediate !== undefined) setImmediate(resolve);
    else setTimeout(resolve, 0);
  });
}
