/**
 * A naive model of the machine: plain maps, whole copies for all-or-nothing, a full list of states for reads at a
 * revision. It shares no code with src/kv but the JSON order and equality, which have tests of their own.
 */
import { expect } from "vitest";
import { equalJson, type JsonValue } from "../../src/base/json.ts";
import type {
  ChangeEvent,
  Command,
  Compare,
  KeepAlive,
  KeyRecord,
  Operation,
  OperationResult,
  Selector,
  Txn,
  Value,
} from "../../src/kv/command.ts";
import { compareJson } from "../../src/kv/json-order.ts";
import type { MemoryStore } from "../../src/kv/memory-store.ts";
import { REVISION_END } from "../../src/kv/position.ts";
import { unescapeKey } from "../../src/kv/rows.ts";
import type { Harness } from "./harness.ts";

interface ModelLease {
  ttlS: number;
  expiresAtMs: number;
  anonymous: boolean;
}

class Refused extends Error {}

export class Model {
  records = new Map<string, KeyRecord>();
  due = new Map<string, number>();
  leases = new Map<number, ModelLease>();
  counter = 0;
  revision = 0;
  compacted = 0;
  floorMs = 0;
  events: ChangeEvent[] = [];
  /** By revision: the records as they were. */
  states: Map<string, KeyRecord>[] = [new Map()];

  /** Null when refused; else what a txn answers, or the deleted count of a revoke. */
  apply(command: Command, timeMs: number): unknown {
    const before = structuredClone({ ...this, states: null });
    const states = this.states;
    const eventsBefore = this.events.length;
    try {
      const result = this.run(command, timeMs);
      if (this.events.length > eventsBefore) {
        this.revision += 1;
        this.states.push(new Map(this.records));
      }
      return result;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      Object.assign(this, before, { states });
      return null;
    }
  }

  private run(command: Command, timeMs: number): unknown {
    switch (command.kind) {
      case "txn":
        return this.txn(command, timeMs);
      case "lease_grant":
        return this.grant(command.ttl_s, command.id, timeMs);
      case "lease_revoke":
        if (this.leases.get(command.id)?.anonymous !== false) throw new Refused();
        return { kind: "lease_revoke", deleted: this.end(command.id) };
      case "compact":
        if (command.revision > this.revision) throw new Refused();
        this.compacted = Math.max(this.compacted, command.revision);
        return { kind: "compact", compact_revision: this.compacted };
      case "lease_keep_alive":
        return { kind: "lease_keep_alive", items: command.items.map((item) => this.keepAlive(item, timeMs)) };
      case "lease_expire": {
        const expired: number[] = [];
        let deleted = 0;
        for (const seen of command.leases) {
          const lease = this.leases.get(seen.id);
          if (lease?.expiresAtMs !== seen.expires_at_ms || this.endsAt(lease) > timeMs) continue;
          expired.push(seen.id);
          deleted += this.end(seen.id);
        }
        return { kind: "lease_expire", expired, deleted };
      }
      case "lease_floor":
        this.floorMs = Math.max(this.floorMs, Math.min(command.floor_ms, timeMs + 60_000));
        return { kind: "lease_floor", floor_ms: this.floorMs };
      case "compact_remove":
        // Which rows are left is no business of the model: nothing that can be asked may change.
        return { kind: "compact_remove", removed: expect.any(Number), done: expect.any(Boolean) };
      case "restore_begin":
      case "restore_rows":
      case "restore_end":
        throw new Error(`${command.kind} is no command of the model`);
    }
  }

  endsAt(lease: ModelLease): number {
    return Math.max(lease.expiresAtMs, this.floorMs);
  }

  private end(id: number): number {
    const victims = this.sorted().filter((record) => record.lease_id === id);
    for (const record of victims) this.remove(record.key);
    this.leases.delete(id);
    return victims.length;
  }

  private keepAlive(item: KeepAlive, timeMs: number): unknown {
    const lease = this.leases.get(item.id);
    if (lease === undefined || lease.anonymous) return { id: item.id, not_found: true };
    const ttlS = item.ttl_s ?? lease.ttlS;
    this.leases.set(item.id, { ttlS, expiresAtMs: timeMs + ttlS * 1000, anonymous: false });
    return { id: item.id, ttl_s: ttlS, expires_at_ms: timeMs + ttlS * 1000 };
  }

  private grant(ttlS: number, wanted: number | undefined, timeMs: number): unknown {
    if (wanted !== undefined && this.leases.has(wanted)) throw new Refused();
    const id = wanted ?? this.nextId();
    this.counter = Math.max(this.counter, id);
    this.leases.set(id, { ttlS, expiresAtMs: timeMs + ttlS * 1000, anonymous: false });
    return { kind: "lease_grant", id, ttl_s: ttlS, expires_at_ms: timeMs + ttlS * 1000 };
  }

  private nextId(): number {
    do this.counter += 1;
    while (this.leases.has(this.counter));
    return this.counter;
  }

  private txn(request: Txn, timeMs: number): unknown {
    const succeeded = request.compare.every((compare) => this.holds(compare, timeMs));
    const branch = succeeded ? request.success : request.failure;
    const eventsBefore = this.events.length;
    const responses = branch.map((operation) => this.operate(operation, timeMs, eventsBefore));
    const wrote = this.events.length > eventsBefore;
    return { kind: "txn", succeeded, revision: this.revision + (wrote ? 1 : 0), responses };
  }

  private holds(compare: Compare, timeMs: number): boolean {
    const record = this.records.get(compare.key);
    const lease = record?.lease_id == null ? undefined : this.leases.get(record.lease_id);
    switch (compare.target) {
      case "exists":
        return ((record !== undefined) === compare.value) === (compare.op === "==");
      case "value":
        return sameValue(record?.value ?? null, compare.value) === (compare.op === "==");
      case "field":
        return ordered(fieldAt(record?.value, compare.path), compare.op, compare.value);
      case "lease":
        return ordered(record?.lease_id ?? null, compare.op, compare.value);
      case "ttl": {
        const left = lease === undefined ? null : Math.max(0, this.endsAt(lease) - timeMs) / 1000;
        return ordered(left, compare.op, compare.value);
      }
      default:
        return ordered(record?.[compare.target] ?? 0, compare.op, compare.value);
    }
  }

  private operate(operation: Operation, timeMs: number, eventsBefore: number): OperationResult {
    switch (operation.type) {
      case "get":
        return this.get(operation);
      case "put":
        return this.put(operation, timeMs, eventsBefore);
      case "delete": {
        const victims = this.sorted().filter((record) => matches(operation.selector, record.key));
        for (const record of victims) {
          this.leave(record);
          this.remove(record.key, eventsBefore);
        }
        const deleted = victims.length;
        return { type: "delete", deleted, ...(operation.prev_kv === true ? { prev_kvs: victims } : {}) };
      }
      case "touch": {
        const record = this.records.get(operation.key);
        if (record === undefined) return { type: "touch", not_found: true };
        const owner = this.own(record, { ttl: operation.ttl }, timeMs);
        const due = this.due.get(operation.key);
        this.write({ ...record, ...owner }, due, eventsBefore);
        return { type: "touch", expires_at_ms: owner.expires_at_ms ?? Number.NaN };
      }
    }
  }

  private get(operation: Operation & { type: "get" }): OperationResult {
    let records = this.sorted();
    if (operation.revision !== undefined) {
      if (operation.revision > this.revision || operation.revision < this.compacted) throw new Refused();
      records = sortedRecords(this.states[operation.revision] ?? new Map());
    }
    let kvs = records.filter((record) => matches(operation.selector, record.key));
    if (operation.count_only === true) return { type: "get", kvs: [], count: kvs.length, more: false };
    if (operation.order === "desc") kvs.reverse();
    const more = kvs.length > (operation.limit ?? 1000);
    kvs = kvs.slice(0, operation.limit);
    if (operation.keys_only === true) kvs = kvs.map((record) => ({ ...record, value: { json: null } }));
    return { type: "get", kvs, count: kvs.length, more };
  }

  private put(operation: Operation & { type: "put" }, timeMs: number, eventsBefore: number): OperationResult {
    const suffix = operation.revision_suffix === true ? String(this.revision + 1).padStart(16, "0") : "";
    const key = operation.key + suffix;
    const before = this.records.get(key);
    if (before === undefined && (operation.ignore_value || operation.ignore_lease)) throw new Refused();
    const kept = operation.ignore_value === true ? before : undefined;
    const due = operation.due_at_ms ?? (kept === undefined ? undefined : this.due.get(key));
    const record: KeyRecord = {
      key,
      value: operation.value ?? kept?.value ?? { json: null },
      create_revision: 0,
      mod_revision: 0,
      version: 0,
      ...this.own(before, operation, timeMs),
      content_type: operation.content_type ?? kept?.content_type ?? null,
      metadata: operation.metadata ?? kept?.metadata ?? {},
    };
    this.write(record, due, eventsBefore);
    return { type: "put", key, ...(operation.prev_kv === true ? { prev_kv: before ?? null } : {}) };
  }

  /** Lease and expiry of the next version. */
  private own(
    before: KeyRecord | undefined,
    wish: { readonly ttl?: number; readonly lease?: number; readonly ignore_lease?: boolean },
    timeMs: number,
  ): { lease_id: number | null; expires_at_ms: number | null } {
    const old = before?.lease_id == null ? undefined : this.leases.get(before.lease_id);
    if (wish.ignore_lease === true) {
      return { lease_id: before?.lease_id ?? null, expires_at_ms: old?.anonymous ? old.expiresAtMs : null };
    }
    if (wish.ttl !== undefined) {
      const renewed = { ttlS: wish.ttl, expiresAtMs: timeMs + wish.ttl * 1000, anonymous: true };
      const id = old?.anonymous && before?.lease_id != null ? before.lease_id : this.nextId();
      this.leases.set(id, renewed);
      return { lease_id: id, expires_at_ms: renewed.expiresAtMs };
    }
    if (wish.lease !== undefined) {
      const lease = this.leases.get(wish.lease);
      if (lease === undefined || lease.anonymous) throw new Refused();
      if (before !== undefined) this.leave(before);
      return { lease_id: wish.lease, expires_at_ms: null };
    }
    if (before !== undefined) this.leave(before);
    return { lease_id: null, expires_at_ms: null };
  }

  /** An anonymous lease ends with its key. */
  private leave(record: KeyRecord): void {
    if (record.lease_id !== null && this.leases.get(record.lease_id)?.anonymous) this.leases.delete(record.lease_id);
  }

  private write(fields: KeyRecord, due: number | undefined, eventsBefore: number): void {
    const before = this.records.get(fields.key);
    const revision = this.revision + 1;
    const record: KeyRecord = {
      ...fields,
      create_revision: before?.create_revision ?? revision,
      mod_revision: revision,
      version: (before?.version ?? 0) + 1,
    };
    this.records.set(record.key, record);
    if (due === undefined) this.due.delete(record.key);
    else this.due.set(record.key, due);
    this.events.push({ revision, op_index: this.events.length - eventsBefore, type: "put", ...record });
  }

  private remove(key: string, eventsBefore = this.events.length): void {
    const revision = this.revision + 1;
    const opIndex = this.events.filter((event) => event.revision === revision).length;
    expect(eventsBefore).toBeLessThanOrEqual(this.events.length);
    this.records.delete(key);
    this.due.delete(key);
    this.events.push({
      revision,
      op_index: opIndex,
      type: "delete",
      key,
      value: null,
      create_revision: 0,
      mod_revision: revision,
      version: 0,
      lease_id: null,
      expires_at_ms: null,
      content_type: null,
      metadata: {},
    });
  }

  sorted(): KeyRecord[] {
    return sortedRecords(this.records);
  }
}

/** The model of the cluster that a backup of `old` was restored into (design 02 §5). */
export function restoredModel(old: Model, options: { readonly nowMs: number; readonly revisionJump: number }): Model {
  const model = new Model();
  const { nowMs, revisionJump } = options;
  model.revision = old.revision + revisionJump;
  model.compacted = model.revision;
  model.counter = old.counter + revisionJump;
  model.due = new Map(old.due);
  for (const [id, lease] of old.leases) model.leases.set(id, { ...lease, expiresAtMs: nowMs + lease.ttlS * 1000 });
  for (const record of old.sorted()) {
    const lease = record.expires_at_ms === null ? undefined : model.leases.get(record.lease_id ?? 0);
    model.records.set(record.key, { ...record, expires_at_ms: lease?.expiresAtMs ?? null });
  }
  model.states = [];
  model.states[model.revision] = new Map(model.records);
  return model;
}

function sortedRecords(records: ReadonlyMap<string, KeyRecord>): KeyRecord[] {
  return [...records.values()].sort((left, right) => (left.key < right.key ? -1 : 1));
}

function matches(selector: Selector, key: string): boolean {
  if ("key" in selector) return key === selector.key;
  if ("prefix" in selector) return key.startsWith(selector.prefix);
  return key >= selector.range.start && (selector.range.end === undefined || key < selector.range.end);
}

function sameValue(left: Value | null, right: Value | null): boolean {
  const base64 = (value: Value | null) => (value !== null && "base64" in value ? value.base64 : null);
  if (base64(left) !== null || base64(right) !== null) return base64(left) === base64(right);
  const data = (value: Value | null) => (value !== null && "json" in value ? value.json : null);
  return equalJson(data(left), data(right));
}

function fieldAt(value: Value | undefined, path: readonly (string | number)[]): JsonValue {
  let field: JsonValue | undefined = value !== undefined && "json" in value ? value.json : null;
  for (const step of path) {
    if (Array.isArray(field)) field = typeof step === "number" ? field[step] : null;
    else if (field !== null && typeof field === "object" && typeof step === "string") {
      field = new Map(Object.entries(field)).get(step);
    } else field = null;
    field ??= null;
  }
  return field;
}

function ordered(left: JsonValue, op: string, right: JsonValue): boolean {
  const order = compareJson(left, right);
  return (
    { "==": order === 0, "!=": order !== 0, ">": order > 0, ">=": order >= 0, "<": order < 0, "<=": order <= 0 }[op] ??
    false
  );
}

/** Everything that can be asked: the state now and at each revision, history, changes, leases, index rows, weight. */
export function checkState(h: Harness, model: Model): void {
  expect(h.machine).toMatchObject({ revision: model.revision, compactRevision: model.compacted });
  expect(h.events).toEqual(model.events);
  expect(h.list({}).records).toEqual(model.sorted());
  for (let revision = model.compacted; revision <= model.revision; revision += 1) {
    const state = sortedRecords(model.states[revision] ?? new Map());
    expect(h.list({ revision }).records).toEqual(state);
    expect(h.list({ revision, order: "desc" }).records).toEqual(state.toReversed());
  }
  for (const key of new Set(model.events.map((event) => event.key))) {
    const from = model.compacted + 1;
    const expected = model.events.filter((event) => event.key === key && event.revision >= from);
    if (from <= model.revision) expect(h.history(key, { from })).toEqual(expected);
  }
  for (const [id, lease] of model.leases) {
    const keys = model
      .sorted()
      .filter((record) => record.lease_id === id)
      .map((record) => record.key);
    expect(h.lease(id)).toMatchObject({
      ttl_s: lease.ttlS,
      expires_at_ms: model.endsAt(lease),
      anonymous: lease.anonymous,
      keys_count: keys.length,
      keys,
    });
  }
  expect(changesSince(h, model.compacted)).toEqual(model.events.filter((event) => event.revision > model.compacted));
  expect(h.machine.logicalBytes).toBe(weigh(h.store));
  const rowsOf = (table: string) => h.store.rows().filter(([row]) => row.startsWith(table));
  expect(rowsOf("l")).toHaveLength(model.leases.size);
  expect(rowsOf("e")).toHaveLength(model.leases.size);
  expect(rowsOf("d")).toHaveLength(model.due.size);
  expect(rowsOf("a")).toHaveLength(model.sorted().filter((record) => record.lease_id !== null).length);
}

/** All events behind a revision, in pages so small that they end inside revisions. */
export function changesSince(h: Harness, revision: number): ChangeEvent[] {
  const events: ChangeEvent[] = [];
  let after: readonly [number, number] = [revision, REVISION_END];
  for (let more = true; more; ) {
    const page = h.query({ kind: "changes", selector: { prefix: "" }, after, limit: 3 });
    if (page.kind !== "changes") throw new Error(`changes answered ${page.kind}`);
    expect(page.whole).toBe(page.next[1] === REVISION_END);
    events.push(...page.events);
    after = page.next;
    more = page.has_more;
  }
  return events;
}

/** The weight of the state (quota.ts), from the rows alone. */
export function weigh(store: MemoryStore): number {
  const bytes = (text: string) => new TextEncoder().encode(text).length;
  let sum = 0;
  for (const [row, text] of store.rows()) {
    const table = row.charAt(0);
    if (table === "r") sum += bytes(text) + 64 + keyOf(text).length;
    else if (table === "c") {
      const key = unescapeKey(row.slice(1));
      sum += 2 * key.length + 96 + bytes(JSON.stringify([key])) + 1;
    } else if (table === "a" || table === "d") sum += unescapeKey(row.slice(17)).length + 32;
    else if (table === "l") sum += bytes(JSON.stringify(JSON.parse(text)[4])) + 64;
  }
  return sum;
}

function keyOf(text: string): string {
  return JSON.parse((text.split("\n")[0] ?? "").slice(1))[0];
}
