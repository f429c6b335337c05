/**
 * The storage of one test node, in memory. It outlives the node's instances, as a disk does: a restart is a new runtime
 * over the same disk.
 *
 * D1. The writes of a turn take effect at once and are kept at its end ({@link endTurn}), or undone if the turn was
 *     aborted. A kill comes between turns, so that what was acknowledged is always there.
 * D2. `afterSync` calls back in a later turn of the same instance; who calls is the business of the node (test-node.ts).
 */
import { assert } from "../base/assert.ts";
import { MemoryStore } from "../kv/memory-store.ts";
import type { Row, ScanRange } from "../kv/store.ts";
import type { Identity, LoadedState, NodeStorage, WriteBatch } from "../node-object/ports.ts";
import type { Entry, HardState } from "../raft/types.ts";

/** The rows that there is one of. */
interface Meta {
  readonly identity: Identity | null;
  readonly hardState: HardState;
  readonly fence: number;
  readonly halted: string | null;
  readonly alarmAtWallMs: number | null;
}

export class MemoryDisk implements Omit<NodeStorage, "afterSync"> {
  #meta: Meta = {
    identity: null,
    hardState: { term: 0, votedFor: null },
    fence: 0,
    halted: null,
    alarmAtWallMs: null,
  };
  /** The entry of index i + 1 at i. */
  readonly #log: Entry[] = [];
  readonly #rows = new MemoryStore();
  #bytes = 0;
  /** Of the turn in progress, oldest first. */
  #undo: (() => void)[] = [];

  get alarmAtWallMs(): number | null {
    return this.#meta.alarmAtWallMs;
  }

  get bytes(): number {
    return this.#bytes;
  }

  load(): LoadedState {
    const { identity, hardState, halted } = this.#meta;
    const last = this.#log.at(-1);
    return {
      identity,
      hardState,
      lastIndex: last?.index ?? 0,
      lastTerm: last?.term ?? 0,
      lastTimeMs: last?.timeMs ?? 0,
      halted,
    };
  }

  write(batch: WriteBatch): void {
    const { identity, hardState, truncateFrom, append = [], fence, state = [], halted } = batch;
    if (identity !== undefined) this.#setMeta({ identity });
    if (hardState !== undefined) this.#setMeta({ hardState });
    if (truncateFrom !== undefined) this.#truncate(truncateFrom);
    for (const entry of append) this.#append(entry);
    if (fence !== undefined) this.#setMeta({ fence });
    for (const [key, value] of state) this.#setRow(key, value);
    if (halted !== undefined) this.#setMeta({ halted });
  }

  readLog(from: number, to: number, bytesMax: number): Entry[] {
    const entries: Entry[] = [];
    let bytes = 0;
    for (const entry of this.#log.slice(Math.max(from, 1) - 1, to)) {
      bytes += entry.payloadBytes;
      if (entries.length > 0 && bytes > bytesMax) break;
      entries.push(entry);
    }
    return entries;
  }

  get(key: string): string | undefined {
    return this.#rows.get(key);
  }

  scan(range: ScanRange): Row[] {
    return this.#rows.scan(range);
  }

  setAlarm(alarmAtWallMs: number | null): void {
    this.#setMeta({ alarmAtWallMs });
  }

  /** D1 */
  endTurn(outcome: "kept" | "undone"): void {
    const undo = this.#undo;
    this.#undo = [];
    if (outcome === "undone") for (const step of undo.reverse()) step();
  }

  #setMeta(change: Partial<Meta>): void {
    const before = this.#meta;
    this.#undo.push(() => {
      this.#meta = before;
    });
    this.#meta = { ...before, ...change };
  }

  #truncate(from: number): void {
    const removed = this.#log.splice(from - 1);
    const bytes = removed.reduce((sum, entry) => sum + entry.payloadBytes, 0);
    this.#bytes -= bytes;
    this.#undo.push(() => {
      this.#log.push(...removed);
      this.#bytes += bytes;
    });
  }

  #append(entry: Entry): void {
    assert(entry.index === this.#log.length + 1, `entry ${entry.index} written after ${this.#log.length}`);
    this.#log.push(entry);
    this.#bytes += entry.payloadBytes;
    this.#undo.push(() => {
      this.#log.pop();
      this.#bytes -= entry.payloadBytes;
    });
  }

  #setRow(key: string, value: string | null): void {
    const before = this.#rows.get(key) ?? null;
    this.#undo.push(() => this.#putRow(key, before));
    this.#putRow(key, value);
  }

  #putRow(key: string, value: string | null): void {
    const before = this.#rows.get(key);
    if (before !== undefined) this.#bytes -= key.length + before.length;
    if (value === null) this.#rows.delete(key);
    else {
      this.#rows.put(key, value);
      this.#bytes += key.length + value.length;
    }
  }
}
