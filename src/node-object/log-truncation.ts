/**
 * How much of the log a node keeps (design 02 §5): enough for members that are a little behind, not more.
 *
 * G1. Never an entry whose effect is not durable here, for the log replays it; never one that a member which is heard and
 *     follows the log still needs, or one behind a snapshot that is being served.
 * G2. Beyond `entries` behind that, or beyond `bytes` in all whoever needs it: who is further behind gets a snapshot.
 * G3. In steps of a tenth, so that it costs one write now and then.
 */
import { isReachable } from "../raft/state.ts";
import type { Drive, NodeState, Running } from "./runtime-state.ts";

const STEP_SHARE = 1 / 10;

/** Called in every turn; compares two numbers unless there is something to do. */
export function truncateLog(state: NodeState, running: Running, nowMs: number, drive: Drive): void {
  const { raft, durableIndex } = running;
  const { logKeepEntries, logKeepBytes } = state.config;
  const step = Math.max(1, Math.floor(logKeepEntries * STEP_SHARE));
  const { base } = raft.log;
  const { storage } = state.ports;
  if (durableIndex - base.index < logKeepEntries + step && storage.logBytes <= logKeepBytes) return;
  const wanted = Math.min(durableIndex, raft.commit, neededFrom(running, nowMs)) - logKeepEntries;
  const bounded = Math.min(durableIndex, raft.commit, storage.logIndexWithin(logKeepBytes * (1 - STEP_SHARE)) - 1);
  const through = Math.max(wanted, bounded);
  if (through - base.index >= step) drive(state, running, { kind: "truncate_log", index: through });
}

/** The last entry that everybody who is heard has, and the one that is being served stands at. */
function neededFrom({ raft, served }: Running, nowMs: number): number {
  let index = served?.manifest.position.index ?? Number.POSITIVE_INFINITY;
  if (raft.role.kind !== "leader") return index;
  for (const progress of raft.role.progress.values()) {
    if (progress.kind !== "snapshot" && isReachable(raft, progress, nowMs)) index = Math.min(index, progress.match);
  }
  return index;
}
