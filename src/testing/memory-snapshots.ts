/**
 * What a disk in memory offers of snapshots and sums (ports.ts), over rows that it keeps elsewhere. Small states: pinning
 * copies all rows, and a hash is summed up whenever it is asked for.
 *
 * M1. What is durable here changes as one record, with a step that undoes it: the disk decides whether a turn is kept.
 * M2. What lives only as long as an instance (the pinned rows, the scrub, the spool) ends with
 *     {@link MemorySnapshots.restart}.
 */
import { assert } from "../base/assert.ts";
import { MemoryStore } from "../kv/memory-store.ts";
import { applyChanges } from "../kv/overlay.ts";
import type { Row } from "../kv/store.ts";
import type {
  RowSpool,
  ScrubStep,
  SealedRow,
  SnapshotChunk,
  SnapshotManifest,
  SnapshotPosition,
  SnapshotSource,
  SnapshotStaging,
  StateScrub,
} from "../node-object/ports.ts";
import { beginStaged, judgeChunk, type Staged, stagingState } from "../node-object/staged-snapshot.ts";
import { NO_SUMS, opened, type StateSums, sealed, verifySums, withRow } from "../node-object/state-seals.ts";

/** The rows of the state. */
export interface MemoryRows {
  /** As they are stored, in the order of their keys. */
  all(): readonly SealedRow[];
  /** As they were kept with each write: of what the disk has lost since, they know nothing. */
  sums(): StateSums;
  /** Undone with the turn. */
  replace(rows: readonly Row[]): void;
}

interface Durable {
  readonly staged: Staged | null;
  readonly rows: readonly (readonly SealedRow[])[];
  /** Rows of a state or snapshot that is gone are to be removed before the next one comes. */
  readonly hasLeftovers: boolean;
}

const CHUNK_ROWS_MAX = 1024;

export class MemorySnapshots {
  readonly #state: MemoryRows;
  readonly #undo: (step: () => void) => void;
  #durable: Durable = { staged: null, rows: [], hasLeftovers: false };
  #pinned: { readonly manifest: SnapshotManifest; readonly rows: readonly SealedRow[] } | null = null;
  #scrubbedTo = "";
  #spool = new MemoryStore();

  constructor(state: MemoryRows, undo: (step: () => void) => void) {
    this.#state = state;
    this.#undo = undo;
  }

  /** A new instance begins. */
  restart(): void {
    this.#pinned = null;
    this.#scrubbedTo = "";
    this.#spool = new MemoryStore();
  }

  readonly snapshot: SnapshotSource = {
    begin: (position) => {
      const manifest = { position, ...this.#state.sums() };
      this.#pinned = { manifest, rows: this.#state.all() };
      return manifest;
    },
    read: (after, bytesMax) => this.#read(after, bytesMax),
    end: () => {
      this.#pinned = null;
    },
  };

  readonly staging: SnapshotStaging = {
    begin: (manifest) => {
      this.staging.discard();
      if (this.#durable.hasLeftovers) return false;
      this.#set({ staged: beginStaged(manifest), rows: [], hasLeftovers: false });
      return true;
    },
    add: (chunk) => {
      const judged = judgeChunk(this.#durable.staged, chunk);
      if (judged.outcome !== "taken") return judged.outcome;
      this.#set({ staged: judged.staged, rows: [...this.#durable.rows, chunk.rows], hasLeftovers: false });
      return "taken";
    },
    state: () => stagingState(this.#durable.staged),
    discard: () => {
      const { staged, rows } = this.#durable;
      if (staged !== null) this.#set({ staged: null, rows: [], hasLeftovers: rows.flat().length > 0 });
    },
  };

  /** An instance whose turn is undone has ended, and its spool with it. */
  readonly spool: RowSpool = {
    begin: () => {
      this.#spool = new MemoryStore();
      return true;
    },
    write: (changes) => applyChanges(this.#spool, changes),
    get: (key) => this.#spool.get(key),
    scan: (range) => this.#spool.scan(range),
    end: () => {
      this.#spool = new MemoryStore();
    },
  };

  readonly scrub: StateScrub = { step: (rowsMax) => this.#scrubStep(rowsMax) };

  get stateHash(): number {
    return this.#state.sums().hash;
  }

  cleanUp(): boolean {
    if (!this.#durable.hasLeftovers) return false;
    this.#set({ staged: null, rows: [], hasLeftovers: false });
    return true;
  }

  /** The staged rows become the state. */
  install(position: SnapshotPosition): void {
    const { staged, rows } = this.#durable;
    assert(staged?.status === "complete", `snapshot ${position.index} is staged`);
    const { index, term } = staged.manifest.position;
    assert(index === position.index && term === position.term, `snapshot ${position.index} is staged, ${index} is`);
    const hasLeftovers = this.#state.all().length > 0;
    this.#state.replace(rows.flat().map(([key, text]) => [key, opened(key, text)]));
    this.#set({ staged: null, rows: [], hasLeftovers });
    this.#pinned = null;
    this.#scrubbedTo = "";
  }

  /** Nothing is left, of the state or beside it. */
  reset(): void {
    this.#state.replace([]);
    this.#set({ staged: null, rows: [], hasLeftovers: false });
    this.restart();
  }

  #read(after: string | null, bytesMax: number): SnapshotChunk | null {
    if (this.#pinned === null) return null;
    const { manifest, rows } = this.#pinned;
    const { index, term } = manifest.position;
    const behind = rows.filter(([key]) => key > (after ?? "")).slice(0, CHUNK_ROWS_MAX);
    let bytes = 0;
    const taken = behind.filter(([key, text], at) => {
      bytes += key.length + text.length;
      return at === 0 || bytes <= bytesMax;
    });
    const end = taken.at(-1)?.[0] ?? after;
    return { index, term, after, rows: taken, last: end === (rows.at(-1)?.[0] ?? end) };
  }

  #scrubStep(rowsMax: number): ScrubStep {
    const rows = this.#state.all();
    const next = rows.filter(([key]) => key > this.#scrubbedTo).slice(0, rowsMax);
    const end = next.at(-1)?.[0] ?? this.#scrubbedTo;
    const passed = sumsOf(rows.filter(([key]) => key <= end));
    const isEnd = passed.rowsCount === rows.length;
    this.#scrubbedTo = isEnd ? "" : end;
    if (isEnd) verifySums(this.#state.sums(), passed);
    return { afterKey: isEnd ? null : end, ...passed };
  }

  /** M1 */
  #set(durable: Durable): void {
    const before = this.#durable;
    this.#undo(() => {
      this.#durable = before;
    });
    this.#durable = durable;
  }
}

export function sealedRows(rows: readonly Row[]): SealedRow[] {
  return rows.map(([key, value]) => [key, sealed(key, value)]);
}

/** @throws CorruptionError */
export function sumsOf(rows: readonly SealedRow[]): StateSums {
  return rows.reduce(withRow, NO_SUMS);
}
