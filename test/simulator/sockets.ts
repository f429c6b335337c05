/**
 * Connections of watchers, as the platform has them: a hibernatable socket per client, its attachment, and a table of its
 * watches.
 *
 * K1. A socket outlives the eviction of its node, with what the last pump saved; the next instance takes it over
 *     (`restore`). It dies with a crash or an abort of the instance that holds it, and stays with a superseded one.
 * K2. What a node sends over a socket arrives in order, or not at all once the socket has died; it leaves by the output
 *     gate like every answer (turn.ts T1).
 * K3. Neither side need notice at once that the other is gone; a client may go without a word.
 */
import { nextFloat } from "../../src/base/random.ts";
import type { KeyRecord } from "../../src/kv/command.ts";
import type { Watchers } from "../../src/node-object/ports.ts";
import type { EncodeEvent } from "../../src/watch/encoded-event.ts";
import type { Frame } from "../../src/watch/frames.ts";
import type { SavedWatch, Subscribed, Subscription, WatchOptions } from "../../src/watch/hub.ts";
import { push } from "./event-queue.ts";
import { holdOrRelease } from "./gate.ts";
import type { Host, Instance, SocketRequest, World } from "./host.ts";
import { Violation } from "./violation.ts";

export interface Socket {
  readonly id: string;
  readonly host: Host;
  /** Null: before the first request, and while the node is evicted. */
  instance: Instance | null;
  /** The node believes that it is open. */
  open: boolean;
  /** The client listens. */
  heard: boolean;
  /** The table of the node's edge and the attachment. */
  readonly watches: Map<number, { readonly options: WatchOptions; saved: SavedWatch }>;
  readonly client: SocketClient;
  /** Frames of a subscription under way: they follow the reply to it. */
  behindReply: SocketMessage[] | null;
  latestAt: number;
}

export type SocketMessage =
  | { readonly kind: "subscribed"; readonly watchId: number; readonly result: Subscribed }
  | { readonly kind: "frame"; readonly frame: Frame };

export interface SocketClient {
  receive(socket: Socket, message: SocketMessage): void;
  /** The connection broke, or was refused. */
  lost(socket: Socket): void;
}

/** Longest time until a client notices that its connection is gone. */
const NOTICE_MS_MAX = 400;

export function createSocket(host: Host, id: string, client: SocketClient): Socket {
  return {
    id,
    host,
    instance: null,
    open: false,
    heard: true,
    watches: new Map(),
    client,
    behindReply: null,
    latestAt: 0,
  };
}

// --- the client's side -----------------------------------------------------------------------------------------------

export function sendRequest(world: World, socket: Socket, request: SocketRequest): void {
  const { clientDelayMsMin, clientDelayMsMax } = world.timing;
  const delay = clientDelayMsMin + nextFloat(world.random) * (clientDelayMsMax - clientDelayMsMin);
  push(world.queue, { at: world.now + delay, seq: 0, kind: "socket", host: socket.host, socket, request });
}

/** Within a request: asks for a watch, and sends the reply before the first frame. */
export function subscribeOver(
  socket: Socket,
  subscription: Subscription,
  subscribe: (one: Subscription) => Subscribed,
) {
  const { connection, watchId, selector, includeValues, prevValues, filter } = subscription;
  const options: WatchOptions = { connection, watchId, selector, includeValues, prevValues, filter };
  const frames: SocketMessage[] = [];
  socket.behindReply = frames;
  const nowhere = { watchId, position: { revision: 0, opIndex: 0 }, ready: false };
  const watch = { options, saved: nowhere };
  socket.watches.set(watchId, watch);
  const result = subscribe(subscription);
  socket.behindReply = null;
  if (!result.ok) socket.watches.delete(watchId);
  else if (watch.saved === nowhere) watch.saved = { watchId, position: result.position, ready: false };
  const { instance } = socket;
  if (instance === null) return;
  holdOrRelease(instance, { socket, message: { kind: "subscribed", watchId, result } });
  for (const message of frames) holdOrRelease(instance, { socket, message });
}

/** The client goes. `told` false: the node does not hear of it. */
export function leave(world: World, socket: Socket, told: boolean): void {
  socket.heard = false;
  if (!told) return;
  const run: SocketRequest["run"] = (runtime) => {
    closeOnNode(socket);
    runtime.watches.closeConnection(socket.id);
  };
  sendRequest(world, socket, { label: "close", opens: false, watches: false, run });
}

function closeOnNode(socket: Socket): void {
  socket.open = false;
  socket.host.sockets.delete(socket);
  socket.watches.clear();
}

// --- the platform ----------------------------------------------------------------------------------------------------

/** A message that left a node is on its way to the client. */
export function deliverMessage(world: World, socket: Socket, message: SocketMessage): void {
  const { clientDelayMsMin, clientDelayMsMax } = world.timing;
  const delay = clientDelayMsMin + nextFloat(world.random) * (clientDelayMsMax - clientDelayMsMin);
  socket.latestAt = Math.max(socket.latestAt, world.now + delay);
  push(world.queue, {
    at: socket.latestAt,
    seq: 0,
    kind: "act",
    label: "frame",
    run() {
      if (socket.heard) socket.client.receive(socket, message);
    },
  });
}

/** The process behind the socket is gone. What is on its way arrives for a short while yet. */
export function dropSocket(world: World, socket: Socket): void {
  if (socket.open) closeOnNode(socket);
  const notice = nextFloat(world.random) * NOTICE_MS_MAX;
  push(world.queue, {
    at: world.now + notice,
    seq: 0,
    kind: "act",
    label: "connection lost",
    run() {
      if (!socket.heard) return;
      socket.heard = false;
      socket.client.lost(socket);
    },
  });
}

/** The instance ends. Evicted, its sockets wait for the next one; else they die with it, and those that waited as well. */
export function releaseSockets(world: World, instance: Instance, evicted: boolean): void {
  const { host, superseded } = instance;
  for (const socket of [...host.sockets]) {
    const own = socket.instance === instance || (socket.instance === null && !superseded);
    if (!own) continue;
    socket.instance = null;
    if (!evicted) dropSocket(world, socket);
  }
}

// --- the port --------------------------------------------------------------------------------------------------------

export function createWatchers(world: World, instance: Instance): Watchers {
  const { host } = instance;
  return {
    encode: encodeEvent,
    restore() {
      const watches: { readonly options: WatchOptions; readonly saved: SavedWatch }[] = [];
      for (const socket of host.sockets) {
        if (socket.instance !== null) continue;
        socket.instance = instance;
        watches.push(...socket.watches.values());
      }
      return watches;
    },
    send(frames, positionsOf) {
      if (instance.turn === null || instance.turn.died !== null) return;
      const byConnection = new Map<string, Socket>();
      for (const socket of host.sockets) if (socket.instance === instance) byConnection.set(socket.id, socket);
      const touched = new Set<Socket>();
      for (const frame of frames) {
        const socket = byConnection.get(frame.connection);
        if (socket === undefined) {
          world.violation ??= new Violation(
            "watch is restored as it was",
            `a frame for ${frame.connection}, which is gone`,
          );
          return;
        }
        touched.add(socket);
        const message: SocketMessage = { kind: "frame", frame };
        if (socket.behindReply !== null) socket.behindReply.push(message);
        else holdOrRelease(instance, { socket, message });
      }
      for (const socket of touched) savePositions(socket, positionsOf(socket.id));
    },
    renamed() {
      if (instance.turn === null || instance.turn.died !== null) return;
      for (const socket of [...host.sockets]) if (socket.instance === instance) dropSocket(world, socket);
    },
    dropAll() {
      for (const socket of [...host.sockets]) if (socket.instance === instance) dropSocket(world, socket);
    },
    drop(connection) {
      for (const socket of [...host.sockets]) {
        if (socket.instance === instance && socket.id === connection) dropSocket(world, socket);
      }
    },
    topic(topic, payload) {
      if (!world.published.has(`${topic} ${payload}`)) {
        world.violation ??= new Violation("topic message was published", `${topic} ${payload}`);
      }
    },
  };
}

/** The whole attachment is written anew: a watch that is not in it has ended. */
function savePositions(socket: Socket, positions: readonly SavedWatch[]): void {
  const kept = new Set<number>();
  for (const saved of positions) {
    const watch = socket.watches.get(saved.watchId);
    if (watch === undefined) continue;
    watch.saved = saved;
    kept.add(saved.watchId);
  }
  for (const watchId of socket.watches.keys()) if (!kept.has(watchId)) socket.watches.delete(watchId);
}

/** The text of an event: every field in a fixed order, so that equal texts are equal events. */
export const encodeEvent: EncodeEvent = (event, previous, includeValue) => {
  const { revision, op_index, type, key, value, create_revision, version, lease_id, expires_at_ms } = event;
  const fields = [revision, op_index, type, key, create_revision, version, lease_id, expires_at_ms];
  const shown = includeValue ? [value] : [];
  return JSON.stringify([...fields, ...shown, ...(previous === undefined ? [] : [previousFields(previous)])]);
};

function previousFields(previous: KeyRecord | null): unknown {
  if (previous === null) return null;
  const { key, value, create_revision, mod_revision, version, lease_id, expires_at_ms } = previous;
  return [key, value, create_revision, mod_revision, version, lease_id, expires_at_ms];
}
