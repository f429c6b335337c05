/** The text of a backup: what goes in comes out, and whatever else comes in is refused (backup-format.ts F1..F5). */
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { ConcordError } from "../../src/base/errors.ts";
import { BACKUP_LINE_BYTES_MAX } from "../../src/base/limits.ts";
import { type BackupFault, type BackupManifest, openLine, sealLine } from "../../src/kv/backup-format.ts";
import { endOfBackup, openBackup, readBackup } from "../../src/kv/backup-reader.ts";
import { beginBackup, endBackup, writeBackupRows } from "../../src/kv/backup-writer.ts";
import { STATE_FORMAT } from "../../src/kv/state.ts";
import type { Row } from "../../src/kv/store.ts";

const MANIFEST: BackupManifest = {
  state_format: STATE_FORMAT,
  cluster_id: "c-\u00e9",
  index: 12,
  term: 3,
  revision: 9,
  compact_revision: 4,
  time_ms: 1_000_000,
};

function encode(rows: readonly Row[], manifest = MANIFEST, portion = rows.length): string {
  const writer = beginBackup(manifest);
  let text = "";
  for (let from = 0; from < rows.length; from += portion) {
    text += writeBackupRows(writer, rows.slice(from, from + portion));
  }
  return text + endBackup(writer);
}

function decode(pieces: Iterable<string>): { rows: Row[]; manifest: BackupManifest } {
  const reader = openBackup();
  const rows: Row[] = [];
  for (const piece of pieces) rows.push(...readBackup(reader, piece));
  return { rows, manifest: endOfBackup(reader) };
}

/** The reason for which a text is refused; null when it is taken. */
function refusal(pieces: Iterable<string>): BackupFault | null {
  try {
    decode(pieces);
    return null;
  } catch (error) {
    if (error instanceof ConcordError && error.code === "invalid_request") return error.reason as BackupFault;
    throw error;
  }
}

function* cut(text: string, sizes: readonly number[]): Generator<string> {
  for (let from = 0, turn = 0; from < text.length; turn += 1) {
    const size = sizes[turn % sizes.length] ?? 1;
    yield text.slice(from, from + size);
    from += size;
  }
}

function lines(text: string): string[] {
  return text.split("\n").slice(0, -1);
}

const joined = (all: readonly string[]): string => all.map((line) => `${line}\n`).join("");

/** The line with something changed and a seal that fits: what a forger, or another program, could send. */
function resealed(line: string, change: (object: Record<string, unknown>) => void): string {
  const object = JSON.parse(line);
  delete object.sum;
  change(object);
  return sealLine(JSON.stringify(object)).line;
}

/** Enough rows for several chunks, among them one over several lines. */
const MANY: Row[] = [
  ...Array.from({ length: 20 }, (_, at): Row => [`c${String(at).padStart(3, "0")}`, "v".repeat(40_000)]),
  ["k\u00ff", "x".repeat(600_000)],
  ["m", "{}"],
];

const text = fc.string({ unit: fc.oneof(fc.nat({ max: 0xffff }).map((code) => String.fromCharCode(code))) });
const someRows = fc
  .uniqueArray(fc.tuple(fc.string({ unit: "binary-ascii", minLength: 1 }), text), { selector: ([key]) => key })
  .map((rows): Row[] => rows.sort(([left], [right]) => (left < right ? -1 : 1)));

describe("what goes in comes out", () => {
  test("any text, lone surrogates and U+FFFD included, in pieces of any size, written in any portions", () => {
    const sizes = fc.array(fc.integer({ min: 1, max: 200 }), { minLength: 1, maxLength: 4 });
    void fc.assert(
      fc.property(someRows, sizes, fc.integer({ min: 1, max: 5 }), (rows, pieces, portion) => {
        const written = encode(rows);
        expect(written.isWellFormed()).toBe(true);
        expect(written).not.toContain("\ufffd");
        expect(encode(rows, MANIFEST, portion)).toBe(written);
        expect(decode(cut(written, pieces))).toEqual({ rows, manifest: MANIFEST });
        expect(decode(cut(written, [1]))).toEqual({ rows, manifest: MANIFEST });
        expect(decode(["", written, ""])).toEqual({ rows, manifest: MANIFEST });
      }),
    );
  });

  test.each([
    ["letters", "x"],
    ["escapes of six bytes", "\u0001"],
    ["quotation marks", '"'],
    ["three bytes", "\u20ac"],
    ["lone surrogates", "\ud83d"],
    ["pairs that a part may cut", "\ud83d\ude00"],
    ["what stands for damage", "\ufffd"],
  ])("a value of 1.4 million bytes of %s, over lines that keep to their bound", (_name, unit) => {
    const value = `j"${unit.repeat(1_400_000 / new TextEncoder().encode(unit).length)}"`;
    const rows: Row[] = [
      ["c1", "before"],
      ["r1", value],
      ["r2", value.slice(1)],
      ["r3", "behind"],
    ];
    const written = encode(rows);
    for (const line of lines(written)) {
      expect(new TextEncoder().encode(`${line}\n`).length).toBeLessThanOrEqual(BACKUP_LINE_BYTES_MAX);
    }
    expect(decode(cut(written, [100_001])).rows).toEqual(rows);
  });

  test("a state of many small rows fills its lines", () => {
    const rows = Array.from(
      { length: 20_000 },
      (_, at): Row => [`c${String(at).padStart(6, "0")}`, "[1,0,1,1,0,null]"],
    );
    const written = lines(encode(rows));
    expect(written.length).toBeLessThanOrEqual(4);
    expect(decode(cut(encode(rows), [65_536])).rows).toEqual(rows);
  });

  test("no rows at all", () => {
    expect(decode([encode([])])).toEqual({ rows: [], manifest: MANIFEST });
  });

  test("the first line says what the backup is", () => {
    expect(JSON.parse(lines(encode(MANY))[0] ?? "")).toMatchObject({ concord_backup: 1, ...MANIFEST });
  });

  test("rows come before the end is known, and say nothing until then", () => {
    const reader = openBackup();
    const all = lines(encode(MANY));
    const early = readBackup(reader, joined(all.slice(0, 3)));
    expect(early.length).toBeGreaterThan(5);
    expect(() => endOfBackup(reader)).toThrow("ends early");
    expect(readBackup(reader, joined(all.slice(3))).length + early.length).toBe(MANY.length);
    expect(endOfBackup(reader)).toEqual(MANIFEST);
  });
});

describe("what is not whole and unchanged is refused", () => {
  const written = encode(MANY);
  const all = lines(written);
  const small: Row[] = [
    ["c1", '[1,"\u00e9"]'],
    ["r1", "\u20ac\ufffd\ud800"],
  ];

  test("any one byte changed into any other", () => {
    const bytes = new TextEncoder().encode(encode(small));
    for (let position = 0; position < bytes.length; position += 1) {
      for (const flip of [0x01, 0x02, 0x20, 0x80, 0xff, (bytes[position] ?? 0) ^ 0x0a]) {
        const damaged = bytes.slice();
        damaged[position] = (damaged[position] ?? 0) ^ flip;
        if (damaged[position] === bytes[position]) continue;
        const read = new TextDecoder("utf-8", { ignoreBOM: true }).decode(damaged);
        expect(refusal([read]), `byte ${position} ^ ${flip}`).not.toBeNull();
      }
    }
  });

  test("any one byte left out or doubled", () => {
    const whole = encode(small);
    for (let position = 0; position < whole.length; position += 1) {
      const [head, tail] = [whole.slice(0, position), whole.slice(position)];
      expect(refusal([head + tail.slice(1)])).not.toBeNull();
      expect(refusal([`${head}${tail.charAt(0)}${tail}`])).not.toBeNull();
    }
  });

  test("an end that comes early, wherever", () => {
    const whole = encode(small);
    for (let length = 0; length < whole.length; length += 1) {
      expect(refusal([whole.slice(0, length)])).toBe("backup_truncated");
    }
    for (let count = 0; count < all.length; count += 1) {
      expect(refusal([joined(all.slice(0, count))])).toBe("backup_truncated");
    }
  });

  test("a line left out, doubled, or in another place", () => {
    for (let at = 1; at < all.length; at += 1) {
      if (at < all.length - 1) expect(refusal([joined(all.toSpliced(at, 1))])).toBe("backup_order");
      const doubled = refusal([joined(all.toSpliced(at, 0, all[at] ?? ""))]);
      expect(doubled).toBe(at === all.length - 1 ? "backup_trailing" : "backup_order");
      if (at > 1) {
        const swapped = all.toSpliced(at - 1, 2, all[at] ?? "", all[at - 1] ?? "");
        expect(refusal([joined(swapped)])).toBe("backup_order");
      }
    }
  });

  test("a line of another backup, even in its place", () => {
    const other = lines(encode(MANY, { ...MANIFEST, cluster_id: "other" }));
    for (let at = 0; at < all.length; at += 1) {
      expect(refusal([joined(all.toSpliced(at, 1, other[at] ?? ""))])).toBe("backup_order");
    }
  });

  test("anything behind the end", () => {
    for (const more of ["\n", " ", "x", "{}\n", written]) expect(refusal([written, more])).toBe("backup_trailing");
    expect(refusal([`${written}\n`])).toBe("backup_trailing");
  });

  test("a text that is something else", () => {
    expect(refusal(["hello\n"])).toBe("not_a_backup");
    expect(refusal([`\ufeff${written}`])).toBe("not_a_backup");
    expect(refusal(["x".repeat(BACKUP_LINE_BYTES_MAX)])).toBe("not_a_backup");
    expect(refusal([""])).toBe("backup_truncated");
  });

  test("another version of the format or of the rows, whatever its lines look like", () => {
    expect(refusal(['{"concord_backup":2,"seal":"of another kind"}\n'])).toBe("backup_version");
    const newer = lines(encode(small, { ...MANIFEST, state_format: STATE_FORMAT + 1 }));
    expect(refusal([joined(newer)])).toBe("backup_version");
  });

  test("a line that never ends is not held", () => {
    const reader = openBackup();
    readBackup(reader, `${all[0]}\n`);
    const endless = () => {
      for (let turn = 0; turn < 10; turn += 1) readBackup(reader, "x".repeat(100_000));
    };
    expect(endless).toThrow("longer than");
    expect(reader.pendingCharacters).toBeLessThanOrEqual(BACKUP_LINE_BYTES_MAX + 100_000);
  });

  test("a refused backup cannot be gone on with", () => {
    const reader = openBackup();
    expect(() => readBackup(reader, "hello\n")).toThrow("not_a_backup");
    expect(() => readBackup(reader, written)).toThrow("has been refused");
    expect(() => endOfBackup(reader)).toThrow("has been refused");
  });
});

describe("a whole seal does not make a line good", () => {
  const all = lines(encode(MANY));

  /** The backup with one line changed and sealed anew. */
  function forged(at: number, change: (object: Record<string, unknown>) => void): BackupFault | null {
    return refusal([joined(all.toSpliced(at, 1, resealed(all.at(at) ?? "", change)))]);
  }

  test.each<[string, (object: Record<string, unknown>) => void, BackupFault]>([
    ["rows that are no pairs", (chunk) => (chunk.data as unknown[]).pop(), "backup_damaged"],
    ["no rows", (chunk) => Object.assign(chunk, { data: [] }), "backup_damaged"],
    ["rows that are no list", (chunk) => Object.assign(chunk, { data: { length: 2 } }), "backup_damaged"],
    ["a value that is no text", (chunk) => Object.assign(chunk.data as unknown[], { 1: 7 }), "backup_damaged"],
    ["a row out of order", (chunk) => Object.assign(chunk.data as unknown[], { 2: "a" }), "backup_rows"],
    ["an empty key", (chunk) => Object.assign(chunk.data as unknown[], { 0: "" }), "backup_rows"],
    ["another count", (chunk) => Object.assign(chunk, { rows: 1 }), "backup_rows"],
    ["another number", (chunk) => Object.assign(chunk, { chunk: 2 }), "backup_order"],
    ["no number", (chunk) => delete chunk.chunk, "backup_order"],
    ["another line before it", (chunk) => Object.assign(chunk, { after: "0".repeat(14) }), "backup_order"],
    ["a part of a row where rows are", (chunk) => Object.assign(chunk, { large: "last" }), "backup_damaged"],
  ])("%s", (_name, change, fault) => {
    expect(forged(1, change)).toBe(fault);
  });

  test("a row over several lines that does not fit together, has no end, or is too long", () => {
    const first = all.findIndex((line) => line.includes('"large":"more"'));
    const data = (object: Record<string, unknown>) => object.data as unknown[];
    expect(forged(first, (chunk) => Object.assign(data(chunk), { 1: 5 }))).toBe("backup_damaged");
    expect(forged(first, (chunk) => Object.assign(chunk, { large: "all" }))).toBe("backup_damaged");
    expect(forged(first, (chunk) => data(chunk).push(1))).toBe("backup_damaged");
    expect(forged(first + 1, (chunk) => Object.assign(data(chunk), { 0: "other" }))).toBe("backup_damaged");

    const head = { chunk: 1, rows: 0, large: "more" };
    let [after, chunks] = [JSON.parse(all[0] ?? "").sum as string, 0];
    const line = (object: object) => {
      const sealed = sealLine(JSON.stringify({ ...object, after }));
      after = sealed.sum;
      return `${sealed.line}\n`;
    };
    const open = `${all[0]}\n${line({ ...head, data: ["r", 0, "x"] })}`;
    const afterOpen = after;
    expect(refusal([open, line({ chunk: 2, rows: 1, data: ["s", "x"] })])).toBe("backup_damaged");
    after = afterOpen;
    expect(refusal([open, line({ end: 2, rows: 0, set_hash: "0".repeat(14) })])).toBe("backup_damaged");
    after = JSON.parse(all[0] ?? "").sum;
    const endless = function* () {
      yield `${all[0]}\n`;
      for (let from = 0; chunks < 20; from += 400_000) {
        chunks += 1;
        yield line({ ...head, chunk: chunks, data: ["r", from, "x".repeat(400_000)] });
      }
    };
    expect(refusal(endless())).toBe("backup_damaged");
    expect(chunks).toBeLessThan(7);
  });

  test("a trailer that tells of other rows", () => {
    expect(forged(-1, (trailer) => Object.assign(trailer, { rows: 1 }))).toBe("backup_rows");
    expect(forged(-1, (trailer) => Object.assign(trailer, { set_hash: "0".repeat(14) }))).toBe("backup_rows");
    expect(forged(-1, (trailer) => Object.assign(trailer, { end: 1 }))).toBe("backup_order");
  });

  test("a manifest with a field too few, too many, or of another kind", () => {
    expect(forged(0, (manifest) => delete manifest.term)).toBe("backup_damaged");
    expect(forged(0, (manifest) => Object.assign(manifest, { more: 1 }))).toBe("backup_damaged");
    expect(forged(0, (manifest) => Object.assign(manifest, { index: -1 }))).toBe("backup_damaged");
    expect(forged(0, (manifest) => Object.assign(manifest, { cluster_id: null }))).toBe("backup_damaged");
  });

  test("a seal over what is no object", () => {
    for (const body of ["[]", "x}", "{,}", "null"]) {
      const { line } = sealLine(body);
      expect(refusal([`${all[0]}\n${line}\n`])).toBe("backup_damaged");
    }
    expect(openLine("")).toBeNull();
    expect(openLine("}")).toBeNull();
  });
});

test("rows that are out of order, or too long, are a fault of ours", () => {
  const writer = beginBackup(MANIFEST);
  writeBackupRows(writer, [["b", ""]]);
  expect(() => writeBackupRows(writer, [["a", ""]])).toThrow("comes behind");
  expect(() => writeBackupRows(writer, [["c", "x".repeat(2_000_000)]])).toThrow("longer than a row may be");
});
