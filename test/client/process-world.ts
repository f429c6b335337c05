/**
 * Processes that share one database: each a client with a clock, a network and a life of its own, in one test. A process
 * can be paused (SIGSTOP: nothing of it runs, what arrives waits), killed, or cut off; leases end at the very moment they
 * are due, which is the earliest that a cluster may end them. Time is driven by hand.
 */
import { type Api, createApi } from "../../src/api/app.ts";
import { type ClientClock, Concord, type OpenSocket, type SocketLike } from "../../src/client/index.ts";
import { MachineBackend } from "../api/machine-backend.ts";
import { DrivenClock } from "./driven-clock.ts";
import { SessionHost } from "./session-host.ts";
import type { TransportName } from "./streaming.ts";

const SLICE_MS = 100;
const QUIET_TURNS = 4;

/** `down`: requests fail at once, and streams and sockets break; `silent`: nothing arrives, either way. */
export type Link = "up" | "down" | "silent";

export class ProcessWorld {
  readonly backend = new MachineBackend();
  readonly clock = new DrivenClock(() => this.settle());
  /** A client that nothing ever happens to. */
  readonly observer: Process;
  readonly transport: TransportName;
  readonly #api: Api;
  readonly #host: SessionHost;
  /** Counts what happened, so that quiet can be told from work. */
  #activity = 0;
  #requestsInWork = 0;

  /** `events`: HTTP and server-sent events alone. */
  constructor(transport: TransportName = "events") {
    const { clock, backend } = this;
    this.transport = transport;
    this.#host = new SessionHost(backend);
    Object.defineProperty(backend, "nowMs", { get: () => 1_700_000_000_000 + Math.floor(clock.nowMs()) });
    this.#api = createApi(backend, { principal: "root", log: () => {} });
    this.observer = new Process(this);
  }

  start(): Process {
    return new Process(this);
  }

  /** Time passes in slices; `visit` looks at the world in each of them. */
  async advance(durationMs: number, visit: () => void | Promise<void> = () => {}): Promise<void> {
    for (let leftMs = durationMs; leftMs > 0; leftMs -= SLICE_MS) {
      await this.clock.advance(Math.min(SLICE_MS, leftMs));
      await this.#expire();
      await this.settle();
      await visit();
    }
  }

  /** Advances until `promise` has ended, for at most `durationMs`, and gives its result. */
  async until<T>(promise: Promise<T>, durationMs = 60_000): Promise<T> {
    let hasEnded = false;
    const end = () => {
      hasEnded = true;
    };
    promise.then(end, end);
    await this.settle();
    for (let leftMs = durationMs; !hasEnded && leftMs > 0; leftMs -= SLICE_MS) await this.advance(SLICE_MS);
    if (!hasEnded) throw new Error(`nothing came of it within ${durationMs} ms`);
    return await promise;
  }

  /** Lets everything happen that needs no time. */
  async settle(): Promise<void> {
    let before = -1;
    for (let quiet = 0; quiet < QUIET_TURNS; ) {
      await new Promise((resolve) => setImmediate(resolve));
      quiet = before === this.#activity && this.#requestsInWork === 0 ? quiet + 1 : 0;
      before = this.#activity;
    }
  }

  /** What the cluster holds under a prefix. */
  async keysUnder(prefix: string): Promise<unknown[]> {
    return (await this.observer.concord.kv.page({ prefix })).records.map(({ key }) => key);
  }

  async leasesCount(): Promise<number> {
    return (await this.#leases()).length;
  }

  async handle(request: Request): Promise<Response> {
    this.noteActivity();
    this.#requestsInWork += 1;
    try {
      return await this.#api.fetch(request);
    } finally {
      this.#requestsInWork -= 1;
      this.noteActivity();
    }
  }

  /** A socket to the cluster, whose requests count as work until they are answered. */
  openSocket(url: string): SocketLike {
    const inner = this.#host.openSocket(url, []);
    const pending = new Set<unknown>();
    const idOf = (text: unknown): unknown => (text === "ping" || text === "pong" ? null : JSON.parse(String(text)).id);
    const forget = (ids: readonly unknown[]) => {
      for (const id of ids) if (pending.delete(id)) this.#requestsInWork -= 1;
      this.noteActivity();
    };
    inner.addEventListener("message", (event) => forget([idOf((event as { readonly data: unknown }).data)]));
    inner.addEventListener("close", () => forget([...pending]));
    return {
      ...inner,
      send: (text) => {
        const id = idOf(text) ?? null;
        if (id !== null) {
          pending.add(id);
          this.#requestsInWork += 1;
        }
        inner.send(text);
      },
    };
  }

  noteActivity(): void {
    this.#activity += 1;
  }

  async #leases() {
    const query = { kind: "lease_list", limit: 1000, anonymous: true } as const;
    const answer = await this.backend.query(query, { consistency: "serializable", timeoutMs: 0 });
    if (!answer.ok || answer.result.kind !== "lease_list") throw new Error("no list of leases");
    return answer.result.leases;
  }

  async #expire(): Promise<void> {
    const due = (await this.#leases()).filter(({ expires_at_ms }) => expires_at_ms <= this.backend.nowMs);
    if (due.length === 0) return;
    const leases = due.map(({ id, expires_at_ms }) => ({ id, expires_at_ms }));
    await this.backend.execute({ kind: "lease_expire", leases }, null, { timeoutMs: 0 });
  }
}

export class Process {
  readonly concord: Concord;
  /** What it has sent, as method and path. */
  readonly sent: string[] = [];
  readonly #world: ProcessWorld;
  readonly #cut = new Set<() => void>();
  #link: Link = "up";
  #isKilled = false;
  #resumed: PromiseWithResolvers<void> | null = null;
  #overdue: (() => void)[] = [];
  /** How far its clock is behind, because it stood still while the machine slept. */
  #behindMs = 0;
  /** Until a request arrives, and a reply. */
  delayMs = 0;
  /** The node behind the socket answers pings and nothing else. */
  isSocketStuck = false;

  constructor(world: ProcessWorld) {
    this.#world = world;
    this.concord = Concord.connect({
      fetch: (request) => this.#fetch(request),
      ...(world.transport === "session" ? { webSocket: this.#openSocket } : {}),
      clock: this.#clock(),
      random: () => 0.5,
    });
  }

  get link(): Link {
    return this.#link;
  }

  set link(link: Link) {
    // What was lost in silence is never sent again: the connection breaks at the latest when the network is back.
    if (link === "down" || (link === "up" && this.#link === "silent")) this.#breakAll();
    this.#link = link;
  }

  /** SIGSTOP. */
  pause(): void {
    this.#resumed ??= Promise.withResolvers();
  }

  /** SIGCONT: timers that are overdue come first, then what has arrived. `clockStoodStillMs`: the clock did not count it. */
  resume(clockStoodStillMs = 0): void {
    const resumed = this.#resumed;
    if (resumed === null || this.#isKilled) return;
    this.#behindMs += clockStoodStillMs;
    this.#resumed = null;
    const overdue = this.#overdue;
    this.#overdue = [];
    // A clock that stood still has its timers still ahead.
    if (clockStoodStillMs > 0) for (const callback of overdue) this.#world.clock.after(clockStoodStillMs, callback);
    else for (const callback of overdue) callback();
    resumed.resolve();
  }

  /** SIGKILL. */
  kill(): void {
    this.#isKilled = true;
    this.#breakAll();
  }

  #breakAll(): void {
    for (const cut of [...this.#cut]) cut();
  }

  #clock(): ClientClock {
    const { clock } = this.#world;
    const after = (delayMs: number, callback: () => void): (() => void) => {
      let isCancelled = false;
      const run = () => {
        if (isCancelled || this.#isKilled) return;
        if (this.#resumed === null) callback();
        else this.#overdue.push(run);
      };
      const cancel = clock.after(delayMs, run);
      return () => {
        isCancelled = true;
        cancel();
      };
    };
    return {
      nowMs: () => clock.nowMs() - this.#behindMs,
      after,
      sleep: (delayMs, signal) =>
        new Promise((resolve) => {
          const cancel = after(delayMs, done);
          signal?.addEventListener("abort", done, { once: true });
          function done(): void {
            cancel();
            signal?.removeEventListener("abort", done);
            resolve();
          }
        }),
    };
  }

  async #fetch(request: Request): Promise<Response> {
    this.sent.push(`${request.method} ${new URL(request.url).pathname}`);
    await this.#pass();
    const response = await this.#world.handle(request);
    await this.#pass();
    const isStream = response.headers.get("content-type") === "text/event-stream";
    return isStream && response.body !== null ? new Response(this.#stream(response.body), response) : response;
  }

  /** The way between process and cluster. */
  async #pass(): Promise<void> {
    if (this.delayMs > 0) await this.#world.clock.sleep(this.delayMs);
    await this.#resumed?.promise;
    if (this.#link === "down") throw new TypeError("fetch failed");
    if (this.#link === "silent" || this.#isKilled) await new Promise(() => {});
  }

  /** A socket whose two directions keep their order, with the delays, pauses and breaks of this process. */
  readonly #openSocket: OpenSocket = (url) => {
    const inner = this.#world.openSocket(url);
    const listeners: ((event: unknown) => void)[] = [];
    let isOpen = true;
    const end = () => {
      if (!isOpen) return;
      isOpen = false;
      this.#cut.delete(end);
      inner.close();
      if (!this.#isKilled) for (const listener of listeners) listener({ code: 1006 });
    };
    this.#cut.add(end);
    const inOrder = () => {
      let before: Promise<void> = Promise.resolve();
      return (perform: () => void) => {
        this.#world.noteActivity();
        before = before.then(async () => {
          if (this.delayMs > 0) await this.#world.clock.sleep(this.delayMs);
          await this.#resumed?.promise;
          this.#world.noteActivity();
          if (this.#link === "down") end();
          else if (this.#link === "up" && isOpen) perform();
        });
      };
    };
    const [inbound, outbound] = [inOrder(), inOrder()];
    return {
      send: (text) => {
        this.sent.push("message");
        if (text === "ping" || !this.isSocketStuck) outbound(() => inner.send(text));
      },
      close: () => {
        isOpen = false;
        this.#cut.delete(end);
        inner.close();
      },
      addEventListener: (type, listener) => {
        if (type === "close") listeners.push(listener);
        inner.addEventListener(type, (event) => inbound(() => listener(event)));
      },
    };
  };

  #stream(body: ReadableStream<Uint8Array>): ReadableStream<Uint8Array> {
    const reader = body.getReader();
    let cut = () => {};
    return new ReadableStream<Uint8Array>({
      start: (controller) => {
        cut = () => {
          this.#cut.delete(cut);
          controller.error(new TypeError("connection lost"));
          reader.cancel().catch(() => {});
        };
        this.#cut.add(cut);
      },
      pull: async (controller) => {
        const { done, value } = await reader.read();
        this.#world.noteActivity();
        await this.#resumed?.promise;
        if (this.#link === "silent") await new Promise(() => {});
        if (!this.#cut.has(cut)) return;
        if (value !== undefined) controller.enqueue(value);
        if (!done) return;
        this.#cut.delete(cut);
        controller.close();
      },
      cancel: async (reason) => {
        this.#cut.delete(cut);
        await reader.cancel(reason);
      },
    });
  }
}
