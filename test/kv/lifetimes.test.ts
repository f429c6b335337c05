/**
 * Goal: leases and history end as designed whatever the log's order is. A leader sees what is due, and its decision is
 * applied at once, late, twice or never, between txns, keep-alives, revokes, floors, compactions and chunks of removal.
 * Method: random acts against the naive model; then the same log on other nodes, batched and restarted otherwise.
 */
import * as fc from "fast-check";
import { expect, test } from "vitest";
import type { Command, SeenLease } from "../../src/kv/command.ts";
import { expiredLeases } from "../../src/kv/lease-expiry.ts";
import { readLease } from "../../src/kv/leases.ts";
import { applyEntries, openMachine } from "../../src/kv/machine.ts";
import { MemoryStore } from "../../src/kv/memory-store.ts";
import { applyChanges, Overlay } from "../../src/kv/overlay.ts";
import { command, keepAlive, removal } from "./arbitraries.ts";
import { Harness } from "./harness.ts";
import { checkState, Model } from "./naive-model.ts";

type Act =
  | { readonly act: "apply"; readonly command: Command }
  /** The leader looks now; what it saw may be proposed later. */
  | { readonly act: "see" }
  | { readonly act: "expire"; readonly nth: number }
  /** Names leases as they are, due or not. */
  | { readonly act: "expire_now"; readonly ids: readonly number[] }
  | { readonly act: "floor"; readonly aheadMs: number }
  | { readonly act: "compact"; readonly back: number }
  | { readonly act: "wait"; readonly ms: number }
  | { readonly act: "restart" };

const act: fc.Arbitrary<Act> = fc.oneof(
  { weight: 8, arbitrary: command.map((one) => ({ act: "apply" as const, command: one })) },
  { weight: 2, arbitrary: keepAlive.map((one) => ({ act: "apply" as const, command: one })) },
  { weight: 3, arbitrary: removal.map((one) => ({ act: "apply" as const, command: one })) },
  { weight: 3, arbitrary: fc.constant({ act: "see" as const }) },
  { weight: 3, arbitrary: fc.nat({ max: 3 }).map((nth) => ({ act: "expire" as const, nth })) },
  {
    weight: 2,
    arbitrary: fc
      .array(fc.integer({ min: 1, max: 8 }), { minLength: 1, maxLength: 4 })
      .map((ids) => ({ act: "expire_now" as const, ids })),
  },
  {
    weight: 1,
    arbitrary: fc.integer({ min: -5000, max: 90_000 }).map((aheadMs) => ({ act: "floor" as const, aheadMs })),
  },
  { weight: 2, arbitrary: fc.nat({ max: 4 }).map((back) => ({ act: "compact" as const, back })) },
  { weight: 4, arbitrary: fc.constantFrom(1, 1000, 8000, 30_000).map((ms) => ({ act: "wait" as const, ms })) },
  { weight: 1, arbitrary: fc.constant({ act: "restart" as const }) },
);

test("leases, floors, compaction and removal among txns agree with the model, in every order (S32)", () => {
  let expired = 0;
  let removed = 0;
  void fc.assert(
    fc.property(fc.array(act, { minLength: 30, maxLength: 80, size: "max" }), (acts) => {
      const h = new Harness();
      const model = new Model();
      const seen: (readonly SeenLease[])[] = [];
      const apply = (one: Command): void => {
        const outcome = h.apply(one);
        const expected = model.apply(one, h.timeMs);
        if (expected === null) expect(outcome.ok).toBe(false);
        else expect(outcome).toMatchObject({ ok: true, revision: model.revision, result: expected });
        if (outcome.ok && outcome.result.kind === "lease_expire") expired += outcome.result.expired.length;
        if (outcome.ok && outcome.result.kind === "compact_remove") removed += outcome.result.removed;
        expect(h.machine.revision).toBe(model.revision);
      };
      for (const one of acts) {
        const next = proposed(h, one, seen);
        if (next !== null) apply(next);
      }
      checkState(h, model);
      while (h.machine.removalPending) apply({ kind: "compact_remove", rows_max: 3 });
      checkState(h, model);
      expect(historyPositions(h)).toEqual(neededPositions(model));
      replay(h);
    }),
    // So many that the counts below are reached by far whatever the seed.
    { numRuns: 400 },
  );
  expect(expired, "expiries happened").toBeGreaterThan(20);
  expect(removed, "removals happened").toBeGreaterThan(20);
});

/** The command that an act proposes, if any. */
function proposed(h: Harness, one: Act, seen: (readonly SeenLease[])[]): Command | null {
  switch (one.act) {
    case "apply":
      return one.command;
    case "see": {
      const due = expiredLeases(h.machine, h.timeMs);
      if (due.length > 0) seen.unshift(due);
      return null;
    }
    case "expire": {
      const leases = seen[one.nth];
      return leases === undefined ? null : { kind: "lease_expire", leases };
    }
    case "expire_now": {
      const leases = one.ids.map((id) => ({ id, expires_at_ms: readLease(h.store, id)?.expiresAtMs ?? 0 }));
      return { kind: "lease_expire", leases };
    }
    case "floor":
      return { kind: "lease_floor", floor_ms: h.timeMs + one.aheadMs };
    case "compact":
      return { kind: "compact", revision: Math.max(0, h.machine.revision - one.back) };
    case "wait":
      h.timeMs += one.ms;
      return null;
    case "restart":
      h.restart();
      return null;
  }
}

/** Positions of the history rows that are there. */
function historyPositions(h: Harness): string[] {
  const rows = h.store.rows().filter(([row]) => row.startsWith("r"));
  return rows.map(([row]) => `${Number(row.slice(1, 17))}:${Number(row.slice(17))}`);
}

/** What must be there once removal is done, and nothing else: events behind the compaction, and the state at it. */
function neededPositions(model: Model): string[] {
  const last = new Map<string, (typeof model.events)[number]>();
  for (const event of model.events) if (event.revision <= model.compacted) last.set(event.key, event);
  return model.events
    .filter((event) => event.revision > model.compacted || (event.type === "put" && last.get(event.key) === event))
    .map((event) => `${event.revision}:${event.op_index}`);
}

/** Another node: other batches, restarts in between, a buffer that is flushed now and then. */
function replay(h: Harness): void {
  const disk = new MemoryStore();
  const buffer = new Overlay(disk);
  let machine = openMachine(buffer);
  for (let from = 0, size = 1; from < h.log.length; from += size, size = (size % 7) + 1) {
    applyEntries(machine, h.log.slice(from, from + size));
    if (size % 3 === 0) applyChanges(disk, buffer.drain());
    machine = openMachine(buffer);
  }
  expect(machine.digest).toBe(h.machine.digest);
  buffer.commitInto(disk);
  expect(disk.rows()).toEqual(h.store.rows());
}
