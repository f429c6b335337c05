/** Reading the model: the state at a revision, pages of changes, what is due. */
import type { Selector } from "../../src/kv/command.ts";
import { byKey, type Model, type ModelChange, type ModelRecord, select, selects } from "./model.ts";
import { effectiveExpiry, keysOf } from "./model-leases.ts";
import { changeText, listText } from "./model-text.ts";

/** The state as of `revision`. */
function recordsAt(model: Model, revision: number): Map<string, ModelRecord> {
  if (revision === model.revision) return model.held.records;
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

function versionAt(versions: readonly ModelChange[], revision: number): ModelRecord | null {
  let record: ModelRecord | null = null;
  for (const version of versions) {
    if (version.revision > revision) break;
    record = version.after;
  }
  return record;
}

export function listAt(model: Model, selector: Selector, limit: number, revision: number): string {
  return listText(select(recordsAt(model, revision), selector), limit);
}

/** (revision, op index); the op index of the end of a revision is above all others. */
export type ModelPosition = readonly [revision: number, opIndex: number];

function isBehind(change: ModelChange, position: ModelPosition): boolean {
  return change.revision > position[0] || (change.revision === position[0] && change.opIndex > position[1]);
}

/** The changes of a selector behind one position, up to and with another, up to a revision. */
export function changesBetween(
  model: Model,
  selector: Selector,
  bounds: { readonly after: ModelPosition; readonly upTo: ModelPosition; readonly revision: number },
): string {
  return model.changes
    .filter((change) => isBehind(change, bounds.after) && !isBehind(change, bounds.upTo))
    .filter((change) => change.revision <= bounds.revision && selects(selector, change.key))
    .map(changeText)
    .join(" ");
}

export function dueText(model: Model, atMs: number, limit: number): string {
  const due = [...model.held.records.values()].filter(({ dueAtMs }) => dueAtMs !== null && dueAtMs <= atMs);
  due.sort((left, right) => (left.dueAtMs ?? 0) - (right.dueAtMs ?? 0) || byKey(left, right));
  const shown = due.slice(0, limit).map(({ dueAtMs, key, mod }) => `${dueAtMs} ${JSON.stringify(key)} ${mod}`);
  return `due ${shown.join(", ")}${due.length > limit ? "+" : ""}`;
}

export function leaseText(model: Model, id: number): string {
  const lease = model.held.leases.get(id);
  if (lease === undefined) return "no lease";
  return `${leaseInfoText(model, id)} ${JSON.stringify(keysOf(model.held, id))}`;
}

export function leaseListText(model: Model, limit: number, anonymous: boolean): string {
  const ids = [...model.held.leases].filter(([, lease]) => anonymous || !lease.anonymous).map(([id]) => id);
  ids.sort((left, right) => left - right);
  return `leases ${ids
    .slice(0, limit)
    .map((id) => leaseInfoText(model, id))
    .join(", ")}`;
}

function leaseInfoText(model: Model, id: number): string {
  const lease = model.held.leases.get(id);
  if (lease === undefined) throw new Error(`the model has no lease ${id}`);
  const { ttlS, anonymous } = lease;
  const until = effectiveExpiry(model.held, lease);
  return `lease ${id} ${ttlS} until ${until}${anonymous ? " anonymous" : ""}, ${keysOf(model.held, id).length} keys`;
}
