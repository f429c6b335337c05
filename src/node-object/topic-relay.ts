/**
 * Messages of topics on their way to the other nodes (design 01 §4). They share the streams of consensus, and may be lost
 * where consensus may not: so they go out in few frames of bounded size, and what is over is dropped here.
 *
 * T1. One frame to each peer in `GATHER_MS`, at once after a pause. Whoever floods a topic loses lines of it; nobody loses
 *     a heartbeat or waits for a commit because of them.
 */
import { TOPIC_BYTES_MAX, TOPIC_PAYLOAD_BYTES_MAX } from "../api/limits.ts";
import { utf8Length } from "../base/bytes.ts";
import { type NodeState, sendPeer } from "./runtime-state.ts";

export interface TopicRelay {
  messages: TopicLine[];
  bytes: number;
  /** Not sent before (monotonic ms). */
  sendAtMs: number;
  /** Dropped since the last frame. */
  dropped: number;
}

export interface TopicLine {
  readonly topic: string;
  /** JSON text. */
  readonly payload: string;
}

const GATHER_MS = 20;
/** Two messages of the largest size. */
const FRAME_BYTES_MAX = 2 * (TOPIC_BYTES_MAX + TOPIC_PAYLOAD_BYTES_MAX);
const FRAME_MESSAGES_MAX = 200;

export function createTopicRelay(): TopicRelay {
  return { messages: [], bytes: 0, sendAtMs: 0, dropped: 0 };
}

/** To the subscribers of this node at once, to those of the others with the next frame, if there is room in it. */
export function publishTopic(state: NodeState, line: TopicLine): void {
  if (state.running === null || state.halted !== null) return;
  state.ports.watchers.topic(line.topic, line.payload);
  const { relay } = state;
  const bytes = utf8Length(line.topic) + utf8Length(line.payload);
  if (relay.bytes + bytes > FRAME_BYTES_MAX || relay.messages.length >= FRAME_MESSAGES_MAX) {
    relay.dropped += 1;
    return;
  }
  relay.messages.push(line);
  relay.bytes += bytes;
}

/** When the relay wants a turn; Infinity = it holds nothing. */
export function relayAtMs({ relay }: NodeState): number {
  return relay.messages.length > 0 ? relay.sendAtMs : Number.POSITIVE_INFINITY;
}

/** Lossy: whoever cannot be reached now hears nothing. */
export function relayTopics(state: NodeState, nowMs: number): void {
  const { relay, config } = state;
  if (nowMs < relayAtMs(state)) return;
  const { messages, dropped } = relay;
  state.relay = { ...createTopicRelay(), sendAtMs: nowMs + GATHER_MS };
  for (const id of config.members) if (id !== config.id) sendPeer(state, id, { kind: "topics", messages });
  if (dropped > 0) state.ports.log("warn", "topic messages dropped", { dropped });
}
