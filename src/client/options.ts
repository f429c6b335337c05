/** How a client is configured, with every default resolved once. */
import type { Consistency } from "../api/backend.ts";
import type { ConcordError } from "../base/errors.ts";
import { checkMembers, fault } from "./check.ts";
import { onAbort } from "./signals.ts";
import { globalSocket, type OpenSocket } from "./socket.ts";

/** Sends one request. The global `fetch`, a service binding's, or an app in this process (`app.fetch`). */
export type Fetch = (request: Request) => Response | Promise<Response>;

/** The client's only source of time; tests drive it by hand. */
export interface ClientClock {
  /** Milliseconds from any origin that never go back. */
  nowMs(): number;
  /** Resolves after `delayMs`, or when `signal` aborts. */
  sleep(delayMs: number, signal?: AbortSignal): Promise<void>;
  /**
   * Calls back after `delayMs` unless cancelled by the function that it returns. `isBackground`: a process that has
   * nothing else to do may end before.
   */
  after(delayMs: number, callback: () => void, isBackground?: boolean): () => void;
}

export interface ConnectOptions {
  /**
   * Where the Worker serves, for example `https://concord.example.workers.dev`. Required unless `fetch` is given, whose
   * requests then go to a host that means nothing.
   */
  readonly url?: string;
  /** Bearer token. Default: none, which only a local development cluster accepts. */
  readonly token?: string;
  /** Name of the cluster. Default `default`. */
  readonly cluster?: string;
  /** How requests are sent. Default: the global `fetch`. */
  readonly fetch?: Fetch;
  /** How sockets are opened. Default: the global `WebSocket`. */
  readonly webSocket?: OpenSocket;
  /**
   * `session`: calls, watches and topics share one WebSocket, opened by the first of them and closed after a minute
   * without use. What cannot be had over it goes over HTTP meanwhile: calls while no socket is open (a proxy may refuse
   * upgrades), from their third attempt on (those that load alone made late do not count), and above 2 MiB; watches and
   * topics where sockets do not open at all.
   * `http`: a request per call, server-sent events for watches and topics; for Workers, where a client that outlives its
   * request cannot keep a socket. Default: `session` if `webSocket` is given, or if there is a global one and no `fetch`
   * is given; else `http`.
   */
  readonly transport?: "http" | "session";
  /** A whole call with all its retries and waiting, in milliseconds. Default 10 000. */
  readonly timeoutMs?: number;
  /** One attempt, in milliseconds from when it is sent; up to then it waits for its turn. Default 5 000. */
  readonly attemptTimeoutMs?: number;
  /**
   * Whether writes carry an idempotency key made by the client, one per call. Default true. Without one (here, or by
   * `idempotencyKey: null` in a call) a write whose outcome is unknown is reported as `timeout` and never repeated.
   */
  readonly idempotency?: boolean;
  /** Called when replies begin to come from another cluster id (a restore); revisions start anew then. */
  readonly onClusterChanged?: (change: { readonly from: string; readonly to: string }) => void;
  /** In [0, 1). Default `Math.random`. */
  readonly random?: () => number;
  readonly clock?: ClientClock;
}

/** What any call may say. */
export interface CallOptions {
  /** This call with all its retries, in milliseconds. Default: that of the client. */
  readonly timeoutMs?: number;
  /** Gives up when aborted. What a write has done by then is unknown: the error is `timeout`, reason `aborted`. */
  readonly signal?: AbortSignal;
}

export interface ReadOptions extends CallOptions {
  /**
   * `linearizable` (default): the newest state. `serializable`: the state of the node that answers, which may be old,
   * but never older than what this client has seen before.
   */
  readonly consistency?: Consistency;
  /** Serializable only: the least revision to read at; the node waits for it or fails `behind`. */
  readonly minRevision?: number;
}

export interface WriteOptions extends CallOptions {
  /**
   * The same key with the same request gets the first result and has no second effect, also from another process. Null:
   * no key. Default: a new random one.
   */
  readonly idempotencyKey?: string | null;
}

/** A range of keys; `end` is exclusive and defaults to the end of the key space. */
export type ListSelector = { readonly prefix: string } | { readonly start?: string; readonly end?: string };

export interface ListOptions extends ReadOptions {
  /** Records per page, 1 to 1000. Default 100. */
  readonly limit?: number;
  readonly order?: "asc" | "desc";
  /** Leaves the values out: records have no `value`. */
  readonly keys_only?: boolean;
  /** Answers `count` and no records. */
  readonly count_only?: boolean;
  /** Reads the state at this revision. Default: now. */
  readonly revision?: number;
}

export interface HistoryOptions extends ReadOptions {
  /** First and last revision, inclusive. Default: all that is kept. */
  readonly from?: number;
  readonly to?: number;
  /** Events per page, 1 to 1000. Default 100. */
  readonly limit?: number;
}

export interface GetOptions extends ReadOptions {
  /** Reads the record as it was at this revision. Default: now. */
  readonly revision?: number;
}

export interface ResolvedOptions {
  readonly base: string;
  readonly token: string | null;
  readonly fetch: Fetch;
  /** Null: the transport is HTTP. */
  readonly openSocket: OpenSocket | null;
  readonly timeoutMs: number;
  readonly attemptTimeoutMs: number;
  readonly idempotency: boolean;
  readonly onClusterChanged: (change: { readonly from: string; readonly to: string }) => void;
  readonly random: () => number;
  readonly clock: ClientClock;
}

/** @throws ConcordError `invalid_request` for options that cannot work. */
export function resolveOptions(options: ConnectOptions): ResolvedOptions {
  checkMembers(options, NAMES);
  const { cluster, fetch: givenFetch, url: address = givenFetch && "http://concord" } = options;
  const url = URL.canParse(address ?? "") ? new URL(address ?? "") : null;
  if (url === null || !/^https?:$/.test(url.protocol)) {
    throw unfit(`The url is ${JSON.stringify(address)}, not one of http or https.`);
  }
  for (const name of ["timeoutMs", "attemptTimeoutMs"] as const) {
    const value = options[name];
    if (value !== undefined && !isDuration(value)) throw wrongTime(value, name);
  }
  const root = url.origin + (url.pathname === "/" ? "" : url.pathname.replace(/\/$/, ""));
  return {
    base: cluster === undefined || cluster === "default" ? root : `${root}/c/${encodeURIComponent(cluster)}`,
    token: options.token ?? null,
    fetch: givenFetch ?? ((request) => fetch(request)),
    openSocket: resolveSocket(options),
    timeoutMs: options.timeoutMs ?? 10_000,
    attemptTimeoutMs: options.attemptTimeoutMs ?? 5_000,
    idempotency: options.idempotency ?? true,
    onClusterChanged: options.onClusterChanged ?? (() => {}),
    random: options.random ?? Math.random,
    clock: options.clock ?? SYSTEM_CLOCK,
  };
}

/** A number of milliseconds that can be waited for. */
export function isDuration(value: unknown): value is number {
  return typeof value === "number" && value > 0 && value < Number.POSITIVE_INFINITY;
}

/** A time that cannot be waited for: whatever is compared with NaN is false, so nothing would ever be over. */
export function wrongTime(value: unknown, name = "timeoutMs"): ConcordError {
  return fault("invalid_request", "timeout_ms", `${name} is ${String(value)}, not a number of milliseconds.`);
}

function unfit(detail: string): ConcordError {
  return fault("invalid_request", "connect_options", detail);
}

const NAMES =
  "url token cluster fetch webSocket transport timeoutMs attemptTimeoutMs idempotency onClusterChanged random clock";

function resolveSocket(options: ConnectOptions): OpenSocket | null {
  if (options.transport === "http") return null;
  const isWanted = options.transport === "session";
  const openSocket = options.webSocket ?? (isWanted || options.fetch === undefined ? globalSocket() : null);
  if (isWanted && openSocket === null) throw unfit("There is no WebSocket here; give one as `webSocket`.");
  return openSocket;
}

const SYSTEM_CLOCK: ClientClock = {
  nowMs: () => performance.now(),
  sleep: (delayMs, signal) =>
    new Promise((resolve) => {
      const timer = setTimeout(done, delayMs);
      const unlisten = onAbort(signal, done);
      function done(): void {
        clearTimeout(timer);
        unlisten();
        resolve();
      }
    }),
  after: (delayMs, callback, isBackground = false) => {
    const timer = setTimeout(callback, delayMs);
    // Node's timers are objects that keep the process; elsewhere they are numbers.
    if (isBackground) (timer as { unref?: () => void }).unref?.();
    return () => clearTimeout(timer);
  },
};
