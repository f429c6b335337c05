/**
 * What the database means, written a second time and as simply as possible: the checkers replay the committed log
 * through it and compare every answer that a client got. It shares no code with `src/kv`; it knows only the commands
 * that the workload sends.
 *
 * Keys of the payload are byte strings; their order is that of their bytes, decided here by encoding and comparing.
 */
import type { JsonValue } from "../../src/base/json.ts";
import type {
  Command,
  CommandResult,
  Compare,
  KeyRecord,
  Operation,
  OperationResult,
  Outcome,
  Proposal,
  Selector,
} from "../../src/kv/command.ts";

export interface ModelRecord {
  readonly key: string;
  readonly value: JsonValue;
  readonly create: number;
  readonly mod: number;
  readonly version: number;
  readonly lease: number | null;
}

interface Version {
  readonly revision: number;
  readonly record: ModelRecord | null;
}

export interface Model {
  revision: number;
  records: Map<string, ModelRecord>;
  leases: Set<number>;
  leaseCounter: number;
  readonly results: Map<string, { readonly hash: string; readonly answer: ModelAnswer }>;
  /** Every version of every key, oldest first. */
  readonly versions: Map<string, Version[]>;
}

/** An answer reduced to what the model can know, as text: equal texts are equal answers. */
export interface ModelAnswer {
  readonly text: string;
  readonly revision: number;
}

export function createModel(): Model {
  return {
    revision: 0,
    records: new Map(),
    leases: new Set(),
    leaseCounter: 0,
    results: new Map(),
    versions: new Map(),
  };
}

/** Applies one committed command and says what its proposer must be told. */
export function applyModel(model: Model, proposal: Proposal): ModelAnswer {
  const { idempotency } = proposal;
  const name = idempotency === undefined ? null : `${idempotency.scope} ${idempotency.key}`;
  const known = name === null ? undefined : model.results.get(name);
  if (known !== undefined && idempotency !== undefined) {
    return known.hash === idempotency.hash ? known.answer : failure(model, "idempotency_conflict");
  }
  const answer = run(model, proposal.command);
  if (name !== null && idempotency !== undefined) model.results.set(name, { hash: idempotency.hash, answer });
  return answer;
}

class Refused extends Error {
  readonly code: string;
  constructor(code: string) {
    super(code);
    this.code = code;
  }
}

function failure(model: Model, code: string): ModelAnswer {
  return { text: `error ${code}`, revision: model.revision };
}

function run(model: Model, command: Command): ModelAnswer {
  // A draft of everything that may change: a refused command leaves nothing behind.
  const draft: Draft = { next: model.revision + 1, records: new Map(model.records), changes: [], model };
  const leases = new Set(model.leases);
  const { leaseCounter } = model;
  try {
    const text = runCommand(draft, command);
    if (draft.changes.length > 0) model.revision = draft.next;
    model.records = draft.records;
    for (const record of draft.changes) {
      const versions = model.versions.get(record.key) ?? [];
      model.versions.set(record.key, versions);
      versions.push({ revision: draft.next, record: record.after });
    }
    return { text, revision: model.revision };
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    model.leases = leases;
    model.leaseCounter = leaseCounter;
    return failure(model, error.code);
  }
}

interface Draft {
  readonly next: number;
  readonly records: Map<string, ModelRecord>;
  readonly changes: { readonly key: string; readonly after: ModelRecord | null }[];
  readonly model: Model;
}

function runCommand(draft: Draft, command: Command): string {
  const { model } = draft;
  switch (command.kind) {
    case "txn": {
      const succeeded = command.compare.every((compare) => holds(draft, compare));
      const responses = (succeeded ? command.success : command.failure).map((operation) => operate(draft, operation));
      return `txn ${succeeded} ${responses.join(" ")}`;
    }
    case "lease_grant": {
      model.leaseCounter += 1;
      model.leases.add(model.leaseCounter);
      return `lease ${model.leaseCounter} ${command.ttl_s}`;
    }
    case "lease_revoke": {
      if (!model.leases.delete(command.id)) throw new Refused("unknown_lease");
      const keys = [...draft.records.values()].filter((record) => record.lease === command.id);
      for (const { key } of keys) change(draft, key, null);
      return `revoked ${keys.length}`;
    }
    default:
      throw new Error(`the model does not know ${command.kind}`);
  }
}

function change(draft: Draft, key: string, after: ModelRecord | null): void {
  if (after === null) draft.records.delete(key);
  else draft.records.set(key, after);
  draft.changes.push({ key, after });
}

function holds(draft: Draft, compare: Compare): boolean {
  const record = draft.model.records.get(compare.key);
  switch (compare.target) {
    case "exists":
      return (record !== undefined) === compare.value;
    case "version":
      return (record?.version ?? 0) === compare.value;
    case "mod_revision":
      return (record?.mod ?? 0) === compare.value;
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
    case "put": {
      const suffix = operation.revision_suffix === true ? String(draft.next).padStart(16, "0") : "";
      const key = operation.key + suffix;
      const before = draft.records.get(key);
      if (operation.lease !== undefined && !draft.model.leases.has(operation.lease)) throw new Refused("unknown_lease");
      const value = operation.value !== undefined && "json" in operation.value ? operation.value.json : null;
      change(draft, key, {
        key,
        value,
        create: before?.create ?? draft.next,
        mod: draft.next,
        version: (before?.version ?? 0) + 1,
        lease: operation.lease ?? null,
      });
      const previous = operation.prev_kv === true ? ` was ${recordText(before ?? null)}` : "";
      return `put ${JSON.stringify(key)}${previous};`;
    }
    case "delete": {
      const found = select(draft.records, operation.selector);
      for (const { key } of found) change(draft, key, null);
      const previous = operation.prev_kv === true ? ` was ${found.map(recordText).join(",")}` : "";
      return `deleted ${found.length}${previous};`;
    }
    case "get":
      return listText(select(draft.records, operation.selector), operation.limit);
    default:
      throw new Error(`the model does not know ${operation.type}`);
  }
}

function select(records: ReadonlyMap<string, ModelRecord>, selector: Selector): ModelRecord[] {
  if ("key" in selector) {
    const record = records.get(selector.key);
    return record === undefined ? [] : [record];
  }
  if (!("prefix" in selector)) throw new Error("the model does not know ranges");
  const found = [...records.values()].filter((record) => record.key.startsWith(selector.prefix));
  return found.sort((left, right) => compareKeys(left.key, right.key));
}

/** The state as of `revision`. */
export function recordsAt(model: Model, revision: number): Map<string, ModelRecord> {
  const records = new Map<string, ModelRecord>();
  for (const [key, versions] of model.versions) {
    const record = versionAt(versions, revision);
    if (record !== null) records.set(key, record);
  }
  return records;
}

export function recordAt(model: Model, key: string, revision: number): ModelRecord | null {
  return versionAt(model.versions.get(key) ?? [], revision);
}

function versionAt(versions: readonly Version[], revision: number): ModelRecord | null {
  let record: ModelRecord | null = null;
  for (const version of versions) {
    if (version.revision > revision) break;
    record = version.record;
  }
  return record;
}

export function listAt(model: Model, prefix: string, limit: number, revision: number): string {
  return listText(select(recordsAt(model, revision), { prefix }), limit);
}

// --- texts -----------------------------------------------------------------------------------------------------------

function listText(found: readonly ModelRecord[], limit: number | undefined): string {
  const shown = limit === undefined ? found : found.slice(0, limit);
  return `[${shown.map(recordText).join(",")}]${shown.length < found.length ? "+" : ""};`;
}

export function recordText(record: ModelRecord | null): string {
  if (record === null) return "none";
  const { key, value, create, mod, version, lease } = record;
  return `(${JSON.stringify(key)} ${JSON.stringify(value)} ${create} ${mod} ${version} ${lease})`;
}

/** The same text of an answer that a node gave. */
export function answerText(outcome: Outcome<CommandResult>): string {
  if (!outcome.ok) return `error ${outcome.error.code}`;
  const { result } = outcome;
  switch (result.kind) {
    case "txn":
      return `txn ${result.succeeded} ${result.responses.map(responseText).join(" ")}`;
    case "lease_grant":
      return `lease ${result.id} ${result.ttl_s}`;
    case "lease_revoke":
      return `revoked ${result.deleted}`;
    default:
      throw new Error(`the model does not know ${result.kind}`);
  }
}

function responseText(response: OperationResult): string {
  switch (response.type) {
    case "put": {
      const previous = response.prev_kv === undefined ? "" : ` was ${storedText(response.prev_kv)}`;
      return `put ${JSON.stringify(response.key)}${previous};`;
    }
    case "delete": {
      const previous = response.prev_kvs === undefined ? "" : ` was ${response.prev_kvs.map(storedText).join(",")}`;
      return `deleted ${response.deleted}${previous};`;
    }
    case "get":
      return storedListText(response.kvs, response.more);
    default:
      throw new Error(`the model does not know ${response.type}`);
  }
}

export function storedListText(records: readonly KeyRecord[], more: boolean): string {
  return `[${records.map(storedText).join(",")}]${more ? "+" : ""};`;
}

export function storedText(record: KeyRecord | null): string {
  if (record === null) return "none";
  return recordText({
    key: record.key,
    value: "json" in record.value ? record.value.json : null,
    create: record.create_revision,
    mod: record.mod_revision,
    version: record.version,
    lease: record.lease_id,
  });
}

// --- order -----------------------------------------------------------------------------------------------------------

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
