/** A bare machine with short names for what tests do most. Applies one entry per call unless told otherwise. */
import { expect } from "vitest";
import type { ErrorBody, ErrorCode } from "../../src/base/errors.ts";
import type { JsonValue } from "../../src/base/json.ts";
import type {
  ChangeEvent,
  Command,
  CommandResult,
  Compare,
  Idempotency,
  KeyRecord,
  Operation,
  OperationResult,
  Outcome,
  Query,
  QueryResult,
  TxnResult,
} from "../../src/kv/command.ts";
import { type AppliedEntry, applyEntries, evaluateQuery, type Machine, openMachine } from "../../src/kv/machine.ts";
import { MemoryStore } from "../../src/kv/memory-store.ts";

export class Harness {
  readonly store = new MemoryStore();
  machine: Machine = openMachine(this.store);
  timeMs = 1_000_000;
  readonly events: ChangeEvent[] = [];
  readonly log: AppliedEntry[] = [];

  apply(command: Command, idempotency?: Idempotency): Outcome<CommandResult> {
    const payload = JSON.stringify({ format: 1, command, ...(idempotency === undefined ? {} : { idempotency }) });
    const entry = { index: this.machine.appliedIndex + 1, timeMs: this.timeMs, payload };
    const [applied] = applyEntries(this.machine, [entry]);
    this.log.push(entry);
    this.events.push(...(applied?.events ?? []));
    if (!applied?.outcome) throw new Error("a command has an outcome");
    return applied.outcome;
  }

  txn(parts: Partial<{ compare: Compare[]; success: Operation[]; failure: Operation[] }>, idempotency?: Idempotency) {
    return this.apply(txnCommand(parts), idempotency);
  }

  /** A txn that must succeed as a command; answers its result. */
  run(parts: Parameters<Harness["txn"]>[0], idempotency?: Idempotency): TxnResult {
    const result = okResult(this.txn(parts, idempotency));
    if (result.kind !== "txn") throw new Error(`a txn answered ${result.kind}`);
    return result;
  }

  do(...success: Operation[]): readonly OperationResult[] {
    return this.run({ success }).responses;
  }

  put(key: string, json: JsonValue, options: Partial<Operation & { type: "put" }> = {}): number {
    return this.run({ success: [{ type: "put", key, value: { json }, ...options }] }).revision;
  }

  delete(key: string): number {
    return this.run({ success: [{ type: "delete", selector: { key } }] }).revision;
  }

  grant(ttl_s: number, options: { id?: number } = {}): number {
    const result = okResult(this.apply({ kind: "lease_grant", ttl_s, ...options }));
    if (result.kind !== "lease_grant") throw new Error(`a grant answered ${result.kind}`);
    return result.id;
  }

  query(query: Query): QueryResult {
    const outcome = evaluateQuery(this.machine, query, this.timeMs);
    if (!outcome.ok) throw new Error(`${outcome.error.code}: ${outcome.error.detail}`);
    return outcome.result;
  }

  queryError(query: Query): ErrorBody {
    const outcome = evaluateQuery(this.machine, query, this.timeMs);
    if (outcome.ok) throw new Error("the query was answered");
    return outcome.error;
  }

  record(key: string, revision?: number): KeyRecord | null {
    const result = this.query({ kind: "get", key, ...(revision === undefined ? {} : { revision }) });
    if (result.kind !== "get") throw new Error(`a get answered ${result.kind}`);
    return result.record;
  }

  /** The JSON value of a key; undefined when absent. */
  json(key: string, revision?: number): JsonValue | undefined {
    const record = this.record(key, revision);
    if (record === null) return undefined;
    if (!("json" in record.value)) throw new Error("the value is bytes");
    return record.value.json;
  }

  keys(prefix = "", options: Partial<Query & { kind: "list" }> = {}): string[] {
    return this.list({ selector: { prefix }, ...options }).records.map((record) => record.key);
  }

  list(options: Partial<Query & { kind: "list" }>): QueryResult & { kind: "list" } {
    const result = this.query({
      kind: "list",
      selector: { prefix: "" },
      limit: 1000,
      order: "asc",
      keys_only: false,
      count_only: false,
      ...options,
    });
    if (result.kind !== "list") throw new Error(`a list answered ${result.kind}`);
    return result;
  }

  history(key: string, options: Partial<Query & { kind: "history" }> = {}): readonly ChangeEvent[] {
    const result = this.query({ kind: "history", key, limit: 1000, ...options });
    if (result.kind !== "history") throw new Error(`a history answered ${result.kind}`);
    return result.events;
  }

  lease(id: number) {
    const result = this.query({ kind: "lease", id });
    if (result.kind !== "lease") throw new Error(`a lease answered ${result.kind}`);
    return result.lease;
  }

  /** A new machine over the same rows: what a restart does. */
  restart(): void {
    this.machine = openMachine(this.store);
  }

  /** Runs `work` and checks that it left revision, rows of records and events as they were. */
  expectUnchanged(work: () => void): void {
    const revision = this.machine.revision;
    const events = this.events.length;
    const records = this.recordRows();
    work();
    expect(this.machine.revision).toBe(revision);
    expect(this.events.length).toBe(events);
    expect(this.recordRows()).toEqual(records);
  }

  private recordRows(): string {
    const tables = new Set(["a", "c", "d", "e", "k", "l", "r"]);
    return JSON.stringify(this.store.rows().filter(([key]) => tables.has(key.charAt(0))));
  }
}

export function txnCommand(
  parts: Partial<{ compare: readonly Compare[]; success: readonly Operation[]; failure: readonly Operation[] }>,
): Command & { kind: "txn" } {
  return { kind: "txn", compare: parts.compare ?? [], success: parts.success ?? [], failure: parts.failure ?? [] };
}

export function okResult(outcome: Outcome<CommandResult>): CommandResult {
  if (!outcome.ok) throw new Error(`${outcome.error.code}: ${outcome.error.detail}`);
  return outcome.result;
}

export function errorCode(outcome: Outcome<unknown>): ErrorCode | null {
  return outcome.ok ? null : outcome.error.code;
}

export const put = (key: string, json: JsonValue, options: Partial<Operation & { type: "put" }> = {}): Operation => ({
  type: "put",
  key,
  value: { json },
  ...options,
});

export const get = (key: string): Operation => ({ type: "get", selector: { key } });
export const del = (key: string): Operation => ({ type: "delete", selector: { key } });
