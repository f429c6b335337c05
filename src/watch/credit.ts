/**
 * Credit: a Durable Object cannot see a slow socket, so what counts is what the client acknowledges (design 01 §4).
 *
 * R1. A watch has at most `creditPerWatchBytes` unacknowledged, or one frame if that is larger; a node at most
 *     `creditPerNodeBytes` in all.
 * R2. An acknowledgement beyond what was sent counts as all that was sent; one below an earlier one counts for nothing.
 */

import { comparePositions, type Position } from "../kv/position.ts";
import type { Hub } from "./hub.ts";
import { LEDGER_ENTRIES_MAX } from "./limits.ts";
import type { Watch } from "./watch.ts";

/** The starved are served again when this share of the node's credit is free: else each would get a few bytes. */
const STARVED_RETRY_SHARE = 1 / 8;

/** Bytes that the watch may be sent now; infinite when it owes nothing (R1). */
export function roomOf(hub: Hub, watch: Watch): number {
  if (watch.unacknowledged === 0) return Number.POSITIVE_INFINITY;
  return hub.limits.creditPerWatchBytes - watch.unacknowledged;
}

export function nodeHasRoom(hub: Hub, bytes: number): boolean {
  return hub.unacknowledged === 0 || hub.unacknowledged + bytes <= hub.limits.creditPerNodeBytes;
}

/** `end`: the client has it when it acknowledges this or more. */
export function charge(hub: Hub, watch: Watch, end: Position, bytes: number, nowMs: number): void {
  if (watch.unacknowledged === 0) watch.silentSinceMs = nowMs;
  watch.unacknowledged += bytes;
  hub.unacknowledged += bytes;
  const last = watch.ledger[watch.ledger.length - 1];
  if (last !== undefined && watch.ledger.length >= LEDGER_ENTRIES_MAX) {
    last.end = end;
    last.bytes += bytes;
  } else watch.ledger.push({ end, bytes });
}

export function acknowledgeBytes(hub: Hub, watch: Watch, position: Position, nowMs: number): void {
  let released = 0;
  let count = 0;
  for (const entry of watch.ledger) {
    if (comparePositions(entry.end, position) > 0) break;
    released += entry.bytes;
    count += 1;
  }
  if (count === 0) return;
  watch.ledger.splice(0, count);
  watch.silentSinceMs = nowMs;
  release(hub, watch, released);
  if (watch.phase === "live" && watch.progressWanted) hub.announcing.add(watch);
  if (watch.lacking > 0 && watch.lacking <= roomOf(hub, watch)) resume(hub, watch);
}

/** A watch that waits for its client, by `lacking` bytes: it may be too far behind (slow-consumers.ts). */
export function waitForClient(hub: Hub, watch: Watch): void {
  hub.replaying.delete(watch);
  suspect(hub, watch);
}

/** A watch that waits until others are acknowledged. */
export function waitForNode(hub: Hub, watch: Watch): void {
  hub.replaying.delete(watch);
  hub.starved.add(watch);
  hub.silenceCheckAtMs = 0;
}

/** Looked at when its client has been silent for too long, if it is far behind or nobody knows how far. */
export function suspect(hub: Hub, watch: Watch): void {
  const { behindEventsMax, behindBytesMax, silenceMsMax } = hub.limits;
  const far = watch.lagEvents >= behindEventsMax || watch.lagBytes >= behindBytesMax;
  if (watch.lacking === 0 || (watch.lagThrough === null && !far)) return;
  hub.suspects.add(watch);
  hub.silenceCheckAtMs = Math.min(hub.silenceCheckAtMs, watch.silentSinceMs + silenceMsMax);
}

export function forgetCredit(hub: Hub, watch: Watch): void {
  watch.ledger.length = 0;
  hub.suspects.delete(watch);
  hub.starved.delete(watch);
  release(hub, watch, watch.unacknowledged);
}

function release(hub: Hub, watch: Watch, bytes: number): void {
  watch.unacknowledged -= bytes;
  hub.unacknowledged -= bytes;
  if (hub.starved.size === 0) return;
  if (hub.unacknowledged > hub.limits.creditPerNodeBytes * (1 - STARVED_RETRY_SHARE)) return;
  for (const starved of hub.starved) hub.replaying.add(starved);
  hub.starved.clear();
}

function resume(hub: Hub, watch: Watch): void {
  watch.lacking = 0;
  hub.suspects.delete(watch);
  forgetLag(watch);
  hub.replaying.add(watch);
}

/** While a watch reads, nobody counts what it is behind by; should it wait, it is measured anew. */
export function forgetLag(watch: Watch): void {
  watch.lagEvents = 0;
  watch.lagBytes = 0;
  watch.lagThrough = watch.position;
}
