/** The storages that run without the Workers runtime, each behind the same small handle. */
import { SqliteStorage } from "../../src/node-object/sqlite-storage.ts";
import { indexWithin, MemoryDisk } from "../../src/testing/memory-disk.ts";
import { createDisk, lastIndex, loadDisk, readLog, scanDisk, takeJournal, undo, writeDisk } from "../simulator/disk.ts";
import { NodeSqliteDisk } from "./node-sqlite.ts";
import type { Storage, TestDisk } from "./storage-contract.ts";

export function nodeSqlite(): TestDisk {
  const disk = new NodeSqliteDisk();
  return { open: () => new SqliteStorage(disk), turn: (outcome, work) => disk.turn(outcome, work) };
}

export function memory(): TestDisk {
  const disk = new MemoryDisk();
  return {
    open: () => disk,
    turn(outcome, work) {
      try {
        return work();
      } finally {
        disk.endTurn(outcome);
      }
    },
  };
}

export function simulated(): TestDisk {
  const disk = createDisk(1);
  const storage: Storage = {
    load: () => loadDisk(disk),
    write: (batch) => writeDisk(disk, batch, () => {}),
    readLog: (from, to, bytesMax) => readLog(disk, from, to, bytesMax),
    logIndexWithin: (bytesMax) => indexWithin(disk.log, bytesMax, lastIndex(disk) + 1),
    get: (key) => disk.rows.get(key),
    scan: (range) => scanDisk(disk, range),
    snapshot: disk.snapshots.snapshot,
    staging: disk.snapshots.staging,
    spool: disk.snapshots.spool,
    scrub: disk.snapshots.scrub,
    get stateHash() {
      return disk.snapshots.stateHash;
    },
    cleanUp: () => disk.snapshots.cleanUp(),
    bytes: 0,
  };
  return {
    open: () => storage,
    turn(outcome, work) {
      try {
        return work();
      } finally {
        const journal = takeJournal(disk);
        if (outcome === "undone") undo(journal);
      }
    },
  };
}
