/** A restore as commands of the log (restoring.ts): what they do, refuse, repeat, and what an interrupted one leaves. */
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { TXN_BYTES_MAX } from "../../src/base/limits.ts";
import type { RestoreCommand } from "../../src/kv/command.ts";
import { nextDue } from "../../src/kv/due-index.ts";
import { expiredLeases } from "../../src/kv/lease-expiry.ts";
import { applyEntries, openMachine } from "../../src/kv/machine.ts";
import { MemoryStore } from "../../src/kv/memory-store.ts";
import { applyChanges } from "../../src/kv/overlay.ts";
import { forgetHistory } from "../../src/kv/restore.ts";
import { RESTORE_START, restoreEntries } from "../../src/kv/restore-entries.ts";
import type { Row } from "../../src/kv/store.ts";
import { validateCommand } from "../../src/kv/validate.ts";
import { steps } from "./arbitraries.ts";
import { backupOf, checkedRows, restored, takenIn } from "./backups.ts";
import { errorCode, Harness, okResult, put } from "./harness.ts";

const JUMP = 1000;
const HOUR_MS = 3_600_000;

/** Rows as a node hands them over, from the backup of a machine. */
function preparedRows(old: Harness): Row[] {
  const store = takenIn(backupOf(old.machine));
  for (const change of forgetHistory(store)) if (change !== null) applyChanges(store, [change]);
  return store.rows();
}

function rowCommands(id: string, rows: readonly Row[]): (RestoreCommand & { kind: "restore_rows" })[] {
  return restoreEntries(RESTORE_START, rows).map(({ after, rows }) => ({ kind: "restore_rows", id, after, rows }));
}

function endOf(id: string, rows: readonly Row[], cluster_id = "new"): RestoreCommand {
  return { kind: "restore_end", id, cluster_id, rows_count: rows.length, revision_jump: JUMP };
}

/** Applies a command until it says that it is done; how often. */
function repeated(h: Harness, command: RestoreCommand): number {
  for (let times = 1; ; times += 1) {
    const result = okResult(h.apply(command)) as { readonly done?: boolean };
    if (result.done !== false) return times;
    if (times > 1000) throw new Error("it comes to no end");
  }
}

function begun(id = "one", h = new Harness()): Harness {
  repeated(h, { kind: "restore_begin", id });
  return h;
}

function restoreInto(h: Harness, rows: readonly Row[], id = "one"): Harness {
  begun(id, h);
  for (const command of rowCommands(id, rows)) okResult(h.apply(command));
  repeated(h, endOf(id, rows));
  return h;
}

function fullState(): Harness {
  const h = new Harness();
  h.put("a", 1);
  h.put("a", 2);
  h.put("gone", 1);
  h.delete("gone");
  const lease = h.grant(30);
  h.put("leased", 1, { lease });
  h.put("ttl", 1, { ttl: 20 });
  h.run({ success: [put("once", 1)] }, { scope: "s", key: "K", hash: "h", since: 3 });
  return h;
}

/** Without the origin, which a backup does not have, and the running digest, which tells of the way. */
function withoutNames(rows: readonly Row[]): readonly Row[] {
  const others = rows.filter(([row]) => row !== "n");
  return others.map(([row, text]) => [row, row === "m" ? text.replace(/"digest":\d+/, "") : text]);
}

describe("a restore by commands", () => {
  test("ends in the state that both parts make in one place, under its new name", () => {
    const old = fullState();
    const h = new Harness();
    h.timeMs = old.timeMs + HOUR_MS;
    restoreInto(h, preparedRows(old));
    const one = restored(backupOf(old.machine), {
      index: h.machine.appliedIndex,
      nowMs: h.timeMs,
      revisionJump: JUMP,
    });
    expect(withoutNames(h.store.rows())).toEqual(withoutNames(one.store.rows()));
    expect(checkedRows(h.store.rows().filter(([row]) => row !== "n")).revision).toBe(old.machine.revision + JUMP);
    expect(h.machine).toMatchObject({ clusterId: "new", isRestoring: false });
    expect(openMachine(h.store)).toMatchObject({ clusterId: "new", isRestoring: false, revision: h.machine.revision });
  });

  test("answers a repeated write with its first answer, and goes on", () => {
    const old = fullState();
    const h = restoreInto(new Harness(), preparedRows(old));
    const again = h.txn({ success: [put("once", 1)] }, { scope: "s", key: "K", hash: "h", since: 3 });
    expect(again).toMatchObject({ ok: true, replayed: true });
    expect(h.put("a", 3)).toBe(old.machine.revision + JUMP + 1);
    expect(h.record("a")).toMatchObject({ version: 3 });
  });

  test("carries rows of the largest size in entries within the limit, and never half a pair of surrogates", () => {
    const old = new Harness();
    old.put("quotes", '"'.repeat(524_000));
    old.put("pairs", `x${"😀".repeat(250_000)}`);
    const rows = preparedRows(old);
    const commands = rowCommands("one", rows);
    for (const command of commands) {
      expect(validateCommand(command)).toBeNull();
      expect(JSON.stringify(command).length).toBeLessThan(TXN_BYTES_MAX);
      for (const [, part] of command.rows) expect(part.isWellFormed()).toBe(true);
    }
    expect(commands.length).toBeGreaterThan(5);
    const h = restoreInto(new Harness(), rows);
    expect(h.record("quotes")?.value).toEqual({ json: '"'.repeat(524_000) });
    expect(h.record("pairs")?.value).toEqual({ json: `x${"😀".repeat(250_000)}` });
  });
});

test("of a random state the commands make what both parts make in one place", () => {
  void fc.assert(
    fc.property(steps, fc.integer({ min: 0, max: 5000 }), (sequence, entryMs) => {
      const old = new Harness();
      for (const { command, idempotency, elapsedMs } of sequence) {
        old.timeMs += elapsedMs;
        if (command !== null) old.apply(command, idempotency ?? undefined);
      }
      fc.pre(old.store.size > 0);
      const rows = preparedRows(old);
      const h = begun();
      for (const command of rowCommands("one", rows)) {
        h.timeMs += entryMs;
        okResult(h.apply(command));
      }
      repeated(h, endOf("one", rows));
      const { appliedIndex: index } = h.machine;
      const one = restored(backupOf(old.machine), { index, nowMs: h.timeMs, revisionJump: JUMP });
      expect(withoutNames(h.store.rows())).toEqual(withoutNames(one.store.rows()));
    }),
    { numRuns: 60 },
  );
});

describe("only an empty cluster", () => {
  const begin = { kind: "restore_begin", id: "one" } as const;

  test.each([
    ["a record", (h: Harness) => void h.put("a", 1)],
    ["a deleted record", (h: Harness) => [h.put("a", 1), h.delete("a")]],
    ["a lease", (h: Harness) => void h.grant(5)],
    [
      "a lease with an id of its own",
      (h: Harness) => void okResult(h.apply({ kind: "lease_grant", ttl_s: 5, id: 2 ** 50 })),
    ],
  ])("%s refuses it", (_, write) => {
    const h = new Harness();
    write(h);
    const before = h.store.rows().filter(([row]) => row !== "m");
    expect(h.apply(begin)).toMatchObject({
      ok: false,
      error: { code: "precondition_failed", reason: "cluster_not_empty" },
    });
    expect(h.store.rows().filter(([row]) => row !== "m")).toEqual(before);
    expect(h.machine.isRestoring).toBe(false);
  });

  test("a restored one refuses it as any other", () => {
    const h = restoreInto(new Harness(), preparedRows(fullState()));
    expect(h.apply({ ...begin, id: "two" })).toMatchObject({ ok: false, error: { reason: "cluster_not_empty" } });
  });

  test("results of commands that did nothing go", () => {
    const h = new Harness();
    h.txn({ compare: [{ target: "exists", key: "a", op: "==", value: true }] }, { scope: "s", key: "F", hash: "h" });
    expect(h.store.rows().map(([row]) => row.charAt(0))).toEqual(["i", "m", "o"]);
    begun("one", h);
    expect(h.store.rows().map(([row]) => row)).toEqual(["m", "n"]);
  });
});

describe("between begin and end", () => {
  test("everything else is refused, keeps nothing, and nothing is due", () => {
    const old = fullState();
    old.put("due", 1, { due_at_ms: 1 });
    const rows = preparedRows(old);
    const h = begun();
    for (const command of rowCommands("one", rows)) okResult(h.apply(command));
    h.timeMs += HOUR_MS;
    const idempotency = { scope: "s", key: "new", hash: "h" };
    const before = h.store.rows().filter(([row]) => row !== "m");
    for (const outcome of [
      h.txn({ success: [put("b", 1)] }, idempotency),
      h.txn({ success: [put("once", 1)] }, { scope: "s", key: "K", hash: "h", since: 3 }),
      h.apply({ kind: "lease_keep_alive", items: [{ id: 1 }] }),
      h.apply({ kind: "compact", revision: 1 }),
    ]) {
      expect(outcome).toMatchObject({
        ok: false,
        revision: 0,
        error: { code: "cluster_not_ready", reason: "restoring" },
      });
    }
    expect(h.queryError({ kind: "get", key: "a" })).toMatchObject({ code: "cluster_not_ready", reason: "restoring" });
    expect(h.store.rows().filter(([row]) => row !== "m")).toEqual(before);
    expect(nextDue(h.machine, 0)).toBeNull();
    expect(expiredLeases(h.machine, h.timeMs)).toEqual([]);
    expect(h.machine).toMatchObject({ revision: 0, logicalBytes: 0, removalPending: false, isRestoring: true });
  });

  test("a command that comes again changes nothing, and one that is missing is noticed", () => {
    const rows = preparedRows(fullState());
    const h = begun();
    const commands = rows.flatMap((row, at) => {
      const [last] = rows.slice(0, at).slice(-1);
      const after = last === undefined ? RESTORE_START : { key: last[0], units: last[1].length };
      return [{ kind: "restore_rows", id: "one", after, rows: [row] } as const];
    });
    for (const [at, command] of commands.entries()) {
      const next = commands[at + 1];
      const position = { key: command.rows[0][0], units: command.rows[0][1].length };
      if (next !== undefined) expect(okResult(h.apply(next))).toMatchObject({ position: command.after });
      expect(okResult(h.apply(command))).toMatchObject({ position });
      expect(okResult(h.apply(command))).toMatchObject({ position });
      if (at < commands.length - 1) expect(errorCode(h.apply(endOf("one", rows)))).toBe("precondition_failed");
    }
    expect(repeated(h, { kind: "restore_begin", id: "one" })).toBe(1); // a late copy takes nothing away
    repeated(h, endOf("one", rows));
    expect(okResult(h.apply(endOf("one", rows)))).toMatchObject({ done: true });
    expect(h.record("once")?.value).toEqual({ json: 1 });
  });
});

describe("a restore that stopped in the middle", () => {
  test("is taken away by the next one in bounded steps, and is refused from then on", () => {
    const large = new Harness();
    for (let at = 0; at < 1500; at += 1) large.put(`key/${at}`, at);
    const first = preparedRows(large);
    const h = begun("one");
    const [command] = rowCommands("one", first);
    for (const each of rowCommands("one", first)) okResult(h.apply(each));
    const rows = preparedRows(fullState());
    expect(repeated(h, { kind: "restore_begin", id: "two" })).toBeGreaterThan(4);
    expect(h.store.rows().map(([row]) => row)).toEqual(["m", "n"]);
    for (const late of [
      { kind: "restore_rows", id: "one", after: RESTORE_START, rows: command!.rows },
      endOf("one", first),
    ]) {
      const refused = { code: "precondition_failed", reason: "restore_superseded" };
      expect(h.apply(late as RestoreCommand)).toMatchObject({ ok: false, error: refused });
    }
    for (const each of rowCommands("two", rows)) okResult(h.apply(each));
    repeated(h, endOf("two", rows));
    expect(h.list({}).records.map(({ key }) => key)).toEqual(["a", "leased", "once", "ttl"]);
  });

  test("also while it renews leases", () => {
    const h = begun("one");
    const rows = preparedRows(fullState());
    for (const each of rowCommands("one", rows)) okResult(h.apply(each));
    restoreInto(h, rows, "two");
    expect(h.machine).toMatchObject({ clusterId: "new", isRestoring: false });
  });
});

describe("many leases and results", () => {
  const old = new Harness();
  for (let at = 0; at < 1600; at += 1) {
    old.grant(10 + (at % 50));
    if (at % 4 === 0) old.put(`ttl/${at}`, at, { ttl: 7 });
  }
  for (let at = 0; at < 4500; at += 1) {
    old.txn(
      { compare: [{ target: "exists", key: "no", op: "==", value: true }] },
      { scope: "s", key: `K${at}`, hash: "h" },
    );
  }
  const rows = preparedRows(old);

  test("are renewed over several entries, and have their full TTL at the end, however slow the log is", () => {
    for (const entryMs of [0, 1, 400]) {
      const h = begun();
      for (const each of rowCommands("one", rows)) okResult(h.apply(each));
      let entries = 0;
      for (let done = false; !done; entries += 1) {
        h.timeMs += entryMs;
        const result = okResult(h.apply(endOf("one", rows)));
        done = result.kind === "restore_end" && result.done;
      }
      expect(entries).toBeGreaterThan(2);
      const endMs = h.timeMs;
      const leases: { readonly ttl_s: number; readonly expires_at_ms: number }[] = [];
      for (let after: number | null = 0; after !== null; ) {
        const page = h.query({ kind: "lease_list", limit: 1000, after, anonymous: true });
        if (page.kind !== "lease_list") throw new Error("not a page");
        leases.push(...page.leases);
        after = page.next;
      }
      expect(leases).toHaveLength(2000);
      for (const { ttl_s, expires_at_ms } of leases) {
        expect(expires_at_ms - ttl_s * 1000).toBeGreaterThanOrEqual(endMs);
        expect(expires_at_ms - ttl_s * 1000).toBeLessThanOrEqual(endMs + 40 * entryMs + 2000);
      }
      expect(checkedRows(h.store.rows().filter(([row]) => row !== "n")).leasesCount).toBe(2000);
    }
  });
});

test("two machines that apply the commands in their own ways have equal rows and digests", () => {
  const h = restoreInto(new Harness(), preparedRows(fullState()));
  h.put("more", 1);
  const other = new MemoryStore();
  const machine = openMachine(other);
  for (let from = 0; from < h.log.length; from += 3) applyEntries(machine, h.log.slice(from, from + 3));
  expect(other.rows()).toEqual(h.store.rows());
  expect(machine.digest).toBe(h.machine.digest);
});
