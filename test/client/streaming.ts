/** What the tests of watches and topics share: a client of the model over each transport, and its time. */
import { Concord, type ConnectOptions } from "../../src/client/index.ts";
import { DrivenClock } from "./driven-clock.ts";
import { ModelCluster, URL_BASE } from "./model-cluster.ts";

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
