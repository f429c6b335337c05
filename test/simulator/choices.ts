/** What a client does next: the mix of the workload. Every command carries the number of its operation (history-check.ts). */
import { nextFloat, nextInteger, type Random } from "../../src/base/random.ts";
import type { Command, Compare, Operation, Query, Selector } from "../../src/kv/command.ts";
import { WALL_EPOCH_MS } from "./clock.ts";
import type { Client, Workload } from "./workload.ts";

export interface Choice {
  readonly command: (id: number) => Command;
  /** `own`: under a key of its own. `reused`: under the key of another operation. */
  readonly idempotent: "no" | "own" | "reused";
}

const LIST_LIMIT = 100;
const LONG_VALUE = "x".repeat(400);
/** Ids that clients choose themselves lie here. */
const CHOSEN_LEASE_ID = 1_000_000;
const UNKNOWN_LEASE_ID = 999_999;

export function chooseQuery(workload: Workload): { readonly query: Query; readonly linearizable: boolean } {
  const { world, keys, history, listPrefix } = workload;
  const { random } = world;
  const roll = nextFloat(random);
  const key = pick(random, keys);
  const list = { kind: "list", order: "asc", keys_only: false, count_only: false } as const;
  const old = history.floor === 0 ? {} : { revision: nextInteger(random, 1, history.floor) };
  if (roll < 0.42) return { query: { kind: "get", key }, linearizable: true };
  if (roll < 0.58) {
    const limit = nextFloat(random) < 0.3 ? 2 : LIST_LIMIT;
    return { query: { ...list, selector: { prefix: listPrefix }, limit }, linearizable: true };
  }
  if (roll < 0.68) return { query: { kind: "get", key }, linearizable: false };
  if (roll < 0.76) return { query: { kind: "get", key, ...old }, linearizable: true };
  if (roll < 0.79) {
    return { query: { ...list, selector: { prefix: listPrefix }, limit: LIST_LIMIT, ...old }, linearizable: true };
  }
  if (roll < 0.89) {
    const after = nextFloat(random) < 0.2 ? 0 : Math.max(0, history.floor - nextInteger(random, 0, 60));
    const opIndex = nextFloat(random) < 0.7 ? REVISION_END : nextInteger(random, 0, 2);
    const limit = pick(random, [1, 3, 20, 1000]);
    const page = { kind: "changes", selector: chooseSelector(workload), limit } as const;
    const query = nextFloat(random) < 0.2 ? page : { ...page, after: [after, opIndex] as const };
    return { query, linearizable: nextFloat(random) < 0.7 };
  }
  const linearizable = nextFloat(random) < 0.8;
  if (roll < 0.95) return { query: { kind: "lease", id: chooseLease(workload) }, linearizable };
  if (roll < 0.98) {
    return { query: { kind: "lease_list", limit: LIST_LIMIT, anonymous: nextFloat(random) < 0.5 }, linearizable };
  }
  return { query: { kind: "due", at_ms: WALL_EPOCH_MS + Math.floor(world.now), limit: 3 }, linearizable };
}

/** The op index of the end of a revision. */
const REVISION_END = 99_999;

export function chooseSelector({ world, keys, leaseKeys, listPrefix }: Workload): Selector {
  const { random } = world;
  const roll = nextFloat(random);
  if (roll < 0.25) return { prefix: "" };
  if (roll < 0.5) return { prefix: listPrefix };
  if (roll < 0.65) return { prefix: "l/" };
  if (roll < 0.75) return { prefix: "t/" };
  if (roll < 0.85) return { range: { start: "k/b", end: "q/2" } };
  return { key: pick(random, nextFloat(random) < 0.7 ? keys : leaseKeys) };
}

export function chooseCommand(workload: Workload, client: Client): Choice {
  const { world, keys, listPrefix } = workload;
  const { random } = world;
  if (world.now < workload.fullUntil && nextFloat(random) < 0.6) return makeRoom(workload);
  const key = pick(random, keys);
  const roll = nextFloat(random);
  const idempotent = nextFloat(random) < 0.5 ? "own" : "no";
  if (roll < 0.26) return txn(idempotent, (id) => ({ success: [put(key, id)] }));
  if (roll < 0.28) return txn(idempotent, (id) => ({ success: [longPut(key, id)] }));
  if (roll < 0.35) {
    const others = keys.filter(() => nextFloat(random) < 0.3);
    return txn(idempotent, (id) => ({ success: [...new Set([key, ...others])].map((one) => put(one, id)) }));
  }
  if (roll < 0.51) return compareAndSet(workload, client, key, idempotent);
  if (roll < 0.56) return txn(idempotent, () => ({ success: [{ type: "delete", selector: { key }, prev_kv: true }] }));
  if (roll < 0.58) return txn(idempotent, () => ({ success: [{ type: "delete", selector: { prefix: "q/" } }] }));
  if (roll < 0.61) {
    const suffixed = { type: "put", key: "s/", revision_suffix: true } as const;
    return txn(idempotent, (id) => ({ success: [{ ...suffixed, value: { json: `w${id}` } }, put(key, id)] }));
  }
  if (roll < 0.64) return txn("reused", (id) => ({ success: [put(key, id)] }));
  if (roll < 0.67) {
    const get = { type: "get", selector: { prefix: listPrefix }, limit: LIST_LIMIT } as const;
    return txn(idempotent, (id) => ({ success: [put(key, id), get] }));
  }
  if (roll < 0.69) return putDue(workload, idempotent);
  // Where the leader compacts of its own accord nobody is ahead of it.
  if (roll < 0.71 && world.options.compaction.keepRevisions === 0) return compact(workload);
  if (roll >= 0.71 && roll < 0.71 + workload.options.leaseShare) return chooseLeaseCommand(workload, idempotent);
  return txn(idempotent, (id) => ({ success: [put(key, id)] }));
}

/** Frees what it can, as an application does that is told that there is no space. */
function makeRoom(workload: Workload): Choice {
  const { random } = workload.world;
  if (nextFloat(random) < 0.6) return compact(workload);
  const prefix = pick(random, ["k/", "q/", "s/", "t/", "d/"]);
  return txn("own", () => ({ success: [{ type: "delete", selector: { prefix } }] }));
}

function compact({ world, history }: Workload): Choice {
  const behind = nextInteger(world.random, -1, nextFloat(world.random) < 0.3 ? 5 : 60);
  const revision = Math.max(1, history.floor - behind);
  return { idempotent: "own", command: () => ({ kind: "compact", revision }) };
}

function putDue({ world }: Workload, idempotent: "no" | "own"): Choice {
  const { random } = world;
  const key = pick(random, ["d/1", "d/2"]);
  const due_at_ms = WALL_EPOCH_MS + Math.floor(world.now) + nextInteger(random, -500, 4000);
  return txn(idempotent, (id) => ({ success: [{ ...put(key, id), due_at_ms }] }));
}

function compareAndSet(workload: Workload, client: Client, key: string, idempotent: "no" | "own"): Choice {
  const { random } = workload.world;
  const revision = client.seen.get(key) ?? 0;
  const compare: Compare[] = [{ target: "mod_revision", key, op: "==", value: revision }];
  if (nextFloat(random) < 0.2) compare.push({ target: "exists", key, op: "==", value: revision > 0 });
  return txn(idempotent, (id) => ({
    compare,
    success: [put(key, id, true)],
    failure: [{ type: "get", selector: { key } }],
  }));
}

// --- leases ----------------------------------------------------------------------------------------------------------

function chooseLeaseCommand(workload: Workload, idempotent: "no" | "own"): Choice {
  const { world, leaseKeys, leases } = workload;
  const { random } = world;
  const roll = nextFloat(random);
  if (leases.size === 0 || roll < 0.17) return grantLease(workload, idempotent);
  const lease = chooseLease(workload);
  if (roll < 0.23) return { idempotent: "own", command: () => ({ kind: "lease_revoke", id: lease }) };
  if (roll < 0.4)
    return renewLeases([lease, chooseLease(workload)], nextFloat(random) < 0.3 ? chooseTtl(random) : null);
  const key = pick(random, leaseKeys);
  const first = pick(random, leaseKeys);
  if (roll < 0.64) {
    // Now and then a lease that was never granted: the whole txn must fail, the first put included.
    const attached = nextFloat(random) < 0.15 ? UNKNOWN_LEASE_ID : lease;
    return txn(idempotent, (id) => ({ success: [put(first, id), { ...put(key, id), lease: attached }] }));
  }
  if (roll < 0.72) return txn(idempotent, (id) => ({ success: [put(key, id, true)] }));
  if (roll < 0.76) return txn(idempotent, (id) => ({ success: [{ ...put(key, id), ignore_lease: true }] }));
  const timed = pick(random, ["t/1", "t/2", ...leaseKeys]);
  const ttl = chooseTtl(random);
  if (roll < 0.86) return txn(idempotent, (id) => ({ success: [{ ...put(timed, id), ttl }] }));
  if (roll < 0.92) return txn(idempotent, () => ({ success: [{ type: "touch", key: timed, ttl }] }));
  const compare: Compare =
    roll < 0.96
      ? { target: "lease", key, op: "==", value: lease }
      : { target: "ttl", key: timed, op: ">", value: pick(random, [0, 0.5, 2]) };
  const failure = [{ type: "get", selector: { prefix: "l/" }, limit: LIST_LIMIT }] as const;
  return txn(idempotent, (id) => ({ compare: [compare], success: [put(key, id)], failure }));
}

function grantLease({ world }: Workload, idempotent: "no" | "own"): Choice {
  const { random } = world;
  const ttl_s = nextFloat(random) < 0.1 ? nextInteger(random, 10_000, 90_000) : chooseTtl(random);
  const chosen = nextFloat(random) < 0.2;
  return {
    idempotent,
    command: (op) => {
      const grant = { kind: "lease_grant", ttl_s, metadata: { op } } as const;
      return chosen ? { ...grant, id: CHOSEN_LEASE_ID + op } : grant;
    },
  };
}

export function renewLeases(ids: readonly number[], ttlS: number | null): Choice {
  const items = [...new Set(ids)].map((id) => (ttlS === null ? { id } : { id, ttl_s: ttlS }));
  return { idempotent: "own", command: () => ({ kind: "lease_keep_alive", items }) };
}

function chooseTtl(random: Random): number {
  return pick(random, [1, 1, 2, 3, 5]);
}

/** Of those that this workload was granted, alive or not. */
function chooseLease({ world, leases }: Workload): number {
  return leases.size === 0 ? UNKNOWN_LEASE_ID : pick(world.random, [...leases]);
}

// --- txns ------------------------------------------------------------------------------------------------------------

export function txn(
  idempotent: Choice["idempotent"],
  body: (id: number) => {
    readonly compare?: readonly Compare[];
    readonly success: readonly Operation[];
    readonly failure?: readonly Operation[];
  },
): Choice {
  return {
    idempotent,
    command: (id) => {
      const { compare = [], success, failure = [] } = body(id);
      // A key that never exists marks the command with the number of its operation.
      const mark: Compare = { target: "exists", key: `~${id}`, op: "==", value: false };
      return { kind: "txn", compare: [mark, ...compare], success, failure };
    },
  };
}

export function put(key: string, id: number, previous = false): Extract<Operation, { type: "put" }> {
  const operation = { type: "put", key, value: { json: `w${id}` } } as const;
  return previous ? { ...operation, prev_kv: true } : operation;
}

function longPut(key: string, id: number): Operation {
  return { type: "put", key, value: { json: `w${id} ${LONG_VALUE}` } };
}

export function pick<T>(random: Random, choices: readonly T[]): T {
  return choices[Math.floor(nextFloat(random) * choices.length)]!;
}
