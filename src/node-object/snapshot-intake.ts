/**
 * Taking in a snapshot that the leader has offered (design 02 §5; thesis 5).
 *
 * E1. One chunk is under way at a time. Whatever is lost is asked for again with a later offer: offers come with heartbeats.
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
  askedAtMs: number;
}

/** Without an answer for so long it is asked for again. */
const RETRY_MS = 1000;

/** The core says that this node needs this snapshot. */
export function wantSnapshot(
  state: NodeState,
  running: Running,
  offer: { readonly from: NodeId; readonly snapshot: SnapshotPosition },
): void {
  const nowMs = state.ports.clock.nowMs();
  const { intake } = running;
  const isUnderWay = intake !== null && intake.from === offer.from && isSame(intake.snapshot, offer.snapshot);
  if (isUnderWay && nowMs < intake.askedAtMs + RETRY_MS) return;
  const staged = state.ports.storage.staging.state();
  const goesOn = staged?.status === "receiving" && isSame(staged.manifest.position, offer.snapshot);
  running.intake = { ...offer, incarnation: running.heard?.incarnation ?? null, askedAtMs: nowMs };
  ask(state, running.intake, goesOn ? staged.afterKey : null);
}

function ask(state: NodeState, intake: SnapshotIntake, after: string | null): void {
  const { index, term } = intake.snapshot;
  intake.askedAtMs = state.ports.clock.nowMs();
  sendPeer(state, intake.from, { kind: "snapshot_request", index, term, after });
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
  if (staging.add(chunk) === "stale") return;
  const staged = staging.state();
  if (staged?.status === "receiving") {
    ask(state, intake, staged.afterKey);
    return;
  }
  running.intake = null;
  if (staged?.status === "complete") drive(state, running, { kind: "snapshot_staged", snapshot: manifest.position });
  else log("error", "snapshot damaged", { index: manifest.position.index, from });
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
