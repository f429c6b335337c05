/**
 * The hibernatable socket of one client: what is sent over it, and its attachment, which says where its watches and its
 * topics stand when a later instance takes it over.
 *
 * K1. Positions are saved in the turn in which frames were sent, so that nothing is sent twice and nothing is left out.
 * K2. The attachment stays far below the 16 384 bytes of the platform: four numbers per watch, a bounded ledger of topics.
 * K3. Whatever is sent before the socket is accepted waits; if it never is, nothing was said.
 */

import { messageParts } from "../api/stream-chunks.ts";
import type { ClientSocket } from "../api/stream-socket.ts";
import type { TopicWindow } from "../api/topic-window.ts";
import type { SavedWatch } from "../watch/hub.ts";

/** Written by {@link HibernatingSocket}, read by a later instance. Numbers only: structured clone keeps them small. */
export interface Attachment {
  readonly watches: readonly number[];
  readonly topics: readonly number[];
}

export interface SocketOptions {
  readonly maxMessageBytes: number | null;
  readonly window: TopicWindow;
  readonly saved: readonly SavedWatch[];
  /** Asked before each message: a client that has stopped answering gets no more. */
  readonly isSilent: (socket: WebSocket) => boolean;
  /** The socket is of no use any more; called at most once. */
  readonly onGone: (reason: string) => void;
}

export class HibernatingSocket implements ClientSocket {
  /** Last time that a message came in, as this instance knows it. */
  heardAtMs = Number.NEGATIVE_INFINITY;
  readonly #options: SocketOptions;
  readonly #saved: Map<number, SavedWatch>;
  #socket: WebSocket | null;
  #waiting: string[] = [];
  #closing: { readonly code: number; readonly reason: string } | null = null;

  /** `socket`: null until {@link accepted}. */
  constructor(socket: WebSocket | null, options: SocketOptions) {
    this.#socket = socket;
    this.#options = options;
    this.#saved = new Map(options.saved.map((watch) => [watch.watchId, watch]));
  }

  /** Whether nothing may be sent any more. */
  get isClosed(): boolean {
    return this.#closing !== null;
  }

  send(text: string): void {
    if (this.#closing !== null) return;
    const socket = this.#socket;
    if (socket === null) {
      this.#waiting.push(text);
      return;
    }
    if (this.#options.isSilent(socket)) {
      this.close(1001, "silent");
      return;
    }
    try {
      for (const part of messageParts(text, this.#options.maxMessageBytes)) socket.send(part);
    } catch {
      // It closed and its event has not come yet.
      this.close(1006, "closed");
    }
  }

  close(code: number, reason: string): void {
    if (this.#closing !== null) return;
    this.#closing = { code, reason };
    if (this.#socket === null) return;
    closeSocket(this.#socket, code, reason);
    this.#options.onGone(reason);
  }

  closeIfSilent(): void {
    if (this.#socket !== null && this.#options.isSilent(this.#socket)) this.close(1001, "silent");
  }

  /** The client closed it, or the connection broke. */
  lost(): void {
    this.#closing ??= { code: 1006, reason: "lost" };
  }

  /** From here on this is a socket: what was sent before leaves now. */
  accepted(socket: WebSocket): void {
    const closing = this.#closing;
    this.#socket = socket;
    this.#closing = null;
    this.save();
    for (const text of this.#waiting) this.send(text);
    this.#waiting = [];
    if (closing !== null) this.close(closing.code, closing.reason);
  }

  watchAdded(watch: SavedWatch): void {
    // Frames that came within the call have moved it already.
    if (!this.#saved.has(watch.watchId)) this.#saved.set(watch.watchId, watch);
    this.save();
  }

  watchRemoved(watchId: number): void {
    this.#saved.delete(watchId);
    this.save();
  }

  /** K1 */
  moved(watches: readonly SavedWatch[]): void {
    this.#saved.clear();
    for (const watch of watches) this.#saved.set(watch.watchId, watch);
    this.save();
  }

  save(): void {
    if (this.#closing !== null) return;
    const attachment: Attachment = {
      watches: [...this.#saved.values()].flatMap(({ watchId, position, ready }) => [
        watchId,
        position.revision,
        position.opIndex,
        ready ? 1 : 0,
      ]),
      topics: this.#options.window.save(),
    };
    this.#socket?.serializeAttachment(attachment);
  }
}

/** Null unless it is what {@link HibernatingSocket.save} writes. */
export function readAttachment(value: unknown): { readonly watches: SavedWatch[]; readonly topics: number[] } | null {
  if (typeof value !== "object" || value === null) return null;
  const { watches, topics } = value as { readonly watches?: unknown; readonly topics?: unknown };
  if (!isNumbers(watches) || !isNumbers(topics)) return null;
  const saved: SavedWatch[] = [];
  for (let at = 0; at + 3 < watches.length; at += 4) {
    const [watchId = 0, revision = 0, opIndex = 0, ready = 0] = watches.slice(at, at + 4);
    saved.push({ watchId, position: { revision, opIndex }, ready: ready === 1 });
  }
  return { watches: saved, topics };
}

function isNumbers(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((item) => typeof item === "number");
}

export function closeSocket(socket: WebSocket, code: number, reason: string): void {
  try {
    // 1006 says that there is nobody to tell.
    socket.close(code === 1006 ? 1011 : code, reason);
  } catch {
    // Closed already.
  }
}
