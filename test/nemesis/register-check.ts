/**
 * The second opinion: each key as a register, searched for a linear order of what clients did to it, without revisions.
 * Of the feed it takes one thing: a write of unknown outcome whose value is nowhere in it never happened.
 */
import { isLinearizable, type RegisterOperation } from "../histories/linearizability.ts";
import { Violation } from "../simulator/violation.ts";
import type { Evidence, WriteRecord } from "./evidence.ts";
import type { Timeline } from "./timeline.ts";

/** Above what a key of the load is used for; more makes the search slow. */
const OPERATIONS_MAX = 400;
const TRIES_MAX = 200_000;

export interface RegisterCount {
  readonly keys: number;
  readonly operations: number;
  /** Keys of which the search could not say either. */
  readonly undecided: number;
}

export function checkRegisters(timeline: Timeline, evidence: Evidence, prefix: string): RegisterCount {
  const histories = historiesOf(timeline, evidence, prefix);
  let undecided = 0;
  let operations = 0;
  for (const [key, history] of histories) {
    const verdict = history.length > OPERATIONS_MAX ? null : isLinearizable(history, null, TRIES_MAX);
    if (verdict === false) throw new Violation("linearizable per key", `${key}: ${textOf(history)}`);
    if (verdict === null) undecided += 1;
    operations += history.length;
  }
  return { keys: histories.size, operations, undecided };
}

function historiesOf(timeline: Timeline, evidence: Evidence, prefix: string): Map<string, RegisterOperation[]> {
  const happened = new Set(timeline.events.flat().map(({ op }) => op));
  const histories = new Map<string, RegisterOperation[]>();
  const add = (key: string, operation: RegisterOperation): void => {
    const history = histories.get(key);
    if (history === undefined) histories.set(key, [operation]);
    else history.push(operation);
  };
  for (const write of evidence.writes) {
    const [change, ...others] = write.changes;
    if (change === undefined || others.length > 0 || !change.key.startsWith(prefix)) continue;
    if (write.end.kind === "refused") continue;
    const isUnknown = write.end.kind === "unknown";
    if (isUnknown && change.kind === "put" && !happened.has(write.op)) continue;
    add(change.key, {
      call: write.callMs,
      end: isUnknown ? Number.POSITIVE_INFINITY : write.endMs,
      action: actionOf(write),
    });
  }
  for (const { isLinearizable: isExact, found, callMs, endMs } of evidence.reads) {
    if (!isExact) continue;
    for (const { key, op } of found) {
      if (key.startsWith(prefix)) add(key, { call: callMs, end: endMs, action: { kind: "read", value: op } });
    }
  }
  return histories;
}

function actionOf({ op, changes, compares, end }: WriteRecord): RegisterOperation["action"] {
  const value = changes[0]?.kind === "put" ? op : null;
  const [compare] = compares;
  if (compare === undefined) return { kind: "write", value };
  return { kind: "swap", from: compare.op, to: value, succeeded: end.kind === "answered" ? end.succeeded : null };
}

function textOf(history: readonly RegisterOperation[]): string {
  return [...history]
    .sort((left, right) => left.call - right.call)
    .map(({ call, end, action }) => `${call.toFixed(1)}-${end.toFixed(1)} ${JSON.stringify(action)}`)
    .join("; ");
}
