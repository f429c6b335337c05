/**
 * One timer and one alarm for a node (ports.ts, Wake).
 *
 * W1. The timer fires at or after the wanted time, never before; later wishes reuse the armed timeout, because heartbeats
 *     push the wanted time forward on every message and re-arming each time would cost more than one early look.
 * W2. The alarm is written only when its time changes: it is a storage write, and moving it earlier costs a round trip
 *     before the commit (platform: alarms).
 */
import type { Wake } from "./ports.ts";

export interface WakePlatform {
  nowMs(): number;
  setAlarm(atWallMs: number): Promise<void>;
  deleteAlarm(): Promise<void>;
  onTimer(): void;
}

/** A delay beyond 2^31 - 1 ms would fire at once (S35); a timeout that is early looks again. */
const TIMEOUT_MS_MAX = 3_600_000;

export class NodeWake implements Wake {
  readonly #platform: WakePlatform;
  #wantedAtMs = Number.POSITIVE_INFINITY;
  #timeout: { readonly atMs: number; readonly handle: ReturnType<typeof setTimeout> } | null = null;
  /** Null: none; undefined: unknown, an earlier instance may have left one. */
  #alarmAtWallMs: number | null | undefined = undefined;

  constructor(platform: WakePlatform) {
    this.#platform = platform;
  }

  setTimer(atMs: number): void {
    this.#wantedAtMs = atMs;
    if (this.#timeout !== null && this.#timeout.atMs <= atMs) return;
    this.#arm();
  }

  setAlarm(atWallMs: number | null): void {
    if (atWallMs === this.#alarmAtWallMs) return;
    this.#alarmAtWallMs = atWallMs;
    const done = atWallMs === null ? this.#platform.deleteAlarm() : this.#platform.setAlarm(atWallMs);
    done.catch(() => {
      // A failed commit resets the object by itself (platform: gates); the next instance arms its own alarm.
    });
  }

  /** The platform has taken the alarm off; called first in the alarm handler. */
  alarmFired(): void {
    this.#alarmAtWallMs = null;
  }

  #arm(): void {
    if (this.#timeout !== null) clearTimeout(this.#timeout.handle);
    this.#timeout = null;
    if (this.#wantedAtMs === Number.POSITIVE_INFINITY) return;
    const atMs = this.#wantedAtMs;
    const delayMs = Math.min(Math.max(0, atMs - this.#platform.nowMs()), TIMEOUT_MS_MAX);
    const handle = setTimeout(() => this.#fired(), delayMs);
    this.#timeout = { atMs, handle };
  }

  #fired(): void {
    this.#timeout = null;
    if (this.#platform.nowMs() < this.#wantedAtMs) {
      this.#arm();
      return;
    }
    this.#wantedAtMs = Number.POSITIVE_INFINITY;
    this.#platform.onTimer();
  }
}
