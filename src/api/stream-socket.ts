/**
 * Sockets of clients as the API sees them: what a route asks of its host to open one, and what speaks over it. Types
 * only: a Durable Object accepts sockets that outlive its memory, a plain test hands over two functions.
 */
import type { ConnectionSink, ConnectionSubscription } from "./backend.ts";

/** A host that can answer an upgrade. */
export interface SocketHost {
  /**
   * Answers 101 and serves the socket from then on.
   * @throws ConcordError when the watch or the topic is refused; no socket is open then.
   */
  open(opening: SocketOpening): Response;
}

export type SocketOpening = SocketTerms &
  (
    | { readonly kind: "watch"; readonly subscription: ConnectionSubscription }
    | { readonly kind: "topic"; readonly topic: string }
    | { readonly kind: "session" }
  );

export interface SocketTerms {
  readonly principal: string;
  /** Longer messages leave in parts (stream-chunks.ts); null = never. */
  readonly maxMessageBytes: number | null;
}

/** The client's end. Neither call throws. */
export interface ClientSocket {
  send(text: string): void;
  /** Nothing is sent behind this. */
  close(code: number, reason: string): void;
}

/** What speaks over a socket. It is built anew after hibernation and keeps nothing that would be missed then. */
export interface SocketProtocol extends ConnectionSink {
  /** The socket is open, for the first time. */
  greet(): void;
  /** Resolves when everything that the message asked for is answered. Never rejects. */
  onText(text: string): void | Promise<void>;
}
