/** The words of the scripted stories: what clients send, what they hear, and what kind of message is under way. */
import type { Command, CommandResult, Idempotency, Outcome, QueryResult } from "../../../src/kv/command.ts";
import type { PeerEnvelope } from "../../../src/node-object/ports.ts";
import type { Message } from "../../../src/raft/types.ts";

/** A client's call under way. `lost`: the connection broke without an answer, or was refused. */
export interface Pending<T> {
  answer: T | null;
  lost: "refused" | "broken" | null;
}

export type WriteAnswer = Outcome<CommandResult>;
export type ReadAnswer = Outcome<QueryResult>;

export function put(key: string, json: string | number): Command {
  return { kind: "txn", compare: [], success: [{ type: "put", key, value: { json } }], failure: [] };
}

export function idempotency(key: string, hash = `hash of ${key}`): Idempotency {
  return { scope: "root", key, hash };
}

/** The JSON value of the record in the answer of a get; null when absent. Throws when there is no such answer. */
export function recordValue(answer: ReadAnswer): unknown {
  if (!answer.ok || answer.result.kind !== "get") throw new Error(`no record: ${JSON.stringify(answer)}`);
  const { record } = answer.result;
  if (record === null) return null;
  return "json" in record.value ? record.value.json : record.value;
}

/** `ok`, or the code of the error; null while there is no answer. */
export function codeOf(pending: Pending<WriteAnswer> | Pending<ReadAnswer>): string | null {
  const { answer } = pending;
  if (answer === null) return null;
  return answer.ok ? "ok" : answer.error.code;
}

export function isAppend(envelope: PeerEnvelope): boolean {
  return envelope.body.kind === "raft" && envelope.body.message.kind === "append";
}

/** An append that carries entries. */
export function carriesEntries(envelope: PeerEnvelope): boolean {
  const { body } = envelope;
  return body.kind === "raft" && body.message.kind === "append" && body.message.entries.length > 0;
}

export function isMessage(envelope: PeerEnvelope, ...kinds: readonly Message["kind"][]): boolean {
  return envelope.body.kind === "raft" && kinds.includes(envelope.body.message.kind);
}
