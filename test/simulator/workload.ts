/**
 * Clients: each does one operation after another, on any node, and keeps what it was told. Retries follow the rules of
 * the public client: what was not proposed may be sent again, what may have been proposed only under its key. Owners of
 * leases renew them beside that, some of them at the last moment, until they are gone.
 */
import { bytesFromText } from "../../src/base/bytes.ts";
import { ERROR_CODES } from "../../src/base/errors.ts";
import { nextFloat, nextInteger } from "../../src/base/random.ts";
import type { CommandResult, Outcome, Proposal, Query } from "../../src/kv/command.ts";
import { callRead, callTopic, callWrite, type WriteEnd } from "./calls.ts";
import { type Choice, chooseCommand, chooseQuery, pick, renewLeases } from "./choices.ts";
import {
  beginRead,
  beginWrite,
  createHistory,
  endRead,
  endWrite,
  type History,
  type ReadAnswer,
  type WriteRecord,
} from "./history.ts";
import type { World } from "./host.ts";
import { checkNoSpace } from "./quota-check.ts";
import { scheduleAct } from "./world.ts";

export interface Workload {
  readonly world: World;
  readonly history: History;
  readonly keys: readonly string[];
  readonly leaseKeys: readonly string[];
  readonly listPrefix: string;
  readonly clients: readonly Client[];
  readonly options: WorkloadOptions;
  /** Granted, newest last. */
  readonly leases: Set<number>;
  stopped: boolean;
  /** A node has said that there is no space. */
  fullUntil: number;
  /** Operations that have begun and not ended. */
  open: number;
  acknowledgedWrites: number;
}

export interface WorkloadOptions {
  readonly clients: number;
  readonly thinkMsMax: number;
  readonly timeoutMs: number;
  readonly lateKeepers: number;
  readonly leaseShare: number;
  readonly writeShare: number;
}

export interface Client {
  readonly id: number;
  /** Keys and the revision at which this client last saw each. */
  readonly seen: Map<string, number>;
  readonly unresolved: WriteRecord[];
}

/** ASCII, beyond ASCII and beyond the basic plane: their order as text differs from their order as bytes. */
const KEY_TEXTS = ["k/a", "k/b", "k/\uff61", "k/\u{1f600}", "k/\u{1f600}/x", "q/1", "q/2", "q/10"];
const LEASE_KEY_TEXTS = ["l/1", "l/\u{1f511}", "l/3"];
const ATTEMPTS_MAX = 4;
/** Leases that clients still think of. */
const LEASES_MAX = 12;
const FULL_MS = 300;
export const SCOPE = "root";

export function createWorkload(world: World, options: WorkloadOptions): Workload {
  const keyOf = world.options.mutation?.keyOf ?? keyFromText;
  return {
    world,
    history: createHistory(),
    keys: KEY_TEXTS.map(keyOf),
    leaseKeys: LEASE_KEY_TEXTS.map(keyOf),
    listPrefix: keyOf("k/"),
    clients: Array.from({ length: options.clients }, (_, id) => ({ id, seen: new Map(), unresolved: [] })),
    options,
    leases: new Set(),
    stopped: false,
    fullUntil: 0,
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
  const delay = nextFloat(world.random) * workload.options.thinkMsMax;
  scheduleAct(world, Math.max(world.now, world.restUntil) + delay, "think", () => {
    if (workload.stopped) return;
    if (world.now < world.restUntil) {
      think(workload, client);
      return;
    }
    act(workload, client, () => think(workload, client));
  });
}

function act(workload: Workload, client: Client, done: () => void): void {
  const { random } = workload.world;
  const asked = client.unresolved[0];
  if (asked !== undefined && nextFloat(random) < 0.5) {
    client.unresolved.shift();
    const key = asked.proposal.idempotency!.key;
    read(workload, client, { query: { kind: "txn_result", scope: SCOPE, key }, linearizable: true, asked }, done);
    return;
  }
  const roll = nextFloat(random);
  if (roll < workload.options.writeShare) write(workload, client, chooseCommand(workload, client), done);
  else if (roll < 0.99) read(workload, client, chooseQuery(workload), done);
  else {
    workload.open += 1;
    callTopic(workload.world, anyNode(workload.world), pick(random, ["a", "b"]), `${workload.history.nextId}`, () => {
      workload.open -= 1;
      done();
    });
  }
}

// --- writes ----------------------------------------------------------------------------------------------------------

/** `done` is called when the client knows all that it will ever know of it. */
function write(workload: Workload, client: Client, choice: Choice, done: (record: WriteRecord) => void): void {
  const { world, history } = workload;
  const id = history.nextId;
  history.nextId += 1;
  const command = choice.command(id);
  let proposal: Proposal = { format: 1, command };
  if (choice.idempotent !== "no") {
    const earlier = history.writes.find(({ status, proposal: { idempotency } }) => {
      return status === "answered" && idempotency !== undefined;
    });
    const key =
      choice.idempotent === "reused" && earlier !== undefined ? earlier.proposal.idempotency!.key : `op-${id}`;
    const idempotency = { scope: SCOPE, key, hash: `hash-${id}` };
    const since = nextFloat(world.random) < 0.5;
    proposal = { ...proposal, idempotency: since ? { ...idempotency, since: history.floor } : idempotency };
  }
  const record = beginWrite(history, id, proposal, { step: world.steps, nowMs: world.now });
  workload.open += 1;
  attempt(workload, client, record, () => {
    workload.open -= 1;
    done(record);
  });
}

export function anyNode(world: World): number {
  return nextInteger(world.random, 1, world.hosts.length);
}

function attempt(workload: Workload, client: Client, record: WriteRecord, done: () => void): void {
  const { world } = workload;
  const { timeoutMs } = workload.options;
  record.attempts += 1;
  const request = { label: `write ${record.id}`, proposal: record.proposal, timeoutMs };
  callWrite(world, anyNode(world), request, (end) => endAttempt(workload, client, record, end, done));
}

function endAttempt(workload: Workload, client: Client, record: WriteRecord, end: WriteEnd, done: () => void): void {
  const { world } = workload;
  const kind = typeof end === "string" ? end : meaningOf(end);
  if (kind === "answered" && typeof end !== "string") {
    learn(workload, client, record, end);
    endRecord(workload, record, "answered", end);
    done();
    return;
  }
  const full = typeof end !== "string" && !end.ok && end.error.code === "no_space";
  if (full) {
    checkNoSpace(world, record);
    record.refusedForSpace = true;
    workload.fullUntil = world.now + FULL_MS;
  }
  if (kind === "unknown") record.unknownAttempts += 1;
  const repeatable = !full && (kind === "refused" || record.proposal.idempotency !== undefined);
  const tired = record.attempts >= ATTEMPTS_MAX || nextFloat(world.random) < 0.1;
  if (repeatable && !tired) {
    const delay = nextFloat(world.random) * 60;
    scheduleAct(world, world.now + delay, "retry", () => attempt(workload, client, record, done));
    return;
  }
  const status = record.unknownAttempts > 0 ? "unknown" : "refused";
  endRecord(workload, record, status, null);
  if (status === "unknown" && record.proposal.idempotency?.key === `op-${record.id}`) client.unresolved.push(record);
  done();
}

export function endRecord(
  workload: Workload,
  record: WriteRecord,
  status: "answered" | "refused" | "unknown",
  outcome: Outcome<CommandResult> | null,
): void {
  const { world, history } = workload;
  endWrite(history, record, status, outcome, world.steps, newestRevision(world));
}

/** What the outcome says about the command: it ran (or was refused by apply), was never proposed, or nobody knows. */
export function meaningOf(outcome: Outcome<CommandResult>): "answered" | "refused" | "unknown" {
  if (outcome.ok) return "answered";
  const { code } = outcome.error;
  if (code === "no_space") return "refused";
  const { retry } = ERROR_CODES[code];
  if (retry === "no") return "answered";
  return retry === "yes" ? "refused" : "unknown";
}

function learn(workload: Workload, client: Client, record: WriteRecord, outcome: Outcome<CommandResult>): void {
  if (!outcome.ok) return;
  workload.acknowledgedWrites += 1;
  const { result } = outcome;
  if (result.kind === "lease_grant") own(workload, client, result.id, result.ttl_s);
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

// --- owners of leases ------------------------------------------------------------------------------------------------

/** A lease is granted. Half of the owners renew it, for some time; some wait until it is all but over. */
function own(workload: Workload, client: Client, id: number, ttlS: number): void {
  const { world, leases, options } = workload;
  leases.add(id);
  for (const oldest of leases) {
    if (leases.size <= LEASES_MAX) break;
    leases.delete(oldest);
  }
  if (nextFloat(world.random) < 0.5 || ttlS > 10) return;
  const late = nextFloat(world.random) < options.lateKeepers;
  keep(workload, client, { id, ttlS, late, times: nextInteger(world.random, 1, 4) });
}

interface Keeper {
  readonly id: number;
  readonly ttlS: number;
  readonly late: boolean;
  readonly times: number;
}

function keep(workload: Workload, client: Client, keeper: Keeper): void {
  const { world } = workload;
  const { id, ttlS, late, times } = keeper;
  const delay = late ? ttlS * 1000 + nextFloat(world.random) * 900 - 100 : (ttlS * 1000) / 3;
  scheduleAct(world, world.now + delay, "keep alive", () => {
    // Who rests is gone: the lease ends while nobody is there.
    if (workload.stopped || world.now < world.restUntil) return;
    write(workload, client, renewLeases([id], null), ({ answer }) => {
      if (times > 1 && answer?.text.includes("gone") !== true) keep(workload, client, { ...keeper, times: times - 1 });
    });
  });
}

// --- reads -----------------------------------------------------------------------------------------------------------

interface Reading {
  readonly query: Query;
  readonly linearizable: boolean;
  /** The write that a `txn_result` asks about. */
  readonly asked?: WriteRecord;
}

function read(workload: Workload, client: Client, reading: Reading, done: () => void): void {
  const { world, history, options } = workload;
  const { timeoutMs } = options;
  const { query, linearizable, asked = null } = reading;
  const record = beginRead(history, query, linearizable, world.steps);
  record.resolves = asked;
  // A local read promises nothing by itself; half of them ask for a revision that this client may know.
  const minRevision = nextFloat(world.random) < 0.5 ? history.floor : 0;
  const floor = linearizable ? record.floor : minRevision;
  workload.open += 1;
  const end = (answer: ReadAnswer | null): void => {
    workload.open -= 1;
    endRead(history, record, answer, floor, newestRevision(world));
    const found = answer?.outcome.ok === true && answer.outcome.result.kind === "get" ? answer.outcome.result : null;
    if (found?.record != null && query.kind === "get" && query.revision === undefined) {
      client.seen.set(found.record.key, found.record.mod_revision);
    }
    done();
  };
  const request = { label: `read ${record.id}`, query, minRevision: linearizable ? null : minRevision, timeoutMs };
  callRead(world, anyNode(world), request, end);
}

export function newestRevision(world: World): number {
  const { committed } = world.safety;
  return committed[committed.length - 1]?.revision ?? 0;
}
