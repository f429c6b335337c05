/**
 * Whether what the clients saw can be true. The committed log is the one order of all writes; a replay of it through the
 * model (model.ts) says what every answer must be. So real time, answers and reads are checked exactly, without search; a
 * search that knows nothing of logs or revisions checks a sample again (key-search.ts).
 *
 * H1. An answered write is in the log as it was sent, was committed before the answer, and its answer is the model's.
 * H2. A write without an idempotency key is in the log at most once; one that failed definitely is not in it at all.
 * H3. A write that began after another was answered stands behind it in the log.
 * H4. A read shows exactly one state, not older than anything that any client knew when the read began.
 * H5. Whatever the state machine answered to an entry, and every event that came of it, is what the model says: also of
 *     the commands of the leader, which nobody waits for.
 */
import type { Proposal } from "../../src/kv/command.ts";
import { forMachine } from "../../src/node-object/applying.ts";
import type { History, WriteRecord } from "./history.ts";
import { searchKeys } from "./key-search.ts";
import { applyModel, createModel, type Model, type ModelAnswer } from "./model.ts";
import { answerText, changeText, eventText } from "./model-text.ts";
import { checkRead, checkResolve, readsByIndex } from "./read-check.ts";
import type { Committed } from "./safety.ts";
import { Violation } from "./violation.ts";

/** Where a write stands in the log, and what the model says to it there. */
export interface Position {
  readonly index: number;
  readonly atStep: number;
  readonly payload: string;
  readonly expected: ModelAnswer;
}

export type Positions = ReadonlyMap<number, readonly Position[]>;

export interface HistoryCheck {
  /** Also search every key for a linear order without using revisions. */
  readonly search: boolean;
}

/** The replayed model, for whoever wants to know more of it. */
export function checkHistory(history: History, committed: readonly Committed[], options: HistoryCheck): Model {
  const model = createModel();
  const positions = replayLog(model, history, committed);
  for (const record of history.writes) checkWrite(record, positions.get(record.id) ?? []);
  checkOrder(history, positions);
  for (const record of history.reads) checkResolve(record, positions);
  if (options.search) searchKeys(history, model);
  return model;
}

function replayLog(model: Model, history: History, committed: readonly Committed[]): Positions {
  const positions = new Map<number, Position[]>();
  const reads = readsByIndex(history);
  for (const record of reads.get(0) ?? []) checkRead(model, record);
  for (const one of committed) {
    const entry = forMachine(one.entry);
    const { index, payload } = entry;
    const expected = applyModel(model, entry);
    checkApplied(model, one, expected);
    for (const record of reads.get(index) ?? []) checkRead(model, record);
    const id = payload === "" ? null : operationOf(JSON.parse(payload));
    if (id === null) continue;
    const before = positions.get(id);
    const position = { index, atStep: one.atStep, payload, expected };
    if (before === undefined) positions.set(id, [position]);
    else before.push(position);
  }
  return positions;
}

/** H5 */
function checkApplied(model: Model, { entry, revision, outcome, events }: Committed, expected: ModelAnswer): void {
  const where = `entry ${entry.index}`;
  if (model.revision !== revision) {
    const detail = `after ${where} the model is at ${model.revision}, the machine at ${revision}`;
    throw new Violation("revisions are dense", detail);
  }
  const text = outcome === null ? "" : answerText(outcome);
  if (text !== expected.text) {
    throw new Violation("apply does what the model does", `${where}: ${text}, the model says ${expected.text}`);
  }
  const changes = events.length === 0 ? "" : events.map(eventText).join(" ");
  const wanted = events.length === 0 ? "" : model.changes.slice(-events.length).map(changeText).join(" ");
  if (changes === wanted) return;
  throw new Violation("apply does what the model does", `events of ${where}: ${changes}; the model: ${wanted}`);
}

/**
 * Every command of the workload carries the number of its operation somewhere that does not change its meaning. Null: the
 * leader's own.
 */
function operationOf(proposal: Proposal): number | null {
  const { command, idempotency } = proposal;
  if (command.kind === "txn") {
    for (const compare of command.compare) if (compare.key.startsWith("~")) return Number(compare.key.slice(1));
  }
  if (command.kind === "lease_grant") return Number(command.metadata?.op);
  return idempotency === undefined ? null : Number(idempotency.key.slice(3));
}

function checkWrite(record: WriteRecord, positions: readonly Position[]): void {
  const { id, status, answer, proposal } = record;
  if (proposal.idempotency === undefined && positions.length > 1) {
    const where = positions.map(({ index }) => index).join(" and ");
    throw new Violation("one effect per idempotency key", `write ${id}, sent once, is in the log at ${where}`);
  }
  const first = positions[0];
  if (status === "refused" && first !== undefined) {
    throw new Violation(
      "definite failure has no effect",
      `write ${id} was refused and is in the log at ${first.index}`,
    );
  }
  if (first !== undefined && first.payload !== JSON.stringify(proposal)) {
    throw new Violation("reply matches the log", `write ${id} is in the log as ${first.payload}`);
  }
  if (status !== "answered" || answer === null) return;
  if (first === undefined) throw new Violation("acknowledged write is committed", `write ${id} is not in the log`);
  // A conflict of idempotency keys is not kept: each try that reaches the log is answered by itself.
  const agreeing = positions.find(
    ({ expected }) => expected.text === answer.text && expected.revision === answer.revision,
  );
  if (agreeing === undefined) {
    const expected = `${first.expected.text} at ${first.expected.revision}`;
    const detail = `write ${id} was answered ${answer.text} at ${answer.revision}, the log says ${expected}`;
    throw new Violation("reply matches the log", detail);
  }
  if (first.atStep > record.endStep) {
    const detail = `write ${id} was answered at step ${record.endStep}, committed at ${first.atStep}`;
    throw new Violation("acknowledged write is committed", detail);
  }
}

/** H3 */
function checkOrder(history: History, positions: Positions): void {
  const answered = history.writes.filter((record) => record.status === "answered");
  answered.sort((left, right) => left.end - right.end);
  let next = 0;
  let reached = 0;
  let reachedBy = 0;
  for (const record of history.writes) {
    for (; next < answered.length && answered[next]!.end < record.call; next += 1) {
      const index = positions.get(answered[next]!.id)?.[0]?.index ?? 0;
      if (index > reached) {
        reached = index;
        reachedBy = answered[next]!.id;
      }
    }
    const own = positions.get(record.id)?.[0];
    if (own !== undefined && own.index <= reached) {
      const detail = `write ${record.id} began after write ${reachedBy} was answered, but is at ${own.index} before ${reached}`;
      throw new Violation("real-time order", detail);
    }
  }
}
