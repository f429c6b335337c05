/**
 * Reading a backup (backup-format.ts): text in, in pieces of any size, rows out. Holds at most one line and one row.
 *
 * Nothing in the text is trusted. Every refusal is a ConcordError `invalid_request` with a reason of its own
 * (`BackupFault`); the reader cannot be used behind it.
 *
 * The rows come as they are read, before it is known that there is an end: **they count for nothing until
 * `endOfBackup` has answered**. Whoever stores them on the way keeps them apart from everything in use until then.
 */
import { assert } from "../base/assert.ts";
import { hashDigits, hashIn } from "../base/hash.ts";
import { BACKUP_LINE_BYTES_MAX, LOG_ROW_BYTES_MAX } from "../base/limits.ts";
import {
  BACKUP_FORMAT,
  type BackupManifest,
  type ChunkLine,
  openLine,
  refuseBackup,
  rowHash,
  type TrailerLine,
} from "./backup-format.ts";
import { rowName } from "./rows.ts";
import { STATE_FORMAT } from "./state.ts";
import type { Row } from "./store.ts";
import { isCounter } from "./validate-parts.ts";

export interface BackupReader {
  /** Pieces of the line that has not ended yet. */
  pending: string[];
  pendingCharacters: number;
  /** Null before the first line. */
  manifest: BackupManifest | null;
  complete: boolean;
  refused: boolean;
  /** Sum of the last line. */
  after: string;
  chunks: number;
  rows: number;
  setHash: number;
  lastKey: string;
  large: LargeRow | null;
}

/** A row of which more is to come. */
interface LargeRow {
  readonly key: string;
  readonly parts: string[];
  characters: number;
}

export function openBackup(): BackupReader {
  return {
    pending: [],
    pendingCharacters: 0,
    manifest: null,
    complete: false,
    refused: false,
    after: "",
    chunks: 0,
    rows: 0,
    setHash: 0,
    lastKey: "",
    large: null,
  };
}

/**
 * Takes the next piece and answers the rows that end in it, in the order of their keys.
 * @throws ConcordError `invalid_request`
 */
export function readBackup(reader: BackupReader, piece: string): Row[] {
  assert(!reader.refused, "this backup has been refused");
  // Until this call ends well, whatever ends it has refused the backup.
  reader.refused = true;
  const rows: Row[] = [];
  let from = 0;
  for (let end = piece.indexOf("\n"); end >= 0; end = piece.indexOf("\n", from)) {
    holdText(reader, piece.slice(from, end));
    takeLine(reader, reader.pending.join(""), rows);
    reader.pending = [];
    reader.pendingCharacters = 0;
    from = end + 1;
  }
  if (from < piece.length) holdText(reader, piece.slice(from));
  reader.refused = false;
  return rows;
}

/**
 * Says that the backup is whole and unchanged, and what it says of itself.
 * @throws ConcordError `invalid_request`: it ended too early
 */
export function endOfBackup(reader: BackupReader): BackupManifest {
  assert(!reader.refused, "this backup has been refused");
  if (reader.manifest === null || !reader.complete) {
    refuseBackup("backup_truncated", `The backup ends early, behind ${reader.rows} rows: its last line is missing.`);
  }
  return reader.manifest;
}

/** A line is judged only when it has ended; until then it is held, within its bound. */
function holdText(reader: BackupReader, text: string): void {
  if (reader.complete) refuseBackup("backup_trailing", "There is text behind the last line of the backup.");
  reader.pending.push(text);
  reader.pendingCharacters += text.length;
  if (reader.pendingCharacters < BACKUP_LINE_BYTES_MAX) return;
  const where = reader.manifest === null ? "not_a_backup" : "backup_damaged";
  refuseBackup(where, `Line ${lineNumber(reader)} is longer than ${BACKUP_LINE_BYTES_MAX} bytes.`);
}

function lineNumber(reader: BackupReader): number {
  return reader.manifest === null ? 1 : reader.chunks + 2;
}

function takeLine(reader: BackupReader, line: string, rows: Row[]): void {
  if (reader.manifest === null) {
    takeManifest(reader, line);
    return;
  }
  const opened = openLine(line);
  if (opened === null) {
    refuseBackup("backup_damaged", `Line ${lineNumber(reader)} is damaged: its checksum does not match.`);
  }
  const parsed = parseObject(opened.body) as Partial<ChunkLine & TrailerLine> | null;
  if (parsed === null) refuseMalformed(reader);
  checkPlace(reader, parsed.chunk ?? parsed.end, parsed.after);
  if (parsed.chunk === undefined) takeTrailer(reader, parsed);
  else takeChunk(reader, parsed, rows);
  reader.after = opened.sum;
}

const MANIFEST_START = '{"concord_backup":';

function takeManifest(reader: BackupReader, line: string): void {
  if (!line.startsWith(MANIFEST_START)) refuseBackup("not_a_backup", "The text does not begin like a backup.");
  const version = Number.parseInt(line.slice(MANIFEST_START.length), 10);
  // Told apart before the seal is looked at: another version may seal its lines in another way.
  if (version !== BACKUP_FORMAT) {
    refuseBackup("backup_version", `The backup has format ${version}; this program reads format ${BACKUP_FORMAT}.`);
  }
  const opened = openLine(line);
  if (opened === null) refuseBackup("backup_damaged", "The first line is damaged: its checksum does not match.");
  const { concord_backup: _, ...manifest } = (parseObject(opened.body) ?? {}) as { concord_backup?: unknown };
  if (!isManifest(manifest)) refuseBackup("backup_damaged", "The first line is not the manifest of a backup.");
  if (manifest.state_format !== STATE_FORMAT) {
    const detail = `The backup holds a state of format ${manifest.state_format}; this program reads ${STATE_FORMAT}.`;
    refuseBackup("backup_version", detail);
  }
  reader.manifest = manifest;
  reader.after = opened.sum;
}

function isManifest(found: Partial<BackupManifest>): found is BackupManifest {
  const { state_format, cluster_id, index, term, revision, compact_revision, time_ms } = found;
  const counters: readonly unknown[] = [state_format, index, term, revision, compact_revision, time_ms];
  return typeof cluster_id === "string" && counters.every(isCounter) && Object.keys(found).length === 7;
}

/** A line whose seal is whole may still be in the wrong place, or come from another backup (F1). */
function checkPlace(reader: BackupReader, number: unknown, after: unknown): void {
  const expected = reader.chunks + 1;
  if (number !== expected) {
    const detail = `Part ${String(number)} of the backup stands where part ${expected} belongs: a part is missing, moved or doubled.`;
    refuseBackup("backup_order", detail);
  }
  if (after !== reader.after) {
    refuseBackup("backup_order", `Part ${expected} does not follow the line before it: it belongs to another backup.`);
  }
}

function takeChunk(reader: BackupReader, chunk: Partial<ChunkLine>, rows: Row[]): void {
  const { data, large } = chunk;
  if (!Array.isArray(data)) refuseMalformed(reader);
  if (large === undefined) takeRows(reader, data, rows);
  else takePart(reader, data, large, rows);
  if (chunk.rows !== reader.rows) {
    const detail = `Part ${reader.chunks + 1} counts ${String(chunk.rows)} rows up to its end; there were ${reader.rows}.`;
    refuseBackup("backup_rows", detail);
  }
  reader.chunks += 1;
}

function takeRows(reader: BackupReader, data: readonly unknown[], rows: Row[]): void {
  if (reader.large !== null || data.length === 0 || data.length % 2 !== 0) refuseMalformed(reader);
  for (let position = 0; position < data.length; position += 2) {
    const [key, value] = [data[position], data[position + 1]];
    if (typeof key !== "string" || typeof value !== "string") refuseMalformed(reader);
    takeRow(reader, key, value, rows);
  }
}

function takePart(reader: BackupReader, data: readonly unknown[], large: unknown, rows: Row[]): void {
  const [key, from, part] = data;
  if (data.length !== 3 || typeof key !== "string" || typeof part !== "string") refuseMalformed(reader);
  reader.large ??= { key, parts: [], characters: 0 };
  const row = reader.large;
  if (row.key !== key || row.characters !== from || (large !== "more" && large !== "last")) refuseMalformed(reader);
  row.parts.push(part);
  row.characters += part.length;
  if (row.characters > LOG_ROW_BYTES_MAX) refuseMalformed(reader);
  if (large === "more") return;
  reader.large = null;
  takeRow(reader, key, row.parts.join(""), rows);
}

function takeRow(reader: BackupReader, key: string, value: string, rows: Row[]): void {
  if (key <= reader.lastKey) {
    const detail = `Row ${rowName(key)} stands behind ${rowName(reader.lastKey)}: rows come in order, each once.`;
    refuseBackup("backup_rows", detail);
  }
  reader.lastKey = key;
  reader.rows += 1;
  reader.setHash = hashIn(reader.setHash, rowHash(key, value));
  rows.push([key, value]);
}

function takeTrailer(reader: BackupReader, trailer: Partial<TrailerLine>): void {
  if (reader.large !== null) refuseMalformed(reader);
  const setHash = hashDigits(reader.setHash);
  if (trailer.rows !== reader.rows || trailer.set_hash !== setHash) {
    const told = `${String(trailer.rows)} rows with hash ${String(trailer.set_hash)}`;
    refuseBackup("backup_rows", `The last line tells of ${told}; there were ${reader.rows} with hash ${setHash}.`);
  }
  reader.complete = true;
}

function refuseMalformed(reader: BackupReader): never {
  refuseBackup("backup_damaged", `Line ${lineNumber(reader)} is whole but is no line of a backup.`);
}

function parseObject(text: string): object | null {
  try {
    const parsed: unknown = JSON.parse(text);
    return typeof parsed === "object" && parsed !== null && !Array.isArray(parsed) ? parsed : null;
  } catch (error) {
    // A forged seal over what is no JSON: an answer here, not a fault of ours.
    if (error instanceof SyntaxError) return null;
    throw error;
  }
}
