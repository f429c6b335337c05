/**
 * Deliberate bugs of leases, compaction, watches and sleep (see mutants.ts). Those of the state machine are woven around
 * `apply`, in every node and in the replay that the safety checks go by: digests agree, and only the model can object.
 */
import type { Command, Operation, Proposal } from "../../src/kv/command.ts";
import { decodeLease } from "../../src/kv/leases.ts";
import type { AppliedEntry, applyEntries, Machine } from "../../src/kv/machine.ts";
import { endOf } from "../../src/kv/position.ts";
import { readCurrent } from "../../src/kv/records.ts";
import { expiryRow, historyRow, leaseRow, positionOfRow } from "../../src/kv/rows.ts";
import type { Ports } from "../../src/node-object/ports.ts";
import type { Runtime } from "../../src/node-object/runtime.ts";
import type { step } from "../../src/raft/step.ts";
import type { Frame } from "../../src/watch/frames.ts";
import type { Mutant } from "./mutants.ts";

type Apply = typeof applyEntries;
type Step = typeof step;

export const DATABASE_MUTANTS: readonly Mutant[] = [
  {
    name: "expire a renewed lease",
    mutation: {
      apply: around((machine, entry, command) => {
        if (command.kind === "lease_expire") for (const seen of command.leases) takeBack(machine, seen);
        return entry;
      }),
    },
    // A renewal must be under way when the leader decides: slow disks, and owners that come at the last moment.
    profile: {
      kinds: ["delay"],
      syncMsMax: 8,
      slowSyncRate: 0.3,
      slowSyncMsMax: 100,
      networkMsMax: 10,
      lateKeepers: 1,
    },
  },
  {
    name: "drop a tombstone at compaction",
    mutation: { apply: dropTombstones },
    profile: { kinds: [] },
  },
  {
    name: "keep a stale lease attachment",
    mutation: { apply: around((machine, entry, command) => keepAttachments(machine, entry, command)) },
    profile: { kinds: [] },
  },
  {
    name: "skip a watch event on resume",
    mutation: { runtime: resumeTooLate },
    profile: { kinds: ["crash", "eviction"], watchers: 5 },
  },
  {
    name: "skip a watch event after an eviction",
    mutation: { ports: restoreTooLate },
    profile: { kinds: ["eviction", "quiescence"], watchers: 5, faultEveryMs: 150 },
  },
  {
    name: "emit progress early",
    mutation: { ports: progressFirst },
    profile: { kinds: [], watchers: 5 },
  },
  {
    name: "quiesce while a member with watches is behind",
    mutation: { step: sleepRegardless },
    profile: { kinds: ["quiescence"], quiesceAfterMs: 600, watchers: 5, size: 5 },
  },
  {
    name: "quiesce before the last entry is everywhere",
    mutation: { step: followRegardless },
    profile: { kinds: ["quiescence"], quiesceAfterMs: 600, watchers: 0, size: 5 },
  },
];

// --- around apply ----------------------------------------------------------------------------------------------------

/** Changes the state, or an entry, just before the entry is applied. */
function around(
  tamper: (machine: Machine, entry: AppliedEntry, command: Command) => AppliedEntry,
): (real: Apply) => Apply {
  return (real) => (machine, entries) => {
    return entries.flatMap((entry) => {
      if (entry.payload === "") return real(machine, [entry]);
      const { command }: Proposal = JSON.parse(entry.payload);
      return real(machine, [tamper(machine, entry, command)]);
    });
  };
}

/** The lease has the expiry again that the leader saw, whatever came since. */
function takeBack({ store }: Machine, seen: { readonly id: number; readonly expires_at_ms: number }): void {
  const row = store.get(leaseRow(seen.id));
  if (row === undefined) return;
  const { expiresAtMs } = decodeLease(row);
  store.delete(expiryRow(expiresAtMs, seen.id));
  store.put(expiryRow(seen.expires_at_ms, seen.id), "");
  store.put(leaseRow(seen.id), row.replace(`,${expiresAtMs},`, `,${seen.expires_at_ms},`));
}

/** Removal begins with what marks a key as gone. */
function dropTombstones(real: Apply): Apply {
  return (machine, entries) => {
    return entries.flatMap((entry) => {
      const before = machine.compactRevision;
      const applied = real(machine, [entry]);
      if (machine.compactRevision === before) return applied;
      const { store } = machine;
      for (const [row, text] of store.scan({ start: "k", end: "l", limit: Number.MAX_SAFE_INTEGER })) {
        const [revision, opIndex] = positionOfRow(row);
        if (text !== "d" || revision > machine.compactRevision) continue;
        store.delete(row);
        store.delete(historyRow(revision, opIndex));
      }
      return applied;
    });
  };
}

/** A put without a lease leaves its key where it was. */
function keepAttachments(machine: Machine, entry: AppliedEntry, command: Command): AppliedEntry {
  if (command.kind !== "txn") return entry;
  const keep = (operation: Operation): Operation => {
    if (operation.type !== "put" || operation.lease !== undefined || operation.ttl !== undefined) return operation;
    const attached = (readCurrent(machine.store, operation.key)?.leaseId ?? 0) !== 0;
    return attached ? { ...operation, ignore_lease: true } : operation;
  };
  const proposal: Proposal = JSON.parse(entry.payload);
  const { success, failure } = command;
  const changed: Proposal = {
    ...proposal,
    command: { ...command, success: success.map(keep), failure: failure.map(keep) },
  };
  return { ...entry, payload: JSON.stringify(changed) };
}

// --- around watches --------------------------------------------------------------------------------------------------

/** One revision too far, and the client is none the wiser. */
function resumeTooLate(runtime: Runtime): Runtime {
  const subscribe: Runtime["watches"]["subscribe"] = (subscription) => {
    const { afterPosition } = subscription;
    if (afterPosition === undefined) return runtime.watches.subscribe(subscription);
    const later = endOf(afterPosition.revision + 1);
    const subscribed = runtime.watches.subscribe({ ...subscription, afterPosition: later });
    return subscribed.ok ? { ok: true, position: afterPosition } : subscribed;
  };
  return { ...runtime, watches: { ...runtime.watches, subscribe } };
}

function restoreTooLate(ports: Ports): Ports {
  const restore: Ports["watchers"]["restore"] = () => {
    return ports.watchers.restore().map(({ options, saved }) => {
      return { options, saved: { ...saved, position: endOf(saved.position.revision + 1) } };
    });
  };
  return { ...ports, watchers: { ...ports.watchers, restore } };
}

/** The revision of a frame is called complete before the frame is sent. */
function progressFirst(ports: Ports): Ports {
  const ready = new Set<string>();
  const send: Ports["watchers"]["send"] = (frames, positionsOf) => {
    const sent: Frame[] = [];
    for (const frame of frames) {
      if (frame.kind === "leader_changed") continue;
      const { connection, watchId } = frame;
      const watch = `${connection} ${watchId}`;
      if (frame.kind === "ready") ready.add(watch);
      if (frame.kind === "events" && frame.complete && frame.events.length > 0 && ready.has(watch)) {
        const { position } = frame;
        sent.push({ kind: "progress", connection, watchId, revision: position.revision, position });
      }
      sent.push(frame);
    }
    ports.watchers.send(sent, positionsOf);
  };
  return { ...ports, watchers: { ...ports.watchers, send } };
}

// --- around the core -------------------------------------------------------------------------------------------------

/** The leader takes every member to hold what it holds itself, for as long as it decides whether to sleep. */
function sleepRegardless(real: Step): Step {
  return (state, event, nowMs, wallMs) => {
    const { role, log, commit } = state;
    if (event.kind !== "quiesce" || role.kind !== "leader") return real(state, event, nowMs, wallMs);
    const before = [...role.progress].map(([id, progress]) => [id, { ...progress }] as const);
    for (const progress of role.progress.values()) {
      Object.assign(progress, { match: log.lastIndex, next: log.lastIndex + 1, sentCommit: commit, heardAtMs: nowMs });
    }
    const output = real(state, event, nowMs, wallMs);
    for (const [id, progress] of before) Object.assign(role.progress.get(id) ?? {}, progress);
    return output;
  };
}

/** Nor does a follower look whether it has all that its leader has. */
function followRegardless(real: Step): Step {
  const sleep = sleepRegardless(real);
  return (state, event, nowMs, wallMs) => {
    if (event.kind !== "message" || event.message.kind !== "quiesce") return sleep(state, event, nowMs, wallMs);
    const message = { ...event.message, index: state.commit, commit: state.commit };
    return real(state, { ...event, message }, nowMs, wallMs);
  };
}
