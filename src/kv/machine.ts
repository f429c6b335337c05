/**
 * The state machine's face to the node: entries in, outcomes and events out; queries from the state as it is.
 *
 * Must not: read a clock, a random number or a limit that somebody configured. The state after an entry is a function of
 * (state before, entry), on every node alike (S12).
 * A1. Entries come in order, each once; the position is in the meta row, written with the rows that it covers.
 * A2. A command takes effect whole or not at all: it runs in a draft (state.ts M1).
 * A3. The revision moves by one for a command with at least one event and not otherwise; it never falls.
 * A4. Equal applied indexes have equal digests on all nodes, however the entries were batched.
 * A payload that is not a proposal is our own bug and throws; the node halts. The machine is then not to be used again.
 */
import { assert, unreachable } from "../base/assert.ts";
import { ConcordError, type ErrorBody } from "../base/errors.ts";
import { hashDigits, hashText } from "../base/hash.ts";
import type { ChangeEvent, Command, CommandResult, Outcome, Proposal, Query, QueryResult } from "./command.ts";
import { compact, isRemovalPending, removeCompacted } from "./compaction.ts";
import { markHistory } from "./history-marks.ts";
import { answerWithoutRunning, evictResults, type OldestResult, storeResult } from "./idempotency.ts";
import { expireLeases, raiseLeaseFloor } from "./lease-expiry.ts";
import { grantLease, keepAlive, revokeLease } from "./leases.ts";
import { applyChanges, type Change, Overlay } from "./overlay.ts";
import { runQuery } from "./queries.ts";
import { isRestore, type Origin, RESTORING, readOrigin, runRestore } from "./restoring.ts";
import { ORIGIN_ROW } from "./rows.ts";
import { type Draft, type Meta, readMeta, writeMeta } from "./state.ts";
import type { OrderedStore } from "./store.ts";
import { runTxn } from "./txn.ts";

/** One committed entry, as the machine sees it. An empty payload (`leader_start`) changes nothing but the position. */
export interface AppliedEntry {
  readonly index: number;
  readonly timeMs: number;
  readonly payload: string;
}

export interface Applied {
  readonly index: number;
  /** Null for an empty payload. */
  readonly outcome: Outcome<CommandResult> | null;
  readonly events: readonly ChangeEvent[];
  /** Running digest after this entry. */
  readonly digest: string;
}

export interface Machine {
  readonly store: OrderedStore;
  readonly appliedIndex: number;
  readonly revision: number;
  readonly compactRevision: number;
  readonly digest: string;
  readonly timeMs: number;
  /** Compared with the quota at admission (design 01 §5, quota.ts). */
  readonly logicalBytes: number;
  /** No lease ends before it (lease-expiry.ts X2). */
  readonly leaseFloorMs: number;
  /** Rows of compacted history are left to remove: the leader proposes `compact_remove` until this is false. */
  readonly removalPending: boolean;
  /** Bytes of all changes ever made (history-marks.ts). */
  readonly historyBytes: number;
  /** The name that the last restore gave the cluster; null: nothing was ever restored. */
  readonly clusterId: string | null;
  /** Rows of a backup are coming in: nothing is served, and nothing in the rows is due (restoring.ts R1). */
  readonly isRestoring: boolean;
  /** For this folder only: position and counters, and what saves reading rows again. */
  readonly internal: Internal;
}

interface Internal {
  meta: Meta;
  origin: Origin;
  readonly stage: Overlay;
  oldestResult: OldestResult;
}

/** Reads the machine's meta row; an empty store is a machine at index 0, revision 0. */
export function openMachine(store: OrderedStore): Machine {
  const internal: Internal = {
    meta: readMeta(store),
    origin: readOrigin(store),
    stage: new Overlay(store),
    oldestResult: noResult(),
  };
  return {
    store,
    internal,
    get appliedIndex() {
      return internal.meta.index;
    },
    get revision() {
      return internal.meta.revision;
    },
    get compactRevision() {
      return internal.meta.compactRevision;
    },
    get digest() {
      return hashDigits(internal.meta.digest);
    },
    get timeMs() {
      return internal.meta.timeMs;
    },
    get logicalBytes() {
      return internal.meta.logicalBytes;
    },
    get leaseFloorMs() {
      return internal.meta.leaseFloorMs;
    },
    get removalPending() {
      return isRemovalPending(internal.meta);
    },
    get historyBytes() {
      return internal.meta.historyBytes;
    },
    get clusterId() {
      return internal.origin.clusterId;
    },
    get isRestoring() {
      return internal.origin.restoring !== null;
    },
  };
}

function noResult(): OldestResult {
  return { sequence: 0, order: null };
}

/** Applies entries in order (index = appliedIndex + 1, …) and leaves the meta row written: rows and position agree. */
export function applyEntries(machine: Machine, entries: readonly AppliedEntry[]): Applied[] {
  if (entries.length === 0) return [];
  const applied = entries.map((entry) => applyEntry(machine, entry));
  writeMeta(machine.store, machine.internal.meta);
  return applied;
}

/** Answers a query from the state as it is; `nowMs` only for the remaining time of leases. */
export function evaluateQuery(machine: Machine, query: Query, nowMs: number): Outcome<QueryResult> {
  const { meta } = machine.internal;
  if (machine.isRestoring) return { ok: false, revision: meta.revision, error: RESTORING };
  try {
    const result = runQuery({ store: machine.store, meta, timeMs: nowMs }, query);
    return { ok: true, revision: meta.revision, result };
  } catch (error) {
    return { ok: false, revision: meta.revision, error: refusalOf(error) };
  }
}

function applyEntry(machine: Machine, entry: AppliedEntry): Applied {
  const { internal } = machine;
  const before = internal.meta;
  assert(entry.index === before.index + 1, `entry ${entry.index} applied after ${before.index}`);
  assert(entry.timeMs >= before.timeMs, `time of entry ${entry.index} fell from ${before.timeMs} to ${entry.timeMs}`);
  assert(internal.stage.size === 0, `the stage holds ${internal.stage.size} rows of an earlier entry`);
  const draft = beginDraft(internal, entry);
  const ran = entry.payload === "" ? null : applyProposal(internal, draft, JSON.parse(entry.payload));
  const after = ran === null ? draft : ran.draft;
  const changes = internal.stage.drain();
  after.meta.digest = digestOf(after.meta, changes);
  applyChanges(machine.store, changes);
  internal.meta = after.meta;
  if (changes.some(([row]) => row === ORIGIN_ROW)) {
    internal.origin = readOrigin(machine.store);
    internal.oldestResult = noResult();
  }
  return {
    index: entry.index,
    outcome: ran === null ? null : ran.outcome,
    events: after.events,
    digest: hashDigits(after.meta.digest),
  };
}

function beginDraft(internal: Internal, entry: AppliedEntry): Draft {
  const meta = { ...internal.meta, index: entry.index, timeMs: entry.timeMs };
  return { store: internal.stage, meta, timeMs: entry.timeMs, revision: meta.revision + 1, events: [] };
}

interface Ran {
  readonly draft: Draft;
  readonly outcome: Outcome<CommandResult>;
}

function applyProposal(internal: Internal, draft: Draft, proposal: Proposal): Ran {
  assert(proposal.format === 1, `proposal format ${proposal.format}, this program applies 1`);
  const { command, idempotency } = proposal;
  if (isRestore(command)) return runWhole(internal, draft, command);
  if (internal.origin.restoring !== null) {
    return { draft, outcome: { ok: false, revision: draft.meta.revision, error: RESTORING } };
  }
  const known = idempotency === undefined ? null : answerWithoutRunning(draft, idempotency);
  let ran: Ran;
  if (known !== null) ran = { draft, outcome: known };
  else {
    ran = runWhole(internal, draft, command);
    if (idempotency !== undefined) storeResult(ran.draft, idempotency, ran.outcome, draft.revision - 1);
  }
  evictResults(ran.draft, internal.oldestResult, ran.draft.meta.revision);
  return ran;
}

/** Runs a command to its end, or refuses it and leaves a draft in which nothing happened. */
function runWhole(internal: Internal, draft: Draft, command: Command): Ran {
  const untouched = { ...draft.meta };
  try {
    const result = runCommand(draft, command);
    if (draft.events.length > 0) {
      draft.meta.revision = draft.revision;
      markHistory(draft);
    }
    return { draft, outcome: { ok: true, revision: draft.meta.revision, result } };
  } catch (error) {
    const refusal = refusalOf(error);
    internal.stage.discard();
    const clean: Draft = { ...draft, meta: untouched, events: [] };
    return { draft: clean, outcome: { ok: false, revision: untouched.revision, error: refusal } };
  }
}

function runCommand(draft: Draft, command: Command): CommandResult {
  switch (command.kind) {
    case "txn": {
      const { succeeded, revision, responses } = runTxn(draft, command);
      return { kind: "txn", succeeded, revision, responses };
    }
    case "lease_grant":
      return grantLease(draft, command);
    case "lease_revoke":
      return revokeLease(draft, command.id);
    case "lease_keep_alive":
      return keepAlive(draft, command.items);
    case "lease_expire":
      return expireLeases(draft, command.leases);
    case "lease_floor":
      return raiseLeaseFloor(draft, command.floor_ms);
    case "compact":
      return compact(draft, command.revision);
    case "compact_remove":
      return removeCompacted(draft, command.rows_max);
    case "restore_begin":
    case "restore_rows":
    case "restore_end":
      return runRestore(draft, command);
    default:
      return unreachable(command);
  }
}

/** Only a refusal is an answer; everything else is a bug and goes on. */
function refusalOf(error: unknown): ErrorBody {
  if (error instanceof ConcordError) return error.body;
  throw error;
}

/** Chains position, counters and every changed row; the stage hands the rows over in key order (overlay.ts V3). */
function digestOf(meta: Meta, changes: readonly Change[]): number {
  const { index, timeMs, revision, compactRevision, leaseCounter, idemFloor, idemBytes, logicalBytes } = meta;
  const { leaseFloorMs, removedRevision, removedOpIndex, historyBytes, markRevision } = meta;
  let digest = hashText(
    `${index},${timeMs},${revision},${compactRevision},${leaseCounter},${idemFloor},${idemBytes},${logicalBytes},` +
      `${leaseFloorMs},${removedRevision},${removedOpIndex},${historyBytes},${markRevision}`,
    meta.digest,
  );
  for (const [key, value] of changes) {
    digest = hashText(key, digest);
    digest = hashText(value ?? DELETED, digest);
  }
  return digest;
}

/** No row holds this text: JSON escapes NUL. */
const DELETED = "\u0000";
