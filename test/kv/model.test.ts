/** The machine against a naive model (naive-model.ts), over random commands. */
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Command } from "../../src/kv/command.ts";
import { steps, txn } from "./arbitraries.ts";
import { Harness } from "./harness.ts";
import { checkState, Model } from "./naive-model.ts";

describe("the machine agrees with a naive model", () => {
  test("over random commands: results, revisions, events, records, leases, due keys, history and old states", () => {
    void fc.assert(
      fc.property(steps, (sequence) => {
        const h = new Harness();
        const model = new Model();
        for (const { command, elapsedMs } of sequence) {
          h.timeMs += elapsedMs;
          if (command === null) continue;
          const outcome = h.apply(command);
          const expected = model.apply(command, h.timeMs);
          expect(outcome.ok ? outcome.result : null).toEqual(expected);
          expect(outcome.revision).toBe(model.revision);
        }
        checkState(h, model);
      }),
      { numRuns: 400 },
    );
  });

  test("over random txns, which leave nothing behind when they are refused", () => {
    void fc.assert(
      fc.property(fc.array(txn, { maxLength: 30 }), (sequence) => {
        const h = new Harness();
        const model = new Model();
        for (const parts of sequence) {
          const command: Command = { kind: "txn", ...parts };
          const work = () => h.apply(command);
          const expected = model.apply(command, h.timeMs);
          if (expected === null) h.expectUnchanged(() => expect(work().ok).toBe(false));
          else expect(work()).toMatchObject({ ok: true, result: expected });
        }
        checkState(h, model);
      }),
      { numRuns: 300 },
    );
  });
});
