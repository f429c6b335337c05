/** Pieces of the tables of refusals: how a wrong request is asked, and what is expected. */
import type { expectProblem, Harness } from "./harness.ts";

export const JSON_TYPE = { "content-type": "application/json" };
export interface Refusal {
  readonly claim: string;
  readonly ask: (harness: Harness) => ReturnType<Harness["get"]>;
  readonly expected: Parameters<typeof expectProblem>[1];
  /** What the detail must name. */
  readonly detail?: RegExp;
}

export function refused(status: number, code: string, reason?: string) {
  return { status, code, ...(reason === undefined ? {} : { reason }) };
}

/** A txn whose success branch is these operations. */
export function txn(operations: readonly object[]) {
  return (harness: Harness) => harness.post("/v1/txn", { success: operations });
}

export function compare(fields: object) {
  return (harness: Harness) => harness.post("/v1/txn", { compare: [fields] });
}

export function text(target: string, body: string, headers: Record<string, string> = JSON_TYPE) {
  return (harness: Harness) => harness.send("POST", target, { headers, body });
}

export function repeat<T>(count: number, item: T): T[] {
  return Array.from({ length: count }, () => item);
}

export const PUT = { type: "put", key: "a", value: 1 };
export const COMPARE = { target: "exists", key: "a", op: "==", value: true };
