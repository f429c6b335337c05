/**
 * Streams one after the other: whenever one has ended, the next is opened, on whatever node answers, until nobody wants
 * any.
 *
 * R1. Only an error whose `retry` is `no` ends this; everything else is tried again for ever, with pauses that grow until
 *     a stream has brought something.
 * R2. At most one stream is open. Behind the end of `signal` none is, whatever was under way.
 */
import { ConcordError } from "../base/errors.ts";
import { backoffMs } from "./backoff.ts";
import type { ClientClock } from "./options.ts";
import { onAbort } from "./signals.ts";
import type { Stream } from "./streams.ts";

const REOPEN = { minMs: 100, maxMs: 5_000 } as const;

export interface KeeperOptions<S> {
  readonly clock: ClientClock;
  readonly random: () => number;
  readonly signal: AbortSignal;
  /** Rejects with ConcordError. */
  readonly open: (signal: AbortSignal) => Promise<S>;
  readonly onInterrupted: (error: ConcordError) => void;
}

export class StreamKeeper<S extends Stream<unknown>> {
  readonly #options: KeeperOptions<S>;
  #stream: S | null = null;
  #opening: Promise<S | null> | null = null;
  #failures = 0;

  constructor(options: KeeperOptions<S>) {
    this.#options = options;
    onAbort(options.signal, () => this.#end());
  }

  /** The open stream, or the next one; null once the signal is aborted. @throws ConcordError that says `no` (R1). */
  async stream(): Promise<S | null> {
    if (this.#stream !== null && !this.#options.signal.aborted) return this.#stream;
    // Whoever asks meanwhile waits for the same one (R2).
    this.#opening ??= this.#open().finally(() => {
      this.#opening = null;
    });
    return await this.#opening;
  }

  async #open(): Promise<S | null> {
    const { clock, random, signal, open } = this.#options;
    for (;;) {
      if (signal.aborted) return null;
      if (this.#stream !== null) return this.#stream;
      if (this.#failures > 0) await clock.sleep(backoffMs(this.#failures, random(), REOPEN), signal);
      if (signal.aborted) return null;
      try {
        const stream = await open(signal);
        if (signal.aborted) stream.close();
        else this.#stream = stream;
      } catch (error) {
        if (signal.aborted) return null;
        if (!(error instanceof ConcordError) || error.retry === "no") throw error;
        this.interrupt(error);
      }
    }
  }

  /** The stream has brought something. */
  noteProgress(): void {
    this.#failures = 0;
  }

  /** The stream is of no use any more. */
  interrupt(error: ConcordError): void {
    this.#end();
    this.#failures += 1;
    if (!this.#options.signal.aborted) this.#options.onInterrupted(error);
  }

  #end(): void {
    this.#stream?.close();
    this.#stream = null;
  }
}
