/**
 * One node with a hub over a real machine, and clients that check every frame they get: order, wholeness, previous
 * values and statuses, against the list of all events that ever happened (the truth).
 */
import { expect } from "vitest";
import type { ChangeEvent, Command, KeyRecord, Selector } from "../../src/kv/command.ts";
import { selects } from "../../src/kv/history-walk.ts";
import { comparePositions, endOf, isWhole, type Position, positionOf } from "../../src/kv/position.ts";
import type { EncodeEvent } from "../../src/watch/encoded-event.ts";
import type { Frame } from "../../src/watch/frames.ts";
import { createHistoryView, type HistoryView } from "../../src/watch/history-view.ts";
import {
  acknowledge,
  createHub,
  type Hub,
  hasWork,
  type SavedWatch,
  type Subscription,
  savedPositions,
  subscribe,
  type WatchOptions,
} from "../../src/watch/hub.ts";
import type { HubLimits } from "../../src/watch/limits.ts";
import { publish } from "../../src/watch/publish.ts";
import { type Pumped, pump } from "../../src/watch/pump.ts";
import { Harness } from "../kv/harness.ts";

export const encode: EncodeEvent = (event, previous, includeValue) => {
  const { value, ...rest } = event;
  return JSON.stringify({
    ...rest,
    ...(includeValue ? { value } : {}),
    ...(previous === undefined ? {} : { prev_value: previous === null ? null : previous.value }),
  });
};

/** Every event that ever happened, and the record before each. */
export class Truth {
  readonly events: ChangeEvent[] = [];
  readonly previous: (KeyRecord | null)[] = [];
  readonly #records = new Map<string, KeyRecord>();

  add(event: ChangeEvent): void {
    this.events.push(event);
    this.previous.push(this.#records.get(event.key) ?? null);
    if (event.value === null) this.#records.delete(event.key);
    else {
      const { type: _type, revision: _revision, op_index: _opIndex, ...record } = event;
      this.#records.set(event.key, { ...record, value: event.value });
    }
  }

  /** Index of the first event behind a position. */
  firstBehind(position: Position): number {
    const at = this.events.findIndex((event) => comparePositions(positionOf(event), position) > 0);
    return at < 0 ? this.events.length : at;
  }
}

export type Options = Partial<Omit<Subscription, "connection" | "watchId">>;

/** A client's end of one watch. */
export class Client {
  readonly options: WatchOptions;
  readonly truth: Truth;
  /** What it has, as the frames say. */
  position: Position;
  readonly got: ChangeEvent[] = [];
  readonly frames: Frame[] = [];
  /** Positions of frames that it could acknowledge. */
  readonly positions: Position[] = [];
  ended: Frame | null = null;
  ready: number | null = null;
  readonly #start: Position;
  #next: number;

  constructor(options: WatchOptions, truth: Truth, position: Position) {
    this.options = options;
    this.truth = truth;
    this.position = position;
    this.#start = position;
    this.#next = truth.firstBehind(position);
  }

  get statuses(): string[] {
    return this.frames.flatMap((frame) => (frame.kind === "events" ? [] : [frame.kind]));
  }

  /** Short text of what came: `put k@3`. */
  get story(): string[] {
    return this.got.map((event) => `${event.type} ${event.key}@${event.revision}`);
  }

  take(frame: Frame): void {
    expect(this.ended, "nothing comes after the last frame").toBeNull();
    this.frames.push(frame);
    switch (frame.kind) {
      case "events":
        this.#takeEvents(frame);
        return;
      case "ready":
      case "progress":
        if (frame.kind === "ready") {
          expect(this.ready, "ready comes once").toBeNull();
          this.ready = frame.revision;
        }
        expect(frame.position).toEqual(endOf(frame.revision));
        this.#moveTo(frame.position);
        return;
      case "leader_changed":
        return;
      case "slow_consumer":
        expect(comparePositions(frame.position, this.position)).toBeGreaterThanOrEqual(0);
        this.#moveTo(frame.position);
        this.ended = frame;
        return;
      default:
        this.ended = frame;
    }
  }

  #takeEvents(frame: Frame & { kind: "events" }): void {
    const { events, complete, position } = frame;
    if (events.length === 0) expect(complete && !isWhole(this.position), "an empty frame is an end mark").toBe(true);
    expect(isWhole(position)).toBe(complete);
    if (!complete) expect(new Set(events.map(({ event }) => event.revision)).size, "a part is of one revision").toBe(1);
    if (!isWhole(this.position) && !complete) expect(events[0]?.event.revision).toBe(this.position.revision);
    for (const { event, previous, text } of events) {
      const expected = this.#nextWanted();
      // One comparison of texts per event: these run by the hundred thousand.
      const wanted = expected === null ? "nothing" : this.#textOf(expected.event, expected.previous);
      const came = this.#textOf(event, previous ?? null);
      if (came !== wanted) throw new Error(`watch ${this.options.watchId} got ${came}, wanted ${wanted}`);
      if (!this.options.prevValues && previous !== undefined) throw new Error("a previous record was not asked for");
      if (text !== encode(event, previous, this.options.includeValues)) throw new Error(`the text is ${text}`);
      this.got.push(event);
    }
    this.#moveTo(position);
  }

  #textOf(event: ChangeEvent, previous: KeyRecord | null): string {
    return JSON.stringify(canonical({ ...event, previous: this.options.prevValues ? previous : "unasked" }));
  }

  #nextWanted(): { event: ChangeEvent; previous: KeyRecord | null } | null {
    const { events, previous } = this.truth;
    for (; this.#next < events.length; this.#next += 1) {
      const event = events[this.#next] as ChangeEvent;
      if (!this.wants(event)) continue;
      this.#next += 1;
      return { event, previous: previous[this.#next - 1] ?? null };
    }
    return null;
  }

  wants(event: ChangeEvent): boolean {
    // A watch may begin where the truth has not arrived yet.
    if (comparePositions(positionOf(event), this.#start) <= 0) return false;
    const { selector, filter } = this.options;
    if (filter !== null && (filter === "puts") !== (event.type === "put")) return false;
    return selects(selector, event.key);
  }

  /** The node says that everything up to here was sent. */
  #moveTo(position: Position): void {
    expect(comparePositions(position, this.position), "positions never fall").toBeGreaterThanOrEqual(0);
    this.position = position;
    this.positions.push(position);
    const { events } = this.truth;
    for (let event = events[this.#next]; event !== undefined; event = events[this.#next]) {
      if (comparePositions(positionOf(event), position) > 0) return;
      if (this.wants(event)) {
        throw new Error(`(${event.revision}, ${event.op_index}) is skipped by ${JSON.stringify(position)}`);
      }
      this.#next += 1;
    }
  }

  /** Nothing that has happened is missing. */
  expectAll(): void {
    this.#moveTo(endOf(this.truth.events.at(-1)?.revision ?? 0));
  }
}

/** Properties in one order: records come from memory here and from rows there. */
function canonical(value: object): object {
  const entries = Object.entries(value).sort(([left], [right]) => (left < right ? -1 : 1));
  return entries.map(([name, member]) => [
    name,
    member !== null && typeof member === "object" ? canonical(member) : member,
  ]);
}

export class Rig {
  readonly harness = new Harness();
  readonly truth: Truth;
  limits: Partial<HubLimits>;
  hub: Hub;
  nowMs = 0;
  readonly clients = new Map<string, Client>();
  /** What the socket of each connection carries: written whenever a frame goes out or a watch comes. */
  readonly attachments = new Map<string, SavedWatch[]>();
  #published = 0;

  constructor(limits: Partial<HubLimits> = {}, truth = new Truth()) {
    this.limits = limits;
    this.truth = truth;
    this.hub = createHub({ revision: 0, encode, limits });
  }

  get revision(): number {
    return this.harness.machine.revision;
  }

  view(): HistoryView {
    return createHistoryView(this.harness.machine);
  }

  /** Applies and publishes, as the runtime does; `record` is false on a node that follows another one's truth. */
  apply(command: Command, record = true): void {
    this.harness.apply(command);
    this.publishApplied(record);
  }

  publishApplied(record = true): void {
    const { events } = this.harness;
    const fresh = events.slice(this.#published);
    this.#published = events.length;
    if (record) for (const event of fresh) this.truth.add(event);
    for (let from = 0; from < fresh.length; ) {
      const { revision } = fresh[from] as ChangeEvent;
      let to = from;
      while (fresh[to]?.revision === revision) to += 1;
      publish(this.hub, fresh.slice(from, to));
      from = to;
    }
  }

  put(key: string, json: string | number = 1): number {
    this.harness.put(key, json);
    this.publishApplied();
    return this.revision;
  }

  delete(key: string): number {
    this.harness.delete(key);
    this.publishApplied();
    return this.revision;
  }

  compact(revision: number): void {
    this.apply({ kind: "compact", revision });
  }

  watch(selector: Selector, options: Options = {}, connection = "a", watchId = this.freeId(connection)): Client {
    const subscription: Subscription = {
      connection,
      watchId,
      selector,
      includeValues: true,
      prevValues: false,
      filter: null,
      fromRevision: null,
      ...options,
    };
    const subscribed = subscribe(this.hub, subscription);
    if (!subscribed.ok) throw new Error(subscribed.error.detail);
    const client = new Client(subscription, this.truth, subscribed.position);
    this.clients.set(idOf(connection, watchId), client);
    this.attachments.set(connection, savedPositions(this.hub, connection));
    return client;
  }

  freeId(connection: string): number {
    let id = 0;
    while (this.clients.has(idOf(connection, id))) id += 1;
    return id;
  }

  pumpOnce(view = this.view()): Pumped {
    const pumped = pump(this.hub, view, this.nowMs);
    const sent = new Set<string>();
    for (const frame of pumped.frames) {
      sent.add(frame.connection);
      if (frame.kind === "leader_changed") {
        for (const client of this.clients.values())
          if (client.options.connection === frame.connection) client.take(frame);
        continue;
      }
      const client = this.clients.get(idOf(frame.connection, frame.watchId));
      if (client === undefined) throw new Error(`a frame for ${frame.connection}/${frame.watchId}, which is gone`);
      client.take(frame);
    }
    for (const connection of sent) this.attachments.set(connection, savedPositions(this.hub, connection));
    return pumped;
  }

  /** Pumps until there is no more to do. */
  pump(): Frame[] {
    const frames: Frame[] = [];
    for (let round = 0; round < 10_000; round += 1) {
      const pumped = this.pumpOnce();
      frames.push(...pumped.frames);
      if (!pumped.more) {
        expect(hasWork(this.hub)).toBe(false);
        return frames;
      }
    }
    throw new Error("the hub never comes to rest");
  }

  ack(client: Client, position = client.position): void {
    const { connection, watchId } = client.options;
    acknowledge(this.hub, { connection, watchId, position, nowMs: this.nowMs });
  }

  /** Acknowledges and pumps until every client has everything. */
  settle(): void {
    for (let round = 0; round < 10_000; round += 1) {
      this.pump();
      const open = [...this.clients.values()].filter((client) => client.ended === null);
      const owing = this.hub.unacknowledged;
      for (const client of open) this.ack(client);
      if (owing === 0 && !hasWork(this.hub)) return;
    }
    throw new Error("the clients never get everything");
  }

  drop(client: Client): void {
    this.clients.delete(idOf(client.options.connection, client.options.watchId));
  }

  /** Another instance of the node: memory is gone. */
  restartHub(): void {
    this.harness.restart();
    this.hub = createHub({ revision: this.revision, encode, limits: this.limits });
  }
}

export function idOf(connection: string, watchId: number): string {
  return `${connection}/${watchId}`;
}

export const ALL: Selector = { prefix: "" };

/**
 * Removes what compaction allows to remove (kv/compaction.ts D1, D2), as a node would some day: below or at r, of each
 * key only its last version stays, and only if it is a put.
 */
export function removeCompacted(harness: Harness): void {
  const { store, machine } = harness;
  const last = new Map<string, string>();
  for (const [row, text] of store.rows()) {
    if (!row.startsWith("k")) continue;
    const revision = Number(row.slice(-21, -5));
    if (revision > machine.compactRevision) continue;
    const key = row.slice(0, -21);
    const older = last.get(key);
    if (older !== undefined) removeVersion(harness, older);
    if (text === "d") {
      removeVersion(harness, row);
      last.delete(key);
    } else last.set(key, row);
  }
}

function removeVersion({ store }: Harness, row: string): void {
  store.delete(row);
  store.delete(`r${row.slice(-21)}`);
}
