/**
 * Goal: a database of format 1 is opened, keeps everything, and is of format 2 from then on.
 * Method: build one by the statements that the code of format 1 ran.
 */
import { expect, test } from "vitest";
import { hashText } from "../../src/base/hash.ts";
import { encodeEntries } from "../../src/node-object/entry-text.ts";
import { SqliteStorage } from "../../src/node-object/sqlite-storage.ts";
import { position, readAll, run } from "./log-contract.ts";
import { NodeSqliteDisk } from "./node-sqlite.ts";
import { change, type Model, sumsOf } from "./state-model.ts";

function putMeta({ database }: NodeSqliteDisk, key: string, value: string): void {
  database.prepare("INSERT OR REPLACE INTO meta VALUES (?, ?, ?)").run(key, value, hashText(value, hashText(key, 1)));
}

function formatOne(rows: Readonly<Record<string, string>>): NodeSqliteDisk {
  const disk = new NodeSqliteDisk();
  const { database } = disk;
  database.exec(`CREATE TABLE IF NOT EXISTS meta (
    key TEXT PRIMARY KEY, value TEXT NOT NULL, checksum INTEGER NOT NULL) WITHOUT ROWID`);
  database.exec(`CREATE TABLE IF NOT EXISTS log (
    first_index INTEGER PRIMARY KEY, last_index INTEGER NOT NULL, last_term INTEGER NOT NULL,
    bytes INTEGER NOT NULL, checksum INTEGER NOT NULL, body TEXT NOT NULL)`);
  database.exec("CREATE TABLE IF NOT EXISTS state (key TEXT PRIMARY KEY, value TEXT NOT NULL)");
  putMeta(disk, "format", "1");
  putMeta(disk, "identity", JSON.stringify({ incarnation: 7, membership: { kind: "empty" } }));
  putMeta(disk, "hard_state", "[3,2]");
  const body = encodeEntries(run(1, 4, 3));
  const checksum = hashText(body, hashText("log 1 4 3", 1));
  database.prepare("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?)").run(1, 4, 3, 36, checksum, body);
  for (const [key, value] of Object.entries(rows)) {
    const seal = hashText(value, hashText(key, 1)).toString(36).padStart(11, "0");
    database.prepare("INSERT INTO state VALUES (?, ?)").run(key, seal + value);
  }
  return disk;
}

function formatOf({ database }: NodeSqliteDisk): unknown {
  return database.prepare("SELECT value, checksum FROM meta WHERE key = 'format'").get();
}

test("a database of format 1 is upgraded in place and keeps everything", () => {
  const disk = formatOne({ a: "1", b: "2" });
  for (let start = 1; start <= 2; start += 1) {
    const storage = new SqliteStorage(disk);
    expect(storage.load()).toEqual({
      identity: { incarnation: 7, membership: { kind: "empty" } },
      hardState: { term: 3, votedFor: 2 },
      base: null,
      lastIndex: 4,
      lastTerm: 3,
      lastTimeMs: 1_000_004,
      memberships: [],
      sleep: null,
      halted: null,
    });
    expect(readAll(storage)).toEqual(run(1, 4, 3));
    expect(storage.scan({ start: "a", end: "c", limit: 9 })).toEqual([
      ["a", "1"],
      ["b", "2"],
    ]);
  }
});

test("the code of format 1 reads the format row of an upgraded database, and refuses it by its version", () => {
  const disk = formatOne({});
  new SqliteStorage(disk).load();
  expect(formatOf(disk)).toEqual({ value: "2", checksum: hashText("2", hashText("format", 1)) });
});

test("the sums of an upgraded state are known once it has been read through, in steps and under writes", () => {
  const model: Model = new Map(Array.from({ length: 2500 }, (_, at) => [`key ${at}`, `value ${at}`]));
  const storage = new SqliteStorage(formatOne(Object.fromEntries(model)));
  storage.load();
  expect(storage.stateHash).toBeNull();
  expect(storage.snapshot.begin(position(4, 3))).toBeNull();
  let steps = 1;
  while (storage.cleanUp()) {
    const changes = [[`key ${steps}`, null] as const, [`key ${steps * 1000}`, "new"] as const];
    storage.write({ state: changes });
    change(model, changes);
    steps += 1;
  }
  expect(steps).toBeGreaterThan(2);
  expect(storage.stateHash).toBe(sumsOf(model).hash);
  expect(storage.snapshot.begin(position(4, 3))).toMatchObject(sumsOf(model));
});

test("an upgraded database without state rows knows its sums at once, and those of format 2 are kept", () => {
  const disk = formatOne({});
  const storage = new SqliteStorage(disk);
  storage.load();
  expect(storage.stateHash).toBe(0);
  storage.write({ state: [["a", "1"]] });
  const next = new SqliteStorage(disk);
  next.load();
  expect(next.stateHash).toBe(sumsOf(new Map([["a", "1"]])).hash);
});

test("a database of format 1 that has halted is not touched", () => {
  const disk = formatOne({});
  putMeta(disk, "halted", "why");
  expect(new SqliteStorage(disk).load()).toMatchObject({ halted: "why", identity: { incarnation: 7 } });
  expect(formatOf(disk)).toMatchObject({ value: "1" });
});
