/**
 * Goal: a watcher on each of the five nodes sees every event exactly once, in order, in whole revisions, with the value
 * before it, through ten changes of leader and as many evictions (design 01 §4).
 * Method: a writer that keeps its own account; watchers that resume behind their last position on whichever node takes them.
 */
import { reset } from "cloudflare:test";
import { afterEach, expect, test } from "vitest";
import { NODES, TestCluster } from "./cluster-harness.ts";
import { quietConsole } from "./quiet-console.ts";
import { type Message, TestSocket } from "./socket-client.ts";

quietConsole();
afterEach(async () => await reset());

const QUERY = "prefix=/story/&prev_values=true";
const KEYS = 3;

class Watcher {
  readonly #cluster: TestCluster;
  #node: number;
  #socket: TestSocket | null = null;
  #position = "0";
  #closing = false;
  /** Events of a revision of which parts have come. */
  #open: Message[] = [];
  readonly events: Message[] = [];
  resumed = 0;

  constructor(cluster: TestCluster, node: number) {
    this.#cluster = cluster;
    this.#node = node;
  }

  async open(): Promise<void> {
    for (;;) {
      try {
        const path = `/v1/watch?${QUERY}&after=${this.#position}`;
        const socket = await TestSocket.open(this.#cluster, this.#node, path);
        socket.onMessage = (frame) => this.#take(socket, frame);
        for (const frame of socket.messages) this.#take(socket, frame);
        this.#socket = socket;
        void this.#reopen(socket);
        return;
      } catch {
        // The node is just ending, or does not run yet: another one.
        this.#node = 1 + (this.#node % 5);
        await scheduler.wait(20);
      }
    }
  }

  close(): void {
    this.#closing = true;
    this.#socket?.socket.close(1000);
  }

  async #reopen(socket: TestSocket): Promise<void> {
    await socket.closing(600_000);
    if (this.#closing) return;
    this.resumed += 1;
    this.#open = [];
    this.#node = 1 + (this.#node % 5);
    await this.open();
  }

  #take(socket: TestSocket, frame: Message): void {
    if (frame.kind === "events") {
      this.#open.push(...frame.events);
      if (frame.complete) {
        this.events.push(...this.#open);
        this.#open = [];
      }
    }
    if (frame.position === undefined || frame.complete === false) return;
    this.#position = frame.position;
    if (socket.closed === null) socket.send({ ack: frame.position });
  }
}

test("ten changes of leader and ten evictions hide nothing from five watchers, and show nothing twice", async () => {
  const cluster = new TestCluster();
  await cluster.leader();
  const watchers = NODES.map((node) => new Watcher(cluster, node));
  await Promise.all(watchers.map((watcher) => watcher.open()));
  const written: { revision: number; type: string; key: string; value: unknown; prev: unknown }[] = [];
  const state = new Map<string, unknown>();
  let count = 0;
  // One txn of several keys, deletes among them, under an idempotency key: sent until it is answered.
  const write = async () => {
    count += 1;
    const operations = Array.from({ length: KEYS }, (_, n) => {
      const key = `/story/${n}`;
      return (count + n) % 4 === 0 ? { type: "delete", key } : { type: "put", key, value: { count, n } };
    });
    for (;;) {
      const node = 1 + (count % 5);
      const sent = cluster.txn(node, { success: operations }, { "idempotency-key": `story-${count}` });
      const reply = await sent.catch(() => null);
      if (reply?.status === 200) {
        const revision = Number(reply.body.revision);
        for (const operation of operations) {
          const prev = state.get(operation.key) ?? null;
          if (operation.type === "delete" && prev === null) continue;
          const value = operation.type === "delete" ? null : operation.value;
          written.push({ revision, type: operation.type, key: operation.key, value, prev });
          if (value === null) state.delete(operation.key);
          else state.set(operation.key, value);
        }
        return;
      }
      await scheduler.wait(20);
    }
  };
  for (let round = 0; round < 10; round += 1) {
    for (let n = 0; n < 4; n += 1) await write();
    const leader = await cluster.leader();
    await Promise.all([write(), round % 2 === 0 ? cluster.evict(leader) : cluster.abort(leader)]);
    await write();
    await cluster.evict(1 + ((leader + round) % 5));
    await write();
  }
  await cluster.converged();
  const expected = written.map(({ revision, type, key, value, prev }) => [revision, type, key, value, prev]);
  for (const watcher of watchers) {
    await expect.poll(() => watcher.events.length, { timeout: 10_000 }).toBeGreaterThanOrEqual(expected.length);
    const seen = watcher.events.map((event) => [event.revision, event.type, event.key, event.value, event.prev_value]);
    expect(seen).toEqual(expected);
  }
  expect(watchers.reduce((sum, { resumed }) => sum + resumed, 0)).toBeGreaterThan(0);
  for (const watcher of watchers) watcher.close();
}, 90_000);
