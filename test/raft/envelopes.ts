/** Which messages of the pool are meant: by sender, receiver and kind. */
import type { Envelope, Message, NodeId } from "../../src/raft/types.ts";

export function to<Kind extends Message["kind"]>(id: NodeId, kind?: Kind): (envelope: Envelope) => boolean {
  return (envelope) => envelope.to === id && (kind === undefined || envelope.message.kind === kind);
}

export function from<Kind extends Message["kind"]>(id: NodeId, kind?: Kind): (envelope: Envelope) => boolean {
  return (envelope) => envelope.from === id && (kind === undefined || envelope.message.kind === kind);
}

export function between<Kind extends Message["kind"]>(
  sender: NodeId,
  receiver: NodeId,
  kind?: Kind,
): (envelope: Envelope) => boolean {
  return (envelope) =>
    envelope.from === sender && envelope.to === receiver && (kind === undefined || envelope.message.kind === kind);
}
