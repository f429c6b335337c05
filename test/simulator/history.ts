/**
 * What the clients saw: every write and read with its call, its end and its answer, in the order of one clock. What can
 * be judged at the moment of an answer is judged here, the rest at the end of the seed (history-check.ts).
 */
import type { CommandResult, Outcome, Proposal, Query, QueryResult } from "../../src/kv/command.ts";
import type { ModelAnswer } from "./model.ts";
import { answerText, eventText, storedListText, storedText } from "./model-text.ts";
import { Violation } from "./violation.ts";

export interface WriteRecord {
  readonly id: number;
  readonly proposal: Proposal;
  readonly callStep: number;
  /** Virtual time at which the client first sent it. */
  readonly sentMs: number;
  /** Order of calls and ends among all clients; `end` Infinity while nothing is known. */
  readonly call: number;
  end: number;
  endStep: number;
  /** The highest revision known to any client when the call began. */
  readonly floor: number;
  status: "open" | "answered" | "refused" | "unknown";
  attempts: number;
  unknownAttempts: number;
  refusedForSpace: boolean;
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
  /** The node answered from the state after this entry. */
  appliedIndex: number;
  text: string;
  /** Where a page of changes ends. */
  next: readonly [revision: number, opIndex: number] | null;
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

export interface Moment {
  readonly step: number;
  readonly nowMs: number;
}

export function beginWrite(history: History, id: number, proposal: Proposal, moment: Moment): WriteRecord {
  history.clock += 1;
  const record: WriteRecord = {
    id,
    proposal,
    callStep: moment.step,
    sentMs: moment.nowMs,
    call: history.clock,
    end: Number.POSITIVE_INFINITY,
    endStep: Number.POSITIVE_INFINITY,
    floor: history.floor,
    status: "open",
    attempts: 0,
    unknownAttempts: 0,
    refusedForSpace: false,
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
    appliedIndex: 0,
    text: "",
    next: null,
    resolves: null,
    known: false,
  };
  history.nextId += 1;
  history.reads.push(record);
  return record;
}

/** What the node that evaluated a query said, and the entry behind which it stood. */
export interface ReadAnswer {
  readonly outcome: Outcome<QueryResult>;
  readonly appliedIndex: number;
}

/** `floor`: the revision that the answer must have reached. */
export function endRead(
  history: History,
  record: ReadRecord,
  answer: ReadAnswer | null,
  floor: number,
  newestRevision: number,
): void {
  history.clock += 1;
  record.end = history.clock;
  if (answer === null || isOfNode(answer.outcome)) {
    record.status = "failed";
    return;
  }
  const { outcome, appliedIndex } = answer;
  record.status = "answered";
  record.revision = outcome.revision;
  record.appliedIndex = appliedIndex;
  record.text = readText(outcome);
  if (outcome.ok && outcome.result.kind === "changes") record.next = outcome.result.next;
  if (outcome.ok && outcome.result.kind === "txn_result") record.known = outcome.result.status === "known";
  if (!outcome.ok && record.linearizable && outcome.error.code === "revision_in_future") {
    throw new Violation("no stale read", `read ${record.id} at a known revision: ${outcome.error.detail}`);
  }
  checkRevision("read", record.id, outcome.revision, floor, newestRevision);
  if (record.linearizable && outcome.revision > history.floor) history.floor = outcome.revision;
}

/** The node could not serve at all: nothing is said of the state. */
function isOfNode(outcome: Outcome<QueryResult>): boolean {
  return !outcome.ok && ["cluster_not_ready", "node_halted", "no_leader"].includes(outcome.error.code);
}

function readText(outcome: Outcome<QueryResult>): string {
  if (!outcome.ok) {
    const { code, compact_revision } = outcome.error;
    return `error ${code}${compact_revision === undefined ? "" : ` ${compact_revision}`}`;
  }
  const { result } = outcome;
  switch (result.kind) {
    case "get":
      return storedText(result.record);
    case "list":
      return storedListText(result.records, result.more);
    case "txn_result":
      return result.outcome === undefined ? "" : answerText(result.outcome);
    case "changes":
      return result.events.map(eventText).join(" ");
    case "lease": {
      if (result.lease === null) return "no lease";
      return `${leaseText(result.lease)} ${JSON.stringify(result.lease.keys)}`;
    }
    case "lease_list":
      return `leases ${result.leases.map(leaseText).join(", ")}`;
    case "due": {
      const entries = result.entries.map((one) => `${one.due_at_ms} ${JSON.stringify(one.key)} ${one.mod_revision}`);
      return `due ${entries.join(", ")}${result.more ? "+" : ""}`;
    }
    default:
      throw new Error(`no client of the workload asks ${result.kind}`);
  }
}

function leaseText(lease: {
  readonly id: number;
  readonly ttl_s: number;
  readonly expires_at_ms: number;
  readonly anonymous: boolean;
  readonly keys_count: number;
}): string {
  const { id, ttl_s, expires_at_ms, anonymous, keys_count } = lease;
  return `lease ${id} ${ttl_s} until ${expires_at_ms}${anonymous ? " anonymous" : ""}, ${keys_count} keys`;
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
