/**
 * Goal: whatever happens, every watcher sees exactly the events that it asked for, in order, once, with the right previous
 * values, or an explicit status; bounds hold throughout.
 * Method: seeded runs of random txns, watches, acknowledgements, pumps with small budgets, compactions with removal of
 * rows, evictions, reconnects to another node that lags, and snapshots. The clients check every frame (rig.ts).
 */
import { expect, test } from "vitest";
import { createRandom, nextFloat, nextInteger, type Random } from "../../src/base/random.ts";
import type { Command, Operation, Selector } from "../../src/kv/command.ts";
import { openMachine } from "../../src/kv/machine.ts";
import { MemoryStore } from "../../src/kv/memory-store.ts";
import { isAvailable } from "../../src/kv/position.ts";
import { createHistoryView } from "../../src/watch/history-view.ts";
import { cancel, closeConnection, requestProgress, restore } from "../../src/watch/hub.ts";
import type { HubLimits } from "../../src/watch/limits.ts";
import { adoptSnapshot } from "../../src/watch/publish.ts";
import { type Client, type Options, Rig, removeCompacted, Truth } from "./rig.ts";

const SEEDS = Number(process.env.CONCORD_WATCH_SEEDS ?? 60);
const FIRST_SEED = Number(process.env.CONCORD_WATCH_SEED ?? 1);
const STEPS = 250;
const KEYS = ["a", "a/1", "a/1/x", "a/2", "b", "b\u0000", "b/1", "c", "\u0000s", "\u00ff"];

class World {
  readonly random: Random;
  readonly truth = new Truth();
  readonly log: Command[] = [];
  readonly nodes: Rig[];
  readonly limits: HubLimits;
  /** How often each thing was seen: the runs are worth something only if they reach them all. */
  readonly seen = new Map<string, number>();

  constructor(seed: number) {
    this.random = createRandom(seed);
    this.limits = this.#limits();
    this.nodes = [new Rig(this.limits, this.truth), new Rig(this.limits, this.truth)];
  }

  #limits(): HubLimits {
    const frameBytesMax = this.int(400, 3000);
    const creditPerWatchBytes = frameBytesMax + this.int(0, 2000);
    return {
      watchesPerNodeMax: 30,
      watchesPerConnectionMax: 12,
      frameBytesMax,
      frameBytesTarget: this.int(200, frameBytesMax),
      creditPerWatchBytes,
      creditPerNodeBytes: creditPerWatchBytes + this.int(0, 20_000),
      behindEventsMax: this.int(5, 60),
      behindBytesMax: this.int(1000, 20_000),
      silenceMsMax: 10_000,
      progressRevisions: this.int(1, 30),
      progressMs: this.int(0, 5000),
      pumpRowsMax: this.int(1, 60),
      pumpBytesMax: this.int(500, 20_000),
      sliceRowsMax: this.int(1, 30),
      nearRevisions: this.int(0, 60),
      freshEventsMax: this.int(1, 200),
    };
  }

  note(what: string): void {
    this.seen.set(what, (this.seen.get(what) ?? 0) + 1);
  }

  int(low: number, high: number): number {
    return nextInteger(this.random, low, high);
  }

  chance(share: number): boolean {
    return nextFloat(this.random) < share;
  }

  pick<T>(items: readonly T[]): T {
    return items[this.int(0, items.length - 1)] as T;
  }

  get leader(): Rig {
    return this.nodes[0] as Rig;
  }

  step(): void {
    const node = this.pick(this.nodes);
    const roll = this.int(0, 99);
    if (roll < 34) this.write(this.txn());
    else if (roll < 37) this.compact();
    else if (roll < 50) this.follow(this.int(1, 8));
    else if (roll < 60) this.subscribe(node);
    else if (roll < 78) this.pump(node);
    else if (roll < 90) this.acknowledge(node);
    else if (roll < 93) node.nowMs += this.int(0, 6000);
    else if (roll < 94) this.evict(node);
    else if (roll < 96) this.reconnect(node);
    else if (roll < 97) this.pick([() => this.cancelOne(node), () => this.requestProgress(node)])();
    else if (roll < 98) this.remove(node);
    else this.snapshot();
  }

  txn(): Command {
    const success: Operation[] = [];
    for (let count = this.pick([1, 1, 2, 3, 12]); count > 0; count -= 1) {
      const key = this.pick(KEYS);
      if (this.chance(0.3)) success.push({ type: "delete", selector: { key } });
      else if (this.chance(0.05)) success.push({ type: "delete", selector: { prefix: "a" } });
      else success.push({ type: "put", key, value: { json: "v".repeat(this.pick([1, 5, 200, 900])) } });
    }
    return { kind: "txn", compare: [], success, failure: [] };
  }

  write(command: Command): void {
    this.log.push(command);
    this.leader.apply(command);
  }

  compact(): void {
    const { machine } = this.leader.harness;
    const { compactRevision, revision } = machine;
    this.write({
      kind: "compact",
      revision: Math.min(this.int(compactRevision, revision), this.int(compactRevision, revision)),
    });
  }

  /** The second node applies some of what it lacks. */
  follow(count: number): void {
    const follower = this.nodes[1] as Rig;
    const from = follower.harness.machine.appliedIndex;
    for (const command of this.log.slice(from, from + count)) follower.apply(command, false);
  }

  /** The second node takes over the rows of the first instead. */
  snapshot(): void {
    const follower = this.nodes[1] as Rig;
    if (follower.harness.machine.appliedIndex === this.leader.harness.machine.appliedIndex) return;
    this.pumpAll(follower);
    const store = new MemoryStore();
    for (const [row, text] of this.leader.harness.store.rows()) store.put(row, text);
    Object.assign(follower.harness, { store, machine: openMachine(store) });
    adoptSnapshot(follower.hub, createHistoryView(follower.harness.machine));
  }

  subscribe(node: Rig): void {
    if (node.hub.watchesCount >= this.limits.watchesPerNodeMax) return;
    const key = this.pick(KEYS);
    const selector: Selector = this.pick([
      { key },
      { prefix: key.slice(0, this.int(0, 3)) },
      { range: { start: key, end: this.pick(KEYS) } },
      { range: { start: key } },
    ]);
    const options: Options = {
      filter: this.pick([null, null, "puts", "deletes"]),
      prevValues: this.chance(0.5),
      includeValues: this.chance(0.7),
      fromRevision: this.pick([null, this.int(0, node.revision + 1), node.revision + this.int(1, 20)]),
      ...(this.chance(0.2)
        ? { afterPosition: { revision: this.int(1, node.revision + 3), opIndex: this.int(0, 3) } }
        : {}),
    };
    const connection = this.pick(["a", "b", "c"]);
    if ((node.hub.connections.get(connection)?.size ?? 0) >= this.limits.watchesPerConnectionMax) return;
    node.watch(selector, options, connection);
  }

  pump(node: Rig): void {
    const { freshEventsMax, creditPerNodeBytes, creditPerWatchBytes } = this.limits;
    expect(node.hub.freshCount).toBeLessThanOrEqual(freshEventsMax);
    const { frames } = node.pumpOnce();
    for (const frame of frames) {
      if (frame.kind !== "events") this.note(frame.kind);
      else this.note(!frame.complete ? "part" : frame.events.length === 0 ? "end mark" : "whole");
    }
    for (const queue of ["replaying", "starved", "suspects"] as const) if (node.hub[queue].size > 0) this.note(queue);
    if (node.hub.sweep !== null) this.note("sweep");
    this.#collect(node);
    let owed = 0;
    for (const watches of node.hub.connections.values()) {
      for (const watch of watches.values()) {
        owed += watch.unacknowledged;
        expect(watch.ledger.reduce((sum, entry) => sum + entry.bytes, 0)).toBe(watch.unacknowledged);
        if (watch.ledger.length > 1) expect(watch.unacknowledged).toBeLessThanOrEqual(creditPerWatchBytes);
      }
    }
    expect(node.hub.unacknowledged).toBe(owed);
    const largest = Math.max(0, ...frames.map((frame) => (frame.kind === "events" ? frame.bytes : 0)));
    expect(owed).toBeLessThanOrEqual(Math.max(creditPerNodeBytes + 30 * 128, largest));
  }

  pumpAll(node: Rig): void {
    node.pump();
    this.#collect(node);
  }

  /** Checks last frames, and lets the clients that got one go. */
  #collect(node: Rig): void {
    for (const client of [...node.clients.values()]) {
      const { ended, position } = client;
      if (ended === null) continue;
      this.note(ended.kind);
      if (ended.kind === "compacted") {
        expect(isAvailable(position, ended.compactRevision)).toBe(false);
        expect(ended.compactRevision).toBe(node.harness.machine.compactRevision);
      } else if (ended.kind === "resync")
        expect(isAvailable(position, node.harness.machine.compactRevision)).toBe(false);
      else expect(ended).toMatchObject({ kind: "slow_consumer", position });
      node.drop(client);
    }
  }

  acknowledge(node: Rig): void {
    for (const client of node.clients.values()) {
      if (this.chance(0.5) || client.positions.length === 0) continue;
      node.ack(client, this.chance(0.7) ? client.position : this.pick(client.positions));
    }
  }

  /** The instance is lost, the sockets stay. */
  evict(node: Rig): void {
    // Frames leave in the turn that makes them: what a pump decided is out, and its positions are in the attachments.
    node.pumpOnce();
    this.#collect(node);
    const saved = [...node.clients.values()].map((client) => {
      const { connection, watchId } = client.options;
      const one = node.attachments.get(connection)?.find((candidate) => candidate.watchId === watchId);
      if (one === undefined) throw new Error(`watch ${watchId} is in no attachment`);
      return [client, one] as const;
    });
    node.restartHub();
    for (const [client, one] of saved) expect(restore(node.hub, client.options, one).ok).toBe(true);
  }

  /** The client goes on at its own position, on any node. */
  reconnect(node: Rig): void {
    const client = this.pick([...node.clients.values(), null]);
    if (client === null) return;
    const { connection } = client.options;
    closeConnection(node.hub, connection);
    const gone = [...node.clients.values()].filter((other) => other.options.connection === connection);
    for (const other of gone) node.drop(other);
    node.attachments.delete(connection);
    const target = this.pick(this.nodes);
    for (const { options, position } of gone) {
      if (target.hub.watchesCount >= this.limits.watchesPerNodeMax) return;
      if ((target.hub.connections.get(connection)?.size ?? 0) >= this.limits.watchesPerConnectionMax) return;
      const { includeValues, prevValues, filter } = options;
      target.watch(options.selector, { includeValues, prevValues, filter, afterPosition: position }, connection);
    }
  }

  /** In a turn of its own: what the hub noted in the turn of the compaction is out by then (history-view.ts H4). */
  remove(node: Rig): void {
    this.pump(node);
    removeCompacted(node.harness);
  }

  cancelOne(node: Rig): void {
    const client = this.pick([...node.clients.values(), null]);
    if (client === null) return;
    cancel(node.hub, client.options.connection, client.options.watchId);
    node.drop(client);
  }

  requestProgress(node: Rig): void {
    const client = this.pick([...node.clients.values(), null]);
    if (client !== null) requestProgress(node.hub, client.options.connection, client.options.watchId);
  }

  /** Everybody acknowledges until nothing moves; then nothing may be missing. */
  finish(): void {
    this.follow(this.log.length);
    // Futures, too, are reached: the last writes go beyond every start.
    for (let count = 0; count < 45; count += 1) this.write({ ...put("a", count) });
    this.follow(this.log.length);
    for (const node of this.nodes) {
      for (let round = 0; round < 5000; round += 1) {
        this.pumpAll(node);
        if (node.hub.unacknowledged === 0) break;
        for (const client of node.clients.values()) node.ack(client);
      }
      for (const client of node.clients.values()) {
        client.expectAll();
        expect(client.ready !== null || isFuture(client, node)).toBe(true);
      }
      expect(node.pumpOnce()).toMatchObject({ frames: [], more: false, wakeAtMs: Number.POSITIVE_INFINITY });
      for (const client of [...node.clients.values()]) {
        cancel(node.hub, client.options.connection, client.options.watchId);
      }
      expect(node.hub).toMatchObject({ watchesCount: 0, unacknowledged: 0, freshCount: 0 });
      for (const name of ["announcing", "touched", "replaying", "starved", "suspects"] as const) {
        expect(node.hub[name].size).toBe(0);
      }
      expect(node.hub.told.below(Number.POSITIVE_INFINITY)).toEqual([]);
    }
  }
}

function put(key: string, json: number): Command {
  return { kind: "txn", compare: [], success: [{ type: "put", key, value: { json } }], failure: [] };
}

function isFuture(client: Client, node: Rig): boolean {
  return node.hub.connections.get(client.options.connection)?.get(client.options.watchId)?.phase === "future";
}

test(`in ${SEEDS} random runs every watcher sees its events once and in order, or is told why not`, () => {
  const seen = new Map<string, number>();
  for (let seed = FIRST_SEED; seed < FIRST_SEED + SEEDS; seed += 1) {
    const world = new World(seed);
    try {
      for (let count = 0; count < STEPS; count += 1) world.step();
      world.finish();
    } catch (error) {
      throw new Error(`seed ${seed}: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
    }
    for (const [what, count] of world.seen) seen.set(what, (seen.get(what) ?? 0) + count);
  }
  const rare = ["compacted", "slow_consumer", "resync", "progress", "part", "end mark", "sweep", "starved", "suspects"];
  for (const what of rare) expect(seen.get(what) ?? 0, `${what} of ${JSON.stringify([...seen])}`).toBeGreaterThan(5);
});
