/**
 * Taking in a snapshot that the leader has offered (design 02 §5; thesis 5).
 *
 * E1. A few chunks are under way at a time. When nothing useful has come for a while, a later offer (they come with
 *     heartbeats) makes this node ask again from where it stands.
 * E2. What has arrived is durable, so an instance that starts goes on where the one before it stopped.
 * E3. Nothing of it counts before all has arrived and agrees with what the sender says of the whole (ports: `staging`);
 *     then state and position change together, in one write.
 * E4. Watches go on behind the new state by reading its history, or are told that it is compacted (watch/publish.ts).
 */
import type { NodeId, SnapshotPosition } from "../raft/types.ts";
import { adoptSnapshot } from "../watch/publish.ts";
import { openState } from "./opening.ts";
import type { PeerBody, SnapshotManifest, StagingState } from "./ports.ts";
import { type Drive, type NodeState, type Running, sendPeer } from "./runtime-state.ts";
import { forgetProposals } from "./waiters.ts";
import { renameCluster } from "./watching.ts";

export interface SnapshotIntake {
  readonly from: NodeId;
  /** Whoever leads may not be known by the own log yet. */
  readonly incarnation: number | null;
  readonly snapshot: SnapshotPosition;
  /** Of the chunks that were asked for last. */
  awaited: number;
  heardAtMs: number;
}

/** Without an answer for so long it is asked for again. */
const RETRY_MS = 1000;
/** So many in one request: more, and a transfer to a far node waits less; fewer, and less is in memory on the way. */
const CHUNKS_PER_REQUEST = 16;

/** The core says that this node needs this snapshot. */
export function wantSnapshot(
  state: NodeState,
  running: Running,
  offer: { readonly from: NodeId; readonly snapshot: SnapshotPosition },
): void {
  const nowMs = state.ports.clock.nowMs();
  const { intake } = running;
  const isUnderWay = intake !== null && intake.from === offer.from && isSame(intake.snapshot, offer.snapshot);
  if (isUnderWay && nowMs < intake.heardAtMs + RETRY_MS) return;
  const staged = state.ports.storage.staging.state();
  const goesOn = staged?.status === "receiving" && isSame(staged.manifest.position, offer.snapshot);
  running.intake = { ...offer, incarnation: running.heard?.incarnation ?? null, awaited: 0, heardAtMs: nowMs };
  ask(state, running.intake, goesOn ? staged.afterKey : null);
}

function ask(state: NodeState, intake: SnapshotIntake, after: string | null): void {
  const { index, term } = intake.snapshot;
  intake.heardAtMs = state.ports.clock.nowMs();
  intake.awaited = CHUNKS_PER_REQUEST;
  sendPeer(state, intake.from, { kind: "snapshot_request", index, term, after, chunks: CHUNKS_PER_REQUEST });
}

export function onSnapshotChunk(
  state: NodeState,
  running: Running,
  from: NodeId,
  { manifest, chunk }: Extract<PeerBody, { kind: "snapshot_chunk" }>,
  drive: Drive,
): void {
  const { intake } = running;
  if (intake === null || intake.from !== from || !isSame(intake.snapshot, manifest.position)) return;
  const { storage, log } = state.ports;
  const { staging } = storage;
  if (!isOf(staging.state(), manifest)) {
    // The rows of an earlier state are taken away step by step, and the chunk comes again.
    if (chunk.after !== null || storage.cleanUp() || !staging.begin(manifest)) return;
    log("info", "snapshot on its way", { index: manifest.position.index, from, rows: manifest.rowsCount });
  }
  const added = staging.add(chunk);
  if (added === "stale") return;
  if (added === "damaged") {
    // E1: asking at once would bring the same rows, as fast as the network goes, until its sender finds out (S53).
    log("error", "snapshot chunk damaged", { index: manifest.position.index, from });
    return;
  }
  const staged = staging.state();
  if (staged?.status === "receiving") {
    intake.heardAtMs = state.ports.clock.nowMs();
    intake.awaited -= 1;
    if (intake.awaited <= 0) ask(state, intake, staged.afterKey);
    return;
  }
  if (staged?.status === "complete") {
    running.intake = null;
    drive(state, running, { kind: "snapshot_staged", snapshot: manifest.position });
  } else log("error", "snapshot damaged", { index: manifest.position.index, from }); // and again no sooner than a retry
  // Damaged, or not taken in because this node has got there by itself.
  if (staging.state() !== null) staging.discard();
}

function isOf(staged: StagingState | null, { position, rowsCount, hash }: SnapshotManifest): boolean {
  if (staged === null || staged.status !== "receiving") return false;
  const { manifest } = staged;
  return isSame(manifest.position, position) && manifest.rowsCount === rowsCount && manifest.hash === hash;
}

/** The swap is written: from here on this node's state is the snapshot's. */
export function openInstalled(state: NodeState, running: Running, snapshot: SnapshotPosition): void {
  const before = running.machine.clusterId;
  Object.assign(running, openState(state.ports.storage));
  // It was pinned from the state that is gone.
  running.backup = null;
  const { clusterId, revision } = running.machine;
  if (clusterId === before) adoptSnapshot(running.hub, running.view);
  else renameCluster(running, revision);
  forgetProposals(state, snapshot.index);
  state.ports.log("info", "snapshot installed", { index: snapshot.index, revision: running.machine.revision });
}

function isSame(left: SnapshotPosition, right: SnapshotPosition): boolean {
  return left.index === right.index && left.term === right.term;
}
