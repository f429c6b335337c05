/** What the tests of watches and topics share: a client of the model over each transport, and its time. */
import { expect } from "vitest";
import type { WireWatchEvent } from "../../src/api/wire.ts";
import { Concord, ConcordError, type ConnectOptions } from "../../src/client/index.ts";
import { DrivenClock } from "./driven-clock.ts";
import { type Answer, type Asked, ModelCluster, URL_BASE } from "./model-cluster.ts";

export const TRANSPORTS = ["session", "events"] as const;
export type TransportName = (typeof TRANSPORTS)[number];

export interface Setting {
  readonly cluster: ModelCluster;
  readonly clock: DrivenClock;
  readonly concord: Concord;
}

export function createSetting(transport: TransportName, options: Partial<ConnectOptions> = {}): Setting {
  const cluster = new ModelCluster();
  const clock = new DrivenClock(settle);
  return { cluster, clock, concord: connectTo(cluster, clock, transport, options) };
}

export function connectTo(
  cluster: ModelCluster,
  clock: DrivenClock,
  transport: TransportName,
  options: Partial<ConnectOptions> = {},
): Concord {
  return Concord.connect({
    url: URL_BASE,
    fetch: cluster.fetch,
    ...(transport === "session" ? { webSocket: cluster.openSocket } : {}),
    clock,
    random: () => 0.5,
    ...options,
  });
}

/** Lets everything happen that needs no time; streams take turns of the platform. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < 8; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

/** Takes what comes, until it ends; `items` can be looked at meanwhile. */
export function collect<T>(source: AsyncIterable<T>) {
  const items: T[] = [];
  let outcome: "open" | "done" | unknown = "open";
  const ended = (async () => {
    try {
      for await (const item of source) items.push(item);
      outcome = "done";
    } catch (error) {
      outcome = error;
    }
  })();
  return {
    items,
    ended,
    get outcome() {
      return outcome;
    },
  };
}

export async function errorOf(promise: Promise<unknown>): Promise<ConcordError> {
  const error = await promise.then(
    (value) => new Error(`answered ${JSON.stringify(value)}`),
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(ConcordError);
  return error as ConcordError;
}

/** Awaits what needs the clock to move. */
export async function within<T>(
  clock: { advance(ms: number): Promise<void> },
  ms: number,
  promise: Promise<T>,
): Promise<T> {
  promise.catch(() => {}); // Awaited below.
  await clock.advance(ms);
  return await promise;
}

export function sentOf(socket: { readonly sent: readonly string[] } | undefined): Asked[] {
  return (socket?.sent ?? []).filter((text) => text !== "ping").map((text) => JSON.parse(text) as Asked);
}

/** Answers one after the other, then as a node would. */
export function script(...answers: readonly Answer[]): (asked: Asked) => Answer | undefined {
  const left = [...answers];
  return () => left.shift();
}

export function fetchNothing(): Promise<Response> {
  return new Promise(() => {});
}

export function keysOf(events: readonly WireWatchEvent[]): unknown[] {
  return events.map(({ key }) => key);
}
