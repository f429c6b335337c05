/** The first state of a new cluster, made from a backup (restore.ts G1..G6), and life in it. */
import { describe, expect, test } from "vitest";
import {
  IDEMPOTENCY_KEPT_MS_MIN,
  IDEMPOTENCY_KEPT_REVISIONS_MIN,
  RESTORE_REVISION_JUMP_DEFAULT,
} from "../../src/base/limits.ts";
import type { Idempotency } from "../../src/kv/command.ts";
import { nextDue } from "../../src/kv/due-index.ts";
import { COMPACTION_POLICY, compactionTarget } from "../../src/kv/history-marks.ts";
import { expiredLeases } from "../../src/kv/lease-expiry.ts";
import { applyEntries, openMachine } from "../../src/kv/machine.ts";
import { MemoryStore } from "../../src/kv/memory-store.ts";
import { applyChanges } from "../../src/kv/overlay.ts";
import { REVISION_END } from "../../src/kv/position.ts";
import { forgetHistory, restoredMeta } from "../../src/kv/restore.ts";
import { readMeta } from "../../src/kv/state.ts";
import { backupOf, checkedRows, restoreChanges, restored, restoredApart, takenIn } from "./backups.ts";
import { del, errorCode, get, Harness, okResult, put } from "./harness.ts";
import { changesSince, weigh } from "./naive-model.ts";

const NOW_MS = 50_000_000;
const INDEX = 1;

const idempotency = (key: string, since: number): Idempotency => ({ scope: "s", key, hash: "h", since });

/** Restores what `h` holds; the jump is small, so that numbers in a test can be read. */
function restore(h: Harness, revisionJump = 1000): Harness {
  return restored(backupOf(h.machine), { index: INDEX, nowMs: NOW_MS, revisionJump });
}

/** Something of everything: live, deleted, overwritten, leased, due, with results. */
function fullState(): Harness {
  const h = new Harness();
  h.put("a", 1);
  h.put("a", 2, { due_at_ms: 60_000_000 });
  h.put("gone", 1);
  h.delete("gone");
  const lease = h.grant(30);
  h.put("leased/1", 1, { lease });
  h.put("leased/2", 2, { lease, due_at_ms: 5 });
  h.put("ttl", 1, { ttl: 10 });
  h.put("ttl", 2, { ttl: 20 });
  h.run({ success: [put("once", 1)] }, idempotency("K", 3));
  return h;
}

describe("revisions", () => {
  test("jump by a million, and everything before is compacted", () => {
    const old = fullState();
    const h = restored(backupOf(old.machine), { index: INDEX, nowMs: NOW_MS });
    const revision = old.machine.revision + RESTORE_REVISION_JUMP_DEFAULT;
    expect(h.machine).toMatchObject({ revision, compactRevision: revision, appliedIndex: INDEX, timeMs: NOW_MS });
    expect(h.put("a", 3)).toBe(revision + 1);
  });

  test("records stay what they were, so that compares with their numbers go on", () => {
    const old = fullState();
    const h = restore(old);
    const expected = old.list({}).records.map((record) => ({
      ...record,
      expires_at_ms: record.expires_at_ms === null ? null : NOW_MS + 20_000,
    }));
    expect(h.list({}).records).toEqual(expected);
    expect(h.list({ revision: h.machine.revision }).records).toEqual(expected);
    const { mod_revision, version, create_revision } = old.record("a") ?? { mod_revision: 0 };
    const guarded = h.run({
      compare: [{ target: "mod_revision", key: "a", op: "==", value: mod_revision }],
      success: [put("a", 3), get("a")],
    });
    expect(guarded.succeeded).toBe(true);
    expect(h.record("a")).toMatchObject({ version: (version ?? 0) + 1, create_revision });
  });

  test("whoever asks from before is told, also from behind the backup", () => {
    const old = fullState();
    const text = backupOf(old.machine);
    for (let turn = 0; turn < 5; turn += 1) old.put("a", turn);
    const h = restored(text, { index: INDEX, nowMs: NOW_MS, revisionJump: 1000 });
    const known = h.machine.compactRevision;
    for (const revision of [1, 4, old.machine.revision, known - 1]) {
      expect(h.queryError({ kind: "get", key: "a", revision })).toMatchObject({
        code: "compacted",
        compact_revision: known,
      });
      expect(h.queryError({ kind: "history", key: "a", from: revision, limit: 10 }).code).toBe("compacted");
      const changes = { kind: "changes", selector: { prefix: "" }, limit: 10 } as const;
      expect(h.queryError({ ...changes, after: [revision, REVISION_END] }).code).toBe("compacted");
      expect(h.queryError({ ...changes, after: [revision, 0] }).code).toBe("compacted");
      expect(errorCode(h.txn({ success: [{ ...get("a"), revision } as never] }))).toBe("compacted");
    }
    expect(h.history("a").map(({ revision, value }) => [revision, value])).toEqual([[2, { json: 2 }]]);
    expect(h.history("gone")).toEqual([]);
    h.put("a", 3);
    h.delete("a");
    expect(changesSince(h, known)).toEqual(h.events);
    expect(h.history("a", { from: known + 1 })).toEqual(h.events);
    expect(h.queryError({ kind: "get", key: "a", revision: known + 3 }).code).toBe("revision_in_future");
  });

  test("history before the jump is gone from the rows, and the weight with it", () => {
    const old = fullState();
    const h = restore(old);
    expect(h.store.rows().filter(([row]) => row.startsWith("r"))).toHaveLength(old.list({}).records.length);
    expect(h.machine.removalPending).toBe(false);
    expect(h.machine.logicalBytes).toBe(weigh(h.store));
    expect(h.machine.logicalBytes).toBeLessThan(old.machine.logicalBytes);
    expect(checkedRows(h.store.rows())).toEqual(readMeta(h.store));
  });

  test("a backup in the middle of removal restores like one behind it", () => {
    const half = fullState();
    okResult(half.apply({ kind: "compact", revision: 5 }));
    okResult(half.apply({ kind: "compact_remove", rows_max: 3 }));
    expect(half.machine.removalPending).toBe(true);
    const text = backupOf(half.machine);
    okResult(half.apply({ kind: "compact_remove", rows_max: 1000 }));
    const options = { index: INDEX, nowMs: NOW_MS };
    const [first, second] = [restored(text, options), restored(backupOf(half.machine), options)];
    const rows = (h: Harness) => h.store.rows().filter(([row]) => row !== "m");
    expect(rows(first)).toEqual(rows(second));
    expect(first.machine.logicalBytes).toBe(second.machine.logicalBytes);
  });

  test("a jump that is none is a fault of ours", () => {
    const { store } = fullState();
    expect(() => restoreChanges(store, { index: 1, nowMs: 1, revisionJump: 0 })).toThrow("moves the revision");
    expect(() => restoreChanges(store, { index: 1, nowMs: 1, revisionJump: 2 ** 53 - 1 })).toThrow("meta.");
  });

  test("a state that still has its history is not restored", () => {
    const options = { index: 1, nowMs: 1, revisionJump: 1 };
    expect(() => restoredMeta(readMeta(fullState().store), options)).toThrow("is forgotten first");
  });
});

describe("leases", () => {
  test("each has its full TTL from the restore on, whatever was left of it", () => {
    const old = new Harness();
    const lease = old.grant(30);
    old.put("leased", 1, { lease });
    old.put("ttl", 1, { ttl: 20 });
    okResult(old.apply({ kind: "lease_floor", floor_ms: old.timeMs + 40_000 }));
    old.timeMs += 29_000;
    const h = restore(old);
    expect(h.lease(lease)).toMatchObject({ ttl_s: 30, expires_at_ms: NOW_MS + 30_000, keys: ["leased"] });
    expect(h.record("ttl")?.expires_at_ms).toBe(NOW_MS + 20_000);
    expect(h.machine.leaseFloorMs).toBe(0);
    expect(nextDue(h.machine, 0)).toBe(NOW_MS + 20_000);
    expect(expiredLeases(h.machine, NOW_MS + 19_999)).toEqual([]);

    h.timeMs = NOW_MS + 30_000;
    const due = expiredLeases(h.machine, h.timeMs);
    expect(due).toHaveLength(2);
    expect(okResult(h.apply({ kind: "lease_expire", leases: due }))).toMatchObject({ deleted: 2 });
    expect(h.keys()).toEqual([]);
    expect(h.machine.logicalBytes).toBe(weigh(h.store));
  });

  test("an expiry that the old leader named ends nothing", () => {
    const old = new Harness();
    const lease = old.grant(30);
    const seen = { id: lease, expires_at_ms: old.lease(lease)?.expires_at_ms ?? 0 };
    const h = restore(old);
    h.timeMs = NOW_MS + 60_000;
    expect(okResult(h.apply({ kind: "lease_expire", leases: [seen] }))).toMatchObject({ expired: [] });
  });

  test("can be renewed, moved, revoked, and touched", () => {
    const old = fullState();
    const h = restore(old);
    h.timeMs += 25_000;
    expect(okResult(h.apply({ kind: "lease_keep_alive", items: [{ id: 1 }] }))).toMatchObject({
      items: [{ id: 1, ttl_s: 30, expires_at_ms: h.timeMs + 30_000 }],
    });
    h.do({ type: "touch", key: "ttl", ttl: 5 });
    expect(h.record("ttl")?.expires_at_ms).toBe(h.timeMs + 5000);
    h.put("leased/2", 3, { ttl: 7 });
    expect(okResult(h.apply({ kind: "lease_revoke", id: 1 }))).toMatchObject({ deleted: 1 });
    expect(h.keys()).toEqual(["a", "leased/2", "once", "ttl"]);
    expect(checkedRows(h.store.rows()).leasesCount).toBe(2);
  });

  test("an id that the old cluster granted behind the backup belongs to nobody", () => {
    const old = fullState();
    const text = backupOf(old.machine);
    const late = old.grant(30);
    const h = restored(text, { index: INDEX, nowMs: NOW_MS, revisionJump: 1000 });
    expect(h.grant(30)).toBeGreaterThan(late);
    expect(okResult(h.apply({ kind: "lease_keep_alive", items: [{ id: late }] }))).toEqual({
      kind: "lease_keep_alive",
      items: [{ id: late, not_found: true }],
    });
    expect(errorCode(h.txn({ success: [put("mine", 1, { lease: late })] }))).toBe("unknown_lease");
  });

  test("a TTL that takes more digits is paid for", () => {
    const old = new Harness();
    old.put("ttl", 1, { ttl: 10 });
    const h = restored(backupOf(old.machine), { index: INDEX, nowMs: 10 ** 12 });
    expect(h.machine.historyBytes).toBe(old.machine.historyBytes + 6);
    expect(readMeta(h.store)).toMatchObject({ markRevision: h.machine.revision, markBytes: h.machine.historyBytes });
    expect(checkedRows(h.store.rows()).logicalBytes).toBe(weigh(h.store));
  });

  test("a time before the backup's is a time like any other", () => {
    const old = fullState();
    const h = restored(backupOf(old.machine), { index: INDEX, nowMs: 7 });
    expect(h.record("ttl")?.expires_at_ms).toBe(20_007);
    expect(h.machine.logicalBytes).toBe(weigh(h.store));
    checkedRows(h.store.rows());
    h.put("x", 1, { ttl: 1 });
    expect(nextDue(h.machine, 100_000)).toBe(1007);
  });
});

describe("idempotency", () => {
  test("a retry under an old key gets its first answer, also long after the backup, and runs nothing", () => {
    const old = new Harness();
    const request = { success: [put("n", 1), get("n")] };
    const first = old.txn(request, idempotency("K", 0));
    const refused = old.txn({ success: [put("x", 1, { lease: 99 })] }, idempotency("L", 0));
    old.timeMs += 2 * IDEMPOTENCY_KEPT_MS_MIN;
    const h = restore(old, 10 * IDEMPOTENCY_KEPT_REVISIONS_MIN);
    h.timeMs += IDEMPOTENCY_KEPT_MS_MIN - 1;
    // Kept for their time alone: they are old enough by revisions.
    for (let turn = 0; turn <= IDEMPOTENCY_KEPT_REVISIONS_MIN; turn += 1) h.put("other", turn);
    h.expectUnchanged(() => {
      expect(h.txn(request, idempotency("K", 0))).toEqual({ ...first, replayed: true });
      expect(h.txn({ success: [put("x", 1, { lease: 99 })] }, idempotency("L", 0))).toEqual(refused);
      expect(errorCode(h.txn(request, { ...idempotency("K", 0), hash: "of another request" }))).toBe(
        "idempotency_conflict",
      );
    });
  });

  test("an unknown key from before the restore does not run: it may have run behind the backup", () => {
    const old = fullState();
    const text = backupOf(old.machine);
    old.run({ success: [put("late", 1)] }, idempotency("late", old.machine.revision));
    const h = restored(text, { index: INDEX, nowMs: NOW_MS, revisionJump: 1000 });
    const { revision } = h.machine;
    for (const since of [0, old.machine.revision - 1, revision - 1]) {
      h.expectUnchanged(() => {
        expect(h.txn({ success: [put("late", 1)] }, idempotency("late", since))).toMatchObject({
          ok: false,
          error: { code: "idempotency_expired", revision },
        });
      });
    }
    expect(h.run({ success: [put("late", 1)] }, idempotency("late", revision)).succeeded).toBe(true);
  });

  test("results leave in their turn, and their leaving refuses nobody who came after the restore", () => {
    const old = fullState();
    old.run({ success: [put("once", 2)] }, idempotency("L", 3));
    const h = restore(old);
    const { revision } = h.machine;
    h.run({ success: [put("new", 1)] }, idempotency("new", revision));
    h.timeMs += IDEMPOTENCY_KEPT_MS_MIN;
    for (let turn = 0; turn < IDEMPOTENCY_KEPT_REVISIONS_MIN - 1; turn += 1) h.put("x", turn);
    const known = (key: string) => {
      const result = h.query({ kind: "txn_result", scope: "s", key });
      return result.kind === "txn_result" ? [result.status, result.idem_floor] : null;
    };
    expect([known("K"), known("L"), known("new")]).toEqual([
      ["unknown", revision],
      ["unknown", revision],
      ["known", revision],
    ]);
    expect(errorCode(h.txn({ success: [put("once", 1)] }, idempotency("K", 3)))).toBe("idempotency_expired");
    expect(h.txn({ success: [put("first", 1)] }, idempotency("first", revision)).ok).toBe(true);
    checkedRows(h.store.rows());
  });
});

describe("what else goes on", () => {
  test("the due index: moments stay, and those that passed are due", () => {
    const h = restore(fullState());
    const due = h.query({ kind: "due", at_ms: NOW_MS, limit: 10 });
    expect(due).toMatchObject({ entries: [{ due_at_ms: 5, key: "leased/2", mod_revision: 6 }], more: false });
    expect(h.query({ kind: "due", at_ms: 60_000_000, limit: 10 })).toMatchObject({ entries: { length: 2 } });
    h.put("leased/2", 3);
    h.delete("a");
    expect(h.query({ kind: "due", at_ms: 60_000_000, limit: 10 })).toMatchObject({ entries: [] });
  });

  test("compaction, by marks and by hand, and removal", () => {
    const h = restore(fullState());
    const start = h.machine.revision;
    for (let turn = 0; turn < 1100; turn += 1) h.put("a", turn);
    h.delete("ttl");
    h.timeMs += 1000;
    h.put("last", 1);
    const policy = { ...COMPACTION_POLICY, keepRevisions: 100, keepMs: 1000 };
    expect(compactionTarget(h.machine, policy)).toBe(start + 1000);
    okResult(h.apply({ kind: "compact", revision: h.machine.revision }));
    for (let turn = 0; turn < 100 && h.machine.removalPending; turn += 1) {
      okResult(h.apply({ kind: "compact_remove", rows_max: 100 }));
    }
    expect(h.machine.removalPending).toBe(false);
    expect(h.store.rows().filter(([row]) => row.startsWith("r"))).toHaveLength(h.keys().length);
    expect(h.machine.logicalBytes).toBe(weigh(h.store));
    checkedRows(h.store.rows());
  });

  test("a backup of what was restored, restored again", () => {
    const once = restore(fullState());
    once.put("a", 3);
    const twice = restore(once);
    expect(twice.machine.revision).toBe(once.machine.revision + 1000);
    expect(twice.list({}).records.map(({ key, version }) => [key, version])).toEqual(
      once.list({}).records.map(({ key, version }) => [key, version]),
    );
  });

  test("a cluster in which nothing was ever written", () => {
    const old = new Harness();
    applyEntries(old.machine, [{ index: 1, timeMs: 5, payload: "" }]);
    const h = restore(old);
    expect(h.machine).toMatchObject({ revision: 1000, compactRevision: 1000, logicalBytes: 0 });
    expect(h.put("a", 1)).toBe(1001);
  });

  test("the digest depends on the backup and on where it is restored to", () => {
    const text = backupOf(fullState().machine);
    const other = fullState();
    other.do(del("a"));
    const options = { index: INDEX, nowMs: NOW_MS };
    const digests = [
      restored(text, options),
      restored(text, options),
      restored(text, { ...options, nowMs: NOW_MS + 1 }),
      restored(text, { ...options, index: INDEX + 1 }),
      restored(backupOf(other.machine), options),
    ].map((h) => h.machine.digest);
    expect(digests[0]).toBe(digests[1]);
    expect(new Set(digests).size).toBe(4);
  });
});

describe("the changes of a restore", () => {
  const options = { index: INDEX, nowMs: NOW_MS };

  test("make the same rows whether carried out as they come or at the end, in small steps or large ones", () => {
    const text = backupOf(fullState().machine);
    const source = takenIn(text);
    const rows = source.rows();
    const apart = restoredApart(source, options);
    expect(source.rows()).toEqual(rows);
    expect(restored(text, options).store.rows()).toEqual(apart);
  });

  test("begin with a state of the backup's revision that has no history", () => {
    const source = takenIn(backupOf(fullState().machine));
    const { revision } = readMeta(source);
    const changes = [...forgetHistory(source)].filter((change) => change !== null);
    expect(changes.findIndex(([row]) => row === "m")).toBe(changes.length - 1);
    applyChanges(source, changes);
    expect(checkedRows(source.rows())).toMatchObject({
      revision,
      compactRevision: revision,
      removedRevision: revision,
    });
    expect([...forgetHistory(source)]).toEqual([]);
  });

  test("touch no record that has no TTL and no history: a large state costs what changes in it", () => {
    const old = new Harness();
    for (let at = 0; at < 3000; at += 1) old.put(`key/${at}`, at);
    old.put("ttl", 1, { ttl: 9 });
    old.run({ success: [put("key/1", 2)] }, idempotency("K", 1));
    const changed = restoreChanges(old.store, options).map(([row]) => row.charAt(0));
    // Expiries; marks; the overwritten version; the lease; the position; the result; that version and the lease's record.
    expect(changed.join("")).toBe("eehhhklmorr");
  });

  test("are the same over a store that reads in small steps", () => {
    const old = new Harness();
    for (let at = 0; at < 600; at += 1) old.put(`key/${at % 7}`, at, at % 2 === 0 ? { ttl: 5 + at } : {});
    for (let at = 0; at < 300; at += 1) {
      old.grant(10 + at);
      old.txn({ success: [put("n", at)] }, idempotency(`K${at}`, 0));
    }
    const h = restored(backupOf(old.machine), options);
    expect(h.store.rows()).toEqual(restoredApart(old.store, options));
    const withTtl = old.list({}).records.filter((record) => record.lease_id !== null);
    expect(checkedRows(h.store.rows()).leasesCount).toBe(300 + withTtl.length);
    expect(h.machine.logicalBytes).toBe(weigh(h.store));
  });

  test("carried out in part they leave no position of the new cluster", () => {
    const source = takenIn(backupOf(fullState().machine));
    const before = readMeta(source);
    const half = new MemoryStore();
    for (const [row, value] of source.rows()) half.put(row, value);
    for (const [row, value] of restoreChanges(source, options).filter(([row]) => row !== "m")) {
      if (value === null) half.delete(row);
      else half.put(row, value);
    }
    expect(openMachine(half).revision).toBe(before.revision);
    expect(() => checkedRows(half.rows())).toThrow("no state");
  });
});
