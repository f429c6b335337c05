/**
 * Answers as text, once from the model's records and once from what a node said: equal texts are equal answers. What the
 * model cannot know (reply sizes, opaque details of errors) is left out on both sides.
 */
import type {
  ChangeEvent,
  CommandResult,
  KeepAliveResult,
  KeyRecord,
  OperationResult,
  Outcome,
} from "../../src/kv/command.ts";
import type { ModelChange, ModelRecord } from "./model.ts";

// --- of the model ----------------------------------------------------------------------------------------------------

export function recordText(record: ModelRecord | null): string {
  if (record === null) return "none";
  const { key, value, create, mod, version, lease, expiresAtMs } = record;
  const until = expiresAtMs === null ? "" : ` until ${expiresAtMs}`;
  return `(${JSON.stringify(key)} ${JSON.stringify(value)} ${create} ${mod} ${version} ${lease}${until})`;
}

export function listText(found: readonly ModelRecord[], limit: number | undefined): string {
  const shown = limit === undefined ? found : found.slice(0, limit);
  return `[${shown.map(recordText).join(",")}]${shown.length < found.length ? "+" : ""};`;
}

export function changeText({ revision, opIndex, key, after }: ModelChange): string {
  return `${revision}.${opIndex} ${after === null ? `delete ${JSON.stringify(key)}` : recordText(after)}`;
}

// --- of a node -------------------------------------------------------------------------------------------------------

export function answerText(outcome: Outcome<CommandResult>): string {
  if (!outcome.ok) return `error ${outcome.error.code}`;
  const { result } = outcome;
  switch (result.kind) {
    case "txn":
      return `txn ${result.succeeded} ${result.responses.map(responseText).join(" ")}`;
    case "lease_grant":
      return `lease ${result.id} ${result.ttl_s} until ${result.expires_at_ms}`;
    case "lease_revoke":
      return `revoked ${result.deleted}`;
    case "lease_keep_alive":
      return `kept ${result.items.map(keptText).join(", ")}`;
    case "lease_expire":
      return `expired ${result.expired.join(" ")} deleted ${result.deleted}`;
    case "lease_floor":
      return `floor ${result.floor_ms}`;
    case "compact":
      return `compacted ${result.compact_revision}`;
    case "compact_remove":
      return "removed";
    case "restore_begin":
    case "restore_rows":
    case "restore_end":
      return result.kind;
  }
}

function keptText(item: KeepAliveResult): string {
  return "not_found" in item ? `${item.id} gone` : `${item.id} ${item.ttl_s} until ${item.expires_at_ms}`;
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
    case "touch":
      return "not_found" in response ? "touched nothing;" : `touched ${response.expires_at_ms};`;
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
    expiresAtMs: record.expires_at_ms,
    dueAtMs: null,
  });
}

export function eventText(event: ChangeEvent): string {
  const { revision, op_index, key, value } = event;
  const what =
    value === null ? `delete ${JSON.stringify(key)}` : storedText({ ...event, value, mod_revision: revision });
  return `${revision}.${op_index} ${what}`;
}
