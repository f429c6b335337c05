/**
 * A backup on its way in, at the node that a client has handed it to (design 02 §5): taken apart, verified and prepared in
 * steps, each a turn, before anything of it goes to the cluster.
 *
 * Z1. What is there counts for nothing until `verify` has answered; a refusal ends it, and leaves nothing.
 * Z2. One at a time. One that nobody has gone on with for `IDLE_MS_MAX` gives way to the next.
 * Z3. It ends with the instance (ports: `spool`).
 */
import { assert } from "../base/assert.ts";
import { ConcordError, type ErrorBody } from "../base/errors.ts";
import { RESTORE_REVISION_JUMP_MAX } from "../base/limits.ts";
import type { BackupManifest } from "../kv/backup-format.ts";
import { type BackupIntake, beginIntake, endIntake, takeBackupText } from "../kv/backup-intake.ts";
import { LEASE_COUNTER_MAX } from "../kv/leases.ts";
import type { Change } from "../kv/overlay.ts";
import { forgetHistory } from "../kv/restore.ts";
import { isUnwritten, refuseWritten } from "../kv/restoring.ts";
import { ROWS_BEHIND_ORIGIN } from "../kv/rows.ts";
import { readMeta } from "../kv/state.ts";
import type { OrderedStore, Row } from "../kv/store.ts";
import { type AnswerTurn, type NodeState, nextId, type Running, serving } from "./runtime-state.ts";
import { unavailable } from "./waiters.ts";

export interface BackupSpool {
  readonly id: number;
  phase: "emptying" | "text" | "preparing" | "ready";
  readonly intake: BackupIntake;
  /** Of the history that the cluster does not need. */
  forgetting: Generator<Change | null, void> | null;
  usedAtMs: number;
}

export type Spooled<T> = { readonly ok: true; readonly answer: T } | { readonly ok: false; readonly error: ErrorBody };

/** What the backup is of, and how far its numbers may jump. */
export interface Verified {
  readonly manifest: BackupManifest;
  readonly jumpMax: number;
}

/** Steps of a restore. An error ends it; it need not be closed then. */
export interface SpoolSteps {
  open(): Spooled<number>;
  /** False: there is more to empty, repeat. */
  empty(id: number): Spooled<boolean>;
  text(id: number, piece: string): Spooled<null>;
  /** The whole text was there. */
  verify(id: number): Spooled<Verified>;
  /** False: there is more to do, repeat. */
  prepare(id: number): Spooled<boolean>;
  /** What is prepared, in the order of the keys, behind `after`; none: that was all. */
  rows(id: number, after: string): Spooled<readonly Row[]>;
  close(id: number): void;
  /** Answers when what was done so far is durable. */
  settled(respond: () => void): void;
}

const IDLE_MS_MAX = 120_000;
const PREPARE_CHANGES_MAX = 500;
/** Rows that are looked at without a change between two nulls (restore.ts) cost about as much as so many changes. */
const PREPARE_PAGE_COST = 100;
const ROWS_MAX = 1000;
/** Fetched per statement: each may be 1.4 MB. */
const ROWS_PAGE = 16;
const ROWS_UNITS_MAX = 256 << 10;
const START = "\u0001";

export function spoolSteps(state: NodeState, turn: AnswerTurn, error: ErrorBody): SpoolSteps {
  const ended = { ok: false, error } as const;
  return {
    open: () => turn<Spooled<number>>(ended, () => openSpool(state)),
    empty: (id) => turn<Spooled<boolean>>(ended, () => emptySpool(state, id)),
    text: (id, piece) => turn<Spooled<null>>(ended, () => takeText(state, id, piece)),
    verify: (id) => turn<Spooled<Verified>>(ended, () => verifySpool(state, id)),
    prepare: (id) => turn<Spooled<boolean>>(ended, () => prepareSpool(state, id)),
    rows: (id, after) => turn<Spooled<readonly Row[]>>(ended, () => rowsBehind(state, id, after)),
    close: (id) => turn(undefined, () => closeSpool(state, id)),
    settled: (respond) => turn(undefined, () => state.ports.storage.afterSync(respond)),
  };
}

function openSpool(state: NodeState): Spooled<number> {
  const running = serving(state);
  if (running === null) return { ok: false, error: unavailable(state) };
  const { machine, spool } = running;
  const nowMs = state.ports.clock.nowMs();
  if (spool !== null && nowMs < spool.usedAtMs + IDLE_MS_MAX) {
    const detail = "A backup is being restored through this node already.";
    return { ok: false, error: { code: "overloaded", reason: "restore_running", detail } };
  }
  const id = nextId(state);
  return answered(() => {
    if (!machine.isRestoring && !isUnwritten(readMeta(machine.store))) refuseWritten();
    running.spool = {
      id,
      phase: "emptying",
      intake: beginIntake(),
      forgetting: null,
      usedAtMs: nowMs,
    };
    return id;
  });
}

function emptySpool(state: NodeState, id: number): Spooled<boolean> {
  return step(state, id, "emptying", (spool) => {
    const isEmpty = state.ports.storage.spool.begin();
    if (isEmpty) spool.phase = "text";
    return isEmpty;
  });
}

function takeText(state: NodeState, id: number, piece: string): Spooled<null> {
  return step(state, id, "text", ({ intake }) => {
    const rows = takeBackupText(intake, piece);
    if (rows.length > 0) state.ports.storage.spool.write(rows);
    return null;
  });
}

function verifySpool(state: NodeState, id: number): Spooled<Verified> {
  return step(state, id, "text", (spool) => {
    const manifest = endIntake(spool.intake);
    const store = spooledRows(state);
    const { revision, leaseCounter } = readMeta(store);
    spool.forgetting = forgetHistory(store);
    spool.phase = "preparing";
    // What is granted and written later must have room in the counters as well.
    const room = Math.min(Number.MAX_SAFE_INTEGER / 2 - revision, LEASE_COUNTER_MAX / 2 - leaseCounter);
    return { manifest, jumpMax: Math.min(RESTORE_REVISION_JUMP_MAX, Math.floor(room)) };
  });
}

function prepareSpool(state: NodeState, id: number): Spooled<boolean> {
  return step(state, id, "preparing", (spool) => {
    assert(spool.forgetting !== null, "a backup is prepared once it is verified");
    const changes: Change[] = [];
    for (let cost = 0; cost < PREPARE_CHANGES_MAX; ) {
      const next = spool.forgetting.next();
      if (next.done === true) {
        spool.phase = "ready";
        break;
      }
      cost += next.value === null ? PREPARE_PAGE_COST : 1;
      if (next.value !== null) changes.push(next.value);
    }
    if (changes.length > 0) state.ports.storage.spool.write(changes);
    return spool.phase === "ready";
  });
}

function rowsBehind(state: NodeState, id: number, after: string): Spooled<readonly Row[]> {
  return step(state, id, "ready", () => {
    const { spool } = state.ports.storage;
    const rows: Row[] = [];
    let start = after === "" ? START : `${after}\u0001`;
    for (let units = 0; units < ROWS_UNITS_MAX && rows.length < ROWS_MAX; ) {
      const page = spool.scan({ start, end: ROWS_BEHIND_ORIGIN.end, limit: ROWS_PAGE });
      for (const [key, text] of page) {
        rows.push([key, text]);
        units += key.length + text.length;
        start = `${key}\u0001`;
      }
      if (page.length < ROWS_PAGE) break;
    }
    return rows;
  });
}

function closeSpool(state: NodeState, id: number): void {
  const { running } = state;
  if (running?.spool?.id === id) dropSpool(state, running);
}

function dropSpool(state: NodeState, running: Running): void {
  running.spool = null;
  state.ports.storage.spool.end();
}

/** One step of the backup `id`; what refuses it ends it (Z1). */
function step<T>(
  state: NodeState,
  id: number,
  phase: BackupSpool["phase"],
  work: (spool: BackupSpool) => T,
): Spooled<T> {
  const running = serving(state);
  const spool = running?.spool;
  if (running === null || spool?.id !== id) {
    const detail = "This node has given the backup up on its way in; hand it in again.";
    return { ok: false, error: { code: "overloaded", reason: "restore_lost", detail } };
  }
  assert(spool.phase === phase, `the backup is ${spool.phase}, not ${phase}`);
  const answer = answered(() => work(spool));
  if (!answer.ok) dropSpool(state, running);
  spool.usedAtMs = state.ports.clock.nowMs();
  return answer;
}

/** A refusal is an answer; everything else is a bug and goes on. */
function answered<T>(work: () => T): Spooled<T> {
  try {
    return { ok: true, answer: work() };
  } catch (error) {
    if (error instanceof ConcordError) return { ok: false, error: error.body };
    throw error;
  }
}

/** Read only: changes are written in bulk, behind each step. */
function spooledRows({ ports }: NodeState): OrderedStore {
  const { spool } = ports.storage;
  const refuse = (key: string) => assert(false, `row ${key} of the spool written by itself`);
  return { get: (key) => spool.get(key), scan: (range) => spool.scan(range), put: refuse, delete: refuse };
}
