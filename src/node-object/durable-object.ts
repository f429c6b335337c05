/**
 * The Durable Object of one node: binds the runtime's ports to the platform and routes what arrives (design 02 §2).
 *
 * N1. Every call into the runtime is one synchronous turn. What throws there ends this instance in the same turn, which
 *     cancels the turn's sends and writes (platform: `ctx.abort`); the next request starts a new one from storage.
 * N2. Everything of a node lives in its instance: objects of one class may share an isolate, so modules hold no state.
 * N3. Peer routes answer only under the header that the Worker removes from outside requests.
 *
 * Must not: decide anything about consensus or data.
 */
import { DurableObject } from "cloudflare:workers";
import { createApi } from "../api/app.ts";
import { problemResponse } from "../api/problem.ts";
import { PEER_HEADER, type SeparateNode, type SeparateVariables, separateNodeOf } from "../api/separate-node.ts";
import type { NodeId } from "../raft/types.ts";
import { NodeBackend } from "./backend.ts";
import { ClientSockets } from "./client-sockets.ts";
import { Connections } from "./connections.ts";
import {
  type NodeName,
  type NodeVariables,
  nodeConfigOf,
  nodesCountOf,
  objectName,
  parseObjectName,
} from "./node-environment.ts";
import { answerErrand, askByFetch, type OwnErrands } from "./peer-errands.ts";
import { answerStatus, type OwnStatus, PeerStatusSource } from "./peer-status.ts";
import { type PeerPlatform, PeerTransport } from "./peer-transport.ts";
import { type PeerNetwork, stubsByUrl } from "./peer-urls.ts";
import type { Ports } from "./ports.ts";
import { createRuntime, type Runtime } from "./runtime.ts";
import { SqliteStorage } from "./sqlite-storage.ts";
import { NodeWake } from "./wake.ts";

/** The object's own name, kept because not everything that wakes an object tells it. */
const NAME_KEY = "object";
/** Long enough for an answer to leave, short against the alarm that starts the next instance (errands.ts). */
const RESTART_AFTER_MS = 50;

/** What a process that serves one node has beside what wrangler.toml describes. */
interface SeparateBindings {
  readonly PEER_NETWORK?: PeerNetwork;
}

interface Node {
  readonly runtime: Runtime;
  readonly transport: PeerTransport;
  readonly wake: NodeWake;
  readonly own: OwnStatus;
  readonly errands: OwnErrands;
  readonly sockets: ClientSockets;
  readonly api: { fetch(request: Request): Response | Promise<Response> };
}

/** What the object needs of its Worker's configuration: its own namespace, and variables that all have a default. */
export interface NodeBindings extends NodeVariables, SeparateVariables, SeparateBindings {
  readonly NODES: DurableObjectNamespace;
}

export class ConcordNode extends DurableObject<NodeBindings> {
  /** Null in an object whose name is not that of a node of this process: it holds nothing and answers nothing. */
  readonly #node: Node | null;
  #ended = false;
  #nowMs = 0;

  constructor(ctx: DurableObjectState, env: NodeBindings) {
    super(ctx, env);
    const nodesCount = nodesCountOf(env);
    const separate = separateNodeOf(env, nodesCount);
    const name = parseObjectName(ctx.id.name ?? ctx.storage.kv.get<string>(NAME_KEY), nodesCount);
    const isOurs = name !== null && (separate === null || separate.id === name.id);
    this.#node = isOurs ? this.#createNode(name, separate) : null;
  }

  override async fetch(request: Request): Promise<Response> {
    const node = this.#node;
    if (node === null) return problemResponse({ code: "not_found", detail: "There is no node of that name." });
    const url = new URL(request.url);
    if (!url.pathname.startsWith("/peer/")) return await node.api.fetch(request);
    if (!request.headers.has(PEER_HEADER)) return new Response(null, { status: 404 });
    switch (url.pathname) {
      case "/peer/message":
        return await node.transport.onMessageRequest(request);
      case "/peer/stream":
        return node.transport.onStreamRequest(request);
      case "/peer/admin":
        return await answerErrand(request, node.errands);
      default:
        return answerStatus(url, node.own) ?? new Response(null, { status: 404 });
    }
  }

  override alarm(): void {
    const node = this.#node;
    if (node === null) return;
    node.wake.alarmFired();
    this.#turn(() => node.runtime.onAlarm());
  }

  override webSocketMessage(socket: WebSocket, data: string | ArrayBuffer): void {
    const node = this.#node;
    if (node === null) return;
    const client = node.sockets.idOf(socket);
    if (client === null) node.transport.onSocketMessage(socket, data);
    else node.sockets.onMessage(socket, client, data);
  }

  override webSocketClose(socket: WebSocket, code: number): void {
    this.#forget(socket);
    // The other side sees a clean end only if this side answers; these codes may not be sent (platform: known issues).
    if (code === 1006 || code === 1015) return;
    try {
      // 1005: the client named no code, as by a plain `close()`.
      socket.close(code === 1005 ? 1000 : code);
    } catch {
      // Already closed on both sides.
    }
  }

  override webSocketError(socket: WebSocket): void {
    // A stream is dialled again by whoever needs it; a client comes again.
    this.#forget(socket);
  }

  /** None for a socket that an abort has taken from the object: its close is still told, its tags are gone. */
  #tagsOf(socket: WebSocket): string[] {
    try {
      return this.ctx.getTags(socket);
    } catch {
      return [];
    }
  }

  #forget(socket: WebSocket): void {
    const client = this.#node?.sockets.idOf(socket) ?? null;
    if (client !== null) this.#node?.sockets.onClosed(client);
  }

  #createNode(name: NodeName, separate: SeparateNode | null): Node {
    const { ctx } = this;
    if (ctx.storage.kv.get(NAME_KEY) === undefined) ctx.storage.kv.put(NAME_KEY, objectName(name));
    const config = nodeConfigOf(this.env, name.id, crypto.getRandomValues(new Uint32Array(1))[0] ?? 0);
    const turn = <T>(work: () => T): T => this.#turn(work);
    const nowMs = () => this.#monotonicMs();
    const stub = this.#stubsOf(name.cluster, separate);
    const log: Ports["log"] = (level, message, fields) => {
      console[level](JSON.stringify({ level, message, object: objectName(name), ...fields }));
    };
    const storage = new SqliteStorage(ctx.storage, turn);
    const wake = new NodeWake({
      nowMs,
      setAlarm: (atWallMs) => ctx.storage.setAlarm(atWallMs),
      deleteAlarm: () => ctx.storage.deleteAlarm(),
      onTimer: () => turn(() => runtime.onTimer()),
    });
    const transport = new PeerTransport(name.id, config.members, {
      stub,
      acceptWebSocket: (socket, tags) => ctx.acceptWebSocket(socket, tags),
      getWebSockets: (tag) => ctx.getWebSockets(tag),
      nowMs,
      receive: (envelope) => turn(() => runtime.onPeer(envelope)),
      log,
    });
    const connections = new Connections(log);
    const sockets = new ClientSockets(connections, {
      sql: ctx.storage.sql,
      acceptWebSocket: (socket, tags) => ctx.acceptWebSocket(socket, tags),
      getWebSockets: () => ctx.getWebSockets(),
      tagsOf: (socket) => this.#tagsOf(socket),
      answerPings: () => {
        if (ctx.getWebSocketAutoResponse() !== null) return;
        ctx.setWebSocketAutoResponse(new WebSocketRequestResponsePair("ping", "pong"));
      },
      lastPingMs: (socket) => ctx.getWebSocketAutoResponseTimestamp(socket)?.getTime() ?? null,
      nowMs,
    });
    const clock = { nowMs, wallMs: () => Date.now() };
    const abort = (reason: string) => this.#abort(reason);
    // What was answered must have left the object: an abort breaks every connection.
    const restart = (reason: string) => void setTimeout(() => this.#abort(reason), RESTART_AFTER_MS);
    const runtime: Runtime = createRuntime(config, {
      storage,
      transport,
      wake,
      clock,
      abort,
      restart,
      log,
      watchers: connections,
    });
    const own: OwnStatus = {
      report: () => turn(() => runtime.report()),
      digestAt: (index) => turn(() => runtime.digestAt(index)),
    };
    const errands: OwnErrands = (errand, timeoutMs) =>
      new Promise((respond) => turn(() => runtime.administer({ errand, timeoutMs, respond })));
    const backend = new NodeBackend({
      runtime,
      turn,
      clusterName: name.cluster,
      members: config.members,
      source: new PeerStatusSource(name.id, own, stub),
      ask: askByFetch(name.id, errands, stub),
      nowMs,
      connections,
      wait: (ms) => scheduler.wait(ms),
    });
    connections.attachRuntime(runtime, turn);
    sockets.serve({ backend, log });
    log("info", "instance started", {});
    turn(() => {
      sockets.load();
      runtime.start();
      connections.endUnrestored();
    });
    return {
      runtime,
      transport,
      wake,
      own,
      errands,
      sockets,
      api: createApi(backend, { internal: true, log, sockets }),
    };
  }

  /** How peers are reached: objects beside this one, or processes of their own. */
  #stubsOf(cluster: string, separate: SeparateNode | null): PeerPlatform["stub"] {
    if (separate !== null) return stubsByUrl(separate, cluster, this.env.PEER_NETWORK);
    return (id: NodeId) => {
      const peers = this.#namespace();
      return peers.get(peers.idFromName(objectName({ cluster, id })));
    };
  }

  /** One synchronous call into the runtime (N1). */
  #turn<T>(work: () => T): T {
    if (this.#ended) throw new Error("this instance of the node has ended");
    try {
      return work();
    } catch (error) {
      const reason = error instanceof Error ? (error.stack ?? error.message) : String(error);
      console.error(JSON.stringify({ level: "error", message: "turn failed", object: this.ctx.id.name, reason }));
      this.#abort(reason);
      throw error;
    }
  }

  #abort(reason: string): void {
    if (this.#ended) return;
    this.#ended = true;
    this.ctx.abort(reason);
  }

  /** Peers live in the jurisdiction of this object: it is part of their ids. */
  #namespace(): DurableObjectNamespace {
    const jurisdiction = this.ctx.id.jurisdiction as DurableObjectJurisdiction | undefined;
    return jurisdiction === undefined ? this.env.NODES : this.env.NODES.jurisdiction(jurisdiction);
  }

  /** Date.now() may be set back; a node's own clock never is. */
  #monotonicMs(): number {
    this.#nowMs = Math.max(this.#nowMs, Date.now());
    return this.#nowMs;
  }
}
