/** What speaks over a socket, by its kind. */
import { unreachable } from "../base/assert.ts";
import type { Connection } from "./backend.ts";
import type { ApiContext } from "./caller.ts";
import { Session } from "./session.ts";
import type { ClientSocket, SocketOpening, SocketProtocol } from "./stream-socket.ts";
import { TopicSocket } from "./topic-socket.ts";
import type { TopicWindow } from "./topic-window.ts";
import { WatchSocket } from "./watch-socket.ts";

export interface ProtocolParts {
  readonly socket: ClientSocket;
  readonly connection: Connection;
  /** Of the connection's topics; the host keeps it. */
  readonly window: TopicWindow;
  readonly context: ApiContext;
  readonly principal: string;
}

export function createProtocol(kind: SocketOpening["kind"], parts: ProtocolParts): SocketProtocol {
  switch (kind) {
    case "watch":
      return new WatchSocket(parts);
    case "topic":
      return new TopicSocket(parts);
    case "session":
      return new Session(parts);
    default:
      return unreachable(kind);
  }
}
