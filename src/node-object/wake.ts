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
  onTimer(): void;
}

export class NodeWake implements Wake {
  readonly #platform: WakePlatform;
  #wantedAtMs = Number.POSITIVE_INFINITY;
  #timeout: { readonly atMs: number; readonly handle: ReturnType<typeof setTimeout> } | null = null;
  /** Null: unknown (a new instance) or none. */
  #alarmAtWallMs: number | null = null;

  constructor(platform: WakePlatform) {
    this.#platform = platform;
  }

  setTimer(atMs: number): void {
    this.#wantedAtMs = atMs;
    if (this.#timeout !== null && this.#timeout.atMs <= atMs) return;
    this.#arm();
  }

  setAlarm(atWallMs: number): void {
    if (atWallMs === this.#alarmAtWallMs) return;
    this.#alarmAtWallMs = atWallMs;
    this.#platform.setAlarm(atWallMs).catch(() => {
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
    const handle = setTimeout(() => this.#fired(), Math.max(0, atMs - this.#platform.nowMs()));
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
