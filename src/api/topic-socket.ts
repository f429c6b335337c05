/**
 * One topic over one WebSocket (`GET /v1/topics/{topic}`): messages out, acknowledgements in.
 *
 * Must not: keep anything but the window, which its host saves.
 */
import type { Frame } from "../watch/frames.ts";
import type { TopicMessage } from "./backend.ts";
import type { ClientSocket, SocketProtocol } from "./stream-socket.ts";
import type { TopicWindow } from "./topic-window.ts";
import { onlyMember } from "./watch-socket.ts";

/** Nothing that a client may say here is longer. */
const REQUEST_CHARACTERS_MAX = 64;

export class TopicSocket implements SocketProtocol {
  readonly #socket: ClientSocket;
  readonly #window: TopicWindow;

  constructor(parts: { readonly socket: ClientSocket; readonly window: TopicWindow }) {
    this.#socket = parts.socket;
    this.#window = parts.window;
  }

  greet(): void {
    // Messages say everything.
  }

  onText(text: string): void {
    const [name, seq] = onlyMember(text, REQUEST_CHARACTERS_MAX) ?? [];
    if (name === "ack" && typeof seq === "number") this.#window.acknowledge(seq);
    else this.#socket.close(1008, 'send {"ack":<seq>}');
  }

  onFrames(_frames: readonly Frame[]): void {
    // Such a socket watches nothing.
  }

  onTopic(message: TopicMessage): void {
    const admitted = this.#window.admit(message);
    if (admitted !== null) this.#socket.send(admitted.text);
  }
}
