/**
 * Clients that hold leases: by the SDK's keeper until they give them back or lose them, and by hand with a short TTL,
 * renewed a few times and then left to expire.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { nextFloat, nextInteger } from "../../src/base/random.ts";
import { ConcordError } from "../../src/client/index.ts";
import type { KeptAlive } from "./access.ts";
import { type Change, LEASE_PREFIX, type LeaseRecord } from "./evidence.ts";
import { commit } from "./load.ts";
import { codeOf, count, type LoadClient, opOf, recordWrite } from "./recorder.ts";

const KEEPER_TTL_S = { min: 2, max: 6 } as const;
const SHORT_TTL_S = { min: 1, max: 3 } as const;
const KEPT_MS = { min: 2000, max: 12_000 } as const;
const REST_MS = { min: 100, max: 800 } as const;
const RENEWALS_MAX = 3;
/** Keep-alives by hand are for the moment. */
const RENEWAL_MS_MAX = 1000;

/** Leases by id, for what is overheard of keepers. */
export class LeaseBook {
  readonly #records = new Map<number, LeaseRecord>();
  readonly #early: KeptAlive[] = [];

  add(record: LeaseRecord): void {
    this.#records.set(record.id, record);
    for (const kept of this.#early.filter(({ lease }) => lease === record.id)) this.note(kept);
  }

  /** May come before the holder has seen its grant. */
  note(kept: KeptAlive): void {
    const { lease, ...renewal } = kept;
    const record = this.#records.get(lease);
    if (record === undefined) this.#early.push(kept);
    else record.renewals.push(renewal);
  }
}

/** A keeper after the other until the signal; the last one is given back then. */
export async function runKeepers(client: LoadClient, book: LeaseBook, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    await keepOne(client, book, signal);
    await pause(client, REST_MS, signal);
  }
}

async function keepOne(client: LoadClient, book: LeaseBook, signal: AbortSignal): Promise<void> {
  const { concord, random, records } = client;
  const sentMs = performance.now();
  const ttlS = nextInteger(random, KEEPER_TTL_S.min, KEEPER_TTL_S.max);
  const keeper = concord.lease.keep({ ttl_s: ttlS });
  let id: number;
  try {
    id = await keeper.ready;
  } catch (error) {
    count(records, "lease by keeper", `not granted, ${codeOf(error, records).text}`);
    await giveBack(client, () => keeper.close());
    return;
  }
  const lease = recordOf(client, { id, kind: "keeper", ttlS, sentMs });
  book.add(lease);
  const lost = keeper.lost.then(({ reason }) => {
    lease.lost = { atMs: performance.now(), reason };
    if (reason === "unknown_lease") lease.ends.push({ atMs: performance.now(), how: "told to its keeper" });
  });
  await putKeys(client, lease);
  await Promise.race([lost, pause(client, KEPT_MS, signal)]);
  lease.revokedMs = performance.now();
  // By the clock of this moment: the timer of the loss may be late.
  lease.isKept = !keeper.isLost;
  count(records, "lease by keeper", lease.isKept ? "given back" : "lost");
  await giveBack(client, () => keeper.close());
}

/** Whatever comes of it: then the lease ends by its TTL. */
async function giveBack(client: LoadClient, close: () => Promise<unknown>): Promise<void> {
  try {
    await close();
  } catch (error) {
    count(client.records, "giving back", codeOf(error, client.records).text);
  }
}

/** Leases that nobody keeps, one after the other until the signal. */
export async function runShortLeases(client: LoadClient, book: LeaseBook, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    await letOneExpire(client, book, signal);
    await pause(client, REST_MS, signal);
  }
}

async function letOneExpire(client: LoadClient, book: LeaseBook, signal: AbortSignal): Promise<void> {
  const { concord, random, records } = client;
  const ttlS = nextInteger(random, SHORT_TTL_S.min, SHORT_TTL_S.max);
  const sentMs = performance.now();
  let id: number;
  try {
    id = (await concord.lease.grant({ ttl_s: ttlS })).id;
  } catch (error) {
    count(records, "short lease", `not granted, ${codeOf(error, records).text}`);
    return;
  }
  const lease = recordOf(client, { id, kind: "short", ttlS, sentMs });
  book.add(lease);
  await putKeys(client, lease);
  for (let left = nextInteger(random, 0, RENEWALS_MAX); left > 0 && !signal.aborted; left -= 1) {
    await sleep(nextFloat(random) * ttlS * 700);
    try {
      // The answer is overheard.
      await concord.lease.keepAliveOnce(id, { timeoutMs: RENEWAL_MS_MAX });
      count(records, "keep-alive", "ok");
    } catch (error) {
      noteEnd(lease, error, "told to a keep-alive");
      count(records, "keep-alive", codeOf(error, records).text);
      if (lease.ends.length > 0) break;
    }
  }
  count(records, "short lease", "left to expire");
}

function recordOf(
  client: LoadClient,
  granted: Pick<LeaseRecord, "id" | "kind" | "ttlS"> & { readonly sentMs: number },
): LeaseRecord {
  const { sentMs, ...rest } = granted;
  const record: LeaseRecord = {
    ...rest,
    client: client.position,
    keys: [`${LEASE_PREFIX}${rest.id}/a`, `${LEASE_PREFIX}${rest.id}/b`],
    renewals: [{ askedMs: sentMs, sentMs, endMs: performance.now(), ttlS: rest.ttlS }],
    revokedMs: null,
    ends: [],
    lost: null,
    isKept: false,
  };
  client.records.leases.push(record);
  return record;
}

async function putKeys(client: LoadClient, lease: LeaseRecord): Promise<void> {
  const plan = {
    op: opOf(client),
    kind: "put under lease",
    changes: lease.keys.map((key): Change => ({ key, kind: "put", lease: lease.id })),
  };
  const attempt = async () => {
    try {
      return await commit(client, plan);
    } catch (error) {
      noteEnd(lease, error, "told to a put");
      throw error;
    }
  };
  await recordWrite(client, plan, [attempt]);
}

function noteEnd(lease: LeaseRecord, error: unknown, how: string): void {
  if (error instanceof ConcordError && error.code === "unknown_lease")
    lease.ends.push({ atMs: performance.now(), how });
}

async function pause(
  { random }: LoadClient,
  { min, max }: { readonly min: number; readonly max: number },
  signal: AbortSignal,
): Promise<void> {
  if (signal.aborted) return;
  await sleep(nextInteger(random, min, max), undefined, { signal }).catch(() => {}); // The end of the run ends it.
}
