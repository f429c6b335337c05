/** Deliberate bugs of snapshots, of the end of the log, and of disks that lie (see mutants.ts). */

import { META_ROW } from "../../src/kv/rows.ts";
import type { Row } from "../../src/kv/store.ts";
import {
  CorruptionError,
  type NodeStorage,
  type PeerBody,
  type Ports,
  type SealedRow,
  type SnapshotManifest,
  type WriteBatch,
} from "../../src/node-object/ports.ts";
import type { Runtime } from "../../src/node-object/runtime.ts";
import { NO_SUMS, withRow } from "../../src/node-object/state-seals.ts";
import type { step } from "../../src/raft/step.ts";
import type { Mutant } from "./mutants.ts";
import { overridden } from "./overridden.ts";

type Step = typeof step;

/** Members fall behind again and again, and the log is short. */
const LATECOMERS = {
  kinds: ["crash", "pause", "full_partition", "wiped_disk", "snapshot_in_flight"],
  logKeepEntries: 10,
  chunkBytesMax: 3000,
  faultEveryMs: 80,
  thinkMsMax: 20,
  size: 5,
  quiesceAfterMs: Number.POSITIVE_INFINITY,
  restEveryMs: null,
  watchers: 0,
} as const;

export const STORAGE_MUTANTS: readonly Mutant[] = [
  {
    name: "swap the state without its position",
    mutation: { ports: (ports) => installing(ports, (rows, before) => replacing(rows, before, [META_ROW])) },
    profile: LATECOMERS,
  },
  {
    name: "swap the position without the state",
    mutation: { ports: (ports) => installing(ports, keepingAllBut(META_ROW)) },
    profile: LATECOMERS,
  },
  {
    name: "install a stale snapshot",
    mutation: { step: installRegardless, runtime: repeatTransfers },
    profile: LATECOMERS,
  },
  {
    name: "leave a table out of the snapshot",
    mutation: { ports: (ports) => leavingOut(ports, "i") },
    profile: LATECOMERS,
  },
  {
    name: "truncate the log above what is durable",
    mutation: { step: truncateWhatIsApplied },
    profile: LATECOMERS,
  },
  {
    name: "take a row for gone that fails its seal",
    mutation: { ports: trustingReads },
    profile: { ...LATECOMERS, kinds: ["disk_corruption", "crash"] },
  },
  {
    name: "never look at the rows again",
    mutation: {
      ports: (ports) => {
        const scrub = { step: () => ({ afterKey: null, ...NO_SUMS }) };
        return { ...ports, storage: overridden(ports.storage, { scrub }) };
      },
    },
    profile: { ...LATECOMERS, kinds: ["disk_corruption"] },
  },
];

// --- around the install ----------------------------------------------------------------------------------------------

type Changes = NonNullable<WriteBatch["state"]>;

/** What else is written in the turn of an install, by the rows after and before it. */
function installing(ports: Ports, then: (after: readonly Row[], before: readonly Row[]) => Changes): Ports {
  const { storage } = ports;
  const write: NodeStorage["write"] = (batch) => {
    if (batch.install === undefined) {
      storage.write(batch);
      return;
    }
    const before = allRows(storage);
    storage.write(batch);
    storage.write({ state: then(allRows(storage), before) });
  };
  return { ...ports, storage: overridden(storage, { write }) };
}

function allRows(storage: NodeStorage): Row[] {
  return storage.scan({ start: "", end: "\u{10ffff}", limit: Number.MAX_SAFE_INTEGER });
}

/** These rows are as they were. */
function replacing(_after: readonly Row[], before: readonly Row[], keys: readonly string[]): Changes {
  const old = new Map(before);
  return keys.map((key) => [key, old.get(key) ?? null] as const);
}

function keepingAllBut(key: string): (after: readonly Row[], before: readonly Row[]) => Changes {
  return (after, before) => {
    const keys = new Set([...after, ...before].map(([one]) => one));
    keys.delete(key);
    return replacing(after, before, [...keys]);
  };
}

// --- around the source -----------------------------------------------------------------------------------------------

/** Neither the rows nor the promise of the whole know of this table. */
function leavingOut(ports: Ports, table: string): Ports {
  const { snapshot } = ports.storage;
  let promised: SnapshotManifest | null = null;
  const isKept = ([key]: SealedRow): boolean => !key.startsWith(table);
  const begin: typeof snapshot.begin = (position) => {
    if (snapshot.begin(position) === null) return null;
    let sums = NO_SUMS;
    let after: string | null = null;
    for (;;) {
      const chunk = snapshot.read(after, Number.MAX_SAFE_INTEGER);
      if (chunk === null) break;
      sums = chunk.rows.filter(isKept).reduce(withRow, sums);
      after = chunk.rows.at(-1)?.[0] ?? after;
      if (chunk.last) break;
    }
    promised = { position, ...sums };
    return promised;
  };
  const read: typeof snapshot.read = (after, bytesMax) => {
    let chunk = snapshot.read(after, bytesMax);
    // A chunk of nothing else has no end to ask behind.
    while (chunk !== null && !chunk.last && !chunk.rows.some(isKept)) {
      chunk = snapshot.read(chunk.rows.at(-1)?.[0] ?? after, bytesMax);
    }
    return chunk === null ? null : { ...chunk, after, rows: chunk.rows.filter(isKept) };
  };
  return { ...ports, storage: overridden(ports.storage, { snapshot: { ...snapshot, begin, read } }) };
}

// --- around the core -------------------------------------------------------------------------------------------------

/** Whatever is offered is fetched, and whatever has been fetched is taken in. */
function installRegardless(real: Step): Step {
  return (state, event, nowMs, wallMs) => {
    if (event.kind === "message" && event.message.kind === "snapshot_offer") {
      const { from, message } = event;
      const output = real(state, event, nowMs, wallMs);
      return message.term < state.term ? output : { ...output, snapshotOffer: { from, snapshot: message.snapshot } };
    }
    if (event.kind === "snapshot_staged" && event.snapshot.index >= state.log.base.index) {
      state.commit = Math.min(state.commit, event.snapshot.index - 1);
    }
    return real(state, event, nowMs, wallMs);
  };
}

const REPEATED_AFTER_APPENDS = 10;

/** A network that brings the last transfer again, when the node has gone on for a while. */
function repeatTransfers(runtime: Runtime): Runtime {
  let arriving: ChunkBody[] = [];
  let whole: readonly ChunkBody[] = [];
  let appends = 0;
  return overridden(runtime, {
    onPeer(envelope) {
      const { body } = envelope;
      runtime.onPeer(envelope);
      if (body.kind === "snapshot_chunk") {
        if (body.chunk.after === null) arriving = [];
        arriving.push(body);
        if (body.chunk.last) [whole, appends] = [arriving, 0];
      }
      if (body.kind !== "raft" || body.message.kind !== "append" || body.message.entries.length === 0) return;
      appends += 1;
      const [first] = whole;
      if (first === undefined || appends !== REPEATED_AFTER_APPENDS) return;
      const { term } = body.message;
      const message = { kind: "snapshot_offer", term, snapshot: first.manifest.position } as const;
      runtime.onPeer({ ...envelope, body: { kind: "raft", message } });
      // The first one comes again until the place is clear.
      for (const chunk of [first, first, ...whole]) runtime.onPeer({ ...envelope, body: chunk });
    },
  });
}

type ChunkBody = Extract<PeerBody, { kind: "snapshot_chunk" }>;

const KEPT_ENTRIES = 10;

/** A follower lets go of every entry that it has applied, written out or not. */
function truncateWhatIsApplied(real: Step): Step {
  return (state, event, nowMs, wallMs) => {
    const index = state.commit;
    const output = real(state, event, nowMs, wallMs);
    const isAppend = event.kind === "message" && event.message.kind === "append";
    if (!isAppend || index < state.log.base.index + KEPT_ENTRIES) return output;
    const cut = real(state, { kind: "truncate_log", index }, nowMs, wallMs).persist;
    if (cut === null) return output;
    const persist = output.persist === null ? cut : { ...output.persist, dropThrough: cut.dropThrough };
    return { ...output, persist };
  };
}

// --- around reads ----------------------------------------------------------------------------------------------------

function trustingReads(ports: Ports): Ports {
  const { storage } = ports;
  const trusting = <T>(work: () => T, otherwise: T): T => {
    try {
      return work();
    } catch (error) {
      if (error instanceof CorruptionError) return otherwise;
      throw error;
    }
  };
  return {
    ...ports,
    storage: overridden(storage, {
      get: (key) => trusting(() => storage.get(key), undefined),
      scan: (range) => trusting(() => storage.scan(range), []),
    }),
  };
}
