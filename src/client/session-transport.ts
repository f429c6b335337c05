/**
 * Calls over the session; over HTTP what it cannot carry now.
 *
 * A call goes over HTTP if no session is open within half of its attempt, if its message is too long for one, and from
 * its third attempt on: whatever was wrong with the socket or the node behind it, each request of HTTP finds its own way.
 * Load is nothing that is wrong with the socket: who was late or refused while others were answered stays (pending-calls).
 */
import { utf8Length } from "../base/bytes.ts";
import { BODY_BYTES_MAX } from "../base/limits.ts";
import type { ResolvedOptions } from "./options.ts";
import type { Session } from "./session.ts";
import type { Attempt, Exchange, Transport } from "./transport.ts";

const SESSION_ATTEMPTS_MAX = 2;
/** What a message holds beside its parameters. */
const ENVELOPE_BYTES_MAX = 512;

export class SessionTransport implements Transport {
  readonly #options: ResolvedOptions;
  readonly #session: Session;
  readonly #http: Transport;

  constructor(options: ResolvedOptions, session: Session, http: Transport) {
    this.#options = options;
    this.#session = session;
    this.#http = http;
  }

  async exchange(attempt: Attempt): Promise<Exchange> {
    const { clock } = this.#options;
    const { method, signal } = attempt;
    if (attempt.attempt > SESSION_ATTEMPTS_MAX) return await this.#http.exchange(attempt);
    const params = withControl(attempt);
    if (!fitsMessage(params)) return await this.#http.exchange(attempt);
    const startedAtMs = clock.nowMs();
    const connection = await this.#session.connect(attempt.timeoutMs / 2, signal);
    const leftMs = Math.max(1, attempt.leftMs - (clock.nowMs() - startedAtMs));
    if (connection === null) return await this.#http.exchange({ ...attempt, leftMs });
    return await connection.call({ method, params, timeoutMs: attempt.timeoutMs, leftMs, signal });
  }

  close(): void {
    this.#session.close();
    this.#http.close();
  }
}

function withControl({ params, control }: Attempt): string {
  const text = JSON.stringify(control);
  if (text === "{}") return params;
  return params === "{}" ? text : `${params.slice(0, -1)},${text.slice(1)}`;
}

/** A node closes a socket over a longer message, and with it everything else that the socket carries. */
function fitsMessage(params: string): boolean {
  const bytesMax = BODY_BYTES_MAX - ENVELOPE_BYTES_MAX;
  return params.length * 3 <= bytesMax || utf8Length(params) <= bytesMax;
}
