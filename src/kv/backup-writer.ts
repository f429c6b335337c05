/**
 * Writing a backup (backup-format.ts): rows in, text out, in any portions. Holds at most one line.
 */
import { assert } from "../base/assert.ts";
import { utf8Length } from "../base/bytes.ts";
import { hashDigits, hashIn } from "../base/hash.ts";
import { BACKUP_LINE_BYTES_MAX, LOG_ROW_BYTES_MAX } from "../base/limits.ts";
import {
  BACKUP_FORMAT,
  type BackupManifest,
  type ChunkLine,
  lineText,
  rowHash,
  SEAL_CHARACTERS,
  sealLine,
  type TrailerLine,
} from "./backup-format.ts";
import type { Row } from "./store.ts";

export interface BackupWriter {
  /** Finished lines that nobody has taken yet. */
  text: string;
  /** Sum of the last finished line. */
  after: string;
  chunks: number;
  /** Rows in finished lines. */
  rows: number;
  setHash: number;
  lastKey: string;
  /** Texts of the keys and values of the line that is being filled, and what they will take there. */
  items: string[];
  itemsBytes: number;
}

/** Names, numbers, brackets and seal of a chunk: far less, but nothing is won by an exact count. */
const CHUNK_FRAME_BYTES = 256;
const ITEMS_BYTES_MAX = BACKUP_LINE_BYTES_MAX - CHUNK_FRAME_BYTES;

/** A part of a row that is too long for one line: a character is at most six bytes, as an escape. */
const PART_CHARACTERS = 1 << 16;
/** A key is at most 4096 bytes, each of them two characters in a row key; some tables put two of them into one. */
const ROW_KEY_TEXT_BYTES_MAX = 100_000;
assert(SEAL_CHARACTERS + 150 < CHUNK_FRAME_BYTES, "the frame of a chunk holds its numbers and its seal");
assert(6 * PART_CHARACTERS + ROW_KEY_TEXT_BYTES_MAX < ITEMS_BYTES_MAX, "a part of a row and its key fit a line");

export function beginBackup(manifest: BackupManifest): BackupWriter {
  const { line, sum } = sealLine(lineText({ concord_backup: BACKUP_FORMAT, ...manifest }));
  return {
    text: `${line}\n`,
    after: sum,
    chunks: 0,
    rows: 0,
    setHash: 0,
    lastKey: "",
    items: [],
    itemsBytes: 0,
  };
}

/** Takes rows in the order of their keys, and answers the text that is finished with them; it may be empty. */
export function writeBackupRows(writer: BackupWriter, rows: readonly Row[]): string {
  for (const [key, value] of rows) writeRow(writer, key, value);
  return takeText(writer);
}

/** The rest of the text. Without it, what was written is no backup. */
export function endBackup(writer: BackupWriter): string {
  endChunk(writer);
  const trailer: TrailerLine = {
    end: writer.chunks + 1,
    after: writer.after,
    rows: writer.rows,
    set_hash: hashDigits(writer.setHash),
  };
  writer.text += `${sealLine(lineText(trailer)).line}\n`;
  return takeText(writer);
}

function writeRow(writer: BackupWriter, key: string, value: string): void {
  assert(key > writer.lastKey, `row ${JSON.stringify(key)} comes behind ${JSON.stringify(writer.lastKey)}`);
  assert(key.length + value.length <= LOG_ROW_BYTES_MAX, `row ${JSON.stringify(key)} is longer than a row may be`);
  writer.lastKey = key;
  writer.setHash = hashIn(writer.setHash, rowHash(key, value));
  const keyText = lineText(key);
  // A long value is cut before it is made into text: as escapes it may take six times the room.
  const valueText = value.length <= ITEMS_BYTES_MAX ? lineText(value) : null;
  const bytes = valueText === null ? Number.POSITIVE_INFINITY : utf8Length(keyText) + utf8Length(valueText) + 2;
  if (valueText === null || bytes > ITEMS_BYTES_MAX) {
    writeLarge(writer, key, value);
    return;
  }
  if (writer.itemsBytes + bytes > ITEMS_BYTES_MAX) endChunk(writer);
  writer.items.push(keyText, valueText);
  writer.itemsBytes += bytes;
}

function writeLarge(writer: BackupWriter, key: string, value: string): void {
  endChunk(writer);
  for (let from = 0; from < value.length; from += PART_CHARACTERS) {
    const last = from + PART_CHARACTERS >= value.length;
    if (last) writer.rows += 1;
    const data = [key, from, value.slice(from, from + PART_CHARACTERS)];
    writeChunk(writer, lineText(data), last ? "last" : "more");
  }
}

function endChunk(writer: BackupWriter): void {
  if (writer.items.length === 0) return;
  writer.rows += writer.items.length / 2;
  writeChunk(writer, `[${writer.items.join(",")}]`, undefined);
  writer.items = [];
  writer.itemsBytes = 0;
}

function writeChunk(writer: BackupWriter, data: string, large: ChunkLine["large"]): void {
  writer.chunks += 1;
  const head = `{"chunk":${writer.chunks},"after":"${writer.after}","rows":${writer.rows},"data":${data}`;
  const { line, sum } = sealLine(large === undefined ? `${head}}` : `${head},"large":"${large}"}`);
  writer.text += `${line}\n`;
  writer.after = sum;
}

function takeText(writer: BackupWriter): string {
  const { text } = writer;
  writer.text = "";
  return text;
}
