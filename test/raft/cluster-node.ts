/** One node of a driven cluster: its disk, what a write does to it, and what the harness keeps beside. */
import type { RaftState } from "../../src/raft/state.ts";
import type { Entry, NodeId, Output, SnapshotPosition } from "../../src/raft/types.ts";
import type { Written } from "./safety.ts";

export interface Disk {
  term: number;
  votedFor: NodeId | null;
  base: SnapshotPosition;
  /** Behind the base. */
  entries: Entry[];
  applied: number;
}

export interface ReadAnswer {
  readonly context: number;
  readonly index: number;
}

export interface ClusterNode {
  readonly id: NodeId;
  readonly disk: Disk;
  /** Null while crashed. */
  state: RaftState | null;
  /** Outputs that are not carried out to the end, oldest first. */
  turns: Output[];
  /** Writes stay under way until `flush`. */
  held: boolean;
  written: Written;
  nowMs: number;
  wallOffsetMs: number;
  wakeAtMs: number;
  starts: number;
  readonly reads: ReadAnswer[];
  snapshotWanted: boolean;
  /** The last snapshot that it was told to fetch. */
  offered: SnapshotPosition | null;
}

/** True if the disk has the entry, or a snapshot in its place. */
export function holds({ base, entries }: Disk, index: number, term: number): boolean {
  return index <= base.index || entries[index - base.index - 1]?.term === term;
}

/** Carries out what an output wants written, as one turn. */
export function write(disk: Disk, output: Output): void {
  const { persist } = output;
  if (persist !== null) {
    if (persist.hardState !== null) {
      disk.term = persist.hardState.term;
      disk.votedFor = persist.hardState.votedFor;
    }
    if (persist.truncateFrom !== null) {
      disk.entries = disk.entries.slice(0, persist.truncateFrom - disk.base.index - 1);
    }
    if (persist.install !== null) {
      const { snapshot, keepsSuffix } = persist.install;
      disk.entries = keepsSuffix ? disk.entries.slice(snapshot.index - disk.base.index) : [];
      disk.base = snapshot;
      disk.applied = snapshot.index;
    }
    disk.entries.push(...persist.append);
    if (persist.dropThrough !== null) {
      disk.entries = disk.entries.slice(persist.dropThrough.index - disk.base.index);
      disk.base = persist.dropThrough;
    }
  }
  disk.applied = Math.max(disk.applied, output.commitIndex);
}
