/**
 * Who watches: on every node somebody who wants everything from the first revision on, over either transport; others with
 * selectors and filters, who give up their watch again and again and resume it elsewhere behind their position.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { nextInteger, type Random } from "../../src/base/random.ts";
import { type Concord, ConcordError, type WatchEvent, type WatchOptions } from "../../src/client/index.ts";
import { eventText, LEASE_PREFIX, valueParts, type WatcherRecord, type WatchSelector } from "./evidence.ts";

/** What all of the run's keys begin with. */
export const ALL_PREFIX = "/n/";

export interface WatcherPlan {
  readonly name: string;
  readonly selector: WatchSelector;
  readonly filter?: "puts" | "deletes";
  readonly prevValues?: boolean;
  readonly isGrouped?: boolean;
  /** Goes elsewhere every so often. Null: one watch for all the time. */
  readonly moveEveryMs: number | null;
  /** From the first revision on, or from now on. */
  readonly fromStart: boolean;
  /** Another client for each watch. */
  readonly connect: () => Concord;
}

export interface Watcher {
  readonly record: WatcherRecord;
  /** Nothing that is written from now on is missed. */
  readonly opened: Promise<void>;
  /** Resolves when everything up to that revision has come, or the watch has failed. */
  reach(revision: number, patienceMs: number): Promise<void>;
  close(): Promise<void>;
}

export function startWatcher(plan: WatcherPlan, random: Random): Watcher {
  const { name, selector, filter = null, prevValues = false, isGrouped = false } = plan;
  const record: WatcherRecord = {
    name,
    selector,
    filter,
    prevValues,
    startRevision: 0,
    texts: [],
    groups: isGrouped ? [] : null,
    leaseEnds: new Map(),
    reached: 0,
    resumptions: 0,
    failure: null,
  };
  const over = new AbortController();
  let isOpen: () => void = () => {};
  const opened = new Promise<void>((resolve) => {
    isOpen = resolve;
  });
  const running = run({ plan, random, record, signal: over.signal, isOpen }).catch((error: unknown) => {
    record.failure = error instanceof ConcordError ? error.message : String(error);
    isOpen();
  });
  return {
    record,
    opened,
    async reach(revision, patienceMs) {
      const deadlineMs = performance.now() + patienceMs;
      while (record.reached < revision && record.failure === null && performance.now() < deadlineMs) await sleep(20);
    },
    async close() {
      over.abort();
      await running;
    },
  };
}

interface Running {
  readonly plan: WatcherPlan;
  readonly random: Random;
  readonly record: WatcherRecord;
  readonly signal: AbortSignal;
  readonly isOpen: () => void;
}

/** Watch after watch, each behind the position of the one before. */
async function run(running: Running): Promise<void> {
  const { plan, random, record, signal, isOpen } = running;
  let position: string | null = null;
  while (!signal.aborted) {
    const concord = plan.connect();
    const moveAfterMs =
      plan.moveEveryMs === null ? null : nextInteger(random, plan.moveEveryMs / 2, plan.moveEveryMs * 2);
    const patience = moveAfterMs === null ? [] : [AbortSignal.timeout(moveAfterMs)];
    const over = AbortSignal.any([signal, ...patience]);
    const start: WatchOptions = position !== null ? { after: position } : plan.fromStart ? { from_revision: 1 } : {};
    position =
      (await watchOnce(running, concord, { ...start, ...optionsOf(running), signal: over }, isOpen)) ?? position;
    concord.close();
    if (!signal.aborted) record.resumptions += 1;
  }
}

function optionsOf({ plan, record }: Running): WatchOptions {
  return {
    prev_values: plan.prevValues === true,
    ...(plan.filter === undefined ? {} : { filter: plan.filter }),
    onStatus: (status) => {
      if (status.kind === "resumed") record.resumptions += 1;
      if (status.kind === "ready" || status.kind === "progress")
        record.reached = Math.max(record.reached, status.revision);
    },
  };
}

/** Answers where the next one goes on. */
async function watchOnce(
  { plan, record }: Running,
  { sync }: Concord,
  options: WatchOptions,
  isOpen: () => void,
): Promise<string | null> {
  const isFirst = options.after === undefined;
  if (plan.isGrouped === true) {
    const watch = sync.watchGrouped(plan.selector, options);
    await watch.open();
    if (isFirst) begin(record, plan, watch.position, isOpen);
    for await (const { events } of watch) {
      for (const event of events) note(record, event);
      record.groups?.push(record.texts.length);
    }
    return watch.position;
  }
  const watch = sync.watch(plan.selector, options);
  await watch.open();
  if (isFirst) begin(record, plan, watch.position, isOpen);
  for await (const event of watch) note(record, event);
  return watch.position;
}

/** `position`: behind which a watch from now on begins; null if it was ended before that was known. */
function begin(record: WatcherRecord, { fromStart }: WatcherPlan, position: string | null, isOpen: () => void): void {
  if (!fromStart && position === null) return;
  record.startRevision = fromStart || position === null ? 0 : Number(position.split(".")[0]);
  isOpen();
}

function note(record: WatcherRecord, event: WatchEvent): void {
  const { revision, op_index: opIndex, type: kind } = event;
  const key = String(event.key);
  const { op } = valueParts(event.value ?? null);
  const previous = record.prevValues ? { previous: valueParts(event.prev_value ?? null).op } : {};
  record.texts.push(eventText({ revision, opIndex, kind, key, op, ...previous }));
  record.reached = Math.max(record.reached, revision);
  if (kind === "delete" && key.startsWith(LEASE_PREFIX) && !record.leaseEnds.has(key)) {
    record.leaseEnds.set(key, performance.now());
  }
}
