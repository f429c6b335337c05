/**
 * What the clients saw, and whether it can be true. The committed log is the one order of all writes; revisions tie
 * every read to a place in it. So real time, answers and reads are checked exactly, without search; a search that knows
 * nothing of logs or revisions checks a sample again (linearizability.ts).
 *
 * H1. An answered write is in the log, was committed before the answer, and its answer is what the model says.
 * H2. A write without an idempotency key is in the log at most once; one that failed definitely is not in it at all.
 * H3. A write that began after another was answered stands behind it in the log.
 * H4. A read shows exactly one state, not older than anything that any client knew when the read began.
 */
import type { CommandResult, Outcome, Proposal, Query, QueryResult } from "../../src/kv/command.ts";
import { isLinearizable, type RegisterOperation, type RegisterValue } from "./linearizability.ts";
import {
  answerText,
  applyModel,
  createModel,
  listAt,
  type Model,
  type ModelAnswer,
  recordAt,
  recordText,
  storedListText,
  storedText,
} from "./model.ts";
import type { Committed } from "./safety.ts";
import { Violation } from "./violation.ts";

export interface WriteRecord {
  readonly id: number;
  readonly proposal: Proposal;
  readonly callStep: number;
  /** Order of calls and ends among all clients; `end` Infinity while nothing is known. */
  readonly call: number;
  end: number;
  endStep: number;
  /** The highest revision known to any client when the call began. */
  readonly floor: number;
  status: "open" | "answered" | "refused" | "unknown";
  attempts: number;
  unknownAttempts: number;
  answer: ModelAnswer | null;
}

export interface ReadRecord {
  readonly id: number;
  readonly query: Query;
  readonly linearizable: boolean;
  readonly call: number;
  readonly callStep: number;
  end: number;
  readonly floor: number;
  status: "open" | "answered" | "failed";
  revision: number;
  text: string;
  /** Of a `txn_result` query: the write it asks about, and whether it was known. */
  resolves: WriteRecord | null;
  known: boolean;
}

export interface History {
  readonly writes: WriteRecord[];
  readonly reads: ReadRecord[];
  clock: number;
  floor: number;
  nextId: number;
}

export function createHistory(): History {
  return { writes: [], reads: [], clock: 0, floor: 0, nextId: 1 };
}

export function beginWrite(history: History, id: number, proposal: Proposal, callStep: number): WriteRecord {
  history.clock += 1;
  const record: WriteRecord = {
    id,
    proposal,
    callStep,
    call: history.clock,
    end: Number.POSITIVE_INFINITY,
    endStep: Number.POSITIVE_INFINITY,
    floor: history.floor,
    status: "open",
    attempts: 0,
    unknownAttempts: 0,
    answer: null,
  };
  history.writes.push(record);
  return record;
}

export function endWrite(
  history: History,
  record: WriteRecord,
  status: "answered" | "refused" | "unknown",
  outcome: Outcome<CommandResult> | null,
  endStep: number,
  newestRevision: number,
): void {
  history.clock += 1;
  record.status = status;
  if (status !== "answered" || outcome === null) return;
  record.end = history.clock;
  record.endStep = endStep;
  record.answer = { text: answerText(outcome), revision: outcome.revision };
  checkRevision("write", record.id, outcome.revision, record.floor, newestRevision);
  if (outcome.revision > history.floor) history.floor = outcome.revision;
}

export function beginRead(history: History, query: Query, linearizable: boolean, callStep: number): ReadRecord {
  history.clock += 1;
  const record: ReadRecord = {
    id: history.nextId,
    query,
    linearizable,
    call: history.clock,
    callStep,
    end: Number.POSITIVE_INFINITY,
    floor: history.floor,
    status: "open",
    revision: 0,
    text: "",
    resolves: null,
    known: false,
  };
  history.nextId += 1;
  history.reads.push(record);
  return record;
}

export function endRead(
  history: History,
  record: ReadRecord,
  outcome: Outcome<QueryResult> | null,
  floor: number,
  newestRevision: number,
): void {
  history.clock += 1;
  record.end = history.clock;
  if (outcome === null) {
    record.status = "failed";
    return;
  }
  if (!outcome.ok) {
    record.status = "failed";
    if (record.linearizable && outcome.error.code === "revision_in_future") {
      throw new Violation("no stale read", `read ${record.id} at a known revision: ${outcome.error.detail}`);
    }
    return;
  }
  record.status = "answered";
  record.revision = outcome.revision;
  const { result } = outcome;
  if (result.kind === "get") record.text = storedText(result.record);
  else if (result.kind === "list") record.text = storedListText(result.records, result.more);
  else if (result.kind === "txn_result") {
    record.known = result.status === "known";
    if (result.outcome !== undefined) record.text = answerText(result.outcome);
  }
  checkRevision("read", record.id, outcome.revision, floor, newestRevision);
  if (record.linearizable && outcome.revision > history.floor) history.floor = outcome.revision;
}

/** At the moment of the answer: not older than what was known at the call, not newer than what is committed. */
function checkRevision(what: string, id: number, revision: number, floor: number, newest: number): void {
  if (revision < floor) {
    throw new Violation(
      "no stale read",
      `${what} ${id} answers revision ${revision}; ${floor} was known before it began`,
    );
  }
  if (revision > newest) {
    const detail = `${what} ${id} answers revision ${revision}; only ${newest} is committed`;
    throw new Violation("acknowledged write is committed", detail);
  }
}

// --- the end of a seed -----------------------------------------------------------------------------------------------

interface Position {
  readonly index: number;
  readonly atStep: number;
  readonly expected: ModelAnswer;
}

export interface HistoryCheck {
  /** Also search every key for a linear order without using revisions. */
  readonly search: boolean;
}

export function checkHistory(history: History, committed: readonly Committed[], options: HistoryCheck): void {
  const model = createModel();
  const positions = replayLog(model, committed);
  for (const record of history.writes) checkWrite(record, positions.get(record.id) ?? []);
  checkOrder(history, positions);
  for (const record of history.reads) checkRead(model, record, positions);
  if (options.search) searchKeys(history, model);
}

function replayLog(model: Model, committed: readonly Committed[]): Map<number, Position[]> {
  const positions = new Map<number, Position[]>();
  for (const { entry, atStep, revision } of committed) {
    if (entry.payload === "") continue;
    const proposal: Proposal = JSON.parse(entry.payload);
    const expected = applyModel(model, proposal);
    if (model.revision !== revision) {
      const detail = `after entry ${entry.index} the model is at ${model.revision}, the machine at ${revision}`;
      throw new Violation("revisions are dense", detail);
    }
    const id = operationOf(proposal);
    const before = positions.get(id);
    const position = { index: entry.index, atStep, expected };
    if (before === undefined) positions.set(id, [position]);
    else before.push(position);
  }
  return positions;
}

/** Every command of the workload carries the number of its operation somewhere that does not change its meaning. */
function operationOf(proposal: Proposal): number {
  const { command, idempotency } = proposal;
  if (command.kind === "txn") {
    for (const compare of command.compare) if (compare.key.startsWith("~")) return Number(compare.key.slice(1));
  }
  if (command.kind === "lease_grant") return Number(command.metadata?.op);
  return Number(idempotency?.key.slice(3));
}

function checkWrite(record: WriteRecord, positions: readonly Position[]): void {
  const { id, status, answer } = record;
  if (record.proposal.idempotency === undefined && positions.length > 1) {
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

function checkOrder(history: History, positions: ReadonlyMap<number, readonly Position[]>): void {
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

function checkRead(model: Model, record: ReadRecord, positions: ReadonlyMap<number, readonly Position[]>): void {
  if (record.status !== "answered") return;
  const { query } = record;
  if (query.kind === "txn_result") {
    checkResolve(record, positions);
    return;
  }
  let expected: string;
  if (query.kind === "get") expected = recordText(recordAt(model, query.key, query.revision ?? record.revision));
  else if (query.kind === "list" && "prefix" in query.selector) {
    expected = listAt(model, query.selector.prefix, query.limit, query.revision ?? record.revision);
  } else return;
  if (record.text === expected) return;
  const detail = `read ${record.id} at revision ${record.revision}: saw ${record.text}, the state is ${expected}`;
  throw new Violation("read sees one state", detail);
}

/** "Not known" means that the write had not been committed when the question was asked (S27). */
function checkResolve(record: ReadRecord, positions: ReadonlyMap<number, readonly Position[]>): void {
  const write = record.resolves;
  if (write === null) return;
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

// --- the search ------------------------------------------------------------------------------------------------------

/** More operations than this on one key make the search slow; the exact checks above cover them. */
const SEARCHED_OPERATIONS_MAX = 120;

function searchKeys(history: History, model: Model): void {
  for (const [key, operations] of registerHistories(history, model)) {
    if (operations.length > SEARCHED_OPERATIONS_MAX) continue;
    if (isLinearizable(operations) === false) {
      throw new Violation("linearizable per key", `${JSON.stringify(key)}: ${JSON.stringify(operations)}`);
    }
  }
}

/** Keys that leases may delete are left out: what a revoke does to one key depends on all. */
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

function valuesOf(
  operations: Extract<Proposal["command"], { kind: "txn" }>["success"],
  keys: readonly string[],
): { key: string; value: RegisterValue; lease: boolean }[] {
  const values: { key: string; value: RegisterValue; lease: boolean }[] = [];
  for (const operation of operations) {
    if (operation.type === "put" && operation.revision_suffix !== true) {
      const value = operation.value !== undefined && "json" in operation.value ? operation.value.json : null;
      values.push({ key: operation.key, value: JSON.stringify(value), lease: operation.lease !== undefined });
    } else if (operation.type === "delete") {
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
