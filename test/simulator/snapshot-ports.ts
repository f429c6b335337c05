/** The snapshot side of a node's storage: chunks as small as the seed wants them, and what became of each transfer. */
import type { NodeStorage } from "../../src/node-object/ports.ts";
import type { Host, World } from "./host.ts";

export interface Transfers {
  begun: number;
  finished: number;
  /** Given up, or lost with the disk. */
  abandoned: number;
  installs: number;
  /** Called when one begins. */
  onBegun: (() => void) | null;
}

export function createTransfers(): Transfers {
  return { begun: 0, finished: 0, abandoned: 0, installs: 0, onBegun: null };
}

/** What the ports do around each use of the storage (turn.ts). */
interface Access {
  touch(): void;
  beforeRead(): void;
  change<T>(work: () => T, dead: T): T;
}

export function snapshotPorts(
  world: World,
  host: Host,
  { touch, beforeRead, change }: Access,
): Pick<NodeStorage, "snapshot" | "staging" | "spool" | "scrub"> {
  const { counts, transfers } = world;
  return {
    snapshot: {
      begin(position) {
        beforeRead();
        return host.disk.snapshots.snapshot.begin(position);
      },
      read(after, bytesMax) {
        beforeRead();
        return host.disk.snapshots.snapshot.read(after, Math.min(bytesMax, world.options.chunkBytesMax));
      },
      end() {
        touch();
        host.disk.snapshots.snapshot.end();
      },
    },
    staging: {
      begin: (manifest) =>
        change(() => {
          const before = isReceiving(host);
          const begun = host.disk.snapshots.staging.begin(manifest);
          if (before) transfers.abandoned += 1;
          if (begun) {
            transfers.begun += 1;
            counts.add("snapshot_in_flight");
            transfers.onBegun?.();
          }
          return begun;
        }, false),
      add: (chunk) =>
        change(() => {
          const added = host.disk.snapshots.staging.add(chunk);
          if (added === "taken" && !isReceiving(host)) transfers.finished += 1;
          return added;
        }, "stale"),
      state() {
        touch();
        return host.disk.snapshots.staging.state();
      },
      discard: () =>
        change(() => {
          if (isReceiving(host)) transfers.abandoned += 1;
          host.disk.snapshots.staging.discard();
        }, undefined),
    },
    spool: {
      begin: () => change(() => host.disk.snapshots.spool.begin(), false),
      write: (changes) => change(() => host.disk.snapshots.spool.write(changes), undefined),
      get(key) {
        beforeRead();
        return host.disk.snapshots.spool.get(key);
      },
      scan(range) {
        beforeRead();
        return host.disk.snapshots.spool.scan(range);
      },
      end() {
        touch();
        host.disk.snapshots.spool.end();
      },
    },
    scrub: {
      step(rowsMax) {
        beforeRead();
        return host.disk.snapshots.scrub.step(rowsMax);
      },
    },
  };
}

export function isReceiving({ disk }: Host): boolean {
  return disk.snapshots.staging.state()?.status === "receiving";
}
