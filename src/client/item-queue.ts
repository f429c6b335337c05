/**
 * Items that come by themselves, for one who takes them one by one.
 *
 * Q1. What was pushed before the end is handed out before the end is.
 * Q2. Nothing here bounds the queue: whoever fills it does, by credit or by dropping.
 */
import type { ConcordError } from "../base/errors.ts";

/** The next item, or why there is none any more. */
export type Next<T> =
  | { readonly item: T; readonly bytes: number; readonly error: null }
  | { readonly item: null; readonly error: ConcordError };

interface Held<T> {
  readonly item: T;
  readonly bytes: number;
}

export class ItemQueue<T> {
  readonly #held: Held<T>[] = [];
  #bytes = 0;
  #end: ConcordError | null = null;
  #waiting: ((next: Next<T>) => void) | null = null;

  get isEmpty(): boolean {
    return this.#held.length === 0;
  }

  /** Of what is held. */
  get bytes(): number {
    return this.#bytes;
  }

  push(item: T, bytes: number): void {
    if (this.#end !== null) return;
    const waiting = this.#waiting;
    if (waiting === null) {
      this.#held.push({ item, bytes });
      this.#bytes += bytes;
      return;
    }
    this.#waiting = null;
    waiting({ item, bytes, error: null });
  }

  /** The first end counts. */
  end(error: ConcordError): void {
    if (this.#end !== null) return;
    this.#end = error;
    this.#waiting?.({ item: null, error });
    this.#waiting = null;
  }

  /** One at a time. */
  next(): Promise<Next<T>> {
    const held = this.#held.shift();
    if (held !== undefined) {
      this.#bytes -= held.bytes;
      return Promise.resolve({ ...held, error: null });
    }
    if (this.#end !== null) return Promise.resolve({ item: null, error: this.#end });
    return new Promise((resolve) => {
      this.#waiting = resolve;
    });
  }
}
