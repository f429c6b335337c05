/**
 * The canonical text of a command: equal for requests that mean the same (S26). Idempotency hashes it at admission.
 * Options that are spelled out but have their default value are left out; property order does not matter.
 */
import { canonicalJson, type JsonValue } from "../base/json.ts";
import type { Command, Operation } from "./command.ts";

export function canonicalCommand(command: Command): string {
  if (command.kind === "lease_keep_alive") {
    return canonicalJson({ kind: command.kind, items: command.items.map((item) => withoutDefaults(item, {})) });
  }
  if (command.kind !== "txn") return canonicalJson(withoutDefaults(command, { metadata: "{}" }));
  return canonicalJson({
    kind: "txn",
    compare: command.compare.map((compare) => withoutDefaults(compare, {})),
    success: command.success.map(canonicalOperation),
    failure: command.failure.map(canonicalOperation),
  });
}

function canonicalOperation(operation: Operation): JsonValue {
  // Under ignore_value, empty metadata replaces the record's; otherwise it is the default.
  const metadata = operation.type === "put" && operation.ignore_value !== true ? { metadata: "{}" } : {};
  return withoutDefaults(operation, { ...FLAGS, order: '"asc"', ...metadata });
}

const OFF = "false";
const FLAGS = {
  prev_kv: OFF,
  ignore_value: OFF,
  ignore_lease: OFF,
  revision_suffix: OFF,
  keys_only: OFF,
  count_only: OFF,
};

/** `defaults` holds the canonical text of each default. */
function withoutDefaults(request: object, defaults: Readonly<Record<string, string>>): JsonValue {
  const kept: Record<string, JsonValue> = {};
  for (const [name, value] of Object.entries(request) as [string, JsonValue | undefined][]) {
    if (value !== undefined && canonicalJson(value) !== defaults[name]) kept[name] = value;
  }
  return kept;
}
