/**
 * S54, S20, S15: a node is built from a snapshot alone and then leads, with every kind of state that there is. All of it
 * must have been in the snapshot, since nobody can tell the node what it lacks.
 */
import { expect, test } from "vitest";
import type { Operation } from "../../../src/kv/command.ts";
import { WALL_EPOCH_MS } from "../clock.ts";
import { Spectator } from "./audience.ts";
import { buildAnew, expectEqualRows, SHORT_LOG, writeMany } from "./newcomers.ts";
import { alive, attach, grant, keepAlive, untilGone } from "./owners.ts";
import { formed, type Stage, type StageOptions } from "./stage.ts";
import { idempotency, put, recordValue } from "./vocabulary.ts";

const MANY_KEYS = Array.from({ length: 120 }, (_, at) => `many/${at}`);

interface Built {
  readonly stage: Stage;
  readonly node: number;
}

/** `fill` runs on the old leader; then one node is built anew from a snapshot, and leads. */
function built(fill: (stage: Stage, leader: number) => void, options: StageOptions = {}): Built {
  const stage = formed({ ...SHORT_LOG, ...options });
  const [leader, , , , node] = stage.cast();
  fill(stage, leader);
  writeMany(stage, leader, 30, "filler");
  stage.settle();
  stage.run(2000);
  buildAnew(stage, node);
  stage.lead(node);
  return { stage, node };
}

function txn(...success: readonly Operation[]) {
  return { kind: "txn", compare: [], success, failure: [] } as const;
}

test("a retry under its key gets the outcome of the first try, which another leader gave (S54)", () => {
  let first = {};
  const { stage, node } = built((old, leader) => {
    first = old.written(leader, put("once", 1), { idempotency: idempotency("key") });
    old.written(leader, put("once", 2));
  });
  expect(stage.written(node, put("once", 1), { idempotency: idempotency("key") })).toEqual({
    ...first,
    replayed: true,
  });
  expect(stage.value(node, "once")).toBe(2);
  const other = stage.written(node, put("once", 3), { idempotency: idempotency("key", "another body") });
  expect(other).toMatchObject({ ok: false, error: { code: "idempotency_conflict" } });
  const resolved = stage.readNow(node, { kind: "txn_result", scope: "root", key: "key" });
  expect(resolved).toMatchObject({ ok: true, result: { kind: "txn_result", status: "known" } });
  expectEqualRows(stage);
});

test("leases go on: they are renewed, end on time with their keys, and their ids are not given again (S54)", () => {
  const ids: number[] = [];
  const { stage, node } = built((old, leader) => {
    ids.push(grant(old, leader, 30, ["l/kept"]), grant(old, leader, 12, ["l/ends"]));
  });
  const [kept = 0, ends = 0] = ids;
  expect(keepAlive(stage, node, kept)).toBe("alive");
  const next = grant(stage, node, 60, []);
  expect(ids).not.toContain(next);
  attach(stage, node, kept, ["l/also"]);
  expect(alive(stage, ["l/ends"])).toBe(1);
  untilGone(stage, ["l/ends"], 14_000);
  expect(stage.world.now).toBeGreaterThan(12_000);
  expect(keepAlive(stage, node, ends)).toBe("gone");
  expect(alive(stage, ["l/kept", "l/also"])).toBe(2);
  untilGone(stage, ["l/kept", "l/also"], 40_000);
  stage.settle();
  expectEqualRows(stage);
});

test("a lease with more than 100 keys is revoked whole (S15, S54)", () => {
  let lease = 0;
  const { stage, node } = built((old, leader) => {
    lease = grant(old, leader, 600, MANY_KEYS.slice(0, 60));
    attach(old, leader, lease, MANY_KEYS.slice(60));
  });
  expect(alive(stage, MANY_KEYS)).toBe(120);
  const { revision } = stage.status(node);
  const revoked = stage.written(node, { kind: "lease_revoke", id: lease });
  expect(revoked).toMatchObject({ ok: true, revision: revision + 1, result: { deleted: 120 } });
  expect(alive(stage, MANY_KEYS)).toBe(0);
  expect(stage.readNow(node, { kind: "get_many", keys: MANY_KEYS.slice(0, 101) })).toMatchObject({ ok: true });
  expectEqualRows(stage);
});

test("records with a TTL of their own end, and what is due is found (S54)", () => {
  const dueAtMs = WALL_EPOCH_MS + 3_600_000;
  const { stage, node } = built((old, leader) => {
    old.written(leader, txn({ type: "put", key: "t", value: { json: 1 }, ttl: 12 }));
    old.written(leader, txn({ type: "put", key: "d", value: { json: 1 }, due_at_ms: dueAtMs }));
  });
  const due = (): unknown => stage.readNow(node, { kind: "due", at_ms: dueAtMs + 1, limit: 9 });
  expect(due()).toMatchObject({ ok: true, result: { entries: [{ due_at_ms: dueAtMs, key: "d" }] } });
  expect(stage.written(node, txn({ type: "put", key: "d", value: { json: 2 } })).ok).toBe(true);
  expect(due()).toMatchObject({ ok: true, result: { entries: [] } });
  expect(stage.value(node, "t")).toBe(1);
  untilGone(stage, ["t"], 20_000);
  stage.settle();
  expectEqualRows(stage);
});

test("history is there up to where it was compacted, and watches resume in it (S54)", () => {
  const { stage, node } = built((old, leader) => {
    for (let value = 1; value <= 20; value += 1) old.written(leader, put("h", value));
    expect(old.written(leader, { kind: "compact", revision: 10 }).ok).toBe(true);
  });
  expect(recordValue(stage.readNow(node, { kind: "get", key: "h", revision: 15 }))).toBe(15);
  expect(stage.readNow(node, { kind: "get", key: "h", revision: 9 })).toMatchObject({ error: { code: "compacted" } });
  const resumed = new Spectator(stage, { key: "h" }).watch(node, { from: 12 });
  const late = new Spectator(stage, { key: "h" }).watch(node, { from: 5 });
  stage.run(50);
  expect(resumed.seen).toEqual(Array.from({ length: 9 }, (_, at) => `${12 + at} h=${12 + at}`));
  expect(late.frames).toMatchObject([{ kind: "compacted", compactRevision: 10 }]);
  // It can itself compact, and removes what goes.
  const { revision } = stage.status(node);
  expect(stage.written(node, { kind: "compact", revision }).ok).toBe(true);
  stage.until("the rows are gone", () => !stage.world.safety.replay.removalPending);
  expectEqualRows(stage);
});

test("revisions and versions go on, also of what was deleted and made again in one txn, then compacted (S20, S54)", () => {
  const { stage, node } = built((old, leader) => {
    old.written(leader, put("k", "old"));
    const renewed = txn({ type: "delete", selector: { key: "k" } }, { type: "put", key: "k", value: { json: "new" } });
    expect(old.written(leader, renewed)).toMatchObject({ ok: true, revision: 2 });
    expect(old.written(leader, { kind: "compact", revision: 2 }).ok).toBe(true);
  });
  const got = stage.readNow(node, { kind: "get", key: "k" });
  expect(got).toMatchObject({ result: { record: { value: { json: "new" }, create_revision: 2, version: 1 } } });
  const { revision } = stage.status(node);
  expect(stage.written(node, put("k", "newer"))).toMatchObject({ ok: true, revision: revision + 1 });
  const watcher = new Spectator(stage, { key: "k" }).watch(node, { from: 3 });
  stage.run(20);
  expect(watcher.seen).toEqual([`${revision + 1} k=newer`]);
  stage.crash(node);
  stage.start(node);
  stage.settle();
  expect(stage.readNow(node, { kind: "get", key: "k" })).toMatchObject({ result: { record: { version: 2 } } });
  expectEqualRows(stage);
});

test("keys that were numbered by their revision stay apart, also when the clock goes back (S18, S54)", () => {
  const numbered = (): Operation => ({ type: "put", key: "s/", value: { json: 1 }, revision_suffix: true });
  const { stage, node } = built((old, leader) => {
    for (let count = 0; count < 3; count += 1)
      old.write(leader, txn(numbered(), { type: "put", key: "x", value: { json: count } }));
    old.settle();
  });
  stage.host(node).wallSkewMs -= 1000;
  for (let count = 0; count < 3; count += 1) stage.write(node, txn(numbered()));
  stage.settle();
  const listed = stage.readNow(node, {
    kind: "list",
    selector: { prefix: "s/" },
    limit: 100,
    order: "asc",
    keys_only: false,
    count_only: false,
  });
  if (!listed.ok || listed.result.kind !== "list") throw new Error("no list");
  const revisions = listed.result.records.map(({ create_revision }) => create_revision);
  expect(revisions).toHaveLength(6);
  expect(revisions).toEqual([...new Set(revisions)].sort((left, right) => left - right));
  const times = stage.world.safety.committed.map(({ entry }) => entry.timeMs);
  expect(times).toEqual([...times].sort((left, right) => left - right));
  expectEqualRows(stage);
});

test("who takes part is known: it takes in the next one, whose snapshot is its own (S54)", () => {
  const { stage, node } = built(() => {});
  const [leader, ...others] = stage.cast();
  expect(leader).toBe(node);
  // One after the other is built from what was built from a snapshot: at last nobody has anything of its own.
  for (const other of others) buildAnew(stage, other);
  expectEqualRows(stage);
  expect(stage.value(others[0] ?? 0, "filler3")).not.toBeNull();
  stage.crash(others[0] ?? 0, others[1] ?? 0);
  expect(stage.written(node, put("x", 1)).ok).toBe(true);
});
