/**
 * A backup on its way into an empty cluster, through the log (src/kv/restoring.ts): leaders crash and nodes are away in the
 * middle of it, and a backup is read while a member needs a snapshot.
 */
import { expect, test } from "vitest";
import type { CommandResult, RestoreCommand } from "../../../src/kv/command.ts";
import { applyChanges } from "../../../src/kv/overlay.ts";
import { forgetHistory } from "../../../src/kv/restore.ts";
import { RESTORE_START, restoreEntries } from "../../../src/kv/restore-entries.ts";
import type { Row } from "../../../src/kv/store.ts";
import type { BackupChunk, OpenedBackup } from "../../../src/node-object/served-backup.ts";
import type { NodeId } from "../../../src/raft/types.ts";
import { backupOf, takenIn } from "../../kv/backups.ts";
import { Harness } from "../../kv/harness.ts";
import { runTurn } from "../turn.ts";
import { formed, type Stage } from "./stage.ts";
import { put } from "./vocabulary.ts";

/** The rows of a backup, prepared, and how many entries they take. */
function prepared(): readonly Row[] {
  const old = new Harness();
  for (let at = 0; at < 60; at += 1) old.put(`key/${at}`, "x".repeat(9000));
  old.put("ttl", 1, { ttl: 20 });
  old.put("key/1", "newer");
  const store = takenIn(backupOf(old.machine));
  for (const change of forgetHistory(store)) if (change !== null) applyChanges(store, [change]);
  return store.rows();
}

const ROWS = prepared();

function commandsOf(id: string): RestoreCommand[] {
  const entries = restoreEntries(RESTORE_START, ROWS);
  expect(entries.length).toBeGreaterThan(2);
  return [
    { kind: "restore_begin", id },
    ...entries.map(({ after, rows }) => ({ kind: "restore_rows", id, after, rows }) as const),
    { kind: "restore_end", id, cluster_id: `cluster of ${id}`, rows_count: ROWS.length, revision_jump: 1000 },
  ];
}

/** Asks until there is an outcome. */
function done(stage: Stage, node: NodeId, command: RestoreCommand): CommandResult {
  for (;;) {
    const answer = stage.written(node, command, { timeoutMs: 3000 });
    if (answer.ok) return answer.result;
    expect(["timeout", "no_leader"]).toContain(answer.error.code);
  }
}

function clusterIds(stage: Stage): Set<string | null> {
  return new Set(stage.ids.map((id) => stage.instance(id).runtime.position().clusterId));
}

test("every leader dies in turn in the middle, the node that sends goes on, and all nodes are the same", () => {
  const stage = formed();
  const [first, sender] = stage.cast();
  const [before] = clusterIds(stage);
  const commands = commandsOf("one");
  stage.crash(first);
  for (const [at, command] of commands.entries()) {
    done(stage, sender, command);
    if (command.kind === "restore_end") break;
    expect(stage.readNow(sender, { kind: "get", key: "key/1" })).toMatchObject({
      ok: false,
      error: { code: "cluster_not_ready", reason: "restoring" },
    });
    const leader = stage.leader();
    if (at % 2 !== 0 || leader === null || leader === sender) continue;
    // One is down at a time; each is back for the entries behind it.
    for (const id of stage.ids) if (stage.host(id).live === null) stage.start(id);
    stage.crash(leader);
  }
  for (const id of stage.ids) if (stage.host(id).live === null) stage.start(id);
  stage.ask(...stage.ids);
  stage.settle();
  expect(clusterIds(stage)).toEqual(new Set(["cluster of one"]));
  expect(before).not.toBe("cluster of one");
  for (const id of stage.ids) expect(stage.value(id, "key/1")).toBe("newer");
  expect(stage.written(sender, put("next", 1)).ok).toBe(true);
});

test("the sender dies and another one begins anew; what was half there is gone", () => {
  const stage = formed();
  const [leader, first, second] = stage.cast();
  const commands = commandsOf("one");
  for (const command of commands.slice(0, 3)) done(stage, first, command);
  stage.crash(first);
  for (const command of commandsOf("two")) done(stage, second, command);
  stage.start(first);
  stage.ask(first);
  stage.settle();
  // A late copy of what the first one has sent.
  const late = stage.written(leader, commands[3] ?? commands[0]!);
  expect(late).toMatchObject({ ok: false, error: { code: "precondition_failed", reason: "restore_superseded" } });
  expect(clusterIds(stage)).toEqual(new Set(["cluster of two"]));
  expect(stage.value(first, "key/1")).toBe("newer");
});

test("a node that is away meanwhile gets a snapshot of it, in the middle or behind the end", () => {
  for (const isBackEarly of [true, false]) {
    const stage = formed({ logKeepEntries: 1 });
    const [leader, , , , away] = stage.cast();
    stage.crash(away);
    const commands = commandsOf("one");
    const half = commands.length - 2;
    for (const command of commands.slice(0, half)) done(stage, leader, command);
    stage.run(3000);
    if (isBackEarly) {
      stage.start(away);
      stage.ask(away);
      stage.until("it is there", () => stage.status(away).applied_index === stage.status(leader).applied_index);
      expect(stage.instance(away).runtime.position()).toMatchObject({ restoring: true, ready: false });
    }
    for (const command of commands.slice(half)) done(stage, leader, command);
    stage.run(3000);
    if (!isBackEarly) stage.start(away);
    stage.ask(away);
    stage.settle();
    expect(stage.value(away, "key/1")).toBe("newer");
    expect(clusterIds(stage)).toEqual(new Set(["cluster of one"]));
  }
});

// --- a backup beside a member that needs a snapshot --------------------------------------------------------------------

function inTurn<T>(stage: Stage, node: NodeId, work: () => T): T {
  const answers: T[] = [];
  runTurn(stage.world, stage.instance(node), () => answers.push(work()));
  const [answer] = answers;
  if (answer === undefined) throw new Error("the turn did not come to its end");
  return answer;
}

function open(stage: Stage, node: NodeId): OpenedBackup {
  return inTurn(stage, node, () => stage.instance(node).runtime.backup.open());
}

function read(stage: Stage, node: NodeId, id: number, after: string | null): BackupChunk | null {
  return inTurn(stage, node, () => ({ chunk: stage.instance(node).runtime.backup.read(id, after) })).chunk;
}

/** All that is left to read; null: it was lost on the way. */
function rest(stage: Stage, node: NodeId, id: number): readonly Row[] | null {
  const rows: Row[] = [];
  for (let after: string | null = null; ; ) {
    const chunk = read(stage, node, id, after);
    if (chunk === null) return null;
    rows.push(...chunk.rows);
    after = chunk.end;
    if (chunk.isLast) return rows;
  }
}

function behind(stage: Stage, node: NodeId): void {
  stage.start(node);
  stage.ask(node);
}

test("a member that needs a snapshot takes the one that is pinned for a backup, and both are served", () => {
  const stage = formed({ logKeepEntries: 5 });
  const [leader, , , , away] = stage.cast();
  stage.crash(away);
  for (let at = 0; at < 30; at += 1) stage.written(leader, put(`a${at}`, at));
  stage.run(3000);
  const opened = open(stage, leader);
  if (!opened.ok) throw new Error(opened.error.detail);
  stage.written(leader, put("later", 1));
  behind(stage, away);
  stage.until("it is there", () => stage.status(away).applied_index >= opened.manifest.index);
  expect(stage.host(away).disk.base?.index).toBe(opened.manifest.index);
  stage.settle();
  const rows = rest(stage, leader, opened.id);
  expect(rows?.some(([row]) => row.includes("a29"))).toBe(true);
  expect(rows?.some(([row]) => row.includes("later"))).toBe(false);
});

test("where the log has gone on beyond a backup, the member is served and the backup is lost", () => {
  const stage = formed({ logKeepEntries: 5 });
  const [leader, , , , away] = stage.cast();
  stage.crash(away);
  const opened = open(stage, leader);
  if (!opened.ok) throw new Error(opened.error.detail);
  for (let at = 0; at < 60; at += 1) stage.written(leader, put(`a${at}`, at));
  stage.run(3000);
  behind(stage, away);
  stage.settle();
  expect(stage.host(away).disk.base?.index).toBeGreaterThan(opened.manifest.index);
  expect(rest(stage, leader, opened.id)).toBeNull();
  stage.until("the member is served", () => open(stage, leader).ok);
});

test("while a member is served by a leader it takes no backup; a follower does", () => {
  const stage = formed({ logKeepEntries: 1 });
  const [leader, follower, , , away] = stage.cast();
  stage.crash(away);
  for (let at = 0; at < 30; at += 1) stage.written(leader, put(`a${at}`, at));
  stage.run(3000);
  stage.rules = [({ to, body }) => (to === away && body.kind === "snapshot_chunk" ? "drop" : undefined)];
  behind(stage, away);
  stage.until("it is served", () => {
    const opened = open(stage, leader);
    if (opened.ok) inTurn(stage, leader, () => [stage.instance(leader).runtime.backup.close(opened.id)]);
    return !opened.ok && opened.error.reason === "snapshot_served";
  });
  expect(open(stage, follower).ok).toBe(true);
  stage.rules = [];
  stage.settle();
  expect(stage.value(away, "a29")).toBe(29);
});

test("a backup that nobody reads on for a minute is given up, by a timer, also while nobody asks for anything", () => {
  const stage = formed({ quiesceAfterMs: 1000 });
  const [, node] = stage.cast();
  stage.written(node, put("a", 1));
  const opened = open(stage, node);
  if (!opened.ok) throw new Error(opened.error.detail);
  stage.run(50_000);
  expect(read(stage, node, opened.id, null)?.rows.length).toBeGreaterThan(0);
  stage.run(50_000);
  expect(open(stage, node)).toMatchObject({ ok: false, error: { reason: "backup_running" } });
  stage.run(11_000);
  expect(read(stage, node, opened.id, null)).toBeNull();
  expect(open(stage, node).ok).toBe(true);
});
