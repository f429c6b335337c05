/**
 * The session (`GET /v1/session`, design 01 §7): JSON-RPC 2.0 over one socket, every operation as a method, requests side
 * by side, watches and topics as notifications. Platform-free: text comes in, text goes out.
 *
 * Z1. Every request with an id is answered once, as soon as it is done, in no particular order.
 * Z2. What a request brings about within its call (frames of a new watch, its own message of a topic) is told behind its
 *     answer; after the answer to `watch.cancel` there is no frame of that watch.
 * Z3. Nothing lives here but the number of requests in flight: while one is, the host keeps this instance.
 */
import { ConcordError } from "../base/errors.ts";
import type { Frame } from "../watch/frames.ts";
import type { Connection, TopicMessage } from "./backend.ts";
import type { ApiContext } from "./caller.ts";
import { SESSION_REQUESTS_MAX } from "./limits.ts";
import { quoted } from "./parameters.ts";
import { METHODS, type Method, type MethodScope } from "./session-methods.ts";
import { codeOf, errorText, notificationText, parseRequest, type RpcRequest, resultText } from "./session-rpc.ts";
import type { ClientSocket, SocketProtocol } from "./stream-socket.ts";
import type { TopicWindow } from "./topic-window.ts";
import { frameText } from "./watch-frames.ts";

export class Session implements SocketProtocol {
  readonly #socket: ClientSocket;
  readonly #scope: MethodScope;
  #inFlight = 0;
  /** Notifications that wait for the answer in front of them (Z2). */
  #held: string[] | null = null;
  /** The leader that the client knows of; undefined = not told by this instance. */
  #toldLeader: number | null | undefined;

  constructor(parts: {
    readonly socket: ClientSocket;
    readonly connection: Connection;
    readonly window: TopicWindow;
    readonly context: ApiContext;
    readonly principal: string;
  }) {
    const { socket, ...scope } = parts;
    this.#socket = socket;
    this.#scope = scope;
  }

  greet(): void {
    const { clusterId, node, leader, revision, ready } = this.#scope.context.backend.position();
    this.#toldLeader = leader;
    this.#notify("session", JSON.stringify({ cluster_id: clusterId, node, leader, revision, ready }));
  }

  onText(text: string): void | Promise<void> {
    const parsed = parseRequest(text);
    if (!parsed.ok) {
      this.#socket.send(errorText(parsed.id, parsed.code, parsed.error));
      return;
    }
    const { request } = parsed;
    const method = METHODS.get(request.method);
    if (method === undefined) {
      const detail = `There is no method ${quoted(request.method)}.`;
      this.#socket.send(errorText(request.id, -32601, { code: "not_found", reason: "method", detail }));
    } else if (request.id === null && !method.isNotification) {
      const detail = `${request.method} has an answer: send it with an id.`;
      this.#socket.send(errorText(null, -32600, { code: "invalid_request", reason: "missing_id", detail }));
    } else return this.#answer(method, request);
  }

  onFrames(frames: readonly Frame[]): void {
    for (const frame of frames) {
      const text = frameText(frame);
      if (frame.kind === "leader_changed") this.#tellLeader(frame.leader);
      else this.#notify("watch", `{"watch_id":${frame.watchId},${text.slice(1)}`);
    }
  }

  onTopic(message: TopicMessage): void {
    const admitted = this.#scope.window.admit(message);
    if (admitted !== null) this.#notify("topic", admitted.text);
  }

  #answer(method: Method, request: RpcRequest): void | Promise<void> {
    // An acknowledgement or a cancellation that were refused would be lost: nobody repeats them.
    if (!method.isImmediate && this.#inFlight >= SESSION_REQUESTS_MAX) {
      const detail = `A session has at most ${SESSION_REQUESTS_MAX} requests in flight.`;
      this.#fail(request, new ConcordError({ code: "overloaded", reason: "too_many_requests", detail }));
      return;
    }
    this.#held = [];
    try {
      const result = method.run(this.#scope, request.params);
      if (result instanceof Promise) return this.#answerLater(request, result);
      this.#succeed(request, result);
    } catch (error) {
      this.#fail(request, error);
    } finally {
      const held = this.#held;
      this.#held = null;
      for (const text of held) this.#socket.send(text);
    }
  }

  async #answerLater(request: RpcRequest, pending: Promise<object>): Promise<void> {
    this.#inFlight += 1;
    try {
      this.#succeed(request, await pending);
    } catch (error) {
      this.#fail(request, error);
    } finally {
      this.#inFlight -= 1;
    }
  }

  #succeed(request: RpcRequest, result: object): void {
    if (request.id === null) return;
    const { leader } = this.#scope.context.backend.position();
    if (leader !== null) this.#tellLeader(leader);
    this.#socket.send(resultText(request.id, result));
  }

  #fail(request: RpcRequest, error: unknown): void {
    if (error instanceof ConcordError) {
      this.#socket.send(errorText(request.id, codeOf(error), error.body));
      return;
    }
    this.#scope.context.log("error", "a request of a session failed unexpectedly", {
      method: request.method,
      error: error instanceof Error ? (error.stack ?? error.message) : String(error),
    });
    const detail = "The request failed for a reason of ours; the node's log has it.";
    this.#socket.send(errorText(request.id, -32000, { code: "internal", detail }));
  }

  /** A session without watches hears of leaders with its answers; one with watches as soon as the node does. */
  #tellLeader(leader: number | null): void {
    if (leader === this.#toldLeader) return;
    this.#toldLeader = leader;
    this.#notify("leader_changed", JSON.stringify({ leader }));
  }

  #notify(method: string, params: string): void {
    const text = notificationText(method, params);
    if (this.#held === null) this.#socket.send(text);
    else this.#held.push(text);
  }
}
