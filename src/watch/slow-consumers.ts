/**
 * Ends watches whose client is silent while they are far behind (design 01 §4), and, when the node has no credit left,
 * those whose silent clients hold it. The client resumes from the position in the last frame; nothing is lost.
 *
 * How far behind a watch is that never was live is only measured when it matters: its client has been silent for too
 * long. Then matching events are counted, a bounded number of rows at a time.
 */

import { comparePositions, endOf, isAvailable, laterOf } from "../kv/position.ts";
import { expire, type Pump } from "./delivery.ts";
import { everyWatch, type Hub, sentPosition } from "./hub.ts";
import { type Watch, wantsType } from "./watch.ts";

/**
 * Answers the connections that are to be closed: what a client that acknowledges nothing was sent lies unread on its way,
 * where nobody can free it, so it must not be sent more under another watch.
 */
export function endSlowConsumers(pump: Pump): string[] {
  const { hub, nowMs } = pump;
  const silent = new Set<string>();
  if (hub.suspects.size === 0 && hub.starved.size === 0) {
    hub.silenceCheckAtMs = Number.POSITIVE_INFINITY;
    return [];
  }
  if (nowMs < hub.silenceCheckAtMs) return [];
  const pressed = hub.starved.size > 0;
  let checkAtMs = Number.POSITIVE_INFINITY;
  for (const watch of pressed ? everyWatch(hub) : [...hub.suspects]) {
    if (watch.unacknowledged === 0) continue; // also one that has ended with its connection
    const dueAtMs = watch.silentSinceMs + hub.limits.silenceMsMax;
    if (nowMs < dueAtMs) checkAtMs = Math.min(checkAtMs, dueAtMs);
    else if (pressed || isFarBehind(pump, watch)) {
      const { connection } = watch;
      const heardAtMs = hub.heardAtMs.get(connection) ?? Number.NEGATIVE_INFINITY;
      const isSilent = heardAtMs + hub.limits.silenceMsMax <= nowMs;
      if (isSilent) silent.add(connection);
      const ended = isSilent ? [...(hub.connections.get(connection)?.values() ?? [])] : [watch];
      for (const one of ended) endAsSlow(pump, one);
    } else if (watch.lagThrough === null) hub.suspects.delete(watch);
    else checkAtMs = nowMs; // not counted to the end: the next pump goes on
  }
  hub.silenceCheckAtMs = checkAtMs;
  return [...silent];
}

function endAsSlow(pump: Pump, watch: Watch): void {
  const { connection, id } = watch;
  const position = sentPosition(pump.hub, watch);
  expire(pump, watch, { kind: "slow_consumer", connection, watchId: id, position });
}

function isFarBehind(pump: Pump, watch: Watch): boolean {
  const { hub, view } = pump;
  if (watch.lagThrough !== null && isAvailable(watch.lagThrough, view.compactRevision)) measure(pump, watch);
  return exceeds(hub, watch);
}

function exceeds(hub: Hub, watch: Watch): boolean {
  return watch.lagEvents >= hub.limits.behindEventsMax || watch.lagBytes >= hub.limits.behindBytesMax;
}

function measure(pump: Pump, watch: Watch): void {
  const { hub, view } = pump;
  if (pump.rows <= 0 || watch.lagThrough === null) return;
  const after = laterOf(watch.lagThrough, watch.position);
  const walked = view.walk({ selector: watch.selector, after, rowsMax: pump.rows }, (event, characters) => {
    if (exceeds(hub, watch)) return false;
    if (!wantsType(watch, event)) return true;
    watch.lagEvents += 1;
    watch.lagBytes += watch.shape.includeValues ? characters : event.key.length;
    return true;
  });
  pump.rows -= Math.max(1, walked.rows);
  watch.lagThrough = comparePositions(walked.next, endOf(hub.revision)) >= 0 ? null : walked.next;
}
