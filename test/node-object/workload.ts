/**
 * Clients that write while nodes fail, and what must be true of the cluster afterwards.
 *
 * Every key is written once, so a key of version 2 was applied twice, and a key that was acknowledged and is absent was
 * lost. Half of the writes carry an idempotency key and are repeated at any node until acknowledged; the other half
 * are sent once and may stay unknown.
 *
 * Clients in the process of the nodes must pause: the platform looks at its timers only when nothing is runnable, so a
 * client that always has its next request ready would stop every heartbeat and election (runtime-contract.test.ts).
 */
import { expect, onTestFinished } from "vitest";
import { NODES, type TestCluster } from "./cluster-harness.ts";

interface Sent {
  /** The revision that the client was told; null while nobody has confirmed the write. */
  revision: number | null;
  readonly repeated: boolean;
}

export class Workload {
  readonly #cluster: TestCluster;
  readonly #sent = new Map<string, Sent>();
  readonly #writers: Promise<void>[] = [];
  #stopping = false;
  #abandoned = false;
  #random: () => number;
  acknowledged = 0;
  unknown = 0;
  repeats = 0;
  lastAcknowledgedMs = 0;

  constructor(cluster: TestCluster, options: { readonly writers: number; readonly random: () => number }) {
    this.#cluster = cluster;
    this.#random = options.random;
    // A failed test must not leave clients behind that keep the thread busy.
    onTestFinished(() => {
      this.#stopping = true;
      this.#abandoned = true;
    });
    for (let writer = 0; writer < options.writers; writer += 1) this.#writers.push(this.#write(writer));
  }

  /** Resolves when `count` further writes have been acknowledged. */
  async progress(count: number, timeoutMs = 15_000): Promise<void> {
    const target = this.acknowledged + count;
    const endMs = Date.now() + timeoutMs;
    while (this.acknowledged < target) {
      if (Date.now() > endMs) throw new Error(`${this.acknowledged} of ${target} writes acknowledged in time`);
      await scheduler.wait(1);
    }
  }

  async stop(): Promise<void> {
    this.#stopping = true;
    await Promise.all(this.#writers);
  }

  /** No acknowledged write is lost, none is applied twice, every revision is somebody's. */
  async check(): Promise<void> {
    const leader = await this.#cluster.leader();
    const found = new Map<string, { version: number; mod_revision: number }>();
    let cursor: string | null = "";
    let revision = 0;
    while (cursor !== null) {
      const page: string = cursor === "" ? "prefix=w/&limit=1000" : `cursor=${encodeURIComponent(cursor)}`;
      const { status, body } = await this.#cluster.call(leader, `/v1/kv?${page}`);
      expect(status).toBe(200);
      for (const record of body.records as { key: string; version: number; mod_revision: number }[]) {
        found.set(record.key, record);
      }
      revision = body.revision as number;
      cursor = body.cursor as string | null;
    }
    const lost = [...this.#sent].filter(([key, { revision }]) => revision !== null && !found.has(key));
    expect(lost, "acknowledged writes that are gone").toEqual([]);
    const twice = [...found].filter(([, record]) => record.version !== 1);
    expect(twice, "writes that were applied twice").toEqual([]);
    const moved = [...found].filter(
      ([key, record]) => (this.#sent.get(key)?.revision ?? record.mod_revision) !== record.mod_revision,
    );
    expect(moved, "writes that were told another revision").toEqual([]);
    expect(revision, "every write took one revision and nothing else took any").toBe(found.size);
    const unrepeated = [...this.#sent.values()].filter((sent) => sent.repeated && sent.revision === null);
    expect(unrepeated, "writes under an idempotency key that nobody confirmed").toEqual([]);
  }

  async #write(writer: number): Promise<void> {
    for (let n = 0; !this.#stopping; n += 1) {
      const key = `w/${writer}/${n}`;
      const repeated = n % 2 === 0;
      const sent: Sent = { revision: null, repeated };
      this.#sent.set(key, sent);
      const headers = repeated ? { "idempotency-key": key } : {};
      do {
        sent.revision = await this.#try(key, headers);
        if (sent.revision !== null) {
          this.acknowledged += 1;
          this.lastAcknowledgedMs = Date.now();
        } else if (repeated) this.repeats += 1;
        else this.unknown += 1;
        await scheduler.wait(sent.revision === null ? 10 : 0);
      } while (repeated && sent.revision === null && !this.#abandoned);
    }
  }

  async #try(key: string, headers: Record<string, string>): Promise<number | null> {
    const node = NODES[Math.floor(this.#random() * NODES.length)] ?? 1;
    try {
      const reply = await this.#cluster.put(node, `${key}`, { key }, headers);
      return reply.status === 200 ? (reply.body.revision as number) : null;
    } catch {
      return null; // the connection broke: the outcome is unknown
    }
  }
}
