/**
 * One watch over one WebSocket (`GET /v1/watch`): frames out, acknowledgements and wishes for progress in.
 *
 * Must not: keep anything; a Durable Object builds it anew after hibernation.
 */

import type { Frame } from "../watch/frames.ts";
import type { Connection, TopicMessage } from "./backend.ts";
import { parsePosition } from "./position-text.ts";
import type { ClientSocket, SocketProtocol } from "./stream-socket.ts";
import { frameText, isLastFrame } from "./watch-frames.ts";

/** The one watch of such a socket. */
export const WATCH_ID = 0;

/** Nothing that a client may say here is longer. */
const REQUEST_CHARACTERS_MAX = 256;
const EXPECTED = 'send {"ack":"<position>"} or {"progress":true}';

export class WatchSocket implements SocketProtocol {
  readonly #socket: ClientSocket;
  readonly #connection: Connection;

  constructor(parts: { readonly socket: ClientSocket; readonly connection: Connection }) {
    this.#socket = parts.socket;
    this.#connection = parts.connection;
  }

  greet(): void {
    // The first frame says everything.
  }

  onText(text: string): void {
    const request = requestOf(text);
    if (request === null) this.#socket.close(1008, EXPECTED);
    else if (request.kind === "progress") this.#connection.requestProgress(WATCH_ID);
    else {
      const position = parsePosition(request.ack);
      if (position === null) this.#socket.close(1008, "acknowledge a position as it was received");
      else this.#connection.acknowledge(WATCH_ID, position);
    }
  }

  onFrames(frames: readonly Frame[]): void {
    for (const frame of frames) {
      this.#socket.send(frameText(frame));
      if (isLastFrame(frame)) this.#socket.close(1000, frame.kind);
    }
  }

  onTopic(_message: TopicMessage): void {
    // Such a socket subscribes to no topic.
  }
}

type Request = { readonly kind: "ack"; readonly ack: string } | { readonly kind: "progress" };

function requestOf(text: string): Request | null {
  const member = onlyMember(text, REQUEST_CHARACTERS_MAX);
  if (member === null) return null;
  const [name, value] = member;
  if (name === "ack" && typeof value === "string") return { kind: "ack", ack: value };
  return name === "progress" && value === true ? { kind: "progress" } : null;
}

/** Name and value of a JSON object with exactly one member; null for any other text. */
export function onlyMember(text: string, charactersMax: number): readonly [string, unknown] | null {
  if (text.length > charactersMax) return null;
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return null;
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) return null;
  const [member, ...others] = Object.entries(value);
  return member === undefined || others.length > 0 ? null : member;
}
