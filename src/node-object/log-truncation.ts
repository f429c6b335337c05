/**
 * How much of the log a node keeps (design 02 §5): enough for members that are a little behind, not more.
 *
 * G1. Never an entry whose effect is not durable here, for the log replays it; never one that a member which was heard
 *     lately and follows the log still needs, or one behind a snapshot that a member fetches: who takes in a large state is
 *     silent now and then, and would need the next snapshot at once. While there is a learner no node drops what has come
 *     since it became one: the leader of tomorrow goes on with it.
 * G2. Beyond `entries` behind that, or beyond `bytes` in all whoever needs it: who is further behind gets a snapshot.
 * G3. In steps of a tenth, so that it costs one write now and then.
 */
import { newestMembership } from "../raft/log.ts";
import type { Drive, NodeState, Running } from "./runtime-state.ts";
import { holdsRows } from "./snapshot-source.ts";
import { olderMembers } from "./versions.ts";

const STEP_SHARE = 1 / 10;
/** So many times the election timeout a member may be silent. */
const SILENT_ELECTIONS_MAX = 5;

/** Called in every turn; compares a few numbers unless there is something to do. */
export function truncateLog(state: NodeState, running: Running, nowMs: number, drive: Drive): void {
  const through = Math.max(byCount(state, running, nowMs), bySize(state, running));
  if (through <= running.raft.log.base.index) return;
  // What a member of an older version still needs cannot come to it in a snapshot (versions.ts V3).
  if (olderMembers(state, running).length === 0) drive(state, running, { kind: "truncate_log", index: through });
}

function byCount(state: NodeState, running: Running, nowMs: number): number {
  const { raft, durableIndex } = running;
  const { logKeepEntries } = state.config;
  const least = raft.log.base.index + Math.max(1, Math.floor(logKeepEntries * STEP_SHARE));
  if (durableIndex - logKeepEntries < least) return 0;
  const through = Math.min(durableIndex, raft.commit, neededFrom(state, running, nowMs)) - logKeepEntries;
  return through < least ? 0 : through;
}

function bySize(state: NodeState, running: Running): number {
  const { logKeepBytes } = state.config;
  if (running.appendedBytes < logKeepBytes * STEP_SHARE) return 0;
  running.appendedBytes = 0;
  const first = state.ports.storage.logIndexWithin(logKeepBytes * (1 - STEP_SHARE));
  return Math.min(running.durableIndex, running.raft.commit, first - 1);
}

/** The last entry that all have who were heard lately, and the one that is being served stands at. */
function neededFrom({ config }: NodeState, running: Running, nowMs: number): number {
  const { raft, served } = running;
  const position = served?.manifest.position.index ?? Number.POSITIVE_INFINITY;
  let index = holdsRows(running, nowMs) ? position : Number.POSITIVE_INFINITY;
  const newest = newestMembership(raft.log);
  if (newest.membership.learners.length > 0) index = Math.min(index, newest.index);
  if (raft.role.kind !== "leader") return index;
  for (const progress of raft.role.progress.values()) {
    const isHeard = progress.heardAtMs + SILENT_ELECTIONS_MAX * config.electionTimeoutMsMax >= nowMs;
    if (isHeard) index = Math.min(index, progress.kind === "snapshot" ? position : progress.match);
  }
  return index;
}
