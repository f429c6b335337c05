/**
 * The text of a backup: every row of a state at one applied index, as lines of JSON (design 02 §5). Here is what its
 * writer and its reader share: the shape of the lines, and the seal on each.
 *
 *   {"concord_backup":1,"state_format":2,"cluster_id":…,"index":…,"term":…,…,"sum":…}      manifest
 *   {"chunk":1,"after":…,"rows":2,"data":[key,value,key,value],"sum":…}                    whole rows
 *   {"chunk":2,"after":…,"rows":2,"data":[key,0,part],"large":"more","sum":…}              a row too long for one line
 *   {"chunk":3,"after":…,"rows":3,"data":[key,65536,part],"large":"last","sum":…}
 *   {"end":4,"after":…,"rows":3,"set_hash":…,"sum":…}                                      trailer
 *
 * F1. `sum` seals the text of its line: it finds every changed character. `after` is the `sum` of the line before and so
 * stands for all lines before: no line can be left out, moved, doubled or taken from another backup. The trailer's `sum`
 * is thereby the checksum of the whole.
 * F2. The text holds no U+FFFD, which is what a decoder of UTF-8 makes of damaged bytes: a changed byte is a changed
 * character, whatever decoded it.
 * F3. `rows` counts the rows that are complete with this line. Rows come in the order of their keys, each once.
 * F4. The text depends on the manifest and the rows alone, not on how they were handed over: equal states of two nodes
 * have equal backups.
 * F5. No line is longer than BACKUP_LINE_BYTES_MAX.
 */
import { hashDigits, hashText } from "../base/hash.ts";
import { refuse } from "./refusal.ts";
import { type Meta, STATE_FORMAT } from "./state.ts";

/** Another layout of the lines is another number. */
export const BACKUP_FORMAT = 1;

/** What a backup says of itself; on the first line, and to whoever keeps it. Never a clock's: F4. */
export interface BackupManifest {
  readonly state_format: number;
  readonly cluster_id: string;
  /** Raft position of the last entry in the state. */
  readonly index: number;
  readonly term: number;
  readonly revision: number;
  readonly compact_revision: number;
  /** The log's time at that entry. */
  readonly time_ms: number;
}

export function manifestOf(cluster: { readonly id: string; readonly term: number }, meta: Meta): BackupManifest {
  return {
    state_format: STATE_FORMAT,
    cluster_id: cluster.id,
    index: meta.index,
    term: cluster.term,
    revision: meta.revision,
    compact_revision: meta.compactRevision,
    time_ms: meta.timeMs,
  };
}

/** A line is one of these, without its seal. */
export interface ChunkLine {
  readonly chunk: number;
  readonly after: string;
  readonly rows: number;
  readonly data: readonly (string | number)[];
  readonly large?: "more" | "last";
}

export interface TrailerLine {
  readonly end: number;
  readonly after: string;
  readonly rows: number;
  readonly set_hash: string;
}

/** JSON text as it stands in a line (F2). */
export function lineText(value: unknown): string {
  return JSON.stringify(value).replaceAll("\ufffd", "\\ufffd");
}

const SUM_DIGITS = 14;
const SEAL_START = ',"sum":"';
const SEAL_END = '"}';
export const SEAL_CHARACTERS = SEAL_START.length + SUM_DIGITS + SEAL_END.length;

/** `body` is the text of an object. Answers the line without its end, and its sum. */
export function sealLine(body: string): { readonly line: string; readonly sum: string } {
  const sum = sumOf(body);
  return { line: body.slice(0, -1) + SEAL_START + sum + SEAL_END, sum };
}

/** The object's text and the sum of a line without its end; null when the seal is broken. */
export function openLine(line: string): { readonly body: string; readonly sum: string } | null {
  const body = `${line.slice(0, -SEAL_CHARACTERS)}}`;
  const sealed = sealLine(body);
  return sealed.line === line ? { body, sum: sealed.sum } : null;
}

function sumOf(body: string): string {
  return hashDigits(hashText(body, BACKUP_FORMAT));
}

/** One row's part of the set hash. */
export function rowHash(key: string, value: string): number {
  return hashText(value, hashText(key, BACKUP_FORMAT));
}

export type BackupFault =
  | "not_a_backup"
  | "backup_version"
  | "backup_damaged"
  | "backup_order"
  | "backup_truncated"
  | "backup_trailing"
  | "backup_rows";

/** A backup, or the rows of one, cannot be taken: nothing of what was read counts. */
export function refuseBackup(fault: BackupFault, detail: string): never {
  refuse("invalid_request", detail, { reason: fault });
}
