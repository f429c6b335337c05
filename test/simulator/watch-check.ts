/**
 * What a watcher may be told, frame by frame, against the committed history (safety.ts).
 *
 * V1. Frames bring every matching event behind the watcher's position, each once, in order, up to the frame's position,
 *     with the fields and the previous record that the history has.
 * V2. A frame that says `complete` ends behind a whole revision; one that does not is a part, and the rest of its revision
 *     follows before anything else. An empty frame is nothing but the mark of such an end.
 * V3. `ready(r)` and `progress(r)` come when nothing up to r is left; `ready` once per watch; nothing is told of revisions
 *     that are not committed.
 * V4. A last frame is true: compacted is what the watcher needs, and a slow consumer has been sent all up to its position.
 */
import type { ChangeEvent, KeyRecord } from "../../src/kv/command.ts";
import { comparePositions, endOf, isWhole, type Position, positionOf } from "../../src/kv/position.ts";
import type { Frame } from "../../src/watch/frames.ts";
import type { WatchOptions } from "../../src/watch/hub.ts";
import { selects } from "./model.ts";
import type { KnownEvent, Safety } from "./safety.ts";
import { encodeEvent } from "./sockets.ts";
import { type Rule, Violation } from "./violation.ts";

/** What one watcher has seen. */
export interface Sight {
  readonly name: string;
  readonly wants: Pick<WatchOptions, "selector" | "includeValues" | "prevValues" | "filter">;
  /** Everything up to here has arrived. */
  position: Position;
  /** `ready` has come on the present watch. */
  ready: boolean;
  events: number;
}

type WatchFrame = Exclude<Frame, { kind: "leader_changed" }>;

export function checkFrame(safety: Safety, sight: Sight, frame: WatchFrame): void {
  switch (frame.kind) {
    case "events":
      checkEvents(safety, sight, frame);
      return;
    case "ready":
      if (sight.ready) fail("watcher is told the truth", sight, frame, "a second ready");
      sight.ready = true;
      checkNothingLeft(safety, sight, frame, frame.revision);
      return;
    case "progress":
      if (!sight.ready) fail("watcher is told the truth", sight, frame, "progress before ready");
      checkNothingLeft(safety, sight, frame, frame.revision);
      return;
    case "slow_consumer":
      if (comparePositions(frame.position, sight.position) < 0) {
        fail("watcher is told the truth", sight, frame, "a position behind what has arrived");
      }
      expectNone(safety, sight, frame, frame.position);
      sight.position = frame.position;
      return;
    case "compacted": {
      const { compactRevision } = frame;
      if (compactRevision > safety.replay.compactRevision) {
        fail("watcher is told the truth", sight, frame, "a compaction that is not committed");
      }
      if (comparePositions(sight.position, endOf(compactRevision)) >= 0) {
        fail("watcher is told the truth", sight, frame, "nothing that it needs is compacted");
      }
      return;
    }
    case "resync": {
      // A snapshot was installed, whose history begins behind what the watch has.
      const { revision, compactRevision } = safety.replay;
      if (frame.revision > revision)
        fail("watcher is told the truth", sight, frame, "a revision that is not committed");
      if (comparePositions(sight.position, endOf(compactRevision)) >= 0) {
        fail("watcher is told the truth", sight, frame, "nothing that it needs is compacted");
      }
      return;
    }
    default:
      fail("watcher is told the truth", sight, frame, "nothing of the kind has happened");
  }
}

/** V1, V2 */
function checkEvents(safety: Safety, sight: Sight, frame: Extract<WatchFrame, { kind: "events" }>): void {
  const { events, complete, position } = frame;
  const rule = "watcher sees every event once";
  if (comparePositions(position, sight.position) <= 0) fail(rule, sight, frame, "it leads nowhere");
  if (isWhole(position) !== complete) fail(rule, sight, frame, "its position does not say whether it is complete");
  if (position.revision >= safety.events.length) fail(rule, sight, frame, "a revision that is not committed");
  const inside = !isWhole(sight.position);
  if (events.length === 0 && !(complete && inside && position.revision === sight.position.revision)) {
    fail(rule, sight, frame, "an end of nothing");
  }
  if (!complete && inside && position.revision !== sight.position.revision) {
    fail(rule, sight, frame, "the revision before it has no end");
  }
  const expected = matching(safety, sight, position);
  const texts = events.map(({ text }) => text);
  const wanted = expected.map((known) => textOf(known, sight));
  if (texts.length !== wanted.length || texts.some((text, at) => text !== wanted[at])) {
    fail(rule, sight, frame, `the history has ${wanted.join(" ")}`);
  }
  const first = expected[0];
  if (!complete && first !== undefined && first.event.revision !== position.revision) {
    fail(rule, sight, frame, "a part of more than one revision");
  }
  sight.position = position;
  sight.events += events.length;
}

/** V3 */
function checkNothingLeft(safety: Safety, sight: Sight, frame: WatchFrame, revision: number): void {
  const rule = "watcher is told the truth";
  if (revision >= safety.events.length) fail(rule, sight, frame, "a revision that is not committed");
  if (!isWhole(sight.position) && sight.position.revision <= revision) {
    fail(rule, sight, frame, "the revision before it has no end");
  }
  expectNone(safety, sight, frame, endOf(revision));
  if (comparePositions(endOf(revision), sight.position) > 0) sight.position = endOf(revision);
}

function expectNone(safety: Safety, sight: Sight, frame: WatchFrame, upTo: Position): void {
  const left = matching(safety, sight, upTo);
  if (left.length === 0) return;
  const texts = left.map((known) => textOf(known, sight)).join(" ");
  fail("watcher is told the truth", sight, frame, `these have not arrived: ${texts}`);
}

/** Events behind the watcher's position that it wants, up to and with another. */
function matching(safety: Safety, sight: Sight, upTo: Position): KnownEvent[] {
  const found: KnownEvent[] = [];
  const { position, wants } = sight;
  for (let revision = position.revision; revision <= upTo.revision; revision += 1) {
    for (const known of safety.events[revision] ?? []) {
      const { event } = known;
      const at = positionOf(event);
      if (comparePositions(at, position) <= 0 || comparePositions(at, upTo) > 0) continue;
      const typed = wants.filter === null || (wants.filter === "puts") === (event.type === "put");
      if (typed && selects(wants.selector, event.key)) found.push(known);
    }
  }
  return found;
}

function textOf({ event, before }: KnownEvent, { wants }: Sight): string {
  return encodeEvent(event, wants.prevValues ? recordOf(before) : undefined, wants.includeValues);
}

function recordOf(event: ChangeEvent | null): KeyRecord | null {
  if (event === null || event.value === null) return null;
  const { key, value, create_revision, mod_revision, version } = event;
  const { lease_id, expires_at_ms, content_type, metadata } = event;
  return {
    key,
    value,
    create_revision,
    mod_revision,
    version,
    lease_id,
    expires_at_ms,
    content_type,
    metadata,
  };
}

function fail(rule: Rule, sight: Sight, frame: WatchFrame, why: string): never {
  const { revision, opIndex } = sight.position;
  const shown = frame.kind === "events" ? { ...frame, events: frame.events.map(({ text }) => text) } : frame;
  throw new Violation(rule, `${sight.name} at ${revision}.${opIndex} is told ${JSON.stringify(shown)}: ${why}`);
}
