/** Rows from elsewhere: states of ours pass, whatever they went through, and everything else is named and refused. */
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { ConcordError } from "../../src/base/errors.ts";
import { MemoryStore } from "../../src/kv/memory-store.ts";
import { beginRowCheck, checkRows, endRowCheck } from "../../src/kv/row-check.ts";
import { readMeta } from "../../src/kv/state.ts";
import type { Row } from "../../src/kv/store.ts";
import { steps } from "./arbitraries.ts";
import { checkedRows } from "./backups.ts";
import { Harness, okResult, put } from "./harness.ts";

/** Why the rows are refused; null when they are a state. */
function fault(rows: readonly Row[]): string | null {
  try {
    checkedRows(rows);
    return null;
  } catch (error) {
    if (error instanceof ConcordError && error.reason === "invalid_rows") return error.body.detail;
    throw error;
  }
}

/** Rows in every table, with history that is compacted in part. */
function everyTable(): Harness {
  const h = new Harness();
  h.put("\u0000a\u0001", { n: 1 }, { content_type: "text/x", metadata: { m: "\ud800" } });
  h.put("b", "\ud800\u20ac");
  h.put("b", 2, { due_at_ms: 7 });
  h.put("gone", 1);
  h.delete("gone");
  okResult(h.apply({ kind: "compact", revision: 4 }));
  okResult(h.apply({ kind: "compact_remove", rows_max: 2 }));
  const lease = h.grant(30);
  h.grant(40, { id: 2 ** 50 });
  h.do(put("l1", 1, { lease }), put("l2", { base64: "AQI=" } as never, { lease, ttl: undefined as never }));
  h.put("ttl", 1, { ttl: 5 });
  h.put("blob", null, { value: { base64: "AQI=" } });
  h.run({ success: [put("n", 1)] }, { scope: "s\u0001", key: "K", hash: "h", since: 0 });
  h.txn({ success: [put("n", 1, { lease: 99 })] }, { scope: "s", key: "L", hash: "h", since: 0 });
  for (let turn = 0; turn < 1000; turn += 1) h.put("many", turn);
  return h;
}

const ROWS = everyTable().store.rows();
const TABLES = [...new Set(ROWS.map(([row]) => row.charAt(0)))].join("");

function changed(table: string, change: (row: Row) => Row | null, which = 0): Row[] {
  const at = ROWS.findIndex(([row]) => row.startsWith(table)) + which;
  const row = ROWS[at];
  if (row === undefined) throw new Error(`no row ${which} of ${table}`);
  const next = change(row);
  return next === null ? ROWS.toSpliced(at, 1) : ROWS.toSpliced(at, 1, next);
}

const text =
  (make: (text: string) => string) =>
  (row: Row): Row => [row[0], make(row[1])];
const key =
  (make: (key: string) => string) =>
  (row: Row): Row => [make(row[0]), row[1]];

describe("states of ours pass", () => {
  test("with rows in every table, in any portions", () => {
    expect(TABLES).toBe("acdehiklmor");
    const check = beginRowCheck();
    for (const row of ROWS) checkRows(check, [row]);
    const store = new MemoryStore();
    for (const [row, value] of ROWS) store.put(row, value);
    expect(endRowCheck(check)).toEqual(readMeta(store));
  });

  test("after random commands", () => {
    void fc.assert(
      fc.property(steps, (sequence) => {
        const h = new Harness();
        for (const { command, idempotency, elapsedMs } of sequence) {
          h.timeMs += elapsedMs;
          if (command !== null) h.apply(command, idempotency ?? undefined);
        }
        if (h.store.size > 0) expect(fault(h.store.rows())).toBeNull();
      }),
      { numRuns: 300 },
    );
  });
});

describe("a row of the wrong shape is refused at once", () => {
  const ROW = "is no row of a state";

  test.each<[string, Row]>([
    ["no key", ["", ""]],
    ["an unknown table", ["z1", ""]],
    ["another row beside the position", ["m2", "{}"]],
    ["NUL in the key", ["c\u0000", "[1,0,1,1,0,null]"]],
    ["a key beyond bytes", ["c\u0100", "[1,0,1,1,0,null]"]],
    ["a text beyond a row", ["cx", "x".repeat(2_000_000)]],
    ["a text with a lone surrogate", ["cx", "\ud800"]],
    ["a user key that is empty", ["c", "[1,0,1,1,0,null]"]],
    ["a user key that is too long", [`c${"x".repeat(5000)}`, "[1,0,1,1,0,null]"]],
    ["an escape that is none", ["c\u0002", "[1,0,1,1,0,null]"]],
    ["another escape for the same key", ["c\u0002a", "[1,0,1,1,0,null]"]],
    ["a current row that is no JSON", ["cx", "[1,0,"]],
    ["a current row that is no list", ["cx", '{"0":1}']],
    ["a current row with too few numbers", ["cx", "[1,0,1,1,0]"]],
    ["a current row with too many numbers", ["cx", "[1,0,1,1,0,null,1]"]],
    ["a current row with a text", ["cx", '["1",0,1,1,0,null]']],
    ["a current row with a negative number", ["cx", "[1,-1,1,1,0,null]"]],
    ["a current row with a fraction", ["cx", "[1,0.5,1,1,0,null]"]],
    ["a current row with spaces", ["cx", "[1, 0,1,1,0,null]"]],
    ["a record written before it was created", ["cx", "[1,0,2,1,0,null]"]],
    ["a record that was never written", ["cx", "[1,0,1,0,0,null]"]],
    ["an attachment with a text", ["a0000000000000001k", "x"]],
    ["an attachment without digits", ["a1k", ""]],
    ["a due entry beyond safe integers", ["d9999999999999999k", ""]],
    ["a due entry with a text", ["d0000000000000001k", "1"]],
    ["an expiry that is short", ["e00000000000000010000000000000001x", ""]],
    ["a mark of other things", ["h0000000000000001", '["1",2]']],
    ["a mark with more", ["h0000000000000001", "[1,2,3]"]],
    ["a mark of deep things", ["h0000000000000001", `${"[".repeat(100_000)}${"]".repeat(100_000)}`]],
    ["a result without a scope", ["ix", 'h\n{"ok":true,"revision":1,"result":{}}']],
    ["a result of three parts", ["ix\u0001y\u0001z", 'h\n{"ok":true,"revision":1,"result":{}}']],
    ["a result without a hash", ["ix\u0001y", '\n{"ok":true,"revision":1,"result":{}}']],
    ["a result without an outcome", ["ix\u0001y", "h\nnull"]],
    ["an outcome without a result", ["ix\u0001y", 'h\n{"ok":true,"revision":1}']],
    ["an outcome without an error", ["ix\u0001y", 'h\n{"ok":false,"revision":1,"result":{}}']],
    ["an outcome of no revision", ["ix\u0001y", 'h\n{"ok":true,"revision":-1,"result":{}}']],
    ["a version of neither kind", ["kx\u0001000000000000000100000", "x"]],
    ["a version without a position", ["kx", "p"]],
    ["a version with a short position", ["kx\u000110", "p"]],
    ["a lease without an end", ["l0000000000000001", "[0,1,0,0,{}]"]],
    ["a lease of no id", ["l0000000000000000", "[1,1,0,0,{}]"]],
    ["a lease with metadata of another kind", ["l0000000000000001", "[1,1,0,0,[]]"]],
    ["a lease of neither kind", ["l0000000000000001", "[1,1,2,0,{}]"]],
    ["an anonymous lease of two keys", ["l0000000000000001", "[1,1,1,2,{}]"]],
    ["an order row of other things", ["o0000000000000001", '[1,"x",1,1]']],
    ["an order row with more", ["o0000000000000001", '["ix",1,1,1,1]']],
    ["a change of neither kind", ["r000000000000000100000", "x[]"]],
    ["a change without a text", ["r000000000000000100000", ""]],
    ["a change with a short position", ["r1", 'd["x"]']],
    ["a put without a value", ["r000000000000000100000", 'p["x",1,1,0,null,null,{}]']],
    ["a put of no kind of value", ["r000000000000000100000", 'p["x",1,1,0,null,null,{}]\nx1']],
    ["a put of broken JSON", ["r000000000000000100000", 'p["x",1,1,0,null,null,{}]\nj{']],
    ["a put of broken bytes", ["r000000000000000100000", 'p["x",1,1,0,null,null,{}]\nb!']],
    ["a put of spaced JSON", ["r000000000000000100000", 'p["x",1,1,0,null,null,{}]\nj[1, 2]']],
    [
      "a put of deep JSON",
      ["r000000000000000100000", `p["x",1,1,0,null,null,{}]\nj${"[".repeat(500_000)}${"]".repeat(500_000)}`],
    ],
    ["a put of too large a value", ["r000000000000000100000", `p["x",1,1,0,null,null,{}]\nj"${"x".repeat(1 << 20)}"`]],
    ["a put with a text for a number", ["r000000000000000100000", 'p["x","1",1,0,null,null,{}]\nj1']],
    ["a put with a number for a text", ["r000000000000000100000", 'p["x",1,1,0,null,7,{}]\nj1']],
    ["a put with metadata of another kind", ["r000000000000000100000", 'p["x",1,1,0,null,null,null]\nj1']],
    ["a put of no key", ["r000000000000000100000", "p[1,1,1,0,null,null,{}]\nj1"]],
    ["a put with more", ["r000000000000000100000", 'p["x",1,1,0,null,null,{},1]\nj1']],
    ["a delete with more", ["r000000000000000100000", 'd["x",1]']],
    ["a delete of an empty key", ["r000000000000000100000", 'd[""]']],
  ])("%s", (_name, row) => {
    expect(() => checkRows(beginRowCheck(), [row])).toThrow(row[0] === "" ? "comes behind" : ROW);
  });

  test.each<[string, (meta: Record<string, unknown>) => unknown]>([
    ["another format", (meta) => ({ ...meta, format: 9 })],
    ["a counter too few", ({ idemHead: _, ...meta }) => meta],
    ["a counter too many", (meta) => ({ ...meta, more: 1 })],
    ["a counter that is none", (meta) => ({ ...meta, digest: "1" })],
    ["a counter that is deep", (meta) => ({ ...meta, digest: [[]] })],
    ["no counters", () => null],
    ["a list", () => []],
  ])("a position with %s", (_name, change) => {
    const meta = ROWS.find(([row]) => row === "m")?.[1] ?? "";
    expect(() => checkRows(beginRowCheck(), [["m", JSON.stringify(change(JSON.parse(meta)))]])).toThrow(ROW);
    expect(() => checkRows(beginRowCheck(), [["m", ` ${meta}`]])).toThrow(ROW);
  });

  test("a row out of order, or twice", () => {
    expect(fault([...ROWS, ...ROWS.slice(-1)])).toContain("comes behind");
    expect(fault(ROWS.toSpliced(0, 2, ...ROWS.slice(0, 2).toReversed()))).toContain("comes behind");
  });
});

describe("rows that do not make a state together are refused", () => {
  test("any one row left out", () => {
    for (let at = 0; at < ROWS.length; at += at > 20 && at < ROWS.length - 20 ? 97 : 1) {
      expect(fault(ROWS.toSpliced(at, 1)), `without ${JSON.stringify(ROWS[at]?.[0])}`).not.toBeNull();
    }
    for (const table of TABLES) expect(fault(changed(table, () => null)), table).not.toBeNull();
    for (const table of TABLES) expect(fault(ROWS.filter(([row]) => !row.startsWith(table))), table).not.toBeNull();
    expect(fault([])).toContain("position is missing");
  });

  test.each<[string, Row[], string]>([
    [
      "a record under another lease",
      changed(
        "c",
        text((t) => t.replace(/,0,null\]$/, ",1,null]")),
      ),
      "attached to leases",
    ],
    [
      "a record of another version",
      changed(
        "c",
        text((t) => t.replace("[1,0", "[1,1")),
      ),
      "newest versions",
    ],
    [
      "a record due at another time",
      changed(
        "cb",
        text((t) => t.replace("7]", "8]")),
      ),
      "due index",
    ],
    [
      "a key attached to another lease",
      changed(
        "a",
        key((k) => k.replace("1l", "0l")),
      ),
      "attached",
    ],
    [
      "a lease that counts other keys",
      changed(
        "l",
        text((t) => t.replace(",0,2,", ",0,3,")),
      ),
      "counts of keys",
    ],
    [
      "a lease with another expiry",
      changed(
        "l",
        text((t) => t.replace("1030000", "1030001")),
      ),
      "order of their expiry",
    ],
    [
      "a version of another kind",
      changed(
        "kmany",
        text(() => "d"),
      ),
      "index of versions",
    ],
    [
      "a result of another text",
      changed(
        "i",
        text((t) => `x${t}`),
      ),
      "order of their eviction",
    ],
    [
      "a value that is longer",
      changed(
        "r",
        text((t) => t.replace(/\n.*$/s, '\nj"longer than before"')),
      ),
      "logical bytes",
    ],
    [
      "a result from the future",
      changed(
        "o",
        text((t) => t.replace(/,\d+,1000000,/, ",5000,1000000,")),
      ),
      "revision before",
    ],
    [
      "a result of a later time",
      changed(
        "o",
        text((t) => t.replace(",1000000,", ",2000000,")),
      ),
      "time of a result",
    ],
  ])("%s", (_name, rows, reason) => {
    expect(rows).not.toEqual(ROWS);
    expect(fault(rows)).toContain(reason);
  });

  test.each<[string, object, string]>([
    ["a higher revision", { revision: 5000 }, "last revision"],
    ["a lower revision", { revision: 900, markRevision: 800 }, "revision of a change"],
    ["compacted above its revision", { compactRevision: 5000 }, "compacted revision"],
    ["removed above what is compacted", { removedRevision: 500 }, "removed revision"],
    ["removal further than it is", { removedRevision: 4 }, "(3, 0) has overwritten has been removed"],
    ["a removed op index that is none", { removedOpIndex: 100_000 }, "removed op index"],
    ["more leases", { leasesCount: 9 }, "leases"],
    ["a counter of leases that lags", { leaseCounter: 0 }, "ids of leases"],
    ["fewer results", { idemHead: 2 }, "idempotency result"],
    ["more results", { idemNext: 9 }, "idempotency results"],
    ["results that end before they begin", { idemNext: 0 }, "first idempotency result"],
    ["other bytes of results", { idemBytes: 1 }, "bytes of idempotency results"],
    ["a floor from the future", { idemFloor: 5000 }, "idempotency floor"],
    ["other logical bytes", { logicalBytes: 1 }, "logical bytes"],
    ["less history than there is", { historyBytes: 1, markBytes: 1 }, "changes that are left"],
    ["another mark", { markRevision: 1 }, "newest history mark"],
    ["a mark from the future", { markRevision: 5000 }, "marked revision"],
    ["a mark of more than there was", { markBytes: 2 ** 50 }, "marked bytes"],
  ])("a position with %s", (_name, change, reason) => {
    const rows = changed(
      "m",
      text((meta) => JSON.stringify({ ...JSON.parse(meta), ...change })),
    );
    expect(fault(rows)).toContain(reason);
  });

  test("changes that are missing behind the compacted revision, with all that names them", () => {
    const h = new Harness();
    for (const name of ["a", "b", "c"]) h.put(name, 1);
    const ofB = (row: string) => /^[ck]b/.test(row) || row === "r000000000000000200000";
    const rows = h.store.rows().filter(([row]) => !ofB(row));
    expect(fault(rows)).toContain("changes are missing between (1, 0) and (3, 0)");
  });

  test("a delete that removal has passed", () => {
    const h = new Harness();
    h.put("a", 1);
    h.delete("a");
    okResult(h.apply({ kind: "compact", revision: 2 }));
    const removed = (value: string) => value.replace('"removedRevision":0', '"removedRevision":2');
    const rows = h.store.rows().map(([row, value]): Row => [row, row === "m" ? removed(value) : value]);
    expect(fault(rows)).toContain("what (2, 0) has overwritten has been removed");
    const left = rows.filter(([row]) => !row.endsWith("000000000000000100000"));
    expect(fault(left)).toContain("the delete at (2, 0) has been removed");
  });
});
