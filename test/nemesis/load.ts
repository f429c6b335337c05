/**
 * What a client does to records all the time: registers, accounts between which it moves amounts, and requests that it
 * sends several times under one idempotency key, also through another client.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { nextFloat, nextInteger } from "../../src/base/random.ts";
import type { Txn, WriteOptions } from "../../src/client/index.ts";
import { REGISTER_PREFIX } from "./checks.ts";
import type { Change, Compare } from "./evidence.ts";
import { ACCOUNTS_READ } from "./read-check.ts";
import {
  type Answered,
  answeredBy,
  type FoundRecord,
  type LoadClient,
  opOf,
  recordRead,
  recordWrite,
  type WritePlan,
} from "./recorder.ts";

export const ACCOUNT_PREFIX = "/n/account/";
const ACCOUNTS: readonly string[] = Array.from({ length: 6 }, (_, at) => `${ACCOUNT_PREFIX}${at}`);
const AMOUNT_AT_START = 100;
export const REPEAT_PREFIX = "/n/repeat/";

const REGISTERS_COUNT = 4;
/** Then the registers are new ones: a search over a long history takes too long. */
const USES_MAX = 300;
const PAUSE_MS = { min: 5, max: 50 } as const;

/** Writes that nothing repeats, and impatient ones, so that there are outcomes that nobody learns. */
const UNKEYED_CHANCE = 0.15;
const IMPATIENT_CHANCE = 0.1;
const IMPATIENT_MS = 250;

/** The registers that all clients use now. */
export interface Registers {
  generation: number;
  uses: number;
}

export interface Load {
  readonly clients: readonly LoadClient[];
  readonly registers: Registers;
  readonly signal: AbortSignal;
}

export async function openAccounts(client: LoadClient): Promise<void> {
  const op = opOf(client);
  const changes = ACCOUNTS.map((key): Change => ({ key, kind: "put", amount: AMOUNT_AT_START }));
  const answer = await recordWrite(client, { op, kind: ACCOUNTS_READ, changes }, [
    () => commit(client, { op, changes }),
  ]);
  if (answer === null) throw new Error("the accounts could not be opened");
}

/** One of the loops of a client, until the signal. */
export async function runLoad(load: Load, client: LoadClient): Promise<void> {
  while (!load.signal.aborted) {
    await act(load, client);
    await sleep(nextInteger(client.random, PAUSE_MS.min, PAUSE_MS.max));
  }
}

type Act = (load: Load, client: LoadClient) => Promise<unknown>;

const ACTS: readonly (readonly [weight: number, act: Act])[] = [
  [20, putRegister],
  [5, deleteRegister],
  [14, updateRegister],
  [5, createRegister],
  [15, (load, client) => getRegister(client, registerOf(load, client), true)],
  [6, (load, client) => getRegister(client, registerOf(load, client), false)],
  [6, (load, client) => getRegisters(load, client, true)],
  [6, (load, client) => getRegisters(load, client, false)],
  [10, transfer],
  [3, (_, client) => getAccounts(client, true)],
  [3, (_, client) => getAccounts(client, false)],
  [7, repeat],
];

const WEIGHTS = ACTS.reduce((sum, [weight]) => sum + weight, 0);

async function act(load: Load, client: LoadClient): Promise<void> {
  let left = nextFloat(client.random) * WEIGHTS;
  for (const [weight, one] of ACTS) {
    left -= weight;
    if (left < 0) return void (await one(load, client));
  }
}

// --- registers -------------------------------------------------------------------------------------------------------

function registersOf(load: Load): readonly string[] {
  const { registers } = load;
  registers.uses += 1;
  if (registers.uses > USES_MAX) {
    registers.uses = 0;
    registers.generation += 1;
  }
  return Array.from({ length: REGISTERS_COUNT }, (_, at) => `${REGISTER_PREFIX}${registers.generation}/${at}`);
}

function registerOf(load: Load, client: LoadClient): string {
  return registersOf(load)[nextInteger(client.random, 0, REGISTERS_COUNT - 1)] ?? "";
}

async function putRegister(load: Load, client: LoadClient): Promise<void> {
  const key = registerOf(load, client);
  const op = opOf(client);
  await recordWrite(client, { op, kind: "put", changes: [{ key, kind: "put" }] }, [
    async () => ({ ...(await client.concord.kv.put(key, { op }, mannerOf(client))), succeeded: true, hadEffect: true }),
  ]);
}

async function deleteRegister(load: Load, client: LoadClient): Promise<void> {
  const key = registerOf(load, client);
  await recordWrite(client, { op: opOf(client), kind: "delete", changes: [{ key, kind: "delete" }] }, [
    async () => {
      const { revision, deleted } = await client.concord.kv.delete(key, mannerOf(client));
      return { revision, succeeded: true, hadEffect: deleted > 0 };
    },
  ]);
}

/** Writes behind what it has read: `updateIf`, or a delete of just that record. */
async function updateRegister(load: Load, client: LoadClient): Promise<void> {
  const key = registerOf(load, client);
  const { kv } = client.concord;
  const [found] = (await getRegister(client, key, nextFloat(client.random) < 0.5)) ?? [];
  if (found === undefined || found.op === null) return;
  const { modRevision } = found;
  const op = opOf(client);
  const kind = nextFloat(client.random) < 0.8 ? "put" : "delete";
  const plan = { op, kind: `${kind} if`, compares: [found], changes: [{ key, kind }] } as const;
  await recordWrite(client, plan, [
    async () => {
      const manner = mannerOf(client);
      const write =
        kind === "put" ? kv.updateIf(key, modRevision, { op }, manner) : kv.deleteIf(key, modRevision, manner);
      const { succeeded, revision } = await write;
      return { revision, succeeded, hadEffect: succeeded };
    },
  ]);
}

async function createRegister(load: Load, client: LoadClient): Promise<void> {
  const key = registerOf(load, client);
  const op = opOf(client);
  const compares: readonly Compare[] = [{ key, op: null, modRevision: 0 }];
  await recordWrite(client, { op, kind: "create", compares, changes: [{ key, kind: "put" }] }, [
    async () => {
      const { succeeded, revision } = await client.concord.kv.create(key, { op }, mannerOf(client));
      return { revision, succeeded, hadEffect: succeeded };
    },
  ]);
}

async function getRegister(client: LoadClient, key: string, isLinearizable: boolean) {
  return await recordRead(client, { kind: "get", isLinearizable, keys: [key] }, async () => ({
    revision: null,
    records: [await client.concord.kv.get(key, consistencyOf(isLinearizable))],
  }));
}

async function getRegisters(load: Load, client: LoadClient, isLinearizable: boolean): Promise<void> {
  const keys = registersOf(load);
  await recordRead(client, { kind: "get many", isLinearizable, keys }, () =>
    client.concord.kv.getMany(keys, consistencyOf(isLinearizable)),
  );
}

function consistencyOf(isLinearizable: boolean) {
  return { consistency: isLinearizable ? "linearizable" : "serializable" } as const;
}

// --- accounts --------------------------------------------------------------------------------------------------------

async function getAccounts(client: LoadClient, isLinearizable: boolean): Promise<readonly FoundRecord[] | null> {
  return await recordRead(client, { kind: ACCOUNTS_READ, isLinearizable, keys: ACCOUNTS }, () =>
    client.concord.kv.getMany(ACCOUNTS, consistencyOf(isLinearizable)),
  );
}

/** Moves an amount between two accounts if both still are what was read: possibly a while ago, then the compares fail. */
async function transfer(_load: Load, client: LoadClient): Promise<void> {
  const { random } = client;
  const accounts = await getAccounts(client, nextFloat(random) < 0.5);
  const [from, to] = accounts === null ? [] : twoOf(accounts, nextInteger(random, 0, 1000));
  if (from === undefined || to === undefined) return;
  const moved = nextInteger(random, 1, 20);
  const changes: readonly Change[] = [
    { key: from.key, kind: "put", amount: (from.amount ?? 0) - moved },
    { key: to.key, kind: "put", amount: (to.amount ?? 0) + moved },
  ];
  const plan = { op: opOf(client), kind: "txn", compares: [from, to], changes };
  await recordWrite(client, plan, [() => commit(client, plan, mannerOf(client))]);
}

function twoOf<T>(list: readonly T[], choice: number): [T | undefined, T | undefined] {
  const first = choice % list.length;
  const second = (first + 1 + (choice % (list.length - 1))) % list.length;
  return [list[first], list[second]];
}

export async function commit(
  client: LoadClient,
  plan: Pick<WritePlan, "op" | "changes" | "compares">,
  options: WriteOptions = {},
): Promise<Answered> {
  const txn: Txn = {
    compare: (plan.compares ?? []).map(({ key, modRevision }) => {
      return { target: "mod_revision", key, op: "==", value: modRevision } as const;
    }),
    success: plan.changes.map((change) => operationOf(plan.op, change)),
  };
  return answeredBy(await client.concord.txn(txn, options));
}

/** How one write is sent. */
function mannerOf({ random }: LoadClient): WriteOptions {
  return {
    ...(nextFloat(random) < UNKEYED_CHANCE ? { idempotencyKey: null } : {}),
    ...(nextFloat(random) < IMPATIENT_CHANCE ? { timeoutMs: IMPATIENT_MS } : {}),
  };
}

function operationOf(op: string, { key, kind, amount, suffixed, lease }: Change) {
  if (kind === "delete") return { type: "delete", key } as const;
  return {
    type: "put",
    key,
    value: amount === undefined ? { op } : { op, amount },
    ...(suffixed === true ? { revision_suffix: true } : {}),
    ...(lease === undefined ? {} : { lease }),
  } as const;
}

// --- repeated requests -----------------------------------------------------------------------------------------------

/**
 * The same request under one key, by two clients, one after the other or at once: each run would make a key of its own.
 */
async function repeat({ clients }: Load, client: LoadClient): Promise<void> {
  const op = opOf(client);
  const other = clients[nextInteger(client.random, 0, clients.length - 1)] ?? client;
  const plan: WritePlan = {
    op,
    kind: "repeated txn",
    changes: [{ key: `${REPEAT_PREFIX}${op}/`, kind: "put", suffixed: true }],
  };
  const key = `repeat ${op}`;
  const send = (one: LoadClient) => () => commit(one, plan, { idempotencyKey: key });
  if (nextFloat(client.random) < 0.5) {
    await recordWrite(client, plan, [send(client), send(other), send(client)]);
    return;
  }
  let atOnce: Promise<Answered> | null = null;
  const first = (): Promise<Answered> => {
    atOnce = send(other)();
    atOnce.catch(() => {}); // Awaited by the second.
    return send(client)();
  };
  await recordWrite(client, plan, [first, () => atOnce ?? send(other)(), send(other)]);
}
