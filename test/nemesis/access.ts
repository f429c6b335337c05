/**
 * How one client of the load reaches the cluster: always its own node, or any node, as behind a load balancer. And what it
 * overhears on the way: the keep-alives that keepers send by themselves, with when they were sent and answered.
 */
import { nextFloat, nextInteger, type Random } from "../../src/base/random.ts";
import { Concord, type SocketLike } from "../../src/client/index.ts";
import { leaseTimes } from "../../src/client/lease-keeper.ts";
import type { Renewal } from "./evidence.ts";

export type TransportName = "http" | "session";

export interface KeptAlive extends Renewal {
  readonly lease: number;
}

export interface AccessOptions {
  readonly urls: readonly string[];
  /** Position in `urls`; null: any node, another one after each failure and now and then. */
  readonly home: number | null;
  readonly transport: TransportName;
  readonly random: Random;
  readonly onKeptAlive?: (kept: KeptAlive) => void;
}

/** Short, so that a client of a node that stands still goes on soon; longer than any election. */
const ATTEMPT_MS_MAX = 1500;
const CALL_MS_MAX = 6000;
/** A balancer that never changes would test little. */
const CHANGE_CHANCE = 0.02;
/** Between a call of the client and its way out, in a busy process. */
const ON_THE_WAY_MS = 50;
/** Resolved to the URL of a node for each request. */
const ANYWHERE = "http://cluster.invalid";

export function connect(options: AccessOptions): Concord {
  const route = routeOf(options);
  return Concord.connect({
    url: ANYWHERE,
    transport: options.transport,
    timeoutMs: CALL_MS_MAX,
    attemptTimeoutMs: ATTEMPT_MS_MAX,
    random: () => nextFloat(options.random),
    fetch: (request) => send(request, route, options),
    webSocket: (url, protocols) => {
      const base = route.base().replace(/^http/, "ws");
      const socket = new WebSocket(base + url.slice(ANYWHERE.replace(/^http/, "ws").length), protocols);
      socket.addEventListener("error", route.failed);
      return overheard(socket as SocketLike, options);
    },
  });
}

interface Route {
  base(): string;
  failed(): void;
}

function routeOf({ urls, home, random }: AccessOptions): Route {
  let at = home ?? nextInteger(random, 0, urls.length - 1);
  const next = (): void => {
    if (home === null) at = (at + nextInteger(random, 1, urls.length - 1)) % urls.length;
  };
  return {
    base() {
      if (nextFloat(random) < CHANGE_CHANCE) next();
      return urls[at] ?? "";
    },
    failed: next,
  };
}

async function send(request: Request, route: Route, options: AccessOptions): Promise<Response> {
  const sentMs = performance.now();
  const path = request.url.slice(ANYWHERE.length);
  const target = new Request(route.base() + path, request);
  try {
    const response = await fetch(target);
    if (response.status >= 500) route.failed();
    const lease = /^\/v1\/leases\/(\d+)\/keepalive/.exec(path)?.[1];
    if (lease !== undefined && response.ok) await overhear(response.clone(), Number(lease), sentMs, options);
    return response;
  } catch (error) {
    route.failed();
    throw error;
  }
}

async function overhear(response: Response, lease: number, sentMs: number, options: AccessOptions): Promise<void> {
  const { ttl_s: ttlS } = (await response.json()) as { readonly ttl_s: number };
  // Over HTTP a session sends what has waited for a socket in vain.
  const askedMs = options.transport === "http" ? sentMs - ON_THE_WAY_MS : sentMs - waitMsMax(ttlS);
  options.onKeptAlive?.({ lease, askedMs, sentMs, endMs: performance.now(), ttlS });
}

/** A session waits for a socket for half of an attempt. */
function waitMsMax(ttlS: number): number {
  return leaseTimes(ttlS).attemptMs / 2 + ON_THE_WAY_MS;
}

/** The same socket, whose keep-alives are told. */
function overheard(socket: SocketLike, { onKeptAlive }: AccessOptions): SocketLike {
  if (onKeptAlive === undefined) return socket;
  const sent = new Map<number, number>();
  let openedMs = Number.POSITIVE_INFINITY;
  socket.addEventListener("open", () => {
    openedMs = performance.now();
  });
  socket.addEventListener("message", (event) => {
    const { data } = event as { readonly data?: unknown };
    if (sent.size === 0 || typeof data !== "string" || !data.startsWith("{")) return;
    const { id, result } = JSON.parse(data) as { readonly id?: number; readonly result?: Record<string, unknown> };
    const sentMs = id === undefined ? undefined : sent.get(id);
    if (id === undefined || sentMs === undefined) return;
    sent.delete(id);
    if (result === undefined) return;
    const ttlS = Number(result.ttl_s);
    const hasWaited = sentMs - openedMs < waitMsMax(ttlS);
    const askedMs = sentMs - (hasWaited ? waitMsMax(ttlS) : ON_THE_WAY_MS);
    onKeptAlive({ lease: Number(result.id), askedMs, sentMs, endMs: performance.now(), ttlS });
  });
  return {
    send(text) {
      if (text.includes('"lease.keepalive"')) sent.set(JSON.parse(text).id, performance.now());
      socket.send(text);
    },
    close: (code, reason) => socket.close(code, reason),
    addEventListener: (type, listener) => socket.addEventListener(type, listener),
  };
}
