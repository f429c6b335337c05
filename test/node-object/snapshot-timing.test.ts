/**
 * Goal: how long the turns of a snapshot are, with 40 000 rows of about 100 bytes whose keys came in random order. The
 * numbers are printed, not asserted: they are the machine's.
 */
import { expect, test } from "vitest";
import { SqliteStorage } from "../../src/node-object/sqlite-storage.ts";
import { inObject } from "./bare-object.ts";

const ROWS_COUNT = 40_000;
const WRITE_ROWS = 4000;
const CHUNK_BYTES_MAX = 256 << 10;
const POSITION = { index: 1, term: 1, timeMs: 1, membership: { voters: [1], learners: [] } };
const VALUE = "x".repeat(90);

/** The prime spreads them over the whole range. */
const key = (at: number) => `c key ${String((at * 7919) % 1_000_003).padStart(9, "0")}`;
const rows = (from: number, count: number) =>
  Array.from({ length: count }, (_, at) => [key(from + at), `${VALUE}${at}`] as const);

class Timings {
  readonly #times = new Map<string, number[]>();

  time<T>(what: string, work: () => T): T {
    const startedMs = performance.now();
    const result = work();
    const times = this.#times.get(what) ?? [];
    times.push(performance.now() - startedMs);
    this.#times.set(what, times);
    return result;
  }

  toString(): string {
    const lines = [...this.#times].map(([what, times]) => {
      const sorted = times.toSorted((left, right) => left - right);
      const at = (share: number) => (sorted[Math.floor(share * (sorted.length - 1))] ?? 0).toFixed(1);
      return `${what}: ${times.length} turns, p50 ${at(0.5)} ms, p90 ${at(0.9)} ms, max ${at(1)} ms`;
    });
    return lines.join("\n");
  }
}

test("turns of a snapshot", { timeout: 240_000 }, async () => {
  await inObject(async (state) => {
    const timings = new Timings();
    const storage = new SqliteStorage(state.storage);
    storage.load();
    const sync = async () => await state.storage.sync();
    for (let from = 0; from < ROWS_COUNT; from += WRITE_ROWS) {
      timings.time(`write of ${WRITE_ROWS} new rows`, () => storage.write({ state: rows(from, WRITE_ROWS) }));
      await sync();
    }
    for (let from = 0; from < 20_000; from += 500) {
      timings.time("write of 500 old rows", () => storage.write({ state: rows(from * 2, 500) }));
      await sync();
    }
    const manifest = timings.time("begin", () => storage.snapshot.begin(POSITION));
    if (manifest === null) throw new Error("the sums are known");
    expect(manifest.rowsCount).toBe(ROWS_COUNT);
    timings.time("begin of a staging", () => storage.staging.begin(manifest));
    for (let chunks = 0, last = false; !last; chunks += 1) {
      if (chunks % 5 === 0) {
        timings.time("write of 500 rows, pinned", () => storage.write({ state: rows(chunks * 200, 500) }));
        await sync();
      }
      const after = storage.staging.state()?.afterKey ?? null;
      const chunk = timings.time("read of a chunk", () => storage.snapshot.read(after, CHUNK_BYTES_MAX));
      if (chunk === null) throw new Error("nothing is pinned");
      expect(timings.time("staging of a chunk", () => storage.staging.add(chunk))).toBe("taken");
      await sync();
      last = chunk.last;
    }
    expect(storage.staging.state()?.status).toBe("complete");
    timings.time("install", () => storage.write({ install: { snapshot: POSITION, keepsSuffix: false } }));
    await sync();
    for (let more = true, steps = 0; more && steps < 100; steps += 1) {
      more = timings.time("step of clean-up", () => storage.cleanUp());
      await sync();
    }
    for (let step = 0, after: string | null = ""; after !== null && step < 100; step += 1) {
      after = timings.time("scrub of 1000 rows", () => storage.scrub.step(1000)).afterKey;
    }
    console.log(`${ROWS_COUNT} rows\n${timings}`);
  });
});
