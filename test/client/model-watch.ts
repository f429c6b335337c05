/** One watch on one node of the model: what it has been sent, what it may be sent, and how that is cut. */
import type { WireWatchEvent, WireWatchFrame } from "../../src/api/wire.ts";
import { type ModelCluster, matches } from "./model-cluster.ts";

export interface WatchTerms {
  readonly key?: string | undefined;
  readonly prefix?: string | undefined;
  readonly range?: { readonly start?: string | undefined; readonly end?: string | undefined } | undefined;
  readonly from_revision?: number | undefined;
  readonly after?: string | undefined;
  readonly include_values?: boolean | undefined;
  readonly prev_values?: boolean | undefined;
  readonly filter?: string | undefined;
  readonly cluster_id?: string | undefined;
}

interface Position {
  readonly revision: number;
  readonly opIndex: number;
}

export interface WatchHost {
  readonly transport: "session" | "events";
  /** Whether another frame may be sent. */
  hasRoom(): boolean;
  send(frame: WireWatchFrame): void;
  break(): void;
}

export class ModelWatch {
  readonly terms: WatchTerms;
  readonly node: number;
  readonly #cluster: ModelCluster;
  readonly #host: WatchHost;
  #position: Position;
  #isReady = false;
  #isProgressWanted = false;
  /** A part of a revision was sent, and not its end. */
  #isInside = false;

  constructor(cluster: ModelCluster, node: number, terms: WatchTerms, host: WatchHost) {
    this.#cluster = cluster;
    this.#host = host;
    this.node = node;
    this.terms = terms;
    const from = terms.from_revision === undefined ? cluster.applied(node) : terms.from_revision - 1;
    this.#position = terms.after === undefined ? endOf(from) : parsePosition(terms.after);
    this.#isInside = this.#position.opIndex !== Number.POSITIVE_INFINITY;
    cluster.watches.add(this);
    cluster.opened.push({ node, transport: host.transport, terms });
  }

  get transport(): "session" | "events" {
    return this.#host.transport;
  }

  get position(): string {
    return positionText(this.#position);
  }

  pump(): void {
    while (this.#cluster.watches.has(this) && this.#host.hasRoom() && !this.#cluster.isHolding) {
      const frame = this.#next();
      if (frame === null) return;
      this.#host.send(frame);
    }
  }

  tell(frame: WireWatchFrame): void {
    const isLast = ["compacted", "slow_consumer", "resync", "cluster_changed"].includes(frame.kind);
    if (isLast) this.forget();
    const position = this.position;
    this.#host.send("position" in frame ? { ...frame, position } : frame);
    if (isLast && this.transport === "events") this.#host.break();
  }

  tellProgress(): void {
    this.#isProgressWanted = true;
    this.pump();
  }

  forget(): void {
    this.#cluster.watches.delete(this);
  }

  break(): void {
    this.forget();
    this.#host.break();
  }

  #next(): WireWatchFrame | null {
    const applied = this.#cluster.applied(this.node);
    const due = this.#cluster.events.filter((event) => this.#wants(event) && event.revision <= applied);
    const [first] = due;
    if (first === undefined) return this.#nextWithout(applied);
    const count = Math.max(1, this.#cluster.cut(due.length));
    const whole = wholeRevisions(due, count);
    const isEndMissing = this.#isInside && first.revision > this.#position.revision;
    if (isEndMissing && this.#cluster.cut(2) === 1) {
      this.#isInside = false;
      this.#position = endOf(this.#position.revision);
      return { kind: "events", events: [], complete: true, position: this.position };
    }
    if (whole.length > 0) {
      this.#isInside = false;
      const next = due[whole.length]?.revision ?? applied + 1;
      this.#position = endOf(next - 1);
      return this.#events(whole, true);
    }
    const part = due.slice(0, count);
    const last = part.at(-1)!;
    this.#isInside = true;
    this.#position = { revision: last.revision, opIndex: last.op_index };
    return this.#events(part, false);
  }

  #nextWithout(applied: number): WireWatchFrame | null {
    if (this.#isInside && this.#position.revision <= applied) {
      this.#isInside = false;
      this.#position = endOf(this.#position.revision);
      return { kind: "events", events: [], complete: true, position: this.position };
    }
    if (this.#position.revision > applied) return null;
    this.#position = endOf(applied);
    if (!this.#isReady) {
      this.#isReady = true;
      return { kind: "ready", revision: applied, position: this.position };
    }
    if (!this.#isProgressWanted) return null;
    this.#isProgressWanted = false;
    return { kind: "progress", revision: applied, position: this.position };
  }

  #events(events: readonly WireWatchEvent[], complete: boolean): WireWatchFrame {
    const shown = this.terms.include_values === false ? events.map(({ value: _, ...event }) => event) : events;
    return { kind: "events", events: shown, complete, position: this.position };
  }

  #wants(event: WireWatchEvent): boolean {
    const { revision, opIndex } = this.#position;
    const isLater = event.revision > revision || (event.revision === revision && event.op_index > opIndex);
    return isLater && matches(this.terms, event.key) && (this.terms.filter ?? `${event.type}s`) === `${event.type}s`;
  }
}

/** The events of the first revisions that fit into `count`. */
function wholeRevisions(events: readonly WireWatchEvent[], count: number): readonly WireWatchEvent[] {
  for (let end = Math.min(count, events.length); end > 0; end -= 1) {
    if (events[end]?.revision !== events[end - 1]?.revision) return events.slice(0, end);
  }
  return [];
}

function endOf(revision: number): Position {
  return { revision, opIndex: Number.POSITIVE_INFINITY };
}

export function parsePosition(text: string): Position {
  const [revision, opIndex] = text.split(".");
  return { revision: Number(revision), opIndex: opIndex === undefined ? Number.POSITIVE_INFINITY : Number(opIndex) };
}

function positionText({ revision, opIndex }: Position): string {
  return opIndex === Number.POSITIVE_INFINITY ? String(revision) : `${revision}.${opIndex}`;
}
