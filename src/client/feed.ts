/**
 * What the client hands out as something to iterate: items come as they are taken.
 *
 * F1. `return` (that is, leaving a `for await`, also by an exception) ends it at once, also while a `next` waits: that one
 *     is then `done`.
 * F2. One consumer. Calls of `next` are answered in order.
 */
import type { LinkedController } from "./signals.ts";

export class Feed<Item> implements AsyncIterableIterator<Item, void, void> {
  readonly #items: AsyncGenerator<Item, void, void>;
  readonly #link: LinkedController;

  /** @param link aborting it ends `items`, whatever they wait for. */
  constructor(items: AsyncGenerator<Item, void, void>, link: LinkedController) {
    this.#items = items;
    this.#link = link;
  }

  async next(): Promise<IteratorResult<Item, void>> {
    const next = await this.#items.next();
    if (next.done === true) this.#link.unlink();
    return next;
  }

  /** Ends it; the node forgets it. */
  async return(): Promise<IteratorResult<Item, void>> {
    this.#link.abort();
    this.#link.unlink();
    return await this.#items.return();
  }

  /** As {@link return}, for those who do not iterate. */
  async close(): Promise<void> {
    await this.return();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}
