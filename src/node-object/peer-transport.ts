/**
 * Messages between nodes: WebSocket streams opened by fetch, and plain fetch (design 02 §2, Transport).
 *
 * M1. `send` hands the frame to the platform before it returns. The output gate is captured there, so a frame sent
 *     before a turn's first write leaves at once and one sent after it waits for the commit. Nothing is queued here.
 * M2. One open stream serves both directions: dialled lazily by whoever speaks first, accepted hibernatable by the
 *     other side (platform: an outgoing socket cannot hibernate, an accepted one can).
 * M3. While there is no stream, and for elections and `hello`, frames go by plain fetch; an answer is a message of its
 *     own. Fetches per peer are bounded; what is over the bound is dropped, because Raft repeats.
 * M4. Every attempt takes a fresh stub: one that saw its object reset fails for ever.
 * M5. Whoever sends a frame from node n arrives on a channel that was opened as node n, or is dropped.
 *
 * Must not: interpret messages, retry a frame, or keep timers (an idle node has none).
 */
import { PEER_HEADER } from "../api/separate-node.ts";
import { unreachable } from "../base/assert.ts";
import type { NodeId } from "../raft/types.ts";
import { decodeFrame, encodeFrames } from "./codec.ts";
import type { PeerBody, PeerEnvelope, Transport } from "./ports.ts";

const FETCHES_IN_FLIGHT_MAX = 64;
/** A fetch that takes longer is given up when its place is wanted: a hung peer must not hold places for ever. */
const FETCH_MS_MAX = 5000;
const DIAL_BACKOFF_MS_MIN = 20;
const DIAL_BACKOFF_MS_MAX = 1000;
/** Nodes that talk answer each other; a stream that stays silent so long under steady sending is half open. */
const STREAM_SILENCE_MS_MAX = 2000;
/** So much longer when the silence is noticed for the first time. */
const STREAM_SECOND_LOOK_MS = 500;

/** What this file needs of the Durable Object. */
export interface PeerPlatform {
  /** A fresh stub of a node of this cluster. */
  stub(id: NodeId): { fetch(url: string, init?: RequestInit): Promise<Response> };
  /** Accepts a socket that survives hibernation, under a tag. */
  acceptWebSocket(socket: WebSocket, tags: string[]): void;
  getWebSockets(tag: string): WebSocket[];
  nowMs(): number;
  /** One turn of the node for each message that arrived. */
  receive(envelope: PeerEnvelope): void;
  log(
    level: "info" | "warn",
    message: string,
    fields: Readonly<Record<string, string | number | boolean | null>>,
  ): void;
}

interface Peer {
  /** The open stream to this peer, whoever dialled it. */
  stream: WebSocket | null;
  dial: Attempt | null;
  dialAtMs: number;
  backoffMs: number;
  readonly posts: Set<Attempt>;
  /** When the first frame went out to which nothing has come back yet. */
  unansweredSinceMs: number | null;
  /** The silence was noticed once and given a second look. */
  suspected: boolean;
  sentAtMs: number;
  /** A peer that stays away is reported once, until it is heard again. */
  reported: boolean;
}

interface Attempt {
  readonly sinceMs: number;
  readonly controller: AbortController;
}

export class PeerTransport implements Transport {
  readonly #self: NodeId;
  readonly #platform: PeerPlatform;
  readonly #peers = new Map<NodeId, Peer>();
  /** The node sleeps: no stream is opened. */
  #resting = false;

  constructor(self: NodeId, members: readonly NodeId[], platform: PeerPlatform) {
    this.#self = self;
    this.#platform = platform;
    for (const id of members) {
      if (id === self) continue;
      this.#peers.set(id, {
        stream: null,
        dial: null,
        dialAtMs: 0,
        backoffMs: DIAL_BACKOFF_MS_MIN,
        posts: new Set(),
        unansweredSinceMs: null,
        suspected: false,
        sentAtMs: 0,
        reported: false,
      });
    }
  }

  send(envelope: PeerEnvelope): void {
    const peer = this.#peers.get(envelope.to);
    if (peer === undefined) return;
    for (const frame of encodeFrames(envelope)) this.#sendFrame(envelope, peer, frame);
  }

  #sendFrame({ to, body }: PeerEnvelope, peer: Peer, frame: string): void {
    if (usesStream(body) && !this.#resting) {
      if (this.#sendOnStream(to, peer, frame)) return;
      this.#dial(to, peer);
    }
    this.#post(to, peer, frame);
  }

  setResting(resting: boolean): void {
    this.#resting = resting;
    if (!resting) return;
    for (const peer of this.#peers.values()) {
      // The end that was accepted hibernates by itself; both are closed, so that neither side believes in half a stream.
      if (peer.stream !== null) closeQuietly(peer.stream);
      peer.stream = null;
      peer.dial?.controller.abort();
      peer.dial = null;
      peer.unansweredSinceMs = null;
      peer.suspected = false;
    }
  }

  /** `POST /peer/message`: one frame. */
  async onMessageRequest(request: Request): Promise<Response> {
    const from = this.#peerOf(request);
    if (from === null) return new Response(null, { status: 404 });
    let frame: string;
    try {
      frame = await request.text();
    } catch {
      // The sender ended within its request: the frame is lost, as any frame may be.
      return new Response(null, { status: 400 });
    }
    this.#arrived(from, frame);
    return new Response(null, { status: 204 });
  }

  /** `GET /peer/stream` with an upgrade: the peer dials. */
  onStreamRequest(request: Request): Response {
    const from = this.#peerOf(request);
    const peer = from === null ? undefined : this.#peers.get(from);
    if (from === null || peer === undefined) return new Response(null, { status: 404 });
    if (request.headers.get("upgrade")?.toLowerCase() !== "websocket") return new Response(null, { status: 426 });
    // A peer that dials again has lost its end of any earlier stream.
    for (const earlier of this.#platform.getWebSockets(tagOf(from))) {
      if (peer.stream === earlier) peer.stream = null;
      closeQuietly(earlier);
    }
    const pair = new WebSocketPair();
    this.#platform.acceptWebSocket(pair[1], [tagOf(from)]);
    pair[1].serializeAttachment({ peer: from });
    return new Response(null, { status: 101, webSocket: pair[0] });
  }

  /** A message on a socket that {@link onStreamRequest} accepted, perhaps by an earlier instance of this object. */
  onSocketMessage(socket: WebSocket, data: string | ArrayBuffer): void {
    const from = peerOfSocket(socket);
    const peer = from === null ? undefined : this.#peers.get(from);
    if (from === null || peer === undefined) return;
    this.#heard(peer);
    this.#arrived(from, data);
  }

  #heard(peer: Peer): void {
    peer.unansweredSinceMs = null;
    peer.suspected = false;
    peer.backoffMs = DIAL_BACKOFF_MS_MIN;
    peer.reported = false;
  }

  #arrived(from: NodeId, data: unknown): void {
    const decoded = typeof data === "string" ? decodeFrame(data) : ({ ok: false, reason: "not text" } as const);
    if (!decoded.ok) {
      this.#platform.log("warn", "peer frame refused", { from, reason: decoded.reason });
    } else if (decoded.envelope.from !== from || decoded.envelope.to !== this.#self) {
      this.#platform.log("warn", "peer frame of another node", {
        from,
        claimed: decoded.envelope.from,
        to: decoded.envelope.to,
      });
    } else this.#platform.receive(decoded.envelope);
  }

  #peerOf(request: Request): NodeId | null {
    const id = Number(request.headers.get(PEER_HEADER) ?? "");
    return this.#peers.has(id) ? id : null;
  }

  #sendOnStream(id: NodeId, peer: Peer, frame: string): boolean {
    if (peer.stream?.readyState !== WebSocket.OPEN) peer.stream = this.#acceptedStream(id);
    if (peer.stream === null) return false;
    const nowMs = this.#platform.nowMs();
    // After a pause the silence begins anew: the last frame before it may have been one that nobody answers.
    if (nowMs - peer.sentAtMs > STREAM_SILENCE_MS_MAX) {
      peer.unansweredSinceMs = null;
      peer.suspected = false;
    }
    peer.sentAtMs = nowMs;
    peer.unansweredSinceMs ??= nowMs;
    let silentMs = nowMs - peer.unansweredSinceMs;
    if (silentMs > STREAM_SILENCE_MS_MAX && !peer.suspected) {
      // Our own thread may have stalled, with the answers queued behind this turn: one more wait decides.
      peer.suspected = true;
      peer.unansweredSinceMs = nowMs - STREAM_SILENCE_MS_MAX + STREAM_SECOND_LOOK_MS;
      silentMs = nowMs - peer.unansweredSinceMs;
    }
    try {
      if (silentMs <= STREAM_SILENCE_MS_MAX) {
        peer.stream.send(frame);
        return true;
      }
      this.#report(id, peer, "silent");
    } catch (error) {
      // The socket closed and its event has not come yet. The frame goes by fetch, the stream is dialled again.
      this.#report(id, peer, String(error));
    }
    closeQuietly(peer.stream);
    peer.stream = null;
    peer.unansweredSinceMs = null;
    peer.suspected = false;
    return false;
  }

  #acceptedStream(id: NodeId): WebSocket | null {
    return this.#platform.getWebSockets(tagOf(id)).find((socket) => socket.readyState === WebSocket.OPEN) ?? null;
  }

  #dial(id: NodeId, peer: Peer): void {
    const nowMs = this.#platform.nowMs();
    if (peer.dial !== null && nowMs - peer.dial.sinceMs > FETCH_MS_MAX) {
      peer.dial.controller.abort();
      peer.dial = null;
    }
    if (peer.dial !== null || nowMs < peer.dialAtMs) return;
    const attempt: Attempt = { sinceMs: nowMs, controller: new AbortController() };
    peer.dial = attempt;
    const headers = { upgrade: "websocket", [PEER_HEADER]: String(this.#self) };
    this.#platform
      .stub(id)
      .fetch("http://node/peer/stream", { headers, signal: attempt.controller.signal })
      .then(
        (response) => this.#dialled(id, peer, attempt, response.webSocket, `status ${response.status}`),
        (error: unknown) => this.#dialled(id, peer, attempt, null, String(error)),
      );
  }

  #dialled(id: NodeId, peer: Peer, attempt: Attempt, stream: WebSocket | null, reason: string): void {
    const wanted = peer.dial === attempt;
    if (wanted) peer.dial = null;
    if (stream === null) {
      if (wanted) this.#backOff(peer);
      this.#report(id, peer, reason);
      return;
    }
    const ended = () => {
      if (peer.stream !== stream) return;
      peer.stream = null;
      // A stream that opens and closes at once must not make a loop of dials.
      this.#backOff(peer);
      closeQuietly(stream);
    };
    stream.addEventListener("message", (event) => {
      this.#heard(peer);
      this.#arrived(id, event.data);
    });
    stream.addEventListener("close", ended);
    stream.addEventListener("error", ended);
    stream.accept();
    if (!wanted) {
      closeQuietly(stream);
      return;
    }
    peer.stream = stream;
    peer.unansweredSinceMs = null;
    peer.suspected = false;
  }

  #backOff(peer: Peer): void {
    peer.dialAtMs = this.#platform.nowMs() + peer.backoffMs;
    peer.backoffMs = Math.min(peer.backoffMs * 2, DIAL_BACKOFF_MS_MAX);
  }

  #report(id: NodeId, peer: Peer, reason: string): void {
    if (peer.reported) return;
    peer.reported = true;
    this.#platform.log("info", "peer not reached", { peer: id, reason });
  }

  #post(id: NodeId, peer: Peer, frame: string): void {
    const nowMs = this.#platform.nowMs();
    if (peer.posts.size >= FETCHES_IN_FLIGHT_MAX) {
      const [oldest] = peer.posts;
      if (oldest === undefined || nowMs - oldest.sinceMs <= FETCH_MS_MAX) return;
      oldest.controller.abort();
      peer.posts.delete(oldest);
    }
    const attempt: Attempt = { sinceMs: nowMs, controller: new AbortController() };
    peer.posts.add(attempt);
    const settled = () => {
      peer.posts.delete(attempt);
    };
    const headers = { [PEER_HEADER]: String(this.#self) };
    const init = { method: "POST", headers, body: frame, signal: attempt.controller.signal };
    this.#platform
      .stub(id)
      .fetch("http://node/peer/message", init)
      .then((response) => {
        // A cluster that never forms has no streams: what keeps its nodes apart has to show here.
        if (!response.ok) this.#report(id, peer, `status ${response.status}`);
        return response.body?.cancel();
      })
      .then(settled, settled);
  }
}

/** Elections and `hello` are rare and must not keep a stream open; all else is frequent. */
function usesStream(body: PeerBody): boolean {
  // What is large or rare goes apart from heartbeats.
  if (body.kind === "snapshot_request" || body.kind === "snapshot_chunk") return false;
  if (body.kind !== "raft") return body.kind !== "hello";
  switch (body.message.kind) {
    case "pre_vote":
    case "pre_vote_reply":
    case "vote":
    case "vote_reply":
    case "wake":
    case "timeout_now":
      return false;
    case "append":
    case "append_reply":
    case "read_index":
    case "read_index_reply":
    case "quiesce":
    case "snapshot_offer":
      return true;
    default:
      return unreachable(body.message);
  }
}

function tagOf(id: NodeId): string {
  return `peer:${id}`;
}

function peerOfSocket(socket: WebSocket): NodeId | null {
  const attachment: unknown = socket.deserializeAttachment();
  if (typeof attachment !== "object" || attachment === null || !("peer" in attachment)) return null;
  return typeof attachment.peer === "number" ? attachment.peer : null;
}

function closeQuietly(socket: WebSocket): void {
  try {
    socket.close(1000);
  } catch {
    // Closing a socket that is already closed throws; closed is what was wanted.
  }
}
