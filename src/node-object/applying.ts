/**
 * From committed entries to applied state, and from there to the disk.
 *
 * N3. Applied rows are buffered and flushed together with the applied index; the log replays what a crash loses.
 */
import { AssertionError } from "../base/assert.ts";
import { removesHistory } from "../kv/compaction.ts";
import type { Applied } from "../kv/machine.ts";
import { entriesFrom } from "../raft/log.ts";
import type { Entry } from "../raft/types.ts";
import { noticeChange } from "./leader-duties.ts";
import type { NodeState, Running } from "./runtime-state.ts";
import { onApplied } from "./waiters.ts";
import { publishApplied, pumpWatches } from "./watching.ts";

/** Applied rows wait in memory at most this long, or until they are this many characters. */
const FLUSH_AFTER_MS = 500;
const FLUSH_CHARACTERS_MAX = 4 << 20;
const DIGESTS_KEPT_MAX = 4096;
const APPLY_ENTRIES_MAX = 1024;
const APPLY_BYTES_MAX = 4 << 20;

export function applyCommitted(state: NodeState, running: Running): void {
  const { raft, machine, commitIndex } = running;
  if (machine.appliedIndex >= commitIndex) return;
  const nowMs = state.ports.clock.nowMs();
  while (machine.appliedIndex < commitIndex) {
    const from = machine.appliedIndex + 1;
    const countMax = Math.min(APPLY_ENTRIES_MAX, commitIndex - machine.appliedIndex);
    const entries = entriesFrom(raft.log, from, countMax, APPLY_BYTES_MAX).map(forMachine);
    for (const run of runsOf(running, entries)) {
      // What removal takes away, watches may still want to look at (watching.ts H2).
      if (run.removes) pumpWatches(state, running, nowMs);
      applyRun(state, running, run.entries);
    }
    // The rest of a long catch-up waits for nobody, but its events are not held as copies.
    if (machine.appliedIndex < commitIndex) pumpWatches(state, running, nowMs);
  }
  noticeChange(running, nowMs);
}

/** Who takes part is nothing to the state machine: such an entry moves its position and its time, as an empty one does. */
export function forMachine(entry: Entry): Entry {
  return entry.kind === "membership" ? { ...entry, payload: "", payloadBytes: 0 } : entry;
}

/** Entries that may be applied together: each one that removes history begins a run. */
function runsOf(running: Running, entries: readonly Entry[]): { removes: boolean; entries: Entry[] }[] {
  if (running.hub.watchesCount === 0) return [{ removes: false, entries: [...entries] }];
  const runs: { removes: boolean; entries: Entry[] }[] = [];
  for (const entry of entries) {
    const removes = removesHistory(entry.payload);
    const last = runs[runs.length - 1];
    if (last === undefined || removes) runs.push({ removes, entries: [entry] });
    else last.entries.push(entry);
  }
  return runs;
}

function applyRun(state: NodeState, running: Running, entries: readonly Entry[]): void {
  const { digests } = running;
  carryOut(state, running, entries).forEach((one, position) => {
    digests.set(one.index, one.digest);
    digests.delete(one.index - DIGESTS_KEPT_MAX);
    publishApplied(state, running, one);
    onApplied(state, one, entries[position]?.term ?? 0);
  });
}

/**
 * Rows that do not fit together make the state machine stumble over what it reads, at every start again: the node halts. What
 * the disk throws is no such thing.
 */
function carryOut(state: NodeState, running: Running, entries: readonly Entry[]): readonly Applied[] {
  try {
    return state.core.apply(running.machine, entries);
  } catch (error) {
    const stumbled = error instanceof SyntaxError || error instanceof TypeError || error instanceof RangeError;
    if (!stumbled) throw error;
    const { index } = entries[0] ?? { index: 0 };
    throw new AssertionError(`entry ${index} or one behind it can not be applied: ${error.message}`, { cause: error });
  }
}

/** Makes the buffered rows durable, with the applied index among them (N3). */
export function flush(state: NodeState, running: Running): void {
  running.flushAtMs = Number.POSITIVE_INFINITY;
  if (running.buffer.size === 0) return;
  state.ports.storage.write({ state: running.buffer.drain() });
  running.durableIndex = running.machine.appliedIndex;
}

/** Flushes what has waited long enough or has grown too large. */
export function flushIfDue(state: NodeState, running: Running, nowMs: number): void {
  if (running.buffer.size === 0) return;
  // Each row that a pinned snapshot still needs is kept first: smaller steps, shorter turns.
  const afterMs = running.served === null && running.backup === null ? FLUSH_AFTER_MS : FLUSH_AFTER_MS / 5;
  running.flushAtMs = Math.min(running.flushAtMs, nowMs + afterMs);
  if (nowMs >= running.flushAtMs || running.buffer.characters >= FLUSH_CHARACTERS_MAX) flush(state, running);
}
