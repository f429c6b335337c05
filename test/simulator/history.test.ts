/** The judges are judged: each kind of impossible history is rejected, and the possible one next to it is not. */
import { describe, expect, test } from "vitest";
import type { CommandResult, Operation, Outcome, Proposal } from "../../src/kv/command.ts";
import { applyEntries, openMachine } from "../../src/kv/machine.ts";
import { MemoryStore } from "../../src/kv/memory-store.ts";
import {
  beginRead,
  beginWrite,
  createHistory,
  endRead,
  endWrite,
  type History,
  type ReadRecord,
  type WriteRecord,
} from "./history.ts";
import { checkHistory } from "./history-check.ts";
import type { Committed } from "./safety.ts";
import { Violation } from "./violation.ts";

/** A log that commits what it is given at once, and the answers that a right node gives. */
class Scene {
  readonly history: History = createHistory();
  readonly committed: Committed[] = [];
  readonly #machine = openMachine(new MemoryStore());
  step = 0;

  get newest(): number {
    return this.#machine.revision;
  }

  begin(proposal: Proposal, id: number): WriteRecord {
    this.step += 1;
    return beginWrite(this.history, id, proposal, { step: this.step, nowMs: this.step });
  }

  commit(record: WriteRecord): Outcome<CommandResult> {
    this.step += 1;
    const index = this.committed.length + 1;
    const payload = JSON.stringify(record.proposal);
    const entry = { index, term: 1, timeMs: index, kind: "command", payload, payloadBytes: payload.length } as const;
    const applied = applyEntries(this.#machine, [entry])[0]!;
    const { revision, digest, logicalBytes } = this.#machine;
    const { outcome, events } = applied;
    const moment = { atStep: this.step, writtenAtMs: this.step };
    this.committed.push({ entry, declaredTerm: 1, ...moment, revision, digest, logicalBytes, outcome, events });
    return outcome!;
  }

  answer(record: WriteRecord, outcome: Outcome<CommandResult>): void {
    this.step += 1;
    endWrite(this.history, record, "answered", outcome, this.step, this.newest);
  }

  put(id: number, key: string): Outcome<CommandResult> {
    const record = this.begin(put(id, key), id);
    const outcome = this.commit(record);
    this.answer(record, outcome);
    return outcome;
  }

  beginRead(key: string): ReadRecord {
    this.step += 1;
    return beginRead(this.history, { kind: "get", key }, true, this.step);
  }

  endRead(record: ReadRecord, key: string, writtenBy: number | null, revisions: { at: number; mod: number }): void {
    const value = { json: `w${writtenBy}` };
    const found = {
      key,
      value,
      create_revision: revisions.mod,
      mod_revision: revisions.mod,
      version: 1,
      lease_id: null,
      expires_at_ms: null,
      content_type: null,
      metadata: {},
    };
    const outcome = {
      ok: true,
      revision: revisions.at,
      result: { kind: "get", record: writtenBy === null ? null : found },
    } as const;
    const appliedIndex = this.committed.findLastIndex((one) => one.revision === revisions.at) + 1;
    endRead(this.history, record, { outcome, appliedIndex }, record.floor, this.newest);
  }

  check(): void {
    checkHistory(this.history, this.committed, { search: true });
  }
}

function put(id: number, key: string, idempotencyKey?: string): Proposal {
  const operation: Operation = { type: "put", key, value: { json: `w${id}` } };
  const mark = { target: "exists", key: `~${id}`, op: "==", value: false } as const;
  const command = { kind: "txn", compare: [mark], success: [operation], failure: [] } as const;
  if (idempotencyKey === undefined) return { format: 1, command };
  return { format: 1, command, idempotency: { scope: "root", key: idempotencyKey, hash: `hash-${id}` } };
}

function broken(rule: string): { asymmetricMatch(error: unknown): boolean } {
  return { asymmetricMatch: (error) => error instanceof Violation && error.rule === rule };
}

function expectBroken(rule: string, run: () => void): void {
  let error: unknown = null;
  try {
    run();
  } catch (caught) {
    error = caught;
  }
  expect(error).toEqual(broken(rule));
}

describe("a history passes", () => {
  test("when every answer is the log's", () => {
    const scene = new Scene();
    scene.put(1, "a");
    scene.put(2, "b");
    const read = scene.beginRead("a");
    scene.endRead(read, "a", 1, { at: 2, mod: 1 });
    scene.check();
  });

  test("when a write of unknown outcome is in the log, or is not", () => {
    const scene = new Scene();
    const lost = scene.begin(put(1, "a"), 1);
    const late = scene.begin(put(2, "a"), 2);
    scene.commit(late);
    for (const record of [lost, late]) endWrite(scene.history, record, "unknown", null, scene.step, scene.newest);
    scene.check();
  });

  test("when a retry under one key is in the log twice", () => {
    const scene = new Scene();
    const record = scene.begin(put(1, "a", "op-1"), 1);
    const first = scene.commit(record);
    scene.commit(record);
    scene.answer(record, first);
    scene.check();
  });
});

describe("a history is rejected", () => {
  test("when an acknowledged write is not in the log", () => {
    const scene = new Scene();
    const outcome = scene.put(1, "a");
    const record = scene.begin(put(2, "a"), 2);
    scene.answer(record, outcome);
    expectBroken("acknowledged write is committed", () => scene.check());
  });

  test("when a write was acknowledged before it was committed", () => {
    const scene = new Scene();
    scene.put(1, "a");
    const record = scene.begin(put(2, "a"), 2);
    const endStep = scene.step;
    scene.step += 1;
    endWrite(scene.history, record, "answered", scene.commit(record), endStep, scene.newest);
    expectBroken("acknowledged write is committed", () => scene.check());
  });

  test("when an answer names a revision that is not committed", () => {
    const scene = new Scene();
    const outcome = scene.put(1, "a");
    const record = scene.begin(put(2, "a"), 2);
    expectBroken("acknowledged write is committed", () => scene.answer(record, { ...outcome, revision: 9 }));
  });

  test("when a definite failure had an effect", () => {
    const scene = new Scene();
    const record = scene.begin(put(1, "a"), 1);
    scene.commit(record);
    endWrite(scene.history, record, "refused", null, scene.step, scene.newest);
    expectBroken("definite failure has no effect", () => scene.check());
  });

  test("when a write without a key is in the log twice", () => {
    const scene = new Scene();
    const record = scene.begin(put(1, "a"), 1);
    scene.commit(record);
    scene.answer(record, scene.commit(record));
    expectBroken("one effect per idempotency key", () => scene.check());
  });

  test("when an answer is not that of the log", () => {
    const scene = new Scene();
    const record = scene.begin(put(1, "a"), 1);
    const outcome = scene.commit(record);
    if (!outcome.ok || outcome.result.kind !== "txn") throw new Error("the put failed");
    scene.answer(record, { ...outcome, result: { ...outcome.result, succeeded: false } });
    expectBroken("reply matches the log", () => scene.check());
  });

  test("when a read is older than what was known before it began", () => {
    const scene = new Scene();
    scene.put(1, "a");
    scene.put(2, "a");
    const read = scene.beginRead("a");
    expectBroken("no stale read", () => scene.endRead(read, "a", 1, { at: 1, mod: 1 }));
  });

  test("when a read goes back behind another read", () => {
    const scene = new Scene();
    const first = scene.begin(put(1, "a"), 1);
    scene.commit(first);
    const seen = scene.beginRead("a");
    scene.endRead(seen, "a", 1, { at: 1, mod: 1 });
    const back = scene.beginRead("a");
    expectBroken("no stale read", () => scene.endRead(back, "a", null, { at: 0, mod: 0 }));
  });

  test("when a read shows what its revision does not hold", () => {
    const scene = new Scene();
    scene.put(1, "a");
    scene.put(2, "b");
    const read = scene.beginRead("a");
    scene.endRead(read, "a", null, { at: 2, mod: 0 });
    expectBroken("read sees one state", () => scene.check());
  });

  test("when a later write stands before an earlier one", () => {
    const scene = new Scene();
    const early = scene.begin(put(1, "a"), 1);
    const late = scene.begin(put(2, "b"), 2);
    const lateOutcome = scene.commit(late);
    const earlyOutcome = scene.commit(early);
    scene.answer(early, earlyOutcome);
    scene.answer(late, lateOutcome);
    // As if the second call had begun only after the first was answered.
    Object.assign(late, { call: early.end + 0.5 });
    expectBroken("real-time order", () => scene.check());
  });

  test("when a committed write is unknown to a question asked afterwards", () => {
    const scene = new Scene();
    const record = scene.begin(put(1, "a", "op-1"), 1);
    scene.commit(record);
    endWrite(scene.history, record, "unknown", null, scene.step, scene.newest);
    scene.step += 1;
    const question = beginRead(scene.history, { kind: "txn_result", scope: "root", key: "op-1" }, true, scene.step);
    question.resolves = record;
    const answer = {
      ok: true,
      revision: 1,
      result: { kind: "txn_result", status: "unknown", idem_floor: 0 },
    } as const;
    endRead(scene.history, question, { outcome: answer, appliedIndex: 1 }, 0, scene.newest);
    expectBroken("no stale read", () => scene.check());
  });
});
