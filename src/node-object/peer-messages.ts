/** What a peer says, on its way to the part of the runtime that it is for. */
import { isForStrangers } from "../raft/step.ts";
import type { Message } from "../raft/types.ts";
import { onDigestReply, onDigestRequest, onDiverged } from "./digest-check.ts";
import { onForward, onForwardReply } from "./forwarding.ts";
import { onHello } from "./hello.ts";
import { incarnationOf } from "./members.ts";
import type { PeerEnvelope } from "./ports.ts";
import { nextLost } from "./readmission.ts";
import type { Drive, NodeState, Running } from "./runtime-state.ts";
import { noticeAnswer, noticeRequest, wakeUp } from "./sleep.ts";
import { onSnapshotChunk } from "./snapshot-intake.ts";
import { onSnapshotRequest } from "./snapshot-source.ts";
import { isMet, noticeHello } from "./strangers.ts";
import { noticeVersion } from "./versions.ts";

export function onPeer(state: NodeState, envelope: PeerEnvelope, drive: Drive): void {
  const { from, fromIncarnation, body } = envelope;
  if (envelope.to !== state.config.id || !state.config.members.includes(from) || from === state.config.id) return;
  noticeVersion(state, envelope);
  const { running, identity } = state;
  if (body.kind === "hello") {
    onHello(state, envelope, body);
    if (running === null || state.halted !== null) return;
    if (body.reply) noticeAnswer(state, running, from, drive);
    const news = noticeHello(state, running, envelope, body);
    if (news && nextLost(state, running, state.ports.clock.nowMs())?.id === from) wakeUp(state, running, drive);
    return;
  }
  if (running === null || state.halted !== null) return;
  if (envelope.clusterId !== running.clusterId || envelope.toIncarnation !== identity.incarnation) return;
  if (!isHeard(state, running, envelope)) return;
  running.heard = { id: from, incarnation: fromIncarnation };
  dispatch(state, running, envelope, drive);
  running.heard = null;
}

function dispatch(state: NodeState, running: Running, { from, body }: PeerEnvelope, drive: Drive): void {
  switch (body.kind) {
    case "hello":
      return; // heard before there is a state
    case "raft":
      noticeMessage(state, running, body.message);
      drive(state, running, { kind: "message", from, message: body.message });
      return;
    case "forward":
      noticeRequest(state, running, drive);
      onForward(state, running, from, body);
      return;
    case "topics":
      for (const { topic, payload } of body.messages) state.ports.watchers.topic(topic, payload);
      return;
    case "snapshot_request":
      onSnapshotRequest(state, running, from, body);
      return;
    case "snapshot_chunk":
      onSnapshotChunk(state, running, from, body, drive);
      return;
    case "digest_request":
      onDigestRequest(state, running, from, body);
      return;
    case "digest_reply":
      onDigestReply(state, running, from, body);
      return;
    case "diverged":
      onDiverged(running, from, body);
      return;
    case "forward_reply":
      for (const reply of body.replies) onForwardReply(state, reply);
      return;
  }
}

/** Whether the sender is who the log says, or need not be (members.ts M1, M2). */
function isHeard(state: NodeState, running: Running, envelope: PeerEnvelope): boolean {
  const { from, fromIncarnation, body } = envelope;
  const { log } = running.raft;
  if (incarnationOf(log, from) === fromIncarnation) return true;
  if (body.kind === "snapshot_chunk") return running.intake?.incarnation === fromIncarnation;
  if (body.kind !== "raft" || !isForStrangers(body.message.kind)) return false;
  // A node that knows of no membership yet follows whoever leads.
  return state.identity.membership.kind === "lost" || isMet(state, running, envelope);
}

/** What the runtime itself reads of a message on its way to the core. */
function noticeMessage(state: NodeState, running: Running, message: Message): void {
  if (message.kind === "read_index") running.activeAtMs = state.ports.clock.nowMs();
  const timed = message.kind === "quiesce" || (message.kind === "read_index_reply" && message.index !== null);
  if (timed) running.clockOffsetMs = message.timeMs - state.ports.clock.wallMs();
}
