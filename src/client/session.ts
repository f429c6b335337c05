/**
 * The session of a client: one connection at a time, opened when it is wanted, replaced when it is gone.
 *
 * S1. Nothing is opened until somebody wants it, and what is idle is closed (liveness.ts).
 * S2. Whoever wants a connection gets an open one, or is told to go another way: it never waits for long.
 * S3. After a connection is gone, or could not be opened, the next try waits, with jitter and longer each time: clients
 *     that lost a node together do not come back together.
 */
import { backoffMs } from "./backoff.ts";
import type { ResolvedOptions } from "./options.ts";
import { SessionConnection } from "./session-connection.ts";
import { startPatience } from "./signals.ts";
import { type OpenSocket, openSessionSocket } from "./socket.ts";

const REOPEN = { minMs: 100, maxMs: 30_000 } as const;
/** A session that has worked is worth so many tries in a row; one that never has is worth one. */
const OPENINGS_MAX = 3;
const LEADERLESS_MS_MIN = 5_000;
const LEADERLESS_MS_MAX = 60_000;

export class Session {
  readonly #options: ResolvedOptions;
  readonly #openSocket: OpenSocket;
  #connection: SessionConnection | null = null;
  #isClosed = false;
  #hasWorked = false;
  /** Openings that failed, in a row. */
  #failures = 0;
  #reopenAtMs = Number.NEGATIVE_INFINITY;
  #leaderlessMs = LEADERLESS_MS_MIN;

  constructor(options: ResolvedOptions, openSocket: OpenSocket) {
    this.#options = options;
    this.#openSocket = openSocket;
  }

  /** Sockets work here, as far as one can tell. */
  get isPromising(): boolean {
    return this.#failures < (this.#hasWorked ? OPENINGS_MAX : 1);
  }

  /** An open connection; null if there is none by `waitMs`, or none may be opened yet. */
  async connect(waitMs: number, signal: AbortSignal): Promise<SessionConnection | null> {
    const connection = this.#connection ?? this.#open();
    if (connection === null || connection.isOpen) return connection;
    const patience = startPatience(this.#options.clock, waitMs, signal);
    await Promise.race([connection.opened, patience.over]);
    patience.end();
    return connection.isOpen ? connection : null;
  }

  /** As {@link connect}, for what lasts: a pause between connections is waited for. */
  async connectForLong(waitMs: number, signal: AbortSignal): Promise<SessionConnection | null> {
    const pauseMs = this.#reopenAtMs - this.#options.clock.nowMs();
    if (this.#connection === null && pauseMs > 0 && this.isPromising) await this.#options.clock.sleep(pauseMs, signal);
    return await this.connect(waitMs, signal);
  }

  close(): void {
    this.#isClosed = true;
    this.#connection?.close();
  }

  #open(): SessionConnection | null {
    const { clock } = this.#options;
    if (this.#isClosed || clock.nowMs() < this.#reopenAtMs) return null;
    let isOpened = false;
    const onGone = () => {
      this.#connection = null;
      this.#failures = isOpened ? 0 : this.#failures + 1;
      this.#pause();
    };
    try {
      const connection = new SessionConnection(openSessionSocket(this.#options, this.#openSocket), {
        clock,
        leaderlessMsMax: this.#leaderlessMs,
        onGone,
        onOpen: () => {
          isOpened = true;
          this.#hasWorked = true;
          this.#failures = 0;
          // The next node may be as lonely as this one: each is given more time than the one before.
          this.#leaderlessMs = Math.min(LEADERLESS_MS_MAX, 2 * this.#leaderlessMs);
        },
        onLeader: () => {
          this.#leaderlessMs = LEADERLESS_MS_MIN;
        },
      });
      this.#connection = connection;
      return connection;
    } catch {
      // The platform refuses to try: as good as a socket that does not open.
      onGone();
      return null;
    }
  }

  #pause(): void {
    const { clock, random } = this.#options;
    this.#reopenAtMs = clock.nowMs() + backoffMs(this.#failures + 1, random(), REOPEN);
  }
}
