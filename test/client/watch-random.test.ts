/**
 * Goal: whatever happens to nodes and connections, in whatever order, a watch gives every event once, in order, whole
 * revisions where they are asked for, and a copy made by `follow` becomes the data.
 * Method: random steps against the model, each run from a seed; frames, parts, chunks and bytes are cut at random, and
 * consumers are slow at random. Then everything is healed, and what was taken is compared with the history.
 */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { WireWatchEvent } from "../../src/api/wire.ts";
import type { FollowItem } from "../../src/client/index.ts";
import type { DrivenClock } from "./driven-clock.ts";
import type { Change, ModelCluster } from "./model-cluster.ts";
import { createSetting, TRANSPORTS } from "./streaming.ts";

const STEPS = 40;
const RUNS = 25;

/** Mulberry32: the same seed, the same run. */
function randomOf(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

class Chaos {
  readonly #cluster: ModelCluster;
  readonly #clock: DrivenClock;
  readonly #random: () => number;

  constructor(cluster: ModelCluster, clock: DrivenClock, random: () => number) {
    this.#cluster = cluster;
    this.#clock = clock;
    this.#random = random;
    cluster.cut = (count) => this.upTo(count);
    cluster.creditFrames = this.upTo(6);
    cluster.messageCharsMax = random() < 0.5 ? 200 : Number.POSITIVE_INFINITY;
  }

  /** From 1. */
  upTo(max: number): number {
    return 1 + Math.floor(this.#random() * max);
  }

  async step(): Promise<void> {
    const cluster = this.#cluster;
    cluster.nextNode = this.upTo(3);
    switch (this.upTo(12)) {
      case 1:
        cluster.breakAll();
        break;
      case 2:
        [...cluster.watches].at(this.upTo(3) - 1)?.break();
        break;
      case 3:
        cluster.lags = [this.upTo(4) - 1, this.upTo(4) - 1, 0];
        break;
      case 4:
        [...cluster.watches].at(0)?.tell({ kind: "slow_consumer", position: "" });
        break;
      case 5:
        cluster.tellProgress();
        break;
      case 6:
        cluster.changeLeader(this.#random() < 0.3 ? null : this.upTo(3));
        break;
      case 7:
        cluster.refusesSockets = this.#random() < 0.5;
        cluster.refusesEvents = !cluster.refusesSockets && this.#random() < 0.5;
        break;
      default:
        cluster.commit(...this.#changes());
    }
    await this.#clock.advance(this.#random() < 0.2 ? 4_000 * this.#random() : 50 * this.#random());
  }

  async heal(): Promise<void> {
    const cluster = this.#cluster;
    Object.assign(cluster, { lags: [0, 0, 0], refusesSockets: false, refusesEvents: false });
    cluster.changeLeader(1);
    cluster.pump();
    await this.#clock.advance(90_000);
  }

  #changes(): Change[] {
    const count = this.#random() < 0.2 ? this.upTo(30) : this.upTo(3);
    return Array.from({ length: count }, (): Change => {
      const key = `${this.#random() < 0.7 ? "in" : "out"}/${this.upTo(5)}`;
      return [key, this.#random() < 0.3 ? undefined : "é\u{1F600}".repeat(this.upTo(20))];
    });
  }
}

function identityOf({ revision, op_index, type, key, value }: WireWatchEvent): unknown {
  return [revision, op_index, type, key, value];
}

describe.each(TRANSPORTS)("over %s", (transport) => {
  test("every event comes once, in order, whatever happens", { timeout: 120_000 }, async () => {
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 0, max: 2 ** 31 }), async (seed) => {
        const random = randomOf(seed);
        const { cluster, clock, concord } = createSetting(transport, { random });
        const chaos = new Chaos(cluster, clock, random);
        /** Consumers that take their time, now and then. */
        const dawdle = async () => {
          if (random() < 0.1) await clock.sleep(2_000 * random());
        };
        const selector = { prefix: "in/" };
        cluster.commit(["in/0", 0]);
        const started = cluster.revision;
        const fromStart: unknown[] = [];
        const fromNow: unknown[] = [];
        const revisions: { readonly revision: number; readonly events: readonly WireWatchEvent[] }[] = [];
        const copy = new Map<unknown, unknown>();
        let synced = 0;
        const now = concord.sync.watch(selector);
        await now.open();
        const consumers = [
          take(
            concord.sync.watch(selector, { from_revision: 1 }),
            (event) => fromStart.push(identityOf(event)),
            dawdle,
          ),
          take(now, (event) => fromNow.push(identityOf(event)), dawdle),
          take(concord.sync.watchGrouped(selector, { from_revision: 1 }), (group) => revisions.push(group), dawdle),
          take(
            concord.sync.follow(selector, { limit: 2 }),
            (item) => void apply(copy, item, (at) => (synced = at)),
            dawdle,
          ),
        ];
        for (let step = 0; step < STEPS; step += 1) await chaos.step();
        await chaos.heal();
        concord.close();
        await Promise.all(consumers);
        const wanted = cluster.events.filter(({ key }) => String(key).startsWith("in/"));
        expect(fromStart).toEqual(wanted.map(identityOf));
        expect(fromNow).toEqual(wanted.filter(({ revision }) => revision > started).map(identityOf));
        expect(revisions.flatMap(({ events }) => events).map(identityOf)).toEqual(fromStart);
        expect(revisions.map(({ revision }) => revision)).toEqual([...new Set(wanted.map(({ revision }) => revision))]);
        expect(synced).toBeGreaterThan(0);
        const records = [...cluster.records].filter(([key]) => key.startsWith("in/"));
        expect([...copy].sort()).toEqual(records.map(([key, { value }]) => [key, value]).sort());
        expect([cluster.watches.size, cluster.sockets.size]).toEqual([0, 0]);
      }),
      { numRuns: RUNS, examples: [[1_623_165_088]] },
    );
  });
});

async function take<T>(source: AsyncIterable<T>, use: (item: T) => void, dawdle: () => Promise<void>): Promise<void> {
  for await (const item of source) {
    use(item);
    await dawdle();
  }
}

function apply(copy: Map<unknown, unknown>, item: FollowItem, onSynced: (revision: number) => void): void {
  if (item.kind === "put") copy.set(item.key, item.record.value);
  else if (item.kind === "delete") copy.delete(item.key);
  else if (item.kind === "synced") onSynced(item.revision);
}
