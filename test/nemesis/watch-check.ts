/**
 * Every watcher against the feed: each event that it wants, once, in order, from where it began to the end of the run, over
 * all its disconnections; where revisions come whole, each is one piece.
 */
import { Violation } from "../simulator/violation.ts";
import { type Evidence, eventText, type FeedEvent, type WatcherRecord, type WatchSelector } from "./evidence.ts";
import { recordAt, type Timeline } from "./timeline.ts";

/** The events that were checked. */
export function checkWatchers(
  timeline: Timeline,
  { watchers }: Pick<Evidence, "watchers">,
  endRevision: number,
): number {
  let events = 0;
  for (const watcher of watchers) {
    checkWatcher(timeline, watcher, endRevision);
    events += watcher.texts.length;
  }
  return events;
}

function checkWatcher(timeline: Timeline, watcher: WatcherRecord, endRevision: number): void {
  const { name, texts, failure, reached, groups } = watcher;
  if (failure !== null) throw new Violation("watcher is told the truth", `${name} was ended: ${failure}`);
  const wanted = timeline.events
    .slice(watcher.startRevision + 1)
    .flat()
    .filter((event) => selects(watcher.selector, event.key) && isOfFilter(watcher, event));
  for (let at = 0; at < Math.max(texts.length, wanted.length); at += 1) {
    const event = wanted[at];
    const expected = event === undefined ? null : textOf(timeline, watcher, event);
    const text = texts[at] ?? null;
    if (text === expected) continue;
    // Everything up to here was right, and the rest has not come in time.
    const isLate = text === null && reached < endRevision;
    const rule = isLate ? "watcher catches up or is told why not" : "watcher sees every event once";
    const detail = `${name}, event ${at} of ${wanted.length}: ${text ?? "nothing"} instead of ${expected ?? "nothing"}`;
    throw new Violation(rule, detail);
  }
  if (groups === null) return;
  const ends = new Set(groups);
  for (const [at, event] of wanted.entries()) {
    const isEnd = wanted[at + 1]?.revision !== event.revision;
    if (ends.has(at + 1) === isEnd) continue;
    const detail = `${name}: revision ${event.revision} did not come whole`;
    throw new Violation("watcher sees every event once", detail);
  }
}

function isOfFilter({ filter }: WatcherRecord, { kind }: FeedEvent): boolean {
  return filter === null || (filter === "puts") === (kind === "put");
}

function selects(selector: WatchSelector, key: string): boolean {
  if ("prefix" in selector) return key.startsWith(selector.prefix);
  return key >= selector.range.start && key < selector.range.end;
}

function textOf(timeline: Timeline, { prevValues }: WatcherRecord, event: FeedEvent): string {
  if (!prevValues) return eventText(event);
  return eventText({ ...event, previous: recordAt(timeline, event.key, event.revision - 1).op });
}
