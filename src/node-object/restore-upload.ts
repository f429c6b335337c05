/**
 * Restoring a backup, from the text that a client sends to the cluster that serves it (design 02 §5): verified and prepared
 * beside the state of this node (backup-spool.ts), then carried into the log by commands (kv/restoring.ts).
 *
 * U1. Nothing is proposed before the last line was verified.
 * U2. A command without a known outcome is proposed again: each may be (restoring.ts R3).
 * U3. Each step is a turn of its own, and the next one waits until it is durable: the node goes on meanwhile, and takes no
 *     more text than its disk does.
 */
import type { Restored, RestoreWish } from "../api/backend.ts";
import { assert } from "../base/assert.ts";
import { ConcordError, type ErrorCode } from "../base/errors.ts";
import { RESTORE_REVISION_JUMP_DEFAULT } from "../base/limits.ts";
import type { CommandResult, Outcome, RestoreCommand } from "../kv/command.ts";
import { RESTORE_START, restoreEntries } from "../kv/restore-entries.ts";
import type { Spooled, SpoolSteps } from "./backup-spool.ts";

export interface UploadParts {
  readonly steps: SpoolSteps;
  propose(command: RestoreCommand, timeoutMs: number): Promise<Outcome<CommandResult>>;
  wait(ms: number): Promise<void>;
  newId(): string;
}

const TEXT_UNITS_MAX = 64 << 10;
const PROPOSE_TIMEOUT_MS = 5000;
const REPEAT_AFTER_MS = 200;
/** Of one command, in vain: about as long as a cluster may be without a leader before somebody must look. */
const TRIES_MAX = 24;
/** Nothing was decided about the command, or nobody knows. */
const REPEATABLE: ReadonlySet<ErrorCode> = new Set(["timeout", "no_leader", "overloaded"]);

export async function restoreUpload(
  parts: UploadParts,
  text: ReadableStream<Uint8Array>,
  { revisionJump }: RestoreWish,
): Promise<Restored> {
  const { steps } = parts;
  const reader = text.getReader();
  const spool = answerOf(steps.open());
  try {
    const { manifest, jumpMax } = await takeIn(parts, spool, reader);
    const jump = revisionJump ?? RESTORE_REVISION_JUMP_DEFAULT;
    if (jump > jumpMax) {
      const detail = `With this backup revision_jump is at most ${jumpMax}.`;
      throw new ConcordError({ code: "invalid_request", reason: "invalid_revision_jump", detail });
    }
    const clusterId = parts.newId();
    await carryOver(parts, spool, { clusterId, jump });
    return { clusterId, revision: manifest.revision + jump, manifest };
  } finally {
    steps.close(spool);
    // Of a text that was refused the rest is not wanted.
    reader.cancel().catch(() => {});
  }
}

async function takeIn(parts: UploadParts, spool: number, reader: ReadableStreamDefaultReader<Uint8Array>) {
  const { steps } = parts;
  while (!answerOf(steps.empty(spool))) await settled(parts);
  const decoder = new TextDecoder("utf-8", { fatal: false, ignoreBOM: true });
  for (;;) {
    const { done, value } = await reader.read();
    const piece = done ? decoder.decode() : decoder.decode(value, { stream: true });
    for (let from = 0; from < piece.length; from += TEXT_UNITS_MAX) {
      answerOf(steps.text(spool, piece.slice(from, from + TEXT_UNITS_MAX)));
      await settled(parts);
    }
    if (done) break;
  }
  const verified = answerOf(steps.verify(spool));
  while (!answerOf(steps.prepare(spool))) await settled(parts);
  return verified;
}

async function carryOver(
  parts: UploadParts,
  spool: number,
  { clusterId, jump }: { readonly clusterId: string; readonly jump: number },
): Promise<void> {
  const id = parts.newId();
  await repeat(parts, { kind: "restore_begin", id });
  let position = RESTORE_START;
  let rowsCount = 0;
  for (;;) {
    const rows = answerOf(parts.steps.rows(spool, position.key));
    if (rows.length === 0) break;
    rowsCount += rows.length;
    for (const entry of restoreEntries(position, rows)) {
      const result = await propose(parts, { kind: "restore_rows", id, after: entry.after, rows: entry.rows });
      assert(result.kind === "restore_rows", `restore_rows answered ${result.kind}`);
      const { key, units } = result.position;
      assert(key === entry.position.key && units === entry.position.units, "what has come is what was sent");
      position = entry.position;
    }
  }
  await repeat(parts, {
    kind: "restore_end",
    id,
    cluster_id: clusterId,
    rows_count: rowsCount,
    revision_jump: jump,
  });
}

/** Until it says that it is done. */
async function repeat(parts: UploadParts, command: RestoreCommand): Promise<void> {
  for (;;) {
    const result = await propose(parts, command);
    if ("done" in result && result.done) return;
  }
}

/** U2 */
async function propose(parts: UploadParts, command: RestoreCommand): Promise<CommandResult> {
  for (let tries = 1; ; tries += 1) {
    const outcome = await parts.propose(command, PROPOSE_TIMEOUT_MS);
    if (outcome.ok) return outcome.result;
    if (!REPEATABLE.has(outcome.error.code) || tries >= TRIES_MAX) throw new ConcordError(outcome.error);
    await parts.wait(REPEAT_AFTER_MS);
  }
}

/** U3. Of a text that is all there the next step would be runnable at once, and heartbeats would wait for its end. */
async function settled({ steps, wait }: UploadParts): Promise<void> {
  await new Promise<void>((resolve) => steps.settled(resolve));
  await wait(0);
}

function answerOf<T>(spooled: Spooled<T>): T {
  if (!spooled.ok) throw new ConcordError(spooled.error);
  return spooled.answer;
}
