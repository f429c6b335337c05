/** Random states through backup and restore: what a naive model says must be there is there, and life goes on. */
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type BackupManifest, manifestOf } from "../../src/kv/backup-format.ts";
import { beginIntake, endIntake, takeBackupText } from "../../src/kv/backup-intake.ts";
import { beginBackup, endBackup, writeBackupRows } from "../../src/kv/backup-writer.ts";
import type { CommandResult, Idempotency, Outcome } from "../../src/kv/command.ts";
import { readResult } from "../../src/kv/idempotency.ts";
import { type AppliedEntry, applyEntries, openMachine } from "../../src/kv/machine.ts";
import { MemoryStore } from "../../src/kv/memory-store.ts";
import { readMeta } from "../../src/kv/state.ts";
import type { Row } from "../../src/kv/store.ts";
import { type Step, steps } from "./arbitraries.ts";
import { backupOf, checkedRows, restored, restoredApart, takenIn } from "./backups.ts";
import { errorCode, Harness } from "./harness.ts";
import { checkState, Model, restoredModel } from "./naive-model.ts";

type Kept = { readonly idempotency: Idempotency; readonly step: Step; readonly outcome: Outcome<CommandResult> };

/** Runs steps on both; answers what was stored under idempotency keys. The model knows nothing of those. */
function run(h: Harness, model: Model, sequence: readonly Step[]): Kept[] {
  const kept: Kept[] = [];
  for (const step of sequence) {
    h.timeMs += step.elapsedMs;
    if (step.command === null) {
      const entry = { index: h.machine.appliedIndex + 1, timeMs: h.timeMs, payload: "" };
      applyEntries(h.machine, [entry]);
      h.log.push(entry);
      continue;
    }
    const { command, idempotency } = step;
    const before = idempotency === null ? null : readResult(h.store, idempotency.scope, idempotency.key);
    const outcome = h.apply(command, idempotency ?? undefined);
    const refused = ["idempotency_conflict", "idempotency_expired"].includes(errorCode(outcome) ?? "");
    if (before !== null || refused) continue;
    const expected = model.apply(command, h.timeMs);
    expect(outcome.ok ? outcome.result : null).toEqual(expected);
    if (idempotency !== null) kept.push({ idempotency, step, outcome });
  }
  return kept;
}

/** The step of somebody who has seen `revision`. */
function knownFrom(step: Step, revision: number): Step {
  const { idempotency } = step;
  return { ...step, idempotency: idempotency && { ...idempotency, since: revision } };
}

const options = fc.record({
  index: fc.integer({ min: 0, max: 9 }),
  nowMs: fc.constantFrom(1_000_000, 5, 9_000_000_000),
  revisionJump: fc.constantFrom(1, 20),
});

describe("a backup is taken in", () => {
  const h = new Harness();
  h.put("a", 1);
  const manifest = manifestOf({ id: "old", term: 7 }, readMeta(h.store));

  function textOf(told: BackupManifest, rows: readonly Row[]): string {
    const writer = beginBackup(told);
    return writeBackupRows(writer, rows) + endBackup(writer);
  }

  test("with what it says of itself", () => {
    const intake = beginIntake();
    expect(takeBackupText(intake, textOf(manifest, h.store.rows()))).toEqual(h.store.rows());
    expect(endIntake(intake)).toEqual(manifest);
    expect(manifest).toMatchObject({ cluster_id: "old", term: 7, index: 1, revision: 1, time_ms: h.timeMs });
  });

  test("not when its manifest tells of another state than its rows", () => {
    for (const change of [{ index: 2 }, { revision: 2 }, { compact_revision: 1 }, { time_ms: 1 }]) {
      const text = textOf({ ...manifest, ...change }, h.store.rows());
      expect(() => takenIn(text)).toThrow("invalid_rows");
    }
  });

  test("not when its rows are no state, however well they are sealed", () => {
    expect(() => takenIn(textOf(manifest, [["z", ""]]))).toThrow("no row of a state");
    expect(() => takenIn(textOf(manifest, h.store.rows().slice(1)))).toThrow("no state");
    expect(() => takenIn(textOf(manifest, []))).toThrow("position is missing");
  });

  test("not when it ends early", () => {
    const text = textOf(manifest, h.store.rows());
    expect(() => takenIn(text.slice(0, -1))).toThrow("backup_truncated");
  });
});

describe("a random state", () => {
  test("restored is what the model says, before and after more commands", () => {
    void fc.assert(
      fc.property(steps, steps, options, fc.integer({ min: 1, max: 300 }), (earlier, later, restoring, pieceSize) => {
        const old = new Harness();
        const oldModel = new Model();
        const kept = run(old, oldModel, earlier);
        fc.pre(old.store.size > 0);
        checkState(old, oldModel);

        const text = backupOf(old.machine);
        expect(takenIn(text, pieceSize).rows()).toEqual(old.store.rows());
        const h = restored(text, restoring);
        expect(h.store.rows()).toEqual(restoredApart(old.store, restoring));
        expect(checkedRows(h.store.rows())).toEqual(readMeta(h.store));
        const model = restoredModel(oldModel, restoring);
        checkState(h, model);

        for (const { idempotency, step, outcome } of kept) {
          const again = h.apply(step.command as never, idempotency);
          expect(again).toEqual(outcome.ok ? { ...outcome, replayed: true } : outcome);
        }
        checkState(h, model);

        run(
          h,
          model,
          later.map((step) => knownFrom(step, h.machine.revision)),
        );
        checkState(h, model);
        expect(checkedRows(h.store.rows())).toEqual(readMeta(h.store));
      }),
      { numRuns: 200 },
    );
  });

  test("of two nodes that applied the log in their own ways makes byte-equal backups and equal restores", () => {
    void fc.assert(
      fc.property(steps, fc.integer({ min: 1, max: 9 }), options, (sequence, batch, restoring) => {
        const one = new Harness();
        run(one, new Model(), sequence);
        fc.pre(one.store.size > 0);
        const log: readonly AppliedEntry[] = one.log;
        expect(log).toHaveLength(one.machine.appliedIndex);
        const other = new MemoryStore();
        for (let from = 0; from < log.length; from += batch) {
          applyEntries(openMachine(other), log.slice(from, from + batch));
        }
        const texts = [backupOf(one.machine), backupOf(openMachine(other))];
        expect(texts[0]).toBe(texts[1]);
        const [left, right] = texts.map((text) => restored(text, restoring));
        expect(left?.store.rows()).toEqual(right?.store.rows());
        expect(left?.machine.digest).toBe(right?.machine.digest);
      }),
      { numRuns: 100 },
    );
  });
});
