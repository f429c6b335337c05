/** The WebSocket as the client needs it: what the platform's, and that of common packages, are. */
import type { ResolvedOptions } from "./options.ts";

export interface SocketLike {
  send(text: string): void;
  close(code?: number, reason?: string): void;
  addEventListener(type: "open" | "message" | "close" | "error", listener: (event: unknown) => void): void;
}

/** Opens a socket; throws or fires `close` if it cannot. */
export type OpenSocket = (url: string, protocols: string[]) => SocketLike;

/**
 * Longer messages come in parts (S43): some platforms, and things on the way, close a socket over a message of a few
 * megabytes, and would again after every reconnect.
 */
export const MESSAGE_BYTES_MAX = 1 << 20;

/** The platform's own; null where there is none. */
export function globalSocket(): OpenSocket | null {
  const { WebSocket } = globalThis as { WebSocket?: new (url: string, protocols: string[]) => SocketLike };
  return WebSocket === undefined ? null : (url, protocols) => new WebSocket(url, protocols);
}

/** A token cannot travel as a header here, so it travels as a subprotocol, which no log shows as part of the URL. */
export function openSessionSocket(options: ResolvedOptions, openSocket: OpenSocket): SocketLike {
  const url = `${options.base.replace(/^http/, "ws")}/v1/session?max_message_bytes=${MESSAGE_BYTES_MAX}`;
  return openSocket(url, options.token === null ? [] : ["bearer", options.token]);
}
