/** A small history in which nothing is wrong, to be falsified by the tests of the checks. */
import { REGISTER_PREFIX } from "./checks.ts";
import {
  type Evidence,
  eventText,
  type FeedEvent,
  LEASE_PREFIX,
  type WatcherRecord,
  type WriteRecord,
} from "./evidence.ts";
import { ACCOUNTS_READ } from "./read-check.ts";

type Mutable<T> = T extends readonly (infer Item)[]
  ? Mutable<Item>[]
  : T extends Map<infer Key, infer Value>
    ? Map<Key, Value>
    : T extends object
      ? { -readonly [Name in keyof T]: Mutable<T[Name]> }
      : T;

export type Draft = Mutable<Evidence>;

export const KEY = `${REGISTER_PREFIX}0/0`;
export const OTHER = `${REGISTER_PREFIX}0/1`;
export const REPEATED = "/n/repeat/";
export const LEASE_KEY = `${LEASE_PREFIX}1/a`;
const ACCOUNTS = ["/n/account/0", "/n/account/1"];

/** An answered write that began at `callMs` and took one. */
export function answered(op: string, callMs: number, revision: number, rest: Partial<WriteRecord> = {}): WriteRecord {
  return {
    client: 0,
    callMs,
    endMs: callMs + 1,
    seen: 0,
    op,
    kind: "put",
    compares: [],
    changes: [{ key: KEY, kind: "put" }],
    end: { kind: "answered", succeeded: true, hadEffect: true, revisions: [revision] },
    ...rest,
  };
}

export function put(revision: number, key: string, op: string, rest: Partial<FeedEvent> = {}): FeedEvent {
  const fresh = { createRevision: revision, version: 1, lease: null, amount: null };
  return { revision, opIndex: 0, kind: "put", key, op, ...fresh, ...rest };
}

export function gone(
  revision: number,
  key: string,
  before: { readonly createRevision: number; readonly version: number },
): FeedEvent {
  return { ...put(revision, key, ""), ...before, kind: "delete", op: null };
}

/** Two clients write, read, watch and hold a lease of 2 s; nothing is wrong. */
export function history(): Draft {
  const feed: FeedEvent[] = [
    put(1, KEY, "a"),
    put(2, KEY, "b", { createRevision: 1, version: 2 }),
    put(3, LEASE_KEY, "l", { lease: 1 }),
    gone(4, KEY, { createRevision: 1, version: 3 }),
    put(5, `${REPEATED}r/${"5".padStart(16, "0")}`, "r"),
    put(6, ACCOUNTS[0]!, "o", { amount: 60 }),
    put(6, ACCOUNTS[1]!, "o", { opIndex: 1, amount: 40 }),
    gone(7, LEASE_KEY, { createRevision: 3, version: 2 }),
    put(8, KEY, "u"),
  ];
  const swap = { compares: [{ key: KEY, op: "a", modRevision: 1 }], kind: "put if" };
  const evidence: Evidence = {
    clients: [{ name: "client 0", revisions: [1, 2, 8] }],
    writes: [
      answered("a", 10, 1),
      answered("b", 20, 2, swap),
      answered("l", 30, 3, { changes: [{ key: LEASE_KEY, kind: "put", lease: 1 }] }),
      answered("d", 40, 4, { changes: [{ key: KEY, kind: "delete" }] }),
      answered("r", 50, 5, {
        changes: [{ key: `${REPEATED}r/`, kind: "put", suffixed: true }],
        end: { kind: "answered", succeeded: true, hadEffect: true, revisions: [5, 5] },
      }),
      answered("o", 60, 6, {
        kind: ACCOUNTS_READ,
        changes: ACCOUNTS.map((key, at) => ({ key, kind: "put", amount: at === 0 ? 60 : 40 })),
      }),
      answered("f", 70, 6, { ...swap, end: { kind: "answered", succeeded: false, hadEffect: false, revisions: [6] } }),
      answered("x", 75, 0, { changes: [{ key: OTHER, kind: "put" }], end: { kind: "refused", code: "no_leader" } }),
      answered("u", 80, 0, { endMs: Number.POSITIVE_INFINITY, end: { kind: "unknown", code: "timeout" } }),
      answered("n", 85, 0, { endMs: Number.POSITIVE_INFINITY, end: { kind: "unknown", code: "timeout" } }),
    ],
    reads: [
      read(25, 26, null, true, [{ key: KEY, op: "b", modRevision: 2 }]),
      read(27, 28, 1, false, [{ key: KEY, op: "a", modRevision: 1 }]),
      read(
        65,
        66,
        6,
        true,
        ACCOUNTS.map((key, at) => ({ key, op: "o", modRevision: 6, amount: at === 0 ? 60 : 40 })),
        ACCOUNTS_READ,
      ),
    ],
    leases: [
      {
        id: 1,
        client: 0,
        kind: "keeper",
        ttlS: 2,
        keys: [LEASE_KEY],
        renewals: [
          { askedMs: 20, sentMs: 20, endMs: 22, ttlS: 2 },
          { askedMs: 700, sentMs: 700, endMs: 710, ttlS: 2 },
        ],
        revokedMs: null,
        ends: [],
        lost: { atMs: 2100, reason: "time_over" },
        isKept: false,
      },
    ],
    watchers: [watcher(feed, false), watcher(feed, true)],
    feeds: [feed, structuredClone(feed)],
  };
  return evidence as Draft;
}

export function read(
  callMs: number,
  endMs: number,
  revision: number | null,
  isLinearizable: boolean,
  found: readonly { key: string; op: string | null; modRevision: number; amount?: number }[],
  kind = "get",
): Evidence["reads"][number] {
  const records = found.map((one) => ({ amount: null, ...one }));
  return { client: 0, callMs, endMs, seen: 0, kind, isLinearizable, revision, found: records };
}

function watcher(feed: readonly FeedEvent[], isGrouped: boolean): WatcherRecord {
  return {
    name: isGrouped ? "grouped" : "single",
    selector: { prefix: "/n/" },
    filter: null,
    prevValues: false,
    startRevision: 0,
    texts: feed.map((event) => eventText(event)),
    groups: isGrouped ? [1, 2, 3, 4, 5, 7, 8, 9] : null,
    leaseEnds: new Map([[LEASE_KEY, 2750]]),
    reached: 8,
    resumptions: 1,
    failure: null,
  };
}
