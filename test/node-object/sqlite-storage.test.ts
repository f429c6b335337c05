import { describe, expect, test } from "vitest";
import { utf8Length } from "../../src/base/bytes.ts";
import { LOG_ROW_BYTES_MAX, TXN_BYTES_MAX } from "../../src/base/limits.ts";
import { CorruptionError, type Identity, type WriteBatch } from "../../src/node-object/ports.ts";
import { metaChecksum } from "../../src/node-object/sqlite-rows.ts";
import { SqliteStorage } from "../../src/node-object/sqlite-storage.ts";
import type { Entry } from "../../src/raft/types.ts";
import { FaultyDisk, InjectedFault } from "../storage/faulty-disk.ts";
import { inObject, withStorage } from "./bare-object.ts";

const ALL = { from: 1, to: 1_000_000, bytesMax: Number.MAX_SAFE_INTEGER };

function entry(index: number, term: number, payload = `payload ${index}`): Entry {
  return { index, term, timeMs: 1_000_000 + index, kind: "command", payload, payloadBytes: utf8Length(payload) };
}

function run(from: number, to: number, term: number): Entry[] {
  return Array.from({ length: to - from + 1 }, (_, position) => entry(from + position, term));
}

function readAll(storage: SqliteStorage): Entry[] {
  return storage.readLog(ALL.from, ALL.to, ALL.bytesMax);
}

function reloaded(state: DurableObjectState): SqliteStorage {
  const storage = new SqliteStorage(state.storage);
  storage.load();
  return storage;
}

describe("hard state and identity", () => {
  test("a new storage is empty and stays so until written", async () => {
    await inObject((state) => {
      const empty = {
        identity: null,
        hardState: { term: 0, votedFor: null },
        lastIndex: 0,
        lastTerm: 0,
        lastTimeMs: 0,
        base: null,
        memberships: [],
        sleep: null,
        halted: null,
      };
      expect(new SqliteStorage(state.storage).load()).toEqual(empty);
      expect(new SqliteStorage(state.storage).load()).toEqual(empty);
    });
  });

  test("what was written is found by the next instance", async () => {
    await withStorage((storage, state) => {
      const identity: Identity = {
        incarnation: 2 ** 53 - 1,
        membership: { kind: "formed", clusterId: "c", members: [{ id: 1, incarnation: 7 }] },
      };
      storage.write({
        identity,
        hardState: { term: 3, votedFor: 2 },
        append: run(1, 4, 3),
        fence: 9,
      });
      expect(new SqliteStorage(state.storage).load()).toEqual({
        identity,
        hardState: { term: 3, votedFor: 2 },
        lastIndex: 4,
        lastTerm: 3,
        lastTimeMs: 1_000_004,
        base: null,
        memberships: [],
        sleep: null,
        halted: null,
      });
    });
  });

  test("a batch of one kind is one statement, so that a turn pays for no savepoint; state rows bring their sums", async () => {
    await inObject((state) => {
      const disk = new FaultyDisk(state.storage);
      const storage = new SqliteStorage(disk);
      storage.load();
      const batches: WriteBatch[] = [
        { hardState: { term: 1, votedFor: 1 } },
        { append: run(1, 50, 1) },
        { fence: 1 },
        { state: Array.from({ length: 500 }, (_, row) => [`key ${row}`, "value"] as const) },
        { truncateFrom: 51 },
      ];
      disk.statements = [];
      for (const batch of batches) storage.write(batch);
      // Of the state: the seals of what the rows were, the sums, the rows.
      expect(disk.statements).toHaveLength(3 + 3);
    });
  });
});

describe("log", () => {
  test("batches are read back entry by entry, whatever their size", async () => {
    await withStorage((storage, state) => {
      const entries = run(1, 120, 1);
      for (const [from, to] of [
        [0, 1],
        [1, 2],
        [2, 52],
        [52, 53],
        [53, 120],
      ] as const)
        storage.write({ append: entries.slice(from, to) });
      expect(readAll(storage)).toEqual(entries);
      expect(readAll(reloaded(state))).toEqual(entries);
      expect(storage.readLog(10, 60, ALL.bytesMax)).toEqual(entries.slice(9, 60));
      expect(storage.readLog(121, 130, ALL.bytesMax)).toEqual([]);
      expect(storage.readLog(5, 4, ALL.bytesMax)).toEqual([]);
    });
  });

  test("a read stops before it passes its bytes, but never before the first entry", async () => {
    await withStorage((storage) => {
      const entries = run(1, 30, 1).map((one) => ({ ...one, payload: "x".repeat(100), payloadBytes: 100 }));
      storage.write({ append: entries.slice(0, 10) });
      for (const one of entries.slice(10)) storage.write({ append: [one] });
      expect(storage.readLog(1, 30, 1)).toEqual(entries.slice(0, 1));
      expect(storage.readLog(7, 30, 1000)).toEqual(entries.slice(6, 16));
      expect(storage.readLog(7, 30, 999)).toEqual(entries.slice(6, 15));
      expect(storage.readLog(12, 30, 250)).toEqual(entries.slice(11, 13));
    });
  });

  test("a read goes over more rows than one step looks at", async () => {
    await withStorage((storage) => {
      const entries = run(1, 700, 1);
      for (const one of entries) storage.write({ append: [one] });
      expect(readAll(storage)).toEqual(entries);
    });
  });

  test("truncation at, inside and before a row keeps exactly the entries below it", async () => {
    for (let from = 1; from <= 13; from += 1) {
      await withStorage((storage, state) => {
        storage.write({ append: run(1, 4, 1) });
        storage.write({ append: run(5, 8, 1) });
        storage.write({ append: run(9, 12, 1) });
        storage.write({ truncateFrom: from });
        const kept = run(1, from - 1, 1);
        expect(readAll(storage), `from ${from}`).toEqual(kept);
        const loaded = new SqliteStorage(state.storage).load();
        expect(loaded).toMatchObject({ lastIndex: from - 1, lastTerm: from === 1 ? 0 : 1 });
        storage.write({ append: run(from, from + 2, 4) });
        expect(readAll(storage)).toEqual([...kept, ...run(from, from + 2, 4)]);
      });
    }
  });

  test("truncation and append of one turn replace the tail", async () => {
    await withStorage((storage, state) => {
      storage.write({ append: run(1, 10, 1) });
      storage.write({ hardState: { term: 2, votedFor: null }, truncateFrom: 6, append: run(6, 7, 2) });
      const expected = [...run(1, 5, 1), ...run(6, 7, 2)];
      expect(readAll(storage)).toEqual(expected);
      expect(readAll(reloaded(state))).toEqual(expected);
    });
  });

  test("a batch larger than a row is split below the limit", async () => {
    await withStorage((storage, state) => {
      const payload = "é".repeat(TXN_BYTES_MAX / 2);
      const entries = [1, 2, 3].map((index) => entry(index, 1, payload));
      storage.write({ append: entries });
      const rows = state.storage.sql
        .exec<{ bytes: number }>("SELECT length(CAST(body AS BLOB)) AS bytes FROM log")
        .toArray();
      expect(rows).toHaveLength(3);
      for (const row of rows) expect(row.bytes).toBeLessThanOrEqual(LOG_ROW_BYTES_MAX);
      expect(readAll(reloaded(state))).toEqual(entries);
      const small = run(4, 2003, 1).map((one) => ({ ...one, payload: "y".repeat(1500), payloadBytes: 1500 }));
      storage.write({ append: small });
      expect(storage.readLog(4, 2003, ALL.bytesMax)).toEqual(small);
    });
  });

  test("an entry that cannot fit a row, a gap and a falling term are refused before anything is written", async () => {
    const bad: Entry[][] = [
      [entry(3, 1, "x".repeat(LOG_ROW_BYTES_MAX))],
      [entry(4, 1)],
      [entry(2, 1)],
      [entry(3, 0)],
      [entry(3, 1), entry(5, 1)],
    ];
    for (const entries of bad) {
      await withStorage((storage, state) => {
        storage.write({ append: run(1, 2, 1) });
        expect(() => storage.write({ append: entries })).toThrow();
        expect(() => storage.write({ append: run(3, 3, 1) })).toThrow(/failed write/);
        expect(readAll(reloaded(state))).toEqual(run(1, 2, 1));
      });
    }
  });

  test("payloads keep every character", async () => {
    await withStorage((storage, state) => {
      const payload = `"\\\n\r\t\u0000\u0001\u007f\u0080ÿ€\uffff😀{}[],`;
      storage.write({ append: [entry(1, 1, payload), entry(2, 1, "")] });
      expect(readAll(reloaded(state)).map((one) => one.payload)).toEqual([payload, ""]);
    });
  });
});

describe("state rows", () => {
  test("101 and more rows go in and out in one turn (S15)", async () => {
    await withStorage((storage) => {
      const rows = Array.from(
        { length: 1234 },
        (_, row) => [`k${String(row).padStart(5, "0")}`, `{"row":${row}}`] as const,
      );
      storage.write({ state: rows });
      expect(storage.scan({ start: "k", end: "l", limit: 5000 })).toEqual(rows);
      storage.write({ state: rows.slice(0, 1000).map(([key]) => [key, null] as const) });
      expect(storage.scan({ start: "k", end: "l", limit: 5000 })).toEqual(rows.slice(1000));
    });
  });

  test("keys of every byte but NUL keep byte order", async () => {
    await withStorage((storage) => {
      const keys: string[] = [];
      for (let byte = 1; byte < 256; byte += 1) {
        const char = String.fromCharCode(byte);
        keys.push(char, `a${char}`, `${char}z`, `é${char}\u00ff`);
      }
      keys.push("__proto__", "constructor", "0", "10", "9");
      storage.write({ state: keys.map((key) => [key, `value of ${key}`] as const) });
      const sorted = [...new Set(keys)].sort();
      const up = storage.scan({ start: "\u0001", end: "\u00ff\u00ff", limit: 10_000 });
      expect(up.map(([key]) => key)).toEqual(sorted);
      expect(up.every(([key, value]) => value === `value of ${key}`)).toBe(true);
      const down = storage.scan({ start: "\u0001", end: "\u00ff\u00ff", limit: 10_000, reverse: true });
      expect(down.map(([key]) => key)).toEqual(sorted.toReversed());
      for (const key of keys) expect(storage.get(key)).toBe(`value of ${key}`);
    });
  });

  test("values keep every character, in bulk and bound singly", async () => {
    await withStorage((storage) => {
      const small = `"\\\n\u0000\u0001\u007f\u0080ÿ€\uffff😀`;
      const large = small.repeat(20_000);
      storage.write({
        state: [
          ["small", small],
          ["large", large],
          ["empty", ""],
        ],
      });
      expect(storage.get("small")).toBe(small);
      expect(storage.get("large")).toBe(large);
      expect(storage.get("empty")).toBe("");
    });
  });

  test("rows near the limit go through; their sum may pass what one statement binds (S15)", async () => {
    await withStorage((storage) => {
      const largest = "€".repeat(Math.floor((LOG_ROW_BYTES_MAX - 100) / 3));
      const rows = Array.from({ length: 60 }, (_, row) => [`m${row}`, "é".repeat(60_000)] as const);
      storage.write({ state: [["largest", largest], ...rows] });
      expect(storage.get("largest")).toBe(largest);
      for (const [key, value] of rows) expect(storage.get(key)).toBe(value);
      expect(() => storage.write({ state: [["over", `${largest}${"x".repeat(200)}`]] })).toThrow(/fits/);
    });
  });

  test("of several changes of one key in a turn the last counts", async () => {
    await withStorage((storage) => {
      storage.write({
        state: [
          ["a", "1"],
          ["b", "1"],
          ["a", null],
          ["b", "2"],
          ["c", null],
          ["c", "3"],
        ],
      });
      expect(storage.scan({ start: "a", end: "z", limit: 10 })).toEqual([
        ["b", "2"],
        ["c", "3"],
      ]);
    });
  });

  test("a scan stops at its limit and does not pass its end", async () => {
    await withStorage((storage) => {
      storage.write({ state: ["a", "b", "c", "d"].map((key) => [key, key] as const) });
      expect(storage.scan({ start: "a", end: "d", limit: 2 })).toEqual([
        ["a", "a"],
        ["b", "b"],
      ]);
      expect(storage.scan({ start: "a", end: "d", limit: 2, reverse: true })).toEqual([
        ["c", "c"],
        ["b", "b"],
      ]);
      expect(storage.scan({ start: "a", end: "d", limit: Number.POSITIVE_INFINITY })).toHaveLength(3);
    });
  });
});

describe("corruption", () => {
  const damage: {
    readonly what: string;
    readonly sql: string;
    readonly row: RegExp;
    readonly read: (storage: SqliteStorage) => unknown;
  }[] = [
    {
      what: "a body of the last log row",
      sql: "UPDATE log SET body = replace(body, 'payload 6', 'payload 9') WHERE first_index = 5",
      row: /^log 5:/,
      read: (storage) => storage.load(),
    },
    {
      what: "a body of an earlier log row",
      sql: "UPDATE log SET body = replace(body, 'payload 2', 'payload 9') WHERE first_index = 1",
      row: /^log 1:/,
      read: readAll,
    },
    {
      what: "the last index of a log row",
      sql: "UPDATE log SET last_index = 7 WHERE first_index = 5",
      row: /^log 5:/,
      read: (storage) => storage.load(),
    },
    {
      what: "the first index of a log row",
      sql: "UPDATE log SET first_index = 6 WHERE first_index = 5",
      row: /^log 6:/,
      read: (storage) => storage.load(),
    },
    {
      what: "the term of a log row",
      sql: "UPDATE log SET last_term = 2 WHERE first_index = 5",
      row: /^log 5:/,
      read: (storage) => storage.load(),
    },
    {
      what: "the hard state",
      sql: "UPDATE meta SET value = '[1,2]' WHERE key = 'hard_state'",
      row: /^meta hard_state:/,
      read: (storage) => storage.load(),
    },
    {
      what: "the identity",
      sql: "UPDATE meta SET value = replace(value, '7', '8') WHERE key = 'identity'",
      row: /^meta identity:/,
      read: (storage) => storage.load(),
    },
    {
      what: "a meta row of another key",
      sql: "UPDATE meta SET key = 'halted' WHERE key = 'hard_state'",
      row: /^meta halted:/,
      read: (storage) => storage.load(),
    },
    {
      what: "a state value read singly",
      sql: "UPDATE state SET value = value || 'x' WHERE key = 'a'",
      row: /^state "a":/,
      read: (storage) => storage.get("a"),
    },
    {
      what: "a state value in a scan",
      sql: "UPDATE state SET value = '' WHERE key = 'b'",
      row: /^state "b":/,
      read: (storage) => storage.scan({ start: "a", end: "z", limit: 9 }),
    },
    {
      what: "a state value under another key",
      sql: "UPDATE state SET value = (SELECT value FROM state WHERE key = 'b') WHERE key = 'a'",
      row: /^state "a":/,
      read: (storage) => storage.get("a"),
    },
    {
      what: "a missing name of the table that is the state",
      sql: "DELETE FROM meta WHERE key = 'active_state'",
      row: /^meta active_state:/,
      read: (storage) => storage.load(),
    },
    {
      what: "a first log row that does not follow the base",
      sql: "DELETE FROM log WHERE first_index = 1",
      row: /^log 3: is the first entry/,
      read: (storage) => storage.load(),
    },
    { what: "a missing format row", sql: "DELETE FROM meta", row: /^meta format:/, read: (storage) => storage.load() },
    {
      what: "a missing log row",
      sql: "DELETE FROM log WHERE first_index = 3",
      row: /^log 5: stands where entry 3 is wanted/,
      read: readAll,
    },
    {
      what: "a missing log row at which a read begins",
      sql: "DELETE FROM log WHERE first_index = 3",
      row: /^log 5: stands where entry 3 is wanted/,
      read: (storage) => storage.readLog(3, 6, 1000),
    },
  ];

  for (const { what, sql, row, read } of damage) {
    test(`${what} is noticed and named`, async () => {
      await withStorage((storage, state) => {
        storage.write({
          identity: { incarnation: 7, membership: { kind: "empty" } },
          hardState: { term: 1, votedFor: 1 },
        });
        storage.write({ append: run(1, 2, 1) });
        storage.write({ append: run(3, 4, 1) });
        storage.write({
          append: run(5, 6, 1),
          state: [
            ["a", "1"],
            ["b", "2"],
          ],
        });
        state.storage.sql.exec(sql);
        expect(() => read(storage)).toThrow(CorruptionError);
        expect(() => read(storage)).toThrow(row);
      });
    });
  }

  test("a node that halted over a corrupt row can say so when it starts again", async () => {
    for (const key of ["hard_state", "identity", "format"]) {
      await withStorage((storage, state) => {
        storage.write({
          identity: { incarnation: 7, membership: { kind: "empty" } },
          hardState: { term: 1, votedFor: 1 },
        });
        state.storage.sql.exec("UPDATE meta SET value = value || ' ' WHERE key = ?", key);
        const restarted = new SqliteStorage(state.storage);
        expect(() => restarted.load()).toThrow(CorruptionError);
        restarted.write({ halted: `meta ${key} is corrupt` });
        const loaded = new SqliteStorage(state.storage).load();
        expect(loaded.halted).toBe(`meta ${key} is corrupt`);
        expect(loaded.identity?.incarnation).toBe(key === "identity" ? 0 : 7);
      });
    }
  });

  test("a later format version is not read", async () => {
    await withStorage((storage, state) => {
      storage.write({ fence: 1 });
      const disk = new FaultyDisk(state.storage);
      // The row is sound; only its version is unknown.
      state.storage.sql.exec("DELETE FROM meta");
      state.storage.sql.exec("INSERT INTO meta VALUES ('format', '3', ?)", metaChecksum("format", "3"));
      expect(() => new SqliteStorage(disk).load()).toThrow(/^meta format: version 3/);
    });
  });
});

describe("faults", () => {
  const batch: WriteBatch = {
    hardState: { term: 2, votedFor: 1 },
    truncateFrom: 3,
    append: run(3, 6, 2),
    fence: 4,
    state: [
      ["a", "new"],
      ["b", null],
      ["c", "x".repeat(100_000)],
      ["meta", "applied 6"],
    ],
  };

  test("a batch that fails before any of its statements leaves nothing behind, and the storage refuses to go on (S10)", async () => {
    const statements = await withFaults(Number.POSITIVE_INFINITY);
    expect(statements).toBeGreaterThan(6);
    for (let failBefore = 1; failBefore <= statements; failBefore += 1) await withFaults(failBefore);
  });

  async function withFaults(failBefore: number): Promise<number> {
    return await inObject((state) => {
      const disk = new FaultyDisk(state.storage);
      const storage = new SqliteStorage(disk);
      storage.load();
      storage.write({
        hardState: { term: 1, votedFor: null },
        append: run(1, 4, 1),
        state: [
          ["a", "old"],
          ["b", "old"],
        ],
      });
      const before = dump(state);
      disk.statements = [];
      disk.failBefore = failBefore;
      if (failBefore === Number.POSITIVE_INFINITY) {
        storage.write(batch);
        expect(dump(state)).not.toEqual(before);
        return disk.statements.length;
      }
      expect(() => storage.write(batch)).toThrow(InjectedFault);
      expect(dump(state), `before statement ${failBefore}`).toEqual(before);
      disk.failBefore = Number.POSITIVE_INFINITY;
      expect(() => storage.write({ fence: 1 })).toThrow(/failed write/);
      expect(() => storage.get("a")).toThrow(/failed write/);
      expect(() => storage.write({ halted: "why", fence: 1 })).toThrow(/failed write/);
      storage.write({ halted: "why" });
      expect(new SqliteStorage(state.storage).load().halted).toBe("why");
      return 0;
    });
  }
});

describe("durability", () => {
  test("afterSync calls back in a later turn, through the turn guard", async () => {
    await inObject(async (state) => {
      const events: string[] = [];
      const storage = new SqliteStorage(state.storage, (work) => {
        events.push("turn");
        work();
      });
      storage.load();
      storage.write({ fence: 1 });
      await new Promise<void>((resolve) => {
        storage.afterSync(() => {
          events.push("done");
          resolve();
        });
        events.push("asked");
      });
      expect(events).toEqual(["asked", "turn", "done"]);
    });
  });

  test("the size of the database is told", async () => {
    await withStorage((storage) => {
      const before = storage.bytes;
      storage.write({ state: [["a", "x".repeat(100_000)]] });
      expect(storage.bytes).toBeGreaterThan(before + 90_000);
    });
  });

  test("large values do not stand in the way of seeks: the index over keys holds no values", async () => {
    await withStorage((_storage, state) => {
      const plan = state.storage.sql.exec("EXPLAIN QUERY PLAN SELECT value FROM state WHERE key = ?", "a").toArray();
      expect(JSON.stringify(plan)).toContain("sqlite_autoindex_state_1");
    });
  });
});

function dump(state: DurableObjectState): unknown {
  return ["meta", "log", "state", "state_b", "before_images"].map((table) =>
    state.storage.sql.exec(`SELECT * FROM ${table}`).toArray(),
  );
}
