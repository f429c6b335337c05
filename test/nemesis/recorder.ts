/**
 * One client of the load with what it records. A call is one record, whatever the client repeats inside; what its error
 * means for the record is decided here and nowhere else.
 */
import type { Random } from "../../src/base/random.ts";
import { type Concord, ConcordError, type WireRecord, type WireTxnResult } from "../../src/client/index.ts";
import type { Change, ClientRecord, Compare, Evidence, ReadRecord, WriteRecord } from "./evidence.ts";
import { valueParts } from "./evidence.ts";

/** Grows while the run goes on. */
export interface Records {
  readonly clients: ClientRecord[];
  readonly writes: WriteRecord[];
  readonly reads: ReadRecord[];
  readonly leases: Evidence["leases"][number][];
  readonly watchers: Evidence["watchers"][number][];
  /** Operations by kind and outcome. */
  readonly counts: Map<string, Map<string, number>>;
  /** Errors that no client may throw. */
  readonly unexpected: string[];
}

export function createRecords(): Records {
  return {
    clients: [],
    writes: [],
    reads: [],
    leases: [],
    watchers: [],
    counts: new Map(),
    unexpected: [],
  };
}

export function count(records: Records, kind: string, outcome: string): void {
  const outcomes = records.counts.get(kind) ?? new Map<string, number>();
  records.counts.set(kind, outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1));
}

export interface LoadClient {
  readonly position: number;
  readonly concord: Concord;
  readonly random: Random;
  readonly records: Records;
  readonly own: ClientRecord;
  nextOp: number;
}

export function opOf(client: LoadClient): string {
  client.nextOp += 1;
  return `${client.position}.${client.nextOp}`;
}

/** What an answer says of a write. */
export interface Answered {
  readonly revision: number;
  readonly succeeded: boolean;
  readonly hadEffect: boolean;
}

export function answeredBy(result: WireTxnResult): Answered {
  const { revision, succeeded, responses } = result;
  const hadEffect = responses.some((one) => one.type === "put" || (one.type === "delete" && one.deleted > 0));
  return { revision, succeeded, hadEffect: succeeded && hadEffect };
}

export interface WritePlan {
  readonly op: string;
  readonly kind: string;
  readonly compares?: readonly Compare[];
  readonly changes: readonly Change[];
}

/** Calls once or, for the same idempotency key, several times; every answer counts. Null: no answer. */
export async function recordWrite(
  client: LoadClient,
  plan: WritePlan,
  attempts: readonly (() => Promise<Answered>)[],
): Promise<Answered | null> {
  const { records, position } = client;
  const callMs = performance.now();
  const { seen } = look(client);
  const answers: Answered[] = [];
  let firstEndMs = Number.POSITIVE_INFINITY;
  let unknown: string | null = null;
  let refused = "none";
  for (const attempt of attempts) {
    try {
      answers.push(await attempt());
      firstEndMs = Math.min(firstEndMs, performance.now());
    } catch (error) {
      const code = codeOf(error, records);
      if (code.isUnknown) unknown = code.text;
      else refused = code.text;
    }
  }
  look(client);
  const [answer] = answers;
  const { op, kind, compares = [], changes } = plan;
  const base = { client: position, callMs, seen, op, kind, compares, changes };
  if (answer !== undefined) {
    const revisions = answers.map(({ revision }) => revision);
    const end = { kind: "answered", succeeded: answer.succeeded, hadEffect: answer.hadEffect, revisions } as const;
    records.writes.push({ ...base, endMs: firstEndMs, end });
    count(records, kind, answer.succeeded ? "ok" : "compare failed");
    return answer;
  }
  const end =
    unknown === null ? ({ kind: "refused", code: refused } as const) : ({ kind: "unknown", code: unknown } as const);
  records.writes.push({ ...base, endMs: Number.POSITIVE_INFINITY, end });
  count(records, kind, end.kind === "refused" ? `refused ${refused}` : "unknown");
  return null;
}

export interface ReadPlan {
  readonly kind: string;
  readonly isLinearizable: boolean;
  readonly keys: readonly string[];
}

export type FoundRecord = ReadRecord["found"][number];

/** Null: no answer. */
export async function recordRead(
  client: LoadClient,
  { kind, isLinearizable, keys }: ReadPlan,
  read: () => Promise<{ readonly revision: number | null; readonly records: readonly (WireRecord | null)[] }>,
): Promise<readonly FoundRecord[] | null> {
  const { records, position } = client;
  const callMs = performance.now();
  const { seen } = look(client);
  const name = `${kind}, ${isLinearizable ? "linearizable" : "serializable"}`;
  try {
    const answer = await read();
    const endMs = performance.now();
    const found = keys.map((key, at) => {
      const record = answer.records[at] ?? null;
      return { key, modRevision: record?.mod_revision ?? 0, ...valueParts(record?.value ?? null) };
    });
    look(client);
    records.reads.push({
      client: position,
      callMs,
      endMs,
      seen,
      kind,
      isLinearizable,
      revision: answer.revision,
      found,
    });
    count(records, name, "ok");
    return found;
  } catch (error) {
    count(records, name, codeOf(error, records).text);
    return null;
  }
}

/** Notes the client's own revision, which must never fall. */
function look({ concord, own }: LoadClient): { readonly seen: number } {
  const { revision } = concord;
  if (own.revisions.at(-1) !== revision) own.revisions.push(revision);
  return { seen: revision };
}

/** Codes by which a cluster under faults refuses; anything else is a mistake of somebody. */
const EXPECTED = new Set(["no_leader", "overloaded", "cluster_not_ready", "timeout", "behind", "unknown_lease"]);

export function codeOf(error: unknown, records: Records): { readonly text: string; readonly isUnknown: boolean } {
  if (!(error instanceof ConcordError)) throw error;
  if (!EXPECTED.has(error.code)) records.unexpected.push(error.message);
  return { text: error.code, isUnknown: error.retry === "same-request" };
}
