/**
 * A snapshot of the own state for members that need entries which are gone from the log (design 02 §5; thesis 5).
 *
 * V1. What is pinned is the durable state after exactly one entry: the buffer is flushed first. Writes go on meanwhile.
 * V2. One at a time, made when the core wants it and kept until the core has nobody left who needs it. What is pinned for a
 *     backup serves as well (served-backup.ts Y2).
 * V3. A few chunks are asked for at a time, behind a cursor, and may be asked for again; each is read in a turn of its own.
 * V4. While it is served, the log behind it stays (log-truncation.ts) and compaction removes no rows (leader-duties.ts), for
 *     a bounded time.
 */
import { positionAt } from "../raft/log.ts";
import type { NodeId } from "../raft/types.ts";
import { flush } from "./applying.ts";
import type { PeerBody, SnapshotManifest } from "./ports.ts";
import { type Drive, type NodeState, type Running, sendPeer } from "./runtime-state.ts";

export interface ServedSnapshot {
  readonly manifest: SnapshotManifest;
  readonly sinceMs: number;
  /** What has been asked for and is not sent yet: so many chunks behind this key. */
  readonly asked: Map<NodeId, { after: string | null; chunks: number }>;
  /** The next chunk, at the earliest. */
  chunkAtMs: number;
}

const CHUNK_BYTES_MAX = 384 << 10;
const CHUNKS_MAX = 32;
/** Reading a chunk takes about as long: writes get every other turn of a busy leader, and more of one that is not. */
const CHUNK_PAUSE_MS = 5;
/** V4. Behind this, what waits for the end of a transfer goes on: the transfer may have to begin anew. */
const HOLD_MS_MAX = 120_000;

/** Makes what the core wants, and lets go of what it does not need any more. Called in every turn, all applied. */
export function serveSnapshot(state: NodeState, running: Running, nowMs: number, drive: Drive): void {
  const { raft, served, snapshotWanted } = running;
  if (served !== null) sendChunks(state, served, nowMs);
  const { storage } = state.ports;
  if (served !== null && (raft.role.kind !== "leader" || raft.role.snapshot === null)) {
    if (running.backup === null) storage.snapshot.end();
    running.served = null;
    state.ports.log("info", "snapshot no longer served", { index: served.manifest.position.index });
  }
  if (!snapshotWanted || running.served !== null) return;
  const pinned = running.backup?.manifest;
  if (pinned !== undefined && offer(state, running, pinned, nowMs, drive)) return;
  running.backup = null;
  flush(state, running);
  const manifest = storage.snapshot.begin(positionAt(raft.log, running.machine.appliedIndex));
  // The sums of its rows are not known yet: the core asks again.
  if (manifest !== null) offer(state, running, manifest, nowMs, drive);
}

/** False: the log goes on from elsewhere, or does not say who took part there. */
function offer(state: NodeState, running: Running, manifest: SnapshotManifest, nowMs: number, drive: Drive): boolean {
  const { raft } = running;
  const { position } = manifest;
  if (position.index < raft.log.base.index) return false;
  running.served = { manifest, sinceMs: nowMs, asked: new Map(), chunkAtMs: nowMs };
  state.ports.log("info", "snapshot served", { index: position.index, revision: running.machine.revision });
  drive(state, running, { kind: "snapshot_ready", snapshot: position });
  return raft.role.kind === "leader" && raft.role.snapshot?.index === position.index;
}

export function onSnapshotRequest(
  state: NodeState,
  running: Running,
  from: NodeId,
  { index, term, after, chunks }: Extract<PeerBody, { kind: "snapshot_request" }>,
): void {
  const { served } = running;
  // It is offered another one with the next heartbeat.
  if (served === null || !state.config.members.includes(from)) return;
  const { position } = served.manifest;
  if (position.index !== index || position.term !== term) return;
  served.asked.set(from, { after, chunks: Math.min(chunks, CHUNKS_MAX) });
}

/** One chunk for each who waits. */
function sendChunks(state: NodeState, served: ServedSnapshot, nowMs: number): void {
  const { manifest, asked } = served;
  if (asked.size === 0 || nowMs < served.chunkAtMs) return;
  served.chunkAtMs = nowMs + CHUNK_PAUSE_MS;
  for (const [to, one] of asked) {
    const chunk = state.ports.storage.snapshot.read(one.after, CHUNK_BYTES_MAX);
    if (chunk === null) return;
    sendPeer(state, to, { kind: "snapshot_chunk", manifest, chunk });
    one.after = chunk.rows.at(-1)?.[0] ?? one.after;
    one.chunks -= 1;
    if (one.chunks <= 0 || chunk.last) asked.delete(to);
  }
}

/** When a snapshot that is served wants a turn: at once, while chunks are to be sent. */
export function snapshotAtMs({ served }: Running): number {
  return served !== null && served.asked.size > 0 ? served.chunkAtMs : Number.POSITIVE_INFINITY;
}

/** V4 */
export function holdsRows({ served }: Running, nowMs: number): boolean {
  return served !== null && nowMs - served.sinceMs < HOLD_MS_MAX;
}
