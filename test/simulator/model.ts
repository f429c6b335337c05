/**
 * What the database means, written a second time and as simply as possible: the checkers replay the committed log
 * through it and compare every answer that a client got. It shares no code with `src/kv`; it knows only the commands
 * that the workload sends and those of the leader.
 *
 * Keys of the payload are byte strings; their order is that of their bytes, decided here by encoding and comparing.
 * Nothing is ever forgotten here: compaction only moves the number below which a reader must be refused.
 */
import type { JsonValue } from "../../src/base/json.ts";
import type { Command, Compare, Operation, Proposal, Selector } from "../../src/kv/command.ts";
import {
  detach,
  expire,
  grant,
  type Held,
  keepAlive,
  moveKey,
  raiseFloor,
  remainingMs,
  revoke,
} from "./model-leases.ts";
import { listText, recordText } from "./model-text.ts";

export interface ModelRecord {
  readonly key: string;
  readonly value: JsonValue;
  readonly create: number;
  readonly mod: number;
  readonly version: number;
  readonly lease: number | null;
  /** Of a record with a TTL of its own. */
  readonly expiresAtMs: number | null;
  readonly dueAtMs: number | null;
}

/** One change of one key: `after` null = it was deleted. */
export interface ModelChange {
  readonly revision: number;
  readonly opIndex: number;
  readonly key: string;
  readonly before: ModelRecord | null;
  readonly after: ModelRecord | null;
}

export interface Model {
  index: number;
  /** Of the last entry. */
  timeMs: number;
  revision: number;
  compactRevision: number;
  held: Held;
  readonly results: Map<string, { readonly hash: string; readonly answer: ModelAnswer }>;
  /** Every change there ever was, oldest first. */
  readonly changes: ModelChange[];
  /** The same by key. */
  readonly versions: Map<string, ModelChange[]>;
}

/** An answer reduced to what the model can know, as text: equal texts are equal answers. */
export interface ModelAnswer {
  readonly text: string;
  readonly revision: number;
}

export function createModel(): Model {
  return {
    index: 0,
    timeMs: 0,
    revision: 0,
    compactRevision: 0,
    held: { records: new Map(), leases: new Map(), leaseCounter: 0, floorMs: 0 },
    results: new Map(),
    changes: [],
    versions: new Map(),
  };
}

/** Applies one committed entry and says what its proposer must be told; null for an empty payload. */
export function applyModel(model: Model, entry: { readonly timeMs: number; readonly payload: string }): ModelAnswer {
  model.index += 1;
  model.timeMs = entry.timeMs;
  if (entry.payload === "") return { text: "", revision: model.revision };
  const { command, idempotency }: Proposal = JSON.parse(entry.payload);
  const name = idempotency === undefined ? null : `${idempotency.scope} ${idempotency.key}`;
  const known = name === null ? undefined : model.results.get(name);
  if (known !== undefined && idempotency !== undefined) {
    return known.hash === idempotency.hash ? known.answer : failure(model, "idempotency_conflict");
  }
  const answer = run(model, command);
  if (name !== null && idempotency !== undefined) model.results.set(name, { hash: idempotency.hash, answer });
  return answer;
}

/** A command that cannot be done fails whole. */
export class Refused extends Error {
  readonly code: string;
  constructor(code: string) {
    super(code);
    this.code = code;
  }
}

function failure(model: Model, code: string): ModelAnswer {
  return { text: `error ${code}`, revision: model.revision };
}

/** What a command does, before it is certain that it can be done. */
export interface Draft extends Held {
  readonly model: Model;
  readonly revision: number;
  readonly timeMs: number;
  readonly changes: ModelChange[];
}

function run(model: Model, command: Command): ModelAnswer {
  const { records, leases, leaseCounter, floorMs } = model.held;
  const draft: Draft = {
    model,
    revision: model.revision + 1,
    timeMs: model.timeMs,
    changes: [],
    records: new Map(records),
    leases: new Map(leases),
    leaseCounter,
    floorMs,
  };
  try {
    const text = runCommand(draft, command);
    if (draft.changes.length > 0) model.revision = draft.revision;
    model.held = draft;
    for (const change of draft.changes) {
      model.changes.push(change);
      const versions = model.versions.get(change.key);
      if (versions === undefined) model.versions.set(change.key, [change]);
      else versions.push(change);
    }
    return { text, revision: model.revision };
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    return failure(model, error.code);
  }
}

function runCommand(draft: Draft, command: Command): string {
  const { model } = draft;
  switch (command.kind) {
    case "txn": {
      const succeeded = command.compare.every((compare) => holds(draft, compare));
      const responses = (succeeded ? command.success : command.failure).map((operation) => operate(draft, operation));
      return `txn ${succeeded} ${responses.join(" ")}`;
    }
    case "lease_grant":
      return grant(draft, command.id, command.ttl_s);
    case "lease_revoke":
      return revoke(draft, command.id);
    case "lease_keep_alive":
      return keepAlive(draft, command.items);
    case "lease_expire":
      return expire(draft, command.leases);
    case "lease_floor":
      return raiseFloor(draft, command.floor_ms);
    case "compact":
      if (command.revision > model.revision) throw new Refused("revision_in_future");
      model.compactRevision = Math.max(model.compactRevision, command.revision);
      return `compacted ${model.compactRevision}`;
    case "compact_remove":
      return "removed";
    case "restore_begin":
    case "restore_rows":
    case "restore_end":
      throw new Error(`${command.kind} is no command of the model`);
  }
}

export function change(draft: Draft, key: string, after: ModelRecord | null): void {
  const before = draft.records.get(key) ?? null;
  if (after === null) draft.records.delete(key);
  else draft.records.set(key, after);
  draft.changes.push({ revision: draft.revision, opIndex: draft.changes.length, key, before, after });
}

function holds(draft: Draft, compare: Compare): boolean {
  const record = draft.records.get(compare.key);
  switch (compare.target) {
    case "exists":
      return (record !== undefined) === compare.value;
    case "version":
      return (record?.version ?? 0) === compare.value;
    case "mod_revision":
      return (record?.mod ?? 0) === compare.value;
    case "lease":
      return (record?.lease ?? null) === compare.value;
    case "ttl": {
      const lease = record?.lease == null ? undefined : draft.leases.get(record.lease);
      const seconds = lease === undefined ? null : remainingMs(draft, lease, draft.timeMs) / 1000;
      if (compare.op !== ">" || compare.value === null) throw new Error(`the model does not know ttl ${compare.op}`);
      return seconds !== null && seconds > compare.value;
    }
    case "value": {
      const expected = compare.value !== null && "json" in compare.value ? compare.value.json : null;
      return JSON.stringify(record?.value ?? null) === JSON.stringify(expected);
    }
    default:
      throw new Error(`the model does not know compare ${compare.target}`);
  }
}

function operate(draft: Draft, operation: Operation): string {
  switch (operation.type) {
    case "put":
      return put(draft, operation);
    case "delete": {
      const found = select(draft.records, operation.selector);
      for (const { key } of found) remove(draft, key);
      const previous = operation.prev_kv === true ? ` was ${found.map(recordText).join(",")}` : "";
      return `deleted ${found.length}${previous};`;
    }
    case "get":
      return listText(select(draft.records, operation.selector), operation.limit);
    case "touch": {
      const before = draft.records.get(operation.key);
      if (before === undefined) return "touched nothing;";
      const attached = moveKey(draft, operation.key, { ttl: operation.ttl });
      change(draft, operation.key, { ...before, ...attached, mod: draft.revision, version: before.version + 1 });
      return `touched ${attached.expiresAtMs};`;
    }
  }
}

function put(draft: Draft, operation: Extract<Operation, { type: "put" }>): string {
  const suffix = operation.revision_suffix === true ? String(draft.revision).padStart(16, "0") : "";
  const key = operation.key + suffix;
  const before = draft.records.get(key);
  if (before === undefined && operation.ignore_lease === true) throw new Refused("not_found");
  change(draft, key, {
    key,
    value: operation.value !== undefined && "json" in operation.value ? operation.value.json : null,
    create: before?.create ?? draft.revision,
    mod: draft.revision,
    version: (before?.version ?? 0) + 1,
    ...moveKey(draft, key, operation),
    dueAtMs: operation.due_at_ms ?? null,
  });
  const previous = operation.prev_kv === true ? ` was ${recordText(before ?? null)}` : "";
  return `put ${JSON.stringify(key)}${previous};`;
}

/** Deletes a live record; it leaves its lease. */
export function remove(draft: Draft, key: string): void {
  detach(draft, key);
  change(draft, key, null);
}

export function select(records: ReadonlyMap<string, ModelRecord>, selector: Selector): ModelRecord[] {
  return [...records.values()].filter(({ key }) => selects(selector, key)).sort(byKey);
}

export function selects(selector: Selector, key: string): boolean {
  if ("key" in selector) return key === selector.key;
  if ("prefix" in selector) return key.startsWith(selector.prefix);
  const { start, end } = selector.range;
  return compareKeys(key, start) >= 0 && (end === undefined || compareKeys(key, end) < 0);
}

// --- order -----------------------------------------------------------------------------------------------------------

export function byKey(left: { readonly key: string }, right: { readonly key: string }): number {
  return compareKeys(left.key, right.key);
}

/** Order of the UTF-8 bytes, whether a key came as bytes (as it must) or, by a mistake somewhere, still as text. */
function compareKeys(left: string, right: string): number {
  return Buffer.compare(keyBytes(left), keyBytes(right));
}

function keyBytes(key: string): Buffer {
  for (let position = 0; position < key.length; position += 1) {
    if (key.charCodeAt(position) > 0xff) return Buffer.from(key, "utf8");
  }
  return Buffer.from(key, "latin1");
}
