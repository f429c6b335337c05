/**
 * The second opinion on histories: each key as a register, searched for a linear order of what clients did to it, without
 * any knowledge of logs or revisions (../histories/linearizability.ts).
 */
import type { Operation } from "../../src/kv/command.ts";
import { isLinearizable, type RegisterOperation, type RegisterValue } from "../histories/linearizability.ts";
import type { History } from "./history.ts";
import type { Model } from "./model.ts";
import { recordAt } from "./model-history.ts";
import { Violation } from "./violation.ts";

/** More operations than this on one key make the search slow; the exact checks cover them. */
const SEARCHED_OPERATIONS_MAX = 120;

export function searchKeys(history: History, model: Model): void {
  for (const [key, operations] of registerHistories(history, model)) {
    if (operations.length > SEARCHED_OPERATIONS_MAX) continue;
    if (isLinearizable(operations) === false) {
      throw new Violation("linearizable per key", `${JSON.stringify(key)}: ${JSON.stringify(operations)}`);
    }
  }
}

/** Keys that leases may delete are left out: what the end of a lease does to one key depends on all. */
function registerHistories(history: History, model: Model): Map<string, RegisterOperation[]> {
  const histories = new Map<string, RegisterOperation[]>();
  const excluded = new Set<string>();
  const add = (key: string, operation: RegisterOperation): void => {
    const operations = histories.get(key);
    if (operations === undefined) histories.set(key, [operation]);
    else operations.push(operation);
  };
  const keys = [...model.versions.keys()];
  for (const record of history.writes) {
    const { command } = record.proposal;
    if (command.kind !== "txn" || record.status === "refused") continue;
    if (record.answer?.text.startsWith("error") === true) continue;
    for (const { key, value, lease } of valuesOf(command.success, keys)) {
      if (lease) excluded.add(key);
      const condition = command.compare.find((compare) => compare.key === key);
      const { call, end } = record;
      const succeeded = record.answer === null ? null : record.answer.text.startsWith("txn true");
      // A condition on another key decides together with it: no register of its own.
      if (condition === undefined && command.compare.length > 1) excluded.add(key);
      if (condition === undefined) add(key, { call, end, action: { kind: "write", value } });
      else {
        const from = conditionValue(model, key, condition);
        if (from === undefined) excluded.add(key);
        else add(key, { call, end, action: { kind: "swap", from, to: value, succeeded } });
      }
    }
  }
  for (const record of history.reads) {
    const { query } = record;
    if (record.status !== "answered" || !record.linearizable || query.kind !== "get" || query.revision !== undefined)
      continue;
    const value = /^\("(?:[^"\\]|\\.)*" (".*?") /.exec(record.text)?.[1] ?? null;
    add(query.key, { call: record.call, end: record.end, action: { kind: "read", value } });
  }
  for (const key of excluded) histories.delete(key);
  return histories;
}

interface Change {
  readonly key: string;
  readonly value: RegisterValue;
  readonly lease: boolean;
}

function valuesOf(operations: readonly Operation[], keys: readonly string[]): Change[] {
  const values: Change[] = [];
  for (const operation of operations) {
    if (operation.type === "put" && operation.revision_suffix !== true) {
      const value = operation.value !== undefined && "json" in operation.value ? operation.value.json : null;
      const lease = operation.lease !== undefined || operation.ttl !== undefined || operation.ignore_lease === true;
      values.push({ key: operation.key, value: JSON.stringify(value), lease });
    } else if (operation.type === "touch") values.push({ key: operation.key, value: null, lease: true });
    else if (operation.type === "delete") {
      const { selector } = operation;
      if ("key" in selector) values.push({ key: selector.key, value: null, lease: false });
      else if ("prefix" in selector) {
        for (const key of keys) if (key.startsWith(selector.prefix)) values.push({ key, value: null, lease: false });
      }
    }
  }
  return values;
}

/** The value that the condition asks for: given, or the one written at the revision it names. */
function conditionValue(
  model: Model,
  key: string,
  condition: { readonly target: string; readonly value: unknown },
): RegisterValue | undefined {
  if (condition.target === "mod_revision" && typeof condition.value === "number") {
    if (condition.value === 0) return null;
    const record = recordAt(model, key, condition.value);
    return record === null || record.mod !== condition.value ? undefined : JSON.stringify(record.value);
  }
  return undefined;
}
