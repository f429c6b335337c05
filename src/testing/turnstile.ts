/**
 * Requests enter the cluster one at a time, in the order in which they were made: the next one when the last one has
 * asked its node for something, or was answered. What a request does before that (hashing, above all) takes a real time
 * that differs from run to run, and would otherwise decide the order of concurrent writes.
 */
import type { Backend } from "../api/backend.ts";

export class Turnstile {
  /** Resolves when the last one that has come is through. */
  #last: Promise<void> = Promise.resolve();
  #count = 0;
  #pass: () => void = () => {};

  /** Whether anybody is on the way to a node. */
  get isBusy(): boolean {
    return this.#count > 0;
  }

  /** Resolves when it is the caller's turn, who then calls the function that this answers or causes {@link pass}. */
  async enter(): Promise<() => void> {
    this.#count += 1;
    const before = this.#last;
    let open: () => void = () => {};
    this.#last = new Promise((resolve) => {
      open = resolve;
    });
    await before;
    let isThrough = false;
    const pass = (): void => {
      if (isThrough) return;
      isThrough = true;
      this.#count -= 1;
      open();
    };
    this.#pass = pass;
    return pass;
  }

  /** The one that entered last has reached its node. */
  pass(): void {
    this.#pass();
  }
}

/** The backend, with each request that reaches it let through. */
export function turnstiled(backend: Backend, turnstile: Turnstile): Backend {
  const passing = <T>(call: () => T): T => {
    const result = call();
    turnstile.pass();
    return result;
  };
  return {
    execute: (command, idempotency, options) => passing(() => backend.execute(command, idempotency, options)),
    query: (query, options) => passing(() => backend.query(query, options)),
    position: () => backend.position(),
    cluster: () => passing(() => backend.cluster()),
    administer: (action, options) => passing(() => backend.administer(action, options)),
    connect: (sink) => passing(() => backend.connect(sink)),
    openBackup: (options) => passing(() => backend.openBackup(options)),
    restore: (text, wish) => passing(() => backend.restore(text, wish)),
    publish: (message) => passing(() => backend.publish(message)),
  };
}
