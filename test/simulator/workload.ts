/**
 * Clients: each does one operation after another, on any node, and keeps what it was told. Retries follow the rules of
 * the public client: what was not proposed may be sent again, what may have been proposed only under its key.
 */

import { bytesFromText } from "../../src/base/bytes.ts";
import { ERROR_CODES } from "../../src/base/errors.ts";
import { nextFloat, nextInteger, type Random } from "../../src/base/random.ts";
import type {
  Command,
  CommandResult,
  Compare,
  Operation,
  Outcome,
  Proposal,
  Query,
  QueryResult,
} from "../../src/kv/command.ts";
import {
  beginRead,
  beginWrite,
  createHistory,
  endRead,
  endWrite,
  type History,
  type ReadRecord,
  type WriteRecord,
} from "./history.ts";
import { type Call, hostOf, type World } from "./host.ts";
import { scheduleAct, sendCall } from "./world.ts";

export interface Workload {
  readonly world: World;
  readonly history: History;
  readonly keys: readonly string[];
  readonly leaseKeys: readonly string[];
  readonly listPrefix: string;
  readonly clients: readonly Client[];
  readonly thinkMsMax: number;
  readonly timeoutMs: number;
  readonly leases: number[];
  stopped: boolean;
  /** Operations that have begun and not ended. */
  open: number;
  acknowledgedWrites: number;
}

interface Client {
  readonly id: number;
  /** Keys and the revision at which this client last saw each. */
  readonly seen: Map<string, number>;
  readonly unresolved: WriteRecord[];
}

/** ASCII, beyond ASCII and beyond the basic plane: their order as text differs from their order as bytes. */
const KEY_TEXTS = ["k/a", "k/b", "k/\uff61", "k/\u{1f600}", "k/\u{1f600}/x", "q/1", "q/2", "q/10"];
const LEASE_KEY_TEXTS = ["l/1", "l/\u{1f511}", "l/3"];
const ATTEMPTS_MAX = 4;

export function createWorkload(
  world: World,
  options: { readonly clients: number; readonly thinkMsMax: number; readonly timeoutMs: number },
): Workload {
  const keyOf = world.options.mutation?.keyOf ?? keyFromText;
  return {
    world,
    history: createHistory(),
    keys: KEY_TEXTS.map(keyOf),
    leaseKeys: LEASE_KEY_TEXTS.map(keyOf),
    listPrefix: keyOf("k/"),
    clients: Array.from({ length: options.clients }, (_, id) => ({ id, seen: new Map(), unresolved: [] })),
    thinkMsMax: options.thinkMsMax,
    timeoutMs: options.timeoutMs,
    leases: [],
    stopped: false,
    open: 0,
    acknowledgedWrites: 0,
  };
}

function keyFromText(text: string): string {
  const key = bytesFromText(text);
  if (key === null) throw new Error(`${JSON.stringify(text)} has no encoding`);
  return key;
}

export function startClients(workload: Workload): void {
  for (const client of workload.clients) think(workload, client);
}

function think(workload: Workload, client: Client): void {
  if (workload.stopped) return;
  const { world } = workload;
  const delay = nextFloat(world.random) * workload.thinkMsMax;
  scheduleAct(world, world.now + delay, "think", () => {
    if (workload.stopped) return;
    workload.open += 1;
    chooseOperation(workload, client);
  });
}

function finish(workload: Workload, client: Client): void {
  workload.open -= 1;
  think(workload, client);
}

// --- what to do ------------------------------------------------------------------------------------------------------

function chooseOperation(workload: Workload, client: Client): void {
  const { random } = workload.world;
  const asked = client.unresolved[0];
  if (asked !== undefined && nextFloat(random) < 0.5) {
    client.unresolved.shift();
    const key = asked.proposal.idempotency!.key;
    const record = read(workload, client, { kind: "txn_result", scope: SCOPE, key }, { linearizable: true });
    record.resolves = asked;
    return;
  }
  const roll = nextFloat(random);
  if (roll < 0.7) write(workload, client, chooseCommand(workload, client));
  else if (roll < 0.85) {
    read(workload, client, { kind: "get", key: pick(random, workload.keys) }, { linearizable: true });
  } else if (roll < 0.93) {
    const limit = nextFloat(random) < 0.3 ? 2 : 100;
    const list = { order: "asc", keys_only: false, count_only: false } as const;
    const selector = { prefix: workload.listPrefix };
    read(workload, client, { kind: "list", selector, limit, ...list }, { linearizable: true });
  } else if (roll < 0.97 || workload.history.floor === 0) {
    read(workload, client, { kind: "get", key: pick(random, workload.keys) }, { linearizable: false });
  } else {
    const revision = nextInteger(random, 1, workload.history.floor);
    read(workload, client, { kind: "get", key: pick(random, workload.keys), revision }, { linearizable: true });
  }
}

const SCOPE = "root";

interface Choice {
  readonly command: (id: number) => Command;
  readonly idempotent: "no" | "own" | "reused";
}

function chooseCommand(workload: Workload, client: Client): Choice {
  const { random } = workload.world;
  const key = pick(random, workload.keys);
  const roll = nextFloat(random);
  const idempotent = nextFloat(random) < 0.5 ? "own" : "no";
  if (roll < 0.34) return txn(idempotent, (id) => ({ success: [put(key, id)] }));
  if (roll < 0.42) {
    const other = pick(random, workload.keys);
    const success = (id: number) => (other === key ? [put(key, id)] : [put(key, id), put(other, id)]);
    return txn(idempotent, (id) => ({ success: success(id) }));
  }
  if (roll < 0.62) return compareAndSet(workload, client, key, idempotent);
  if (roll < 0.69) return txn(idempotent, () => ({ success: [{ type: "delete", selector: { key }, prev_kv: true }] }));
  if (roll < 0.71) return txn(idempotent, () => ({ success: [{ type: "delete", selector: { prefix: "q/" } }] }));
  if (roll < 0.74) {
    const suffixed = { type: "put", key: "s/", revision_suffix: true } as const;
    return txn(idempotent, (id) => ({ success: [{ ...suffixed, value: { json: `w${id}` } }, put(key, id)] }));
  }
  if (roll < 0.77) return txn("reused", (id) => ({ success: [put(key, id)] }));
  if (roll < 0.8) {
    const limit = 100;
    const success = (id: number): Operation[] => [
      put(key, id),
      { type: "get", selector: { prefix: workload.listPrefix }, limit },
    ];
    return txn(idempotent, (id) => ({ success: success(id) }));
  }
  return chooseLeaseCommand(workload, idempotent);
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

function chooseLeaseCommand(workload: Workload, idempotent: "no" | "own"): Choice {
  const { random } = workload.world;
  const lease = workload.leases.length === 0 ? null : pick(random, workload.leases);
  const roll = nextFloat(random);
  if (lease === null || roll < 0.25) {
    const ttl_s = nextInteger(random, 1000, 9000);
    return { idempotent, command: (op) => ({ kind: "lease_grant", ttl_s, metadata: { op } }) };
  }
  if (roll < 0.4) return { idempotent: "own", command: () => ({ kind: "lease_revoke", id: lease }) };
  const key = pick(random, workload.leaseKeys);
  // Now and then a lease that was never granted: the whole txn must fail, the first put included.
  const attached = roll < 0.55 ? 999_999 : lease;
  const first = pick(random, workload.leaseKeys);
  return txn(idempotent, (id) => ({ success: [put(first, id), { ...put(key, id), lease: attached }] }));
}

function txn(
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

function put(key: string, id: number, previous = false): Extract<Operation, { type: "put" }> {
  const operation = { type: "put", key, value: { json: `w${id}` } } as const;
  return previous ? { ...operation, prev_kv: true } : operation;
}

function pick<T>(random: Random, choices: readonly T[]): T {
  return choices[Math.floor(nextFloat(random) * choices.length)]!;
}

// --- writes ----------------------------------------------------------------------------------------------------------

function write(workload: Workload, client: Client, choice: Choice): void {
  const { world, history } = workload;
  const id = history.nextId;
  history.nextId += 1;
  const command = choice.command(id);
  let proposal: Proposal = { format: 1, command };
  if (choice.idempotent !== "no") {
    const earlier = history.writes.find((record) => {
      return record.status === "answered" && record.proposal.idempotency !== undefined;
    });
    const key =
      choice.idempotent === "reused" && earlier !== undefined ? earlier.proposal.idempotency!.key : `op-${id}`;
    const idempotency = { scope: SCOPE, key, hash: `hash-${id}` };
    const since = nextFloat(world.random) < 0.5;
    proposal = { ...proposal, idempotency: since ? { ...idempotency, since: history.floor } : idempotency };
  }
  const record = beginWrite(history, id, proposal, world.steps);
  attemptWrite(workload, client, record, anyNode(world));
}

function anyNode(world: World): number {
  return nextInteger(world.random, 1, world.hosts.length);
}

function attemptWrite(workload: Workload, client: Client, record: WriteRecord, node: number): void {
  const { world, timeoutMs } = workload;
  record.attempts += 1;
  const end = once((outcome: Outcome<CommandResult> | "refused" | "unknown") => {
    endAttempt(workload, client, record, outcome);
  });
  const call: Call = {
    label: `write ${record.id}`,
    answered: false,
    reads: false,
    run(runtime, answer) {
      runtime.execute({ proposal: record.proposal, timeoutMs, respond: (outcome) => answer(() => end(outcome)) });
    },
    lost: (kind) => later(world, () => end(kind === "refused" ? "refused" : "unknown")),
  };
  sendCall(world, node, call, clientDelay(world));
  scheduleAct(world, world.now + timeoutMs * 1.5, "client timeout", () => end("unknown"));
}

function endAttempt(
  workload: Workload,
  client: Client,
  record: WriteRecord,
  outcome: Outcome<CommandResult> | "refused" | "unknown",
): void {
  const { world } = workload;
  const kind = typeof outcome === "string" ? outcome : meaningOf(outcome);
  if (kind === "answered" && typeof outcome !== "string") {
    learn(workload, client, record, outcome);
    endRecord(workload, record, "answered", outcome);
    finish(workload, client);
    return;
  }
  if (kind === "unknown") record.unknownAttempts += 1;
  const repeatable = kind === "refused" || record.proposal.idempotency !== undefined;
  const tired = record.attempts >= ATTEMPTS_MAX || nextFloat(world.random) < 0.1;
  if (repeatable && !tired) {
    const delay = nextFloat(world.random) * 60;
    scheduleAct(world, world.now + delay, "retry", () => attemptWrite(workload, client, record, anyNode(world)));
    return;
  }
  const status = record.unknownAttempts > 0 ? "unknown" : "refused";
  endRecord(workload, record, status, null);
  if (status === "unknown" && record.proposal.idempotency?.key === `op-${record.id}`) client.unresolved.push(record);
  finish(workload, client);
}

function endRecord(
  workload: Workload,
  record: WriteRecord,
  status: "answered" | "refused" | "unknown",
  outcome: Outcome<CommandResult> | null,
): void {
  const { world, history } = workload;
  endWrite(history, record, status, outcome, world.steps, newestRevision(world));
}

/** What the outcome says about the command: it ran (or was refused by apply), was never proposed, or nobody knows. */
function meaningOf(outcome: Outcome<CommandResult>): "answered" | "refused" | "unknown" {
  if (outcome.ok) return "answered";
  const { retry } = ERROR_CODES[outcome.error.code];
  if (retry === "no") return "answered";
  return retry === "yes" ? "refused" : "unknown";
}

function learn(workload: Workload, client: Client, record: WriteRecord, outcome: Outcome<CommandResult>): void {
  if (!outcome.ok) return;
  workload.acknowledgedWrites += 1;
  const { result } = outcome;
  if (result.kind === "lease_grant") workload.leases.push(result.id);
  if (result.kind !== "txn" || record.proposal.command.kind !== "txn") return;
  if (result.succeeded) {
    for (const operation of record.proposal.command.success) {
      if (operation.type === "put") client.seen.set(operation.key, outcome.revision);
    }
  } else {
    for (const response of result.responses) {
      if (response.type !== "get") continue;
      for (const found of response.kvs) client.seen.set(found.key, found.mod_revision);
    }
  }
}

// --- reads -----------------------------------------------------------------------------------------------------------

function read(
  workload: Workload,
  client: Client,
  query: Query,
  options: { readonly linearizable: boolean },
): ReadRecord {
  const { world, history, timeoutMs } = workload;
  const { linearizable } = options;
  const record = beginRead(history, query, linearizable, world.steps);
  // A local read promises nothing by itself; half of them ask for a revision that this client may know.
  const minRevision = nextFloat(world.random) < 0.5 ? history.floor : 0;
  const floor = linearizable ? record.floor : minRevision;
  const end = once((outcome: Outcome<QueryResult> | null) => {
    endRead(history, record, outcome, floor, newestRevision(world));
    if (outcome?.ok === true && outcome.result.kind === "get" && outcome.result.record !== null) {
      client.seen.set(outcome.result.record.key, outcome.result.record.mod_revision);
    }
    finish(workload, client);
  });
  const call: Call = {
    label: `read ${record.id}`,
    answered: false,
    reads: true,
    run(runtime, answer, defer) {
      const respond = (error: unknown): void => {
        if (error !== null) {
          answer(() => end(null));
          return;
        }
        // As after an await: when the turn that opened the barrier has done its work, before anything else runs.
        defer(() => {
          const outcome = runtime.query(query);
          answer(() => end(outcome));
        });
      };
      if (linearizable) runtime.barrier({ timeoutMs, respond });
      else runtime.waitRevision({ revision: minRevision, timeoutMs, respond });
    },
    lost: () => later(world, () => end(null)),
  };
  sendCall(world, anyNode(world), call, clientDelay(world));
  scheduleAct(world, world.now + timeoutMs * 1.5, "client timeout", () => end(null));
  return record;
}

// --- small things ----------------------------------------------------------------------------------------------------

/** The first of several ends counts: answer, broken connection, client's own timeout. */
function once<T>(run: (value: T) => void): (value: T) => void {
  let ended = false;
  return (value) => {
    if (ended) return;
    ended = true;
    run(value);
  };
}

function later(world: World, run: () => void): void {
  scheduleAct(world, world.now + clientDelay(world), "connection lost", run);
}

function clientDelay(world: World): number {
  const { clientDelayMsMin, clientDelayMsMax } = world.timing;
  return clientDelayMsMin + nextFloat(world.random) * (clientDelayMsMax - clientDelayMsMin);
}

function newestRevision(world: World): number {
  const { committed } = world.safety;
  return committed[committed.length - 1]?.revision ?? 0;
}

/** A write of its own through one node, outside the mix: the proof of progress after healing. */
export function sendProbe(workload: Workload, node: number, done: (ok: boolean) => void): void {
  const { world, history } = workload;
  const id = history.nextId;
  history.nextId += 1;
  const { command } = txn("own", () => ({ success: [put(workload.keys[0]!, id)] }));
  const idempotency = { scope: SCOPE, key: `op-${id}`, hash: `hash-${id}` };
  const record = beginWrite(history, id, { format: 1, command: command(id), idempotency }, world.steps);
  const end = once((outcome: Outcome<CommandResult> | null) => {
    const answered = outcome !== null && meaningOf(outcome) === "answered";
    endRecord(workload, record, answered ? "answered" : "unknown", answered ? outcome : null);
    done(answered && outcome?.ok === true);
  });
  const call: Call = {
    label: `probe ${id} of node ${hostOf(world, node).id}`,
    answered: false,
    reads: false,
    run(runtime, answer) {
      const respond = (outcome: Outcome<CommandResult>) => answer(() => end(outcome));
      runtime.execute({ proposal: record.proposal, timeoutMs: PROBE_TIMEOUT_MS, respond });
    },
    lost: () => later(world, () => end(null)),
  };
  sendCall(world, node, call, clientDelay(world));
  scheduleAct(world, world.now + PROBE_TIMEOUT_MS * 1.5, "client timeout", () => end(null));
}

const PROBE_TIMEOUT_MS = 4000;
