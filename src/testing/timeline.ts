/**
 * Simulated time: what is to happen, in order of time and then of when it was asked for, under one clock that only the
 * user moves.
 *
 * L1. What is due now happens without anybody moving the clock: in a microtask, so that a call made while time stands
 *     still is answered by as much of the cluster as needs no time.
 * L2. Callbacks run one at a time and to their end; what they ask for at the present instant runs after all that was due
 *     before it.
 */
import { assert } from "../base/assert.ts";

interface Happening {
  readonly atMs: number;
  readonly run: () => void;
}

/** More at one instant than any cluster has to do: something goes around in circles. */
const AT_ONCE_MAX = 1_000_000;

export class Timeline {
  #nowMs = 0;
  /** Ascending; equal times in the order of asking. */
  readonly #happenings: Happening[] = [];
  #isRunning = false;
  #isPumpAsked = false;
  #ranAtThisInstant = 0;

  /** Milliseconds since the beginning. */
  get nowMs(): number {
    return this.#nowMs;
  }

  /** When the next thing happens; Infinity if nothing is to. */
  get nextAtMs(): number {
    return this.#happenings[0]?.atMs ?? Number.POSITIVE_INFINITY;
  }

  /** Calls back once at `atMs`, or as soon as may be if that is past. The function that it returns takes it back. */
  at(atMs: number, run: () => void): () => void {
    const happening: Happening = { atMs: Math.max(atMs, this.#nowMs), run };
    this.#happenings.splice(this.#placeOf(happening.atMs), 0, happening);
    if (happening.atMs <= this.#nowMs) this.#askForPump();
    return () => {
      const place = this.#happenings.indexOf(happening);
      if (place >= 0) this.#happenings.splice(place, 1);
    };
  }

  /** Runs all that is due, and what that makes due. */
  runDue(): void {
    if (this.#isRunning) return;
    this.#isRunning = true;
    try {
      while (this.nextAtMs <= this.#nowMs) {
        this.#ranAtThisInstant += 1;
        assert(this.#ranAtThisInstant <= AT_ONCE_MAX, `the cluster comes to no rest at ${this.#nowMs} ms`);
        this.#happenings.shift()?.run();
      }
    } finally {
      this.#isRunning = false;
    }
  }

  /** Moves the clock; nothing that is due may be passed over. */
  jumpTo(atMs: number): void {
    assert(atMs >= this.#nowMs, `time goes from ${this.#nowMs} back to ${atMs}`);
    assert(atMs <= this.nextAtMs, `the jump to ${atMs} passes over what is due at ${this.nextAtMs}`);
    this.#nowMs = atMs;
    this.#ranAtThisInstant = 0;
  }

  /** L1. A promise and no timer: those may be faked by the user's test. */
  #askForPump(): void {
    if (this.#isPumpAsked || this.#isRunning) return;
    this.#isPumpAsked = true;
    void Promise.resolve().then(() => {
      this.#isPumpAsked = false;
      this.runDue();
    });
  }

  /** Behind all that happens at or before `atMs`. */
  #placeOf(atMs: number): number {
    let low = 0;
    let high = this.#happenings.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#happenings[middle]?.atMs ?? Number.POSITIVE_INFINITY) <= atMs) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
