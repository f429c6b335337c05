/**
 * The contract of a node's storage (src/node-object/ports.ts) as tests. Every implementation runs it: SQLite in the Workers
 * runtime and in Node, the memory disk of the test cluster, the simulator's disk. Needs vitest only.
 */
import type { NodeStorage } from "../../src/node-object/ports.ts";
import { logContract } from "./log-contract.ts";
import { resetContract } from "./reset-contract.ts";
import { snapshotContract } from "./snapshot-contract.ts";
import { spoolContract } from "./spool-contract.ts";
import { stagingContract } from "./staging-contract.ts";
import { sumsContract } from "./sums-contract.ts";

export type Storage = Omit<NodeStorage, "afterSync">;

/** The disk of one node. */
export interface TestDisk {
  /** A new instance's view of it, not loaded yet. */
  open(): Storage;
  /** Runs a turn; its writes are kept, or undone as by a crash before the commit. */
  turn<T>(outcome: "kept" | "undone", work: () => T): T;
}

/** Calls `work` with a new disk. */
export type WithDisk = (work: (disk: TestDisk) => void) => void | Promise<void>;

export function storageContract(name: string, withDisk: WithDisk): void {
  logContract(name, withDisk);
  snapshotContract(name, withDisk);
  stagingContract(name, withDisk);
  spoolContract(name, withDisk);
  sumsContract(name, withDisk);
  resetContract(name, withDisk);
}

/** A new instance over the disk, as after a restart. */
export function opened(disk: TestDisk): Storage {
  const storage = disk.open();
  disk.turn("kept", () => storage.load());
  return storage;
}
