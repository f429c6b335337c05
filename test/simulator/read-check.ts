/** Every read against the model as it was behind the entry from which the node answered (history-check.ts H4). */
import type { Query } from "../../src/kv/command.ts";
import type { History, ReadRecord } from "./history.ts";
import type { Positions } from "./history-check.ts";
import type { Model } from "./model.ts";
import {
  changesBetween,
  dueText,
  leaseListText,
  leaseText,
  listAt,
  type ModelPosition,
  recordAt,
} from "./model-history.ts";
import { recordText } from "./model-text.ts";
import { Violation } from "./violation.ts";

export function readsByIndex(history: History): ReadonlyMap<number, readonly ReadRecord[]> {
  const byIndex = new Map<number, ReadRecord[]>();
  for (const record of history.reads) {
    if (record.status !== "answered" || record.query.kind === "txn_result") continue;
    const reads = byIndex.get(record.appliedIndex);
    if (reads === undefined) byIndex.set(record.appliedIndex, [record]);
    else reads.push(record);
  }
  return byIndex;
}

/** `model`: the state behind the entry from which the read was answered. */
export function checkRead(model: Model, record: ReadRecord): void {
  if (record.revision !== model.revision) {
    const detail = `read ${record.id} at revision ${record.revision}, the state behind entry ${record.appliedIndex} has ${model.revision}`;
    throw new Violation("read sees one state", detail);
  }
  const expected = expectedText(model, record);
  if (record.text === expected) return;
  const detail = `read ${record.id} at revision ${record.revision}: saw ${record.text}, the state is ${expected}`;
  throw new Violation("read sees one state", detail);
}

function expectedText(model: Model, record: ReadRecord): string {
  const { query } = record;
  switch (query.kind) {
    case "get":
      return refusal(model, query) ?? recordText(recordAt(model, query.key, query.revision ?? model.revision));
    case "list":
      return refusal(model, query) ?? listAt(model, query.selector, query.limit, query.revision ?? model.revision);
    case "changes":
      return expectedPage(model, record, query);
    case "lease":
      return leaseText(model, query.id);
    case "lease_list":
      return leaseListText(model, query.limit, query.anonymous === true);
    case "due":
      return dueText(model, query.at_ms, query.limit);
    default:
      throw new Error(`the model does not know ${query.kind}`);
  }
}

/** Exactly what is below the compacted revision is refused, whatever rows are still there. */
function refusal(model: Model, query: { readonly revision?: number }): string | null {
  const { revision = model.revision } = query;
  if (revision > model.revision) return "error revision_in_future";
  return revision < model.compactRevision ? `error compacted ${model.compactRevision}` : null;
}

function expectedPage(model: Model, record: ReadRecord, query: Extract<Query, { kind: "changes" }>): string {
  const { after = [model.compactRevision, REVISION_END], selector } = query;
  if (after[0] < model.compactRevision || (after[0] === model.compactRevision && after[1] < REVISION_END)) {
    return `error compacted ${model.compactRevision}`;
  }
  if (after[0] > model.revision) return "error revision_in_future";
  const upTo: ModelPosition = record.next ?? after;
  const moved = upTo[0] > after[0] || (upTo[0] === after[0] && upTo[1] > after[1]);
  const atEnd = after[0] === model.revision && after[1] === REVISION_END;
  if (!moved && !atEnd) throw new Violation("read sees one state", `read ${record.id}: a page that stands still`);
  return changesBetween(model, selector, { after, upTo, revision: model.revision });
}

/** The op index of the end of a revision. */
const REVISION_END = 99_999;

/** "Not known" means that the write had not been committed when the question was asked (S27). */
export function checkResolve(record: ReadRecord, positions: Positions): void {
  const write = record.resolves;
  if (write === null || record.status !== "answered") return;
  const first = positions.get(write.id)?.[0];
  if (record.known) {
    if (first === undefined || record.text !== first.expected.text) {
      const detail = `write ${write.id} resolved to ${record.text}, the log says ${first?.expected.text ?? "nothing"}`;
      throw new Violation("reply matches the log", detail);
    }
  } else if (first !== undefined && first.atStep <= record.callStep) {
    const detail = `write ${write.id}, committed at step ${first.atStep}, was unknown to a question of step ${record.callStep}`;
    throw new Violation("no stale read", detail);
  }
}
