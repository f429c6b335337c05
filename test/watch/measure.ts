/**
 * Micro benchmark of the hub, printed: run it with the node of `node_modules/.bin`. Events per second through publish,
 * pump and acknowledgement, beside the same events without any watch. Rates are per second of processor time, because
 * other programs may share the machine; the longest pump is by the clock.
 */
import type { ChangeEvent, Selector } from "../../src/kv/command.ts";
import { endOf } from "../../src/kv/position.ts";
import { createHistoryView } from "../../src/watch/history-view.ts";
import { acknowledge, createHub, restore, subscribe } from "../../src/watch/hub.ts";
import { publish } from "../../src/watch/publish.ts";
import { pump } from "../../src/watch/pump.ts";
import { Harness } from "../kv/harness.ts";
import { encode } from "./rig.ts";

const VALUE = "x".repeat(200);

function processorMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

interface Scene {
  readonly name: string;
  readonly selectors: readonly Selector[];
  readonly writes: number;
  readonly prevValues?: boolean;
  /** Revisions published per pump. */
  readonly perPump: number;
}

function hubWith(harness: Harness, selectors: readonly Selector[], prevValues: boolean) {
  const hub = createHub({ revision: harness.machine.revision, encode });
  for (const [count, selector] of selectors.entries()) {
    const connection = `c${Math.floor(count / 100)}`;
    const options = { includeValues: true, prevValues, filter: null, fromRevision: null };
    const subscribed = subscribe(hub, { connection, watchId: count, selector, ...options });
    if (!subscribed.ok) throw new Error(subscribed.error.detail);
  }
  return hub;
}

function run(scene: Scene): void {
  const harness = new Harness();
  for (let count = 0; count < scene.writes; count += 1)
    harness.put(`k${String(count % 5000).padStart(5, "0")}/x`, VALUE);
  const hub = hubWith(new Harness(), scene.selectors, scene.prevValues === true);
  const { events } = harness;
  const { store } = harness.machine;
  let nowMs = 0;
  let delivered = 0;
  let longestMs = 0;
  const startedMs = processorMs();
  for (let at = 0; at < events.length; at += scene.perPump) {
    for (const event of events.slice(at, at + scene.perPump)) publish(hub, [event]);
    const view = createHistoryView({ store, revision: hub.revision, compactRevision: 0 });
    const pumpedMs = performance.now();
    for (let more = true; more; ) {
      const pumped = pump(hub, view, nowMs);
      more = pumped.more;
      for (const frame of pumped.frames) {
        if (frame.kind !== "events") continue;
        delivered += frame.events.length;
        const { connection, watchId, position } = frame;
        acknowledge(hub, { connection, watchId, position, nowMs });
      }
    }
    longestMs = Math.max(longestMs, performance.now() - pumpedMs);
    nowMs += 10;
  }
  const tookMs = processorMs() - startedMs;
  const perSecond = (count: number): string => Math.round((count * 1000) / tookMs).toLocaleString("en");
  process.stdout.write(
    `${scene.name}: ${perSecond(events.length)} events/s published, ${perSecond(delivered)} delivered/s, ` +
      `${((tookMs * 1000) / events.length).toFixed(1)} µs per event, longest pump ${longestMs.toFixed(1)} ms\n`,
  );
}

/** All watches of a node that wakes: each was told something a while ago. */
function wake(): void {
  const harness = new Harness();
  for (let count = 0; count < 2000; count += 1) harness.put(`k${String(count % 5000).padStart(5, "0")}/x`, VALUE);
  const { revision } = harness.machine;
  const hub = createHub({ revision, encode });
  const startedMs = processorMs();
  for (let count = 0; count < 5000; count += 1) {
    const selector = { prefix: `k${String(count).padStart(5, "0")}/` };
    const options = { connection: `c${Math.floor(count / 100)}`, watchId: count, selector, includeValues: true };
    const saved = { position: endOf(revision - (count % 1000)), ready: true };
    restore(hub, { ...options, prevValues: false, filter: null }, saved);
  }
  let delivered = 0;
  for (let more = true; more; ) {
    const pumped = pump(hub, createHistoryView(harness.machine), 0);
    more = pumped.more;
    for (const frame of pumped.frames) if (frame.kind === "events") delivered += frame.events.length;
  }
  process.stdout.write(
    `5 000 watches restored, up to 1 000 revisions behind: ${(processorMs() - startedMs).toFixed(0)} ms, ` +
      `${delivered} events\n`,
  );
}

/** One watch that replays everything. */
function replayAll(selector: Selector, name: string): void {
  const harness = new Harness();
  for (let count = 0; count < 20_000; count += 1) harness.put(`k${String(count % 5000).padStart(5, "0")}/x`, VALUE);
  const hub = createHub({ revision: harness.machine.revision, encode });
  const options = { connection: "a", watchId: 0, selector, includeValues: true, prevValues: false, filter: null };
  subscribe(hub, { ...options, fromRevision: 1 });
  const startedMs = processorMs();
  let events: readonly ChangeEvent[] = [];
  let longestMs = 0;
  for (let more = true; more; ) {
    const pumpedMs = performance.now();
    const pumped = pump(hub, createHistoryView(harness.machine), 0);
    longestMs = Math.max(longestMs, performance.now() - pumpedMs);
    for (const frame of pumped.frames) {
      if (frame.kind !== "events") continue;
      events = [...events.slice(-1), ...frame.events.map(({ event }) => event)];
      acknowledge(hub, { connection: "a", watchId: 0, position: frame.position, nowMs: 0 });
    }
    more = pumped.more || hub.replaying.size > 0 || hub.sweep !== null;
  }
  const tookMs = processorMs() - startedMs;
  process.stdout.write(
    `replay of 20 000 revisions by ${name}: ${tookMs.toFixed(0)} ms, longest pump ${longestMs.toFixed(1)} ms\n`,
  );
}

const everything: Selector = { prefix: "" };
const disjoint = Array.from({ length: 5000 }, (_, count): Selector => {
  const digits = String(count).padStart(5, "0");
  if (count % 3 === 0) return { key: `k${digits}/x` };
  return count % 3 === 1 ? { prefix: `k${digits}/` } : { range: { start: `k${digits}/`, end: `k${digits}0` } };
});
const hundred = Array.from({ length: 100 }, () => everything);

run({ name: "(warm-up)", selectors: hundred, writes: 3000, perPump: 1, prevValues: true });
run({ name: "no watch", selectors: [], writes: 20_000, perPump: 10 });
run({ name: "100 watches of everything, 10 revisions per pump", selectors: hundred, writes: 10_000, perPump: 10 });
run({ name: "100 watches of everything, 1 revision per pump", selectors: hundred, writes: 5000, perPump: 1 });
run({
  name: "100 watches of everything with previous values",
  selectors: hundred,
  writes: 10_000,
  perPump: 10,
  prevValues: true,
});
run({ name: "5 000 disjoint watches, 10 revisions per pump", selectors: disjoint, writes: 20_000, perPump: 10 });
run({ name: "5 000 disjoint watches, 1 revision per pump", selectors: disjoint, writes: 20_000, perPump: 1 });
wake();
replayAll(everything, "a watch of everything");
replayAll({ prefix: "k00042" }, "a watch of one key's prefix");
