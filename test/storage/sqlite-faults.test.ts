/**
 * Goal: the SQLite storage survives a crash between any two statements, and notices what the disk has changed by itself.
 * Method: SQLite of Node, a disk that fails before any statement, and damage by SQL.
 */
import { describe, expect, test } from "vitest";
import { createRandom } from "../../src/base/random.ts";
import { CorruptionError, type WriteBatch } from "../../src/node-object/ports.ts";
import { SqliteStorage } from "../../src/node-object/sqlite-storage.ts";
import { FaultyDisk, InjectedFault } from "./faulty-disk.ts";
import { entry, position, readAll, run } from "./log-contract.ts";
import { NodeSqliteDisk } from "./node-sqlite.ts";
import { allRows, change, type Model, randomChanges, rowsOf, snapshotOf } from "./state-model.ts";

const SNAPSHOT = position(8, 1);

function random(seed: number): Model {
  const model: Model = new Map();
  const source = createRandom(seed);
  while (model.size < 100) change(model, randomChanges(source, 60, 200));
  return model;
}

const OLD = random(1);
const NEW = random(2);
const PROMISED = snapshotOf(NEW, SNAPSHOT, 40);

interface Prepared {
  readonly real: NodeSqliteDisk;
  readonly faulty: FaultyDisk;
  readonly storage: SqliteStorage;
}

/** A follower that has staged the first `chunks` chunks of the snapshot, and has a state pinned. */
function prepared(chunks: number): Prepared {
  const real = new NodeSqliteDisk();
  const faulty = new FaultyDisk(real);
  const storage = new SqliteStorage(faulty);
  storage.load();
  storage.write({ state: [...OLD], append: run(1, 5, 1) });
  storage.write({ append: [...run(6, 9, 1), entry(10, 1, "membership")] });
  if (chunks > 0) storage.staging.begin(PROMISED.manifest);
  for (const chunk of PROMISED.chunks.slice(0, chunks)) storage.staging.add(chunk);
  storage.snapshot.begin(position(5, 1));
  faulty.statements = [];
  return { real, faulty, storage };
}

/** What a new instance finds. */
function found(real: NodeSqliteDisk) {
  const storage = new SqliteStorage(real);
  const loaded = storage.load();
  return {
    loaded,
    log: readAll(storage),
    rows: allRows(storage),
    hash: storage.stateHash,
    staging: storage.staging.state(),
  };
}

function dump({ database }: NodeSqliteDisk): unknown {
  const tables = ["meta", "log", "state", "state_b", "before_images"];
  return tables.map((table) => database.prepare(`SELECT * FROM ${table}`).all());
}

/**
 * Runs `act` once for each of its statements, which fails; then the storage refuses to go on. `crash`: the turn ends
 * there; otherwise what the failed call itself has undone must be all.
 */
function failingEverywhere(chunks: number, act: (storage: SqliteStorage) => void, statementsMin: number): void {
  const whole = prepared(chunks);
  const before = found(whole.real);
  act(whole.storage);
  const after = found(whole.real);
  expect(after).not.toEqual(before);
  const count = whole.faulty.statements.length;
  expect(count).toBeGreaterThanOrEqual(statementsMin);
  for (let failBefore = 1; failBefore <= count; failBefore += 1) {
    for (const how of ["failure", "crash"] as const) {
      const { real, faulty, storage } = prepared(chunks);
      const rows = dump(real);
      faulty.failBefore = failBefore;
      const fail = () => expect(() => act(storage), `before statement ${failBefore}`).toThrow(InjectedFault);
      if (how === "crash") real.turn("undone", fail);
      else fail();
      expect(dump(real), `${how} before statement ${failBefore}`).toEqual(rows);
      expect(found(real)).toEqual(before);
      faulty.failBefore = Number.POSITIVE_INFINITY;
      expect(() => storage.get("a")).toThrow(/failed write/);
      expect(() => storage.staging.discard()).toThrow(/failed write/);
      storage.write({ halted: "why" });
    }
  }
  // All statements done, but the commit never came.
  const { real, storage } = prepared(chunks);
  real.turn("undone", () => act(storage));
  expect(found(real)).toEqual(before);
}

describe("a crash leaves the old or the new, never a mix (S53)", () => {
  const { chunks, manifest } = PROMISED;
  const write = (batch: WriteBatch) => (storage: SqliteStorage) => storage.write(batch);
  const state = [...random(3)].slice(0, 30);
  const acts: readonly (readonly [
    what: string,
    staged: number,
    statements: number,
    act: (s: SqliteStorage) => void,
  ])[] = [
    [
      "an install that replaces the log",
      chunks.length,
      6,
      write({ install: { snapshot: SNAPSHOT, keepsSuffix: false } }),
    ],
    ["an install that keeps entries", chunks.length, 6, write({ install: { snapshot: SNAPSHOT, keepsSuffix: true } })],
    [
      "an install with all else that a turn may write",
      chunks.length,
      8,
      write({
        hardState: { term: 4, votedFor: null },
        install: { snapshot: SNAPSHOT, keepsSuffix: false },
        append: run(9, 12, 4),
        fence: 3,
      }),
    ],
    ["a chunk", 1, 2, (storage) => storage.staging.add(chunks[1] ?? (chunks[0] as never))],
    ["the beginning of a staging", 0, 2, (storage) => storage.staging.begin(manifest)],
    ["the end of a staging", 2, 1, (storage) => storage.staging.discard()],
    ["dropped entries", 0, 4, write({ dropThrough: SNAPSHOT })],
    ["state rows with a pinned state", 0, 4, write({ state })],
  ];
  for (const [what, staged, statements, act] of acts) {
    test(what, () => {
      failingEverywhere(staged, act, statements);
    });
  }
});

describe("a scrub finds", () => {
  const damages: readonly (readonly [what: string, sql: string, message: RegExp])[] = [
    [
      "a flipped byte of a value",
      "UPDATE state SET value = replace(value, 'value', 'valuf') WHERE key = ?",
      /^state "/,
    ],
    ["a flipped byte of a seal", "UPDATE state SET value = '!' || substr(value, 2) WHERE key = ?", /^state "/],
    [
      "a seal in capitals",
      "UPDATE state SET value = upper(substr(value, 1, 11)) || substr(value, 12) WHERE key = ?",
      /"/,
    ],
    ["a missing row", "DELETE FROM state WHERE key = ?", /^state: \d+ rows .* instead of \d+/],
    ["an older value of a row", "", /^state: \d+ rows .* instead of \d+/],
  ];
  for (const [what, sql, message] of damages) {
    test(`${what}`, () => {
      const { real, storage } = prepared(0);
      const key = [...OLD.keys()].sort()[70] ?? "";
      if (sql === "") {
        const update = real.database.prepare("UPDATE state SET value = ? WHERE key = ?");
        const before = real.database.prepare("SELECT value FROM state WHERE key = ?").get(key)?.value;
        storage.write({ state: [[key, "later"]] });
        update.run(String(before), key);
      } else real.database.prepare(sql).run(key);
      const pass = () => {
        while (storage.scrub.step(30).afterKey !== null);
      };
      expect(pass).toThrow(CorruptionError);
      expect(() => pass()).toThrow(/failed write/);
      const again = new SqliteStorage(real);
      again.load();
      expect(() => {
        while (again.scrub.step(1000).afterKey !== null);
      }).toThrow(message);
    });
  }

  test("a row without a seal when it is replaced", () => {
    const { real, storage } = prepared(0);
    const [key = ""] = OLD.keys();
    real.database.prepare("UPDATE state SET value = 'short' WHERE key = ?").run(key);
    expect(() => storage.write({ state: [[key, "new"]] })).toThrow(CorruptionError);
  });
});

describe("what is left over", () => {
  test("of a pin goes in steps, and never gets into another pin's rows", () => {
    const { real, storage } = prepared(0);
    storage.write({ state: [...OLD.keys()].map((key) => [key, null] as const) });
    const images = () => real.database.prepare("SELECT count(*) AS images FROM before_images").get()?.images;
    expect(images()).toBe(OLD.size);
    expect(storage.cleanUp()).toBe(false);
    storage.write({ state: [...NEW] });
    storage.snapshot.begin(position(6));
    expect(storage.snapshot.read(null, 1 << 20)?.rows).toEqual(snapshotOf(NEW, SNAPSHOT, 1000).chunks[0]?.rows);
    storage.snapshot.end();
    const next = new SqliteStorage(real);
    next.load();
    expect(next.cleanUp()).toBe(true);
    expect(next.cleanUp()).toBe(false);
    expect(images()).toBe(0);
  });

  const sizes = { "many rows": { rows: 1800, units: 20 }, "large rows": { rows: 24, units: 1_000_000 } };
  for (const [what, { rows, units }] of Object.entries(sizes)) {
    test(`of a staging of ${what} goes in bounded steps, while the state is written`, () => {
      const { real, storage } = prepared(0);
      const large: Model = new Map(Array.from({ length: rows }, (_, at) => [`key ${at}`, "x".repeat(units)]));
      const { manifest, chunks } = snapshotOf(large, SNAPSHOT, rows / 3);
      storage.staging.begin(manifest);
      for (const chunk of chunks) storage.staging.add(chunk);
      storage.staging.discard();
      let steps = 0;
      while (storage.cleanUp()) {
        steps += 1;
        storage.write({ state: [["written", String(steps)]] });
      }
      expect(steps).toBeGreaterThan(2);
      expect(real.database.prepare("SELECT 1 FROM state_b").all()).toEqual([]);
      expect(allRows(storage)).toEqual(rowsOf(new Map([...OLD, ["written", String(steps)]])));
    });
  }
});
