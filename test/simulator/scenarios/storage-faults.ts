/**
 * A node's storage with the faults of a story: one at a chosen statement, rows that fail their checksum, and the halted
 * row. The world holds that no node ever halts, so that row is kept here, out of its sight.
 */
import {
  CorruptionError,
  type NodeConfig,
  type Ports,
  type SnapshotStaging,
  type WriteBatch,
} from "../../../src/node-object/ports.ts";
import type { Runtime } from "../../../src/node-object/runtime.ts";
import type { NodeId } from "../../../src/raft/types.ts";
import type { Host } from "../host.ts";

/** One storage statement of a node, before or after it is carried out. */
export interface Statement {
  readonly node: NodeId;
  readonly kind: keyof WriteBatch | keyof SnapshotStaging;
  readonly when: "before" | "after";
}

/** `crash`: the process ends here. `fail`: the statement throws. */
export type StatementFault = "crash" | "fail" | undefined;

export interface StorageFaults {
  onStatement: ((statement: Statement) => StatementFault) | null;
  /** Makes reads of a node's storage meet a row that fails its checksum. */
  corrupt: ((node: NodeId, what: "load" | "log" | "row") => boolean) | null;
  /** Why each halted node has halted. */
  readonly halted: Map<NodeId, string>;
}

export function faultyPorts(faults: StorageFaults, host: Host, ports: Ports, config: NodeConfig): Ports {
  const { id } = config;
  const { storage } = ports;
  const check = (what: "load" | "log" | "row") => {
    if (faults.corrupt?.(id, what) === true) throw new CorruptionError(`the ${what} of node ${id} fails its checksum`);
  };
  return {
    ...ports,
    storage: {
      load: () => {
        check("load");
        return { ...storage.load(), halted: faults.halted.get(id) ?? null };
      },
      write: (batch) => write(faults, host, ports, batch),
      logIndexWithin: (bytesMax) => storage.logIndexWithin(bytesMax),
      readLog(from, to, bytesMax) {
        check("log");
        return storage.readLog(from, to, bytesMax);
      },
      get(key) {
        check("row");
        return storage.get(key);
      },
      scan(range) {
        check("row");
        return storage.scan(range);
      },
      snapshot: storage.snapshot,
      staging: faultyStaging(faults, id, ports),
      spool: storage.spool,
      scrub: storage.scrub,
      get stateHash() {
        return storage.stateHash;
      },
      cleanUp: () => storage.cleanUp(),
      get bytes() {
        return storage.bytes;
      },
      afterSync: (done) => storage.afterSync(done),
    },
  };
}

function faultyStaging(faults: StorageFaults, node: NodeId, ports: Ports): SnapshotStaging {
  const { staging } = ports.storage;
  const around = <T>(kind: keyof SnapshotStaging, work: () => T): T => {
    strike(faults, ports, { node, kind, when: "before" });
    const done = work();
    strike(faults, ports, { node, kind, when: "after" });
    return done;
  };
  return {
    begin: (manifest) => around("begin", () => staging.begin(manifest)),
    add: (chunk) => around("add", () => staging.add(chunk)),
    state: () => staging.state(),
    discard: () => around("discard", () => staging.discard()),
  };
}

/** Statement by statement, so that a fault can strike between any two. */
function write(faults: StorageFaults, host: Host, ports: Ports, batch: WriteBatch): void {
  const { halted, ...rest } = batch;
  const { id: node } = host;
  if (faults.onStatement === null) ports.storage.write(rest);
  else {
    for (const single of statementsOf(rest)) {
      const [kind] = Object.keys(single) as (keyof WriteBatch)[];
      if (kind === undefined) continue;
      strike(faults, ports, { node, kind, when: "before" });
      ports.storage.write(single);
      strike(faults, ports, { node, kind, when: "after" });
    }
  }
  if (halted !== undefined) ports.storage.write({});
  if (halted === undefined && rest.reset === undefined) return;
  const before = faults.halted.get(node);
  host.disk.journal.push(() => {
    if (before === undefined) faults.halted.delete(node);
    else faults.halted.set(node, before);
  });
  if (halted === undefined) faults.halted.delete(node);
  else faults.halted.set(node, halted);
}

function strike(faults: StorageFaults, ports: Ports, statement: Statement): void {
  const fault = faults.onStatement?.(statement);
  if (fault === undefined) return;
  if (fault === "crash") ports.abort("crash");
  throw new Error(`${fault} ${statement.when} ${statement.kind}`);
}

export function unseenHalting(runtime: Runtime): Runtime {
  let starting = false;
  return {
    ...runtime,
    start() {
      runtime.start();
      starting = true;
    },
    /** The world asks once, right after the start, and does not allow a halted node. */
    status() {
      const status = runtime.status();
      if (!starting) return status;
      starting = false;
      return { ...status, halted: null };
    },
  };
}

function statementsOf(batch: WriteBatch): WriteBatch[] {
  const { append = [], state = [], ...rest } = batch;
  const { reset, identity, hardState, truncateFrom, install, dropThrough, fence } = rest;
  return [
    ...(reset === undefined ? [] : [{ reset }]),
    ...(identity === undefined ? [] : [{ identity }]),
    ...(hardState === undefined ? [] : [{ hardState }]),
    ...(truncateFrom === undefined ? [] : [{ truncateFrom }]),
    ...(install === undefined ? [] : [{ install }]),
    ...append.map((entry) => ({ append: [entry] })),
    ...(dropThrough === undefined ? [] : [{ dropThrough }]),
    ...(fence === undefined ? [] : [{ fence }]),
    ...state.map((row) => ({ state: [row] })),
  ];
}
