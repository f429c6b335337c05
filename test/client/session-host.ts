/** The API's own sessions for a client in the same process: sockets without a network, to one node. */
import type { ApiContext } from "../../src/api/caller.ts";
import { messageParts } from "../../src/api/stream-chunks.ts";
import { createProtocol } from "../../src/api/stream-protocols.ts";
import { TopicWindow } from "../../src/api/topic-window.ts";
import type { OpenSocket, SocketLike } from "../../src/client/index.ts";
import type { MachineBackend } from "../api/machine-backend.ts";

type Listener = (event: unknown) => void;

export class SessionHost {
  readonly #context: ApiContext;
  readonly #backend: MachineBackend;
  readonly #sockets = new Set<() => void>();
  openedCount = 0;
  /** Messages from the node in parts of so many bytes. */
  messageBytesMax: number | null = null;

  constructor(backend: MachineBackend) {
    this.#backend = backend;
    this.#context = { backend, log: () => {} };
  }

  breakAll(): void {
    for (const fail of [...this.#sockets]) fail();
  }

  readonly openSocket: OpenSocket = (url) => {
    this.openedCount += 1;
    const max = this.messageBytesMax ?? Number(new URL(url).searchParams.get("max_message_bytes"));
    const listeners = new Map<string, Listener[]>();
    const fire = (type: string, event: object) => {
      for (const listener of listeners.get(type) ?? []) listener(event);
    };
    let isOpen = true;
    const deliver = (text: string) => {
      for (const part of messageParts(text, max)) {
        queueMicrotask(() => {
          if (isOpen) fire("message", { data: part });
        });
      }
    };
    const end = (code: number) => {
      if (!isOpen) return;
      isOpen = false;
      this.#sockets.delete(fail);
      connection.close();
      fire("close", { code });
    };
    const fail = () => end(1006);
    this.#sockets.add(fail);
    const connection = this.#backend.connect({
      onFrames: (frames) => protocol.onFrames(frames),
      onTopic: (message) => protocol.onTopic(message),
    });
    const protocol = createProtocol("session", {
      socket: { send: deliver, close: end },
      connection,
      window: new TopicWindow(),
      context: this.#context,
      principal: "root",
    });
    queueMicrotask(() => {
      fire("open", {});
      protocol.greet();
    });
    const socket: SocketLike = {
      addEventListener: (type, listener) => void listeners.set(type, [...(listeners.get(type) ?? []), listener]),
      send: (text) => {
        if (text === "ping") deliver("pong");
        else queueMicrotask(() => void protocol.onText(text));
      },
      close: () => end(1000),
    };
    return socket;
  };
}
