/**
 * A backup of the own state, read piece by piece while writes go on (design 02 §5).
 *
 * Y1. What is read is the durable state after exactly one entry; whoever opens it has waited for a barrier before.
 * Y2. A node pins its state once at a time, for a backup and for members that need a snapshot alike. While a member is
 *     served no backup is opened here: the pinned state may be older than the barrier, and only a leader serves members. A
 *     member that comes while a backup is read is served from the state that is pinned for it, if the log goes on from
 *     there; if not, the state is pinned anew and the backup is lost. So no backup makes a member wait.
 * Y3. One backup at a time. It is lost when nobody reads on for `IDLE_MS_MAX`, when the instance ends, and when another
 *     state takes the place of this one. Neither the log nor the removal of history waits for it.
 */
import type { ErrorBody } from "../base/errors.ts";
import { type BackupManifest, manifestOf } from "../kv/backup-format.ts";
import { RESTORING } from "../kv/restoring.ts";
import { ORIGIN_ROW } from "../kv/rows.ts";
import { readMeta } from "../kv/state.ts";
import type { Row } from "../kv/store.ts";
import { positionAt } from "../raft/log.ts";
import { flush } from "./applying.ts";
import type { SnapshotManifest } from "./ports.ts";
import { type AnswerTurn, clusterIdOf, type NodeState, nextId, type Running, serving } from "./runtime-state.ts";
import { opened } from "./state-seals.ts";
import { unavailable } from "./waiters.ts";

/** What is being read. */
export interface ServedBackup {
  readonly id: number;
  readonly manifest: SnapshotManifest;
  readAtMs: number;
}

export type OpenedBackup =
  | { readonly ok: true; readonly id: number; readonly manifest: BackupManifest }
  | { readonly ok: false; readonly error: ErrorBody };

export interface BackupChunk {
  /** In the order of their keys; may be none although more follow. */
  readonly rows: readonly Row[];
  /** What follows this key comes next. */
  readonly end: string | null;
  readonly isLast: boolean;
}

/** Steps of a backup; each is a turn. */
export interface BackupSteps {
  open(): OpenedBackup;
  /** The rows behind `after`; null: the backup is lost. */
  read(id: number, after: string | null): BackupChunk | null;
  close(id: number): void;
}

const CHUNK_BYTES_MAX = 256 << 10;
const IDLE_MS_MAX = 60_000;

export function backupSteps(state: NodeState, turn: AnswerTurn, ended: ErrorBody): BackupSteps {
  return {
    open: () => turn<OpenedBackup>({ ok: false, error: ended }, () => openBackup(state)),
    read: (id, after) => turn<BackupChunk | null>(null, () => readBackup(state, id, after)),
    close: (id) => turn(undefined, () => closeBackup(state, id)),
  };
}

function openBackup(state: NodeState): OpenedBackup {
  const running = serving(state);
  if (running === null) return { ok: false, error: unavailable(state) };
  const { machine, raft, served, backup } = running;
  if (machine.isRestoring) return { ok: false, error: RESTORING };
  if (backup !== null) return refused("backup_running", "This node is being backed up already; ask another one.");
  if (served !== null)
    return refused("snapshot_served", "This node is serving a member with its state; ask another one.");
  flush(state, running);
  const position = positionAt(raft.log, machine.appliedIndex);
  const manifest = state.ports.storage.snapshot.begin(position);
  if (manifest === null) return refused("not_verified", "This node has not read its state through since an upgrade.");
  const id = nextId(state);
  running.backup = { id, manifest, readAtMs: state.ports.clock.nowMs() };
  state.ports.log("info", "backup begun", { index: position.index, revision: machine.revision });
  const cluster = { id: clusterIdOf(running), term: position.term };
  return { ok: true, id, manifest: manifestOf(cluster, readMeta(machine.store)) };
}

function refused(reason: string, detail: string): OpenedBackup {
  return { ok: false, error: { code: "overloaded", reason, detail } };
}

function readBackup(state: NodeState, id: number, after: string | null): BackupChunk | null {
  const running = serving(state);
  if (running === null || running.backup?.id !== id) return null;
  const { position } = running.backup.manifest;
  const chunk = state.ports.storage.snapshot.read(after, CHUNK_BYTES_MAX);
  if (chunk === null || chunk.index !== position.index || chunk.term !== position.term) {
    running.backup = null;
    return null;
  }
  running.backup.readAtMs = state.ports.clock.nowMs();
  const rows = chunk.rows.map(([key, text]): Row => [key, opened(key, text)]);
  const end = rows.at(-1)?.[0] ?? after;
  return { rows: rows.filter(([key]) => key !== ORIGIN_ROW), end, isLast: chunk.last };
}

function closeBackup(state: NodeState, id: number): void {
  const { running } = state;
  if (running?.backup?.id === id) endBackup(state, running);
}

function endBackup(state: NodeState, running: Running): void {
  running.backup = null;
  if (running.served === null) state.ports.storage.snapshot.end();
}

/** Y3. Called in every turn. */
export function dropIdleBackup(state: NodeState, running: Running, nowMs: number): void {
  if (nowMs < backupIdleAtMs(running)) return;
  state.ports.log("warn", "backup given up, nobody reads on", {});
  endBackup(state, running);
}

export function backupIdleAtMs({ backup }: Running): number {
  return backup === null ? Number.POSITIVE_INFINITY : backup.readAtMs + IDLE_MS_MAX;
}
