/**
 * Clients that watch: each holds a connection to some node with one or two watches, acknowledges late, stops reading for a
 * while, goes away with or without a word, comes back to any node behind what it has seen, and lists anew where it is told
 * that history is gone. Everything that it is told is checked at once (watch-check.ts).
 */
import { ERROR_CODES } from "../../src/base/errors.ts";
import { nextFloat, nextInteger } from "../../src/base/random.ts";
import { comparePositions, endOf, type Position } from "../../src/kv/position.ts";
import type { Runtime } from "../../src/node-object/runtime.ts";
import type { Frame } from "../../src/watch/frames.ts";
import type { Subscribed, Subscription } from "../../src/watch/hub.ts";
import { callRead } from "./calls.ts";
import { chooseSelector, pick } from "./choices.ts";
import { isTainted } from "./damage.ts";
import { hostOf, type World } from "./host.ts";
import { createSocket, leave, type Socket, type SocketMessage, sendRequest, subscribeOver } from "./sockets.ts";
import { Violation } from "./violation.ts";
import { checkFrame, type Sight } from "./watch-check.ts";
import { anyNode, newestRevision, type Workload } from "./workload.ts";
import { scheduleAct } from "./world.ts";

export interface WatchClients {
  readonly workload: Workload;
  readonly clients: readonly WatchClient[];
  /** The end of the seed: nobody leaves or pauses any more. */
  calm: boolean;
  /** Everybody asks again and again how far it is. */
  asking: boolean;
  readonly counts: WatchCounts;
}

/** What happened to watchers in this seed. */
export interface WatchCounts {
  events: number;
  parts: number;
  resumed: number;
  compacted: number;
  slow: number;
}

interface WatchClient {
  readonly all: WatchClients;
  readonly name: string;
  /** The node that it prefers: every node has somebody who watches it. */
  readonly home: number;
  readonly watchers: readonly Watcher[];
  socket: Socket | null;
  nextWatchId: number;
  pausedUntil: number;
  readonly inbox: { readonly socket: Socket; readonly message: SocketMessage }[];
}

interface Watcher extends Sight {
  /** Of the watch on the present connection; null = there is none. */
  watchId: number | null;
  /** False until a node has told where the watch begins. */
  placed: boolean;
  readonly begins: "now" | "past" | "future";
  acknowledging: boolean;
  listing: boolean;
}

const RETRY_MS_MAX = 80;
/** A node that cannot serve is left alone for longer. */
const UNREADY_MS_MAX = 600;
const WHIM_MS_MEAN = 900;
const ACK_MS_MAX = 60;
const PROGRESS_EVERY_MS = 250;
const LIST_TIMEOUT_MS = 2000;

export function startWatchClients(workload: Workload, count: number): WatchClients {
  const clients: WatchClient[] = [];
  const counts = { events: 0, parts: 0, resumed: 0, compacted: 0, slow: 0 };
  const all: WatchClients = { workload, clients, calm: false, asking: false, counts };
  const { world } = workload;
  for (let number = 0; number < count; number += 1) {
    const home = (number % world.hosts.length) + 1;
    const name = `watcher ${number + 1}`;
    const watchers = Array.from({ length: nextInteger(world.random, 1, 2) }, (_, at) => {
      return createWatcher(workload, `${name}.${at}`);
    });
    const client: WatchClient = {
      all,
      name,
      home,
      watchers,
      socket: null,
      nextWatchId: 0,
      pausedUntil: 0,
      inbox: [],
    };
    clients.push(client);
    connectSoon(client);
    followWhim(client);
  }
  return all;
}

function createWatcher(workload: Workload, name: string): Watcher {
  const { random } = workload.world;
  const filter = pick(random, [null, null, null, "puts", "deletes"] as const);
  const selector = chooseSelector(workload);
  return {
    name,
    wants: { selector, includeValues: nextFloat(random) < 0.8, prevValues: nextFloat(random) < 0.5, filter },
    position: endOf(0),
    ready: false,
    events: 0,
    watchId: null,
    placed: false,
    begins: pick(random, ["now", "past", "past", "future"] as const),
    acknowledging: false,
    listing: false,
  };
}

// --- coming and going ------------------------------------------------------------------------------------------------

function connectSoon(client: WatchClient, pauseMsMax = RETRY_MS_MAX): void {
  const { world } = client.all.workload;
  scheduleAct(world, world.now + nextFloat(world.random) * pauseMsMax, "connect", () => connect(client));
}

function connect(client: WatchClient): void {
  const { world } = client.all.workload;
  const node = nextFloat(world.random) < 0.6 ? client.home : anyNode(world);
  const socket = createSocket(hostOf(world, node), `${client.name} ${world.nextSerial}`, {
    receive: (from, message) => receive(client, from, message),
    lost: (from) => onLost(client, from),
  });
  world.nextSerial += 1;
  client.socket = socket;
  for (const watcher of client.watchers) watcher.watchId = null;
  sendRequest(world, socket, {
    label: "open",
    opens: true,
    watches: true,
    run(runtime) {
      if (client.socket !== socket) return;
      for (const watcher of client.watchers) if (!watcher.listing) subscribe(client, watcher, socket, runtime);
    },
  });
}

function onLost(client: WatchClient, socket: Socket): void {
  if (client.socket !== socket) return;
  client.socket = null;
  connectSoon(client, UNREADY_MS_MAX);
}

function subscribe(client: WatchClient, watcher: Watcher, socket: Socket, runtime: Runtime): void {
  const { world } = client.all.workload;
  const watchId = client.nextWatchId;
  client.nextWatchId += 1;
  watcher.watchId = watchId;
  watcher.ready = false;
  const start = watcher.placed ? { fromRevision: null, afterPosition: watcher.position } : firstStart(world, watcher);
  if (watcher.placed) client.all.counts.resumed += 1;
  const subscription: Subscription = { connection: socket.id, watchId, ...watcher.wants, ...start };
  subscribeOver(socket, subscription, (one) => runtime.watches.subscribe(one));
}

function firstStart(world: World, { begins }: Watcher): { readonly fromRevision: number | null } {
  const newest = newestRevision(world);
  switch (begins) {
    case "now":
      return { fromRevision: null };
    case "past":
      return { fromRevision: nextInteger(world.random, 1, Math.max(1, newest)) };
    case "future":
      return { fromRevision: newest + nextInteger(world.random, 1, 20) };
  }
}

/** Now and then something that a client does. */
function followWhim(client: WatchClient): void {
  const { world } = client.all.workload;
  const delay = -Math.log(1 - nextFloat(world.random)) * WHIM_MS_MEAN;
  scheduleAct(world, world.now + delay, "whim", () => {
    if (client.all.calm) return;
    const { socket } = client;
    const roll = nextFloat(world.random);
    if (socket !== null && roll < 0.3) goAway(client, socket);
    else if (socket !== null && roll < 0.5) askProgress(client, socket);
    else if (socket !== null && roll < 0.6) replaceWatch(client, socket);
    else if (roll < 0.85) {
      pause(
        client,
        nextFloat(world.random) < 0.5 ? nextFloat(world.random) * 300 : 500 + nextFloat(world.random) * 3000,
      );
    }
    followWhim(client);
  });
}

function goAway(client: WatchClient, socket: Socket, pauseMsMax = RETRY_MS_MAX): void {
  const { world } = client.all.workload;
  leave(world, socket, nextFloat(world.random) < 0.8);
  client.socket = null;
  client.inbox.length = 0;
  connectSoon(client, pauseMsMax);
}

function askProgress(client: WatchClient, socket: Socket): void {
  const asked = client.watchers.flatMap(({ watchId }) => (watchId === null ? [] : [watchId]));
  const run = (runtime: Runtime): void => {
    for (const watchId of asked) runtime.watches.requestProgress(socket.id, watchId);
  };
  sendRequest(client.all.workload.world, socket, { label: "progress?", opens: false, watches: false, run });
}

/** Cancels a watch and asks for it again, behind what has arrived until the node hears of it. */
function replaceWatch(client: WatchClient, socket: Socket): void {
  const { world } = client.all.workload;
  const watcher = pick(world.random, client.watchers);
  const { watchId } = watcher;
  if (watchId === null || watcher.listing) return;
  watcher.watchId = null;
  const run = (runtime: Runtime): void => {
    runtime.watches.cancel(socket.id, watchId);
    socket.watches.delete(watchId);
    if (client.socket === socket && watcher.watchId === null) subscribe(client, watcher, socket, runtime);
  };
  sendRequest(world, socket, { label: "replace", opens: false, watches: true, run });
}

function pause(client: WatchClient, ms: number): void {
  const { world } = client.all.workload;
  client.pausedUntil = world.now + ms;
  scheduleAct(world, client.pausedUntil, "reads on", () => readOn(client));
}

function readOn(client: WatchClient): void {
  if (client.all.workload.world.now < client.pausedUntil) return;
  for (const { socket, message } of client.inbox.splice(0)) hear(client, socket, message);
  const { socket } = client;
  if (socket !== null) for (const watcher of client.watchers) acknowledgeSoon(client, watcher, socket);
}

// --- what it is told -------------------------------------------------------------------------------------------------

function receive(client: WatchClient, socket: Socket, message: SocketMessage): void {
  if (client.socket !== socket) return;
  if (client.all.workload.world.now < client.pausedUntil) client.inbox.push({ socket, message });
  else hear(client, socket, message);
}

function hear(client: WatchClient, socket: Socket, message: SocketMessage): void {
  if (client.socket !== socket) return;
  if (isTainted(socket.host.disk)) {
    goAway(client, socket, UNREADY_MS_MAX);
    return;
  }
  if (message.kind === "subscribed") {
    const watcher = client.watchers.find(({ watchId }) => watchId === message.watchId);
    if (watcher !== undefined) onSubscribed(client, watcher, socket, message.result);
  } else onFrame(client, socket, message.frame);
}

function onSubscribed(client: WatchClient, watcher: Watcher, socket: Socket, result: Subscribed): void {
  if (!result.ok) {
    const { code, detail } = result.error;
    if (ERROR_CODES[code].retry === "no")
      throw new Violation("watcher is told the truth", `${watcher.name}: ${detail}`);
    watcher.watchId = null;
    goAway(client, socket, UNREADY_MS_MAX);
    return;
  }
  const { position } = result;
  if (watcher.placed && comparePositions(position, watcher.position) !== 0) {
    throw new Violation(
      "watcher is told the truth",
      `${watcher.name} resumes at ${position.revision}.${position.opIndex}`,
    );
  }
  watcher.placed = true;
  watcher.position = position;
}

function onFrame(client: WatchClient, socket: Socket, frame: Frame): void {
  if (frame.kind === "leader_changed") return;
  const watcher = client.watchers.find(({ watchId }) => watchId === frame.watchId);
  if (watcher === undefined) return; // of a watch that was cancelled meanwhile
  const { counts, workload } = client.all;
  checkFrame(workload.world.safety, watcher, frame);
  if (frame.kind === "events") {
    counts.events += frame.events.length;
    if (!frame.complete) counts.parts += 1;
  }
  if (isLast(frame)) onEnd(client, watcher, socket, frame.kind);
  else acknowledgeSoon(client, watcher, socket);
}

function isLast({ kind }: Frame): boolean {
  return kind === "compacted" || kind === "slow_consumer" || kind === "resync" || kind === "cluster_changed";
}

/** The watch is over: it goes on behind what has arrived, or behind a list. */
function onEnd(client: WatchClient, watcher: Watcher, socket: Socket, kind: Frame["kind"]): void {
  const { counts, workload } = client.all;
  watcher.watchId = null;
  if (kind === "compacted") {
    counts.compacted += 1;
    list(client, watcher);
    return;
  }
  counts.slow += 1;
  const run = (runtime: Runtime): void => {
    if (client.socket === socket && watcher.watchId === null) subscribe(client, watcher, socket, runtime);
  };
  sendRequest(workload.world, socket, { label: "again", opens: false, watches: true, run });
}

/** A linearizable list stands for all events up to its revision (S44). */
function list(client: WatchClient, watcher: Watcher): void {
  const { world } = client.all.workload;
  watcher.listing = true;
  const query = { kind: "list", selector: watcher.wants.selector, limit: 1, order: "asc" } as const;
  const request = { ...query, keys_only: true, count_only: false };
  const options = { label: `list of ${watcher.name}`, query: request, minRevision: null, timeoutMs: LIST_TIMEOUT_MS };
  callRead(world, anyNode(world), options, (answer) => {
    if (answer === null || !answer.outcome.ok) {
      scheduleAct(world, world.now + nextFloat(world.random) * RETRY_MS_MAX, "list again", () => list(client, watcher));
      return;
    }
    watcher.listing = false;
    watcher.placed = true;
    watcher.position = endOf(answer.outcome.revision);
    const { socket } = client;
    if (socket === null) return;
    const run = (runtime: Runtime): void => {
      if (client.socket === socket && watcher.watchId === null) subscribe(client, watcher, socket, runtime);
    };
    sendRequest(world, socket, { label: "behind a list", opens: false, watches: true, run });
  });
}

/** One acknowledgement stands for all before it. */
function acknowledgeSoon(client: WatchClient, watcher: Watcher, socket: Socket): void {
  if (watcher.acknowledging) return;
  watcher.acknowledging = true;
  const { world } = client.all.workload;
  const delay = client.all.calm ? 1 : nextFloat(world.random) * ACK_MS_MAX;
  scheduleAct(world, world.now + delay, "acknowledge", () => {
    watcher.acknowledging = false;
    const { watchId, position } = watcher;
    if (client.socket !== socket || watchId === null || world.now < client.pausedUntil) return;
    const ack = { connection: socket.id, watchId, position };
    sendRequest(world, socket, {
      label: "ack",
      opens: false,
      watches: false,
      run: (runtime) => runtime.watches.acknowledge(ack),
    });
  });
}

// --- the end of a seed -----------------------------------------------------------------------------------------------

/** From now on everybody reads, and stays. */
export function calmWatchClients(all: WatchClients): void {
  all.calm = true;
  for (const client of all.clients) {
    client.pausedUntil = 0;
    readOn(client);
  }
}

/** Everybody asks how far it is, until told to stop: a quiet watch is told nothing of its own accord. */
export function askWatchClients(all: WatchClients, asking: boolean): void {
  if (all.asking === asking) return;
  all.asking = asking;
  if (asking) for (const client of all.clients) askOn(client);
}

function askOn(client: WatchClient): void {
  if (!client.all.asking) return;
  const { world } = client.all.workload;
  if (client.socket !== null) askProgress(client, client.socket);
  scheduleAct(world, world.now + PROGRESS_EVERY_MS, "asks on", () => askOn(client));
}

/** Watchers that lack something at or below `revision`. */
export function lateWatchers(all: WatchClients, revision: number): string[] {
  const late = (position: Position): boolean => comparePositions(position, endOf(revision)) < 0;
  return all.clients.flatMap(({ watchers }) => {
    return watchers
      .filter(({ placed, position }) => !placed || late(position))
      .map(({ name, position }) => `${name} at ${position.revision}.${position.opIndex}`);
  });
}

/** Those who listen to a node, have caught up with it once, and have still not been told of `revision`. */
export function untoldWatchers(all: WatchClients, revision: number): string[] {
  return all.clients.flatMap(({ socket, watchers }) => {
    if (socket === null) return [];
    return watchers
      .filter(({ ready, watchId, position }) => ready && watchId !== null && position.revision < revision)
      .map(({ name, position }) => `${name} at ${position.revision}.${position.opIndex}`);
  });
}
