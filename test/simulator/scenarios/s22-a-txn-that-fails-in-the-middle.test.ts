/** S22: an operation of a txn fails after earlier ones were carried out: none of it has happened, on any node. */
import { expect, test } from "vitest";
import type { Command, Operation } from "../../../src/kv/command.ts";
import { FLUSHED_MS, formed } from "./stage.ts";
import { idempotency, put } from "./vocabulary.ts";

function txn(...success: readonly Operation[]): Command {
  return { kind: "txn", compare: [], success, failure: [] };
}

function putX(key: string): Operation {
  return { type: "put", key, value: { json: "x" } };
}

const FAILING: readonly (readonly [what: string, code: string, Command])[] = [
  ["an unknown lease", "unknown_lease", txn(putX("x"), { type: "put", key: "y", value: { json: 1 }, lease: 404 })],
  ["a read at a compacted revision", "compacted", txn(putX("x"), { type: "get", selector: { key: "k" }, revision: 1 })],
  [
    "a read at a compacted revision first",
    "compacted",
    txn({ type: "get", selector: { key: "k" }, revision: 1 }, putX("x")),
  ],
  [
    "a read at a revision to come",
    "revision_in_future",
    txn(putX("x"), { type: "get", selector: { key: "k" }, revision: 99 }),
  ],
  ["nothing to keep", "not_found", txn(putX("x"), { type: "put", key: "y", ignore_value: true })],
];

test.each(FAILING)("a txn whose second operation meets %s has no effect on any node (S22)", (_what, code, command) => {
  const stage = formed();
  const [leader, follower, slow] = stage.cast();
  for (const value of [1, 2, 3]) stage.written(leader, put("k", value));
  // One node hears of the compaction only after the txn has been answered, another one has restarted in between.
  stage.cutBothWays([slow], stage.ids);
  stage.written(leader, { kind: "compact", revision: 2 });
  stage.crash(follower);
  stage.start(follower);
  const before = stage.status(leader);
  expect(stage.written(leader, command)).toMatchObject({ ok: false, revision: 3, error: { code } });
  stage.heal();
  stage.settle();
  for (const id of stage.ids) {
    expect(stage.status(id).revision).toBe(before.revision);
    for (const key of ["x", "y"]) expect(stage.value(id, key)).toBeNull();
  }
  expect(stage.agree()).toBe(true);
  stage.run(FLUSHED_MS);
  const [first, ...others] = stage.world.hosts.map(({ disk }) => [...disk.rows].sort());
  for (const rows of others) expect(rows).toEqual(first);
  // The next write takes the next revision: none was spent.
  expect(stage.written(follower, put("k", 4))).toMatchObject({ ok: true, revision: 4 });
});

test("a txn that failed under an idempotency key fails the same way when it is repeated, though it would succeed now (S22)", () => {
  const stage = formed();
  const [leader, follower] = stage.cast();
  const command = txn(putX("x"), { type: "put", key: "y", value: { json: 1 }, lease: 404 });
  const first = stage.written(leader, command, { idempotency: idempotency("t") });
  expect(first).toMatchObject({ ok: false, error: { code: "unknown_lease" } });
  expect(stage.written(leader, { kind: "lease_grant", ttl_s: 60, id: 404 }).ok).toBe(true);
  expect(stage.written(follower, command, { idempotency: idempotency("t") })).toEqual(first);
  expect(stage.value(follower, "x")).toBeNull();
});
