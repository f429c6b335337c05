/**
 * The puts and gets of the benchmark, with what each reply must say.
 *
 * L1. A key belongs to one client, so what a get must answer is known although all clients run at once.
 * L2. Every put is a revision of its own, and at the end the cluster's revision is the number of puts.
 */
import type { Operation, Reply } from "./http-load.ts";

/** Keys of one client; gets go round them. */
const KEYS_PER_CLIENT = 16;
/** About a hundred bytes of JSON, as a small state record has. */
const FILLER = "x".repeat(64);

export class Workload {
  readonly #prefix: string;
  readonly #values = new Map<string, number>();
  readonly #revisions = new Set<number>();
  #sequence = 0;

  constructor(prefix: string) {
    this.#prefix = prefix;
  }

  get putsCount(): number {
    return this.#revisions.size;
  }

  put(client: number): Operation {
    this.#sequence += 1;
    const sequence = this.#sequence;
    const key = this.#key(client, sequence);
    return {
      method: "PUT",
      path: pathOf(key),
      body: JSON.stringify({ sequence, filler: FILLER }),
      verify: (reply) => {
        const revision = parsed(reply).revision;
        if (typeof revision !== "number" || !Number.isSafeInteger(revision)) throw wrong("put", key, reply);
        if (this.#revisions.has(revision)) throw new Error(`two puts were given the revision ${revision}`);
        this.#revisions.add(revision);
        this.#values.set(key, sequence);
      },
    };
  }

  /** Of keys that a put wrote before. */
  get(client: number): Operation {
    this.#sequence += 1;
    const key = this.#key(client, this.#sequence);
    const expected = this.#values.get(key) ?? null;
    return {
      method: "GET",
      path: pathOf(key),
      verify: (reply) => {
        if (expected === null) {
          if (reply.status !== 404) throw wrong("get of an absent key", key, reply);
          return;
        }
        const value = parsed(reply).value as { sequence?: unknown } | undefined;
        if (value?.sequence !== expected) throw wrong(`get (expected sequence ${expected})`, key, reply);
      },
    };
  }

  #key(client: number, sequence: number): string {
    return `${this.#prefix}/client-${client}/${sequence % KEYS_PER_CLIENT}`;
  }
}

function pathOf(key: string): string {
  return `/v1/kv?key=${encodeURIComponent(key)}`;
}

function parsed(reply: Reply): { readonly [field: string]: unknown } {
  if (reply.status !== 200) throw new Error(`status ${reply.status}: ${reply.body.slice(0, 300)}`);
  return JSON.parse(reply.body) as { readonly [field: string]: unknown };
}

function wrong(what: string, key: string, reply: Reply): Error {
  return new Error(`wrong reply to a ${what} of ${key}: status ${reply.status}, ${reply.body.slice(0, 300)}`);
}
