/**
 * For each route and each error that it is said to answer: a way to get that answer. The request is the route's first
 * example with a change; the state is that of the examples with a change.
 */
import { vi } from "vitest";
import type { Example, RouteRow } from "../../src/api/openapi-route.ts";
import { ConcordError, type ErrorCode } from "../../src/base/errors.ts";
import type { Operation } from "../../src/kv/command.ts";
import { createSetting, type Setting } from "./fake-nodes.ts";
import type { Answer } from "./harness.ts";
import type { MachineBackend } from "./machine-backend.ts";
import { prepare, requestOf } from "./openapi-requests.ts";

export interface ErrorCase {
  /** Values of parameters, beside or instead of those of the example. */
  readonly parameters?: Readonly<Record<string, string>>;
  /** The example's own parameters are left out. */
  readonly bare?: true;
  /** A query that the route does not describe. */
  readonly query?: string;
  /** Instead of that of the example. */
  readonly body?: unknown;
  readonly mediaType?: string;
  /** The cluster that is asked; default: the one without a prefix. */
  readonly cluster?: string;
  readonly environment?: Parameters<typeof createSetting>[0];
  readonly arrange?: (setting: Setting) => void | Promise<void>;
  /** The answer comes when the time is over. */
  readonly late?: true;
}

export async function answerIn(row: RouteRow, found: ErrorCase): Promise<Answer> {
  const setting = createSetting();
  await prepare(setting);
  await found.arrange?.(setting);
  const { nodes, send } = found.environment === undefined ? setting : createSetting(found.environment);
  if (found.environment !== undefined) nodes.backends.set("default", setting.nodes.backend("default"));
  const [first] = row.examples;
  const example: Example = {
    ...(first ?? { name: "none", summary: "None", status: 0 }),
    parameters: { ...(found.bare === true ? {} : first?.parameters), ...found.parameters },
  };
  const { method, target, headers, body } = requestOf(row, example);
  const separator = target.includes("?") ? "&" : "?";
  const path = `${found.cluster === undefined ? "" : `/c/${found.cluster}`}${target}`;
  const url = found.query === undefined ? path : `${path}${separator}${found.query}`;
  const changed = {
    headers: found.mediaType === undefined ? headers : { ...headers, "content-type": found.mediaType },
    ...(found.body !== undefined ? { body: found.body } : body === undefined ? {} : { body }),
  };
  if (found.late !== true) return await send(method, url, changed);
  vi.useFakeTimers();
  try {
    const answer = send(method, url, changed);
    await vi.advanceTimersByTimeAsync(60_000);
    return await answer;
  } finally {
    vi.useRealTimers();
  }
}

/** Null: nobody has found a way. */
export function errorCase(row: RouteRow, code: ErrorCode): ErrorCase | null {
  return SPECIFIC[code]?.[row.id] ?? GENERAL[code]?.(row) ?? null;
}

function takes(row: RouteRow, ...names: string[]): boolean {
  return names.every((name) => row.parameters?.some((parameter) => parameter.name === name));
}

const ALL_NODES = [1, 2, 3, 4, 5].map((node) => `default/${node}`);

function failAll(kind: "refuse" | "silence", error?: unknown) {
  return ({ nodes }: Setting): void => {
    for (const node of ALL_NODES) nodes.faults.set(node, { kind, error });
  };
}

/** Every call of the state fails; what a node says from memory it still says. */
function failState(error: unknown) {
  return ({ nodes }: Setting): void => {
    const backend = nodes.backend("default");
    const fail = async (): Promise<never> => {
      throw error;
    };
    Object.assign(backend, { execute: fail, query: fail, openBackup: fail, restore: fail });
  };
}

function broken(code: ErrorCode): ConcordError {
  return new ConcordError({ code, detail: "It is so." });
}

/** By the way in which routes of a kind are reached and what they take. */
const GENERAL: Partial<Record<ErrorCode, (row: RouteRow) => ErrorCase | null>> = {
  forbidden: () => ({ environment: {} }),
  unauthenticated: () => ({ environment: { CONCORD_ROOT_TOKEN: "secret" } }),
  invalid_request: () => ({ query: "node=99" }),
  unknown_cluster: () => ({ cluster: "nope" }),
  body_too_large: () => ({ body: new Uint8Array(3 << 20) }),
  unsupported_media_type: ({ examples: [first] }) => ({
    mediaType: "text/plain",
    ...(first?.body === undefined ? { body: new Uint8Array([1]) } : {}),
  }),
  overloaded: () => ({ arrange: failAll("refuse", Object.assign(new Error("overloaded"), { overloaded: true })) }),
  // Of a cluster that this isolate does not know yet, the list of clusters is read first.
  no_leader: ({ by, method }) => {
    if (by === "node") return { cluster: "other", arrange: failAll("refuse") };
    return { arrange: method === "GET" ? failAll("refuse") : failState(broken("no_leader")) };
  },
  cluster_not_ready: ({ by }) =>
    by === "node"
      ? { cluster: "other", arrange: failState(new Error("lost")) }
      : { arrange: failState(broken("cluster_not_ready")) },
  internal: ({ by }) =>
    by === "node"
      ? { cluster: "eu", arrange: putClusterOfNoPlatform }
      : { arrange: failState(new Error("a fault of ours")) },
  timeout: ({ method }) =>
    method === "GET" ? { arrange: failAll("silence"), late: true } : { arrange: failAll("refuse") },
  node_halted: () => ({ arrange: failState(broken("node_halted")) }),
  no_space: (row) => ({ arrange: useUpSpace, ...writeOf(row) }),
  behind: (row) =>
    takes(row, "consistency", "min_revision")
      ? { parameters: { consistency: "serializable", min_revision: "99" }, ...readOf(row) }
      : null,
  revision_in_future: (row) =>
    takes(row, "min_revision") ? { parameters: { min_revision: "99" }, ...readOf(row) } : null,
  cluster_changed: () => ({ parameters: { "concord-cluster": "c-0" } }),
  precondition_failed: () => ({ parameters: { "If-Match": '"99"' } }),
  idempotency_conflict: (row) => ({ parameters: { "Idempotency-Key": "claim-agent_7" }, ...writeOf(row) }),
  idempotency_expired: (row) => ({
    ...writeOf(row),
    parameters: { "Idempotency-Key": "of-long-ago", "Idempotency-Since": "0" },
    arrange: forgetResults,
  }),
};

/** A txn whose first example writes takes the parameters of consistency only if it reads. */
function readOf(row: RouteRow): ErrorCase {
  return row.id === "txn" ? { body: { success: [{ type: "get", key: "/a" }] }, bare: true } : {};
}

/** The first example of a batch reads. */
function writeOf(row: RouteRow): ErrorCase {
  return row.id === "batch" ? { body: { op: "put_many", items: [{ key: "/a", value: 1 }] } } : {};
}

const NONE = "/nothing";
const BAD_TIMEOUT = { parameters: { timeout_ms: "0" } };
const UNDER_99 = { parameters: { lease: "99" } };
const NO_LEASE = { parameters: { id: "99" } };
const NO_ID = { parameters: { id: "abc" } };
const NO_LIMIT = { parameters: { limit: "0" } };
const FULL_LEASE = { parameters: { lease: "1", "If-Match": '"0"', key: "/one-more" }, arrange: fillLease };
const PAST = { parameters: { revision: "1" }, arrange: compact };
const KEPT = { type: "put", key: NONE, ignore_value: true };
const LARGE = Array.from({ length: 5 }, (_, index) => `/large/${index}`);

const ADMINISTRATION = ["changeMember", "transferLeader", "restartNode", "repairNode", "initCluster"];

const SPECIFIC: Partial<Record<ErrorCode, Readonly<Record<string, ErrorCase>>>> = {
  invalid_kv: {
    ...only(
      ["getRecords", "putRecord", "deleteRecord", "getRecordByPath", "putRecordByPath", "deleteRecordByPath"],
      BAD_TIMEOUT,
    ),
    batch: { body: { op: "get_many", keys: [] } },
    ...only(["changes", "history", "watch"], { parameters: { key: "" }, bare: true }),
    compact: { body: { revision: -1 } },
    txn: { body: { success: [{ type: "put", key: "", value: 1 }] } },
  },
  invalid_txn: {
    batch: {
      body: { op: "put_many", items: Array.from({ length: 300 }, () => ({ key: "a", value: "x".repeat(6000) })) },
    },
    txn: { body: { compare: 1 } },
  },
  invalid_selector: {
    getRecords: { parameters: { prefix: "/" } },
    getRecordByPath: { query: "prefix=/" },
    txn: { body: { success: [{ type: "get", prefix: "/" }] } },
    changes: NO_LIMIT,
    history: NO_LIMIT,
    listLeases: NO_LIMIT,
    watch: { parameters: { key: "/a" } },
  },
  invalid_lease: {
    grantLease: { body: { ttl_s: 0 } },
    listLeases: { parameters: { limit: "ten" } },
    ...only(["getLease", "revokeLease", "keepLeaseAlive"], NO_ID),
  },
  not_found: {
    ...only(["getRecords", "getRecordByPath"], { parameters: { key: NONE } }),
    batch: { body: { op: "put_many", items: [{ key: NONE, ignore_value: true }] } },
    txn: { body: { success: [KEPT] } },
  },
  unknown_lease: {
    ...only(["putRecord", "putRecordByPath"], UNDER_99),
    batch: { body: { op: "put_many", items: [{ key: "/a", value: 1, lease: 99 }] } },
    txn: { body: { success: [{ type: "put", key: "/a", value: 1, lease: 99 }] } },
    ...only(["getLease", "revokeLease", "keepLeaseAlive"], NO_LEASE),
  },
  lease_exists: { grantLease: { body: { ttl_s: 5, id: 1 } } },
  lease_limit_exceeded: {
    ...only(["putRecord", "putRecordByPath"], FULL_LEASE),
    batch: { body: { op: "put_many", items: [{ key: "/one-more", value: 1, lease: 1 }] }, arrange: fillLease },
    txn: { body: { success: [{ type: "put", key: "/one-more", value: 1, lease: 1 }] }, arrange: fillLease },
    grantLease: { arrange: useUpLeases },
  },
  cluster_exists: { createCluster: { body: { name: "default" } } },
  too_many_keys: { txn: { body: { success: [{ type: "delete", prefix: "/many/" }] }, arrange: putMany } },
  result_too_large: {
    batch: { body: { op: "get_many", keys: LARGE }, arrange: putLarge },
    txn: { body: { success: [{ type: "get", prefix: "/large/", limit: 5 }] }, arrange: putLarge },
  },
  compacted: {
    ...only(["getRecords", "getRecordByPath"], PAST),
    batch: { body: { op: "get_many", keys: ["/a"], revision: 1 }, arrange: compact },
    txn: { body: { success: [{ type: "get", key: "/a", revision: 1 }] }, arrange: compact },
    changes: { parameters: { after: "0" }, arrange: compact },
    history: { parameters: { from: "1" }, arrange: compact },
    watch: { parameters: { from_revision: "1" }, arrange: compact },
  },
  precondition_failed: { restore: { arrange: failState(broken("precondition_failed")) } },
  revision_in_future: { compact: { body: { revision: 99 } } },
  admin_refused: only(ADMINISTRATION, { arrange: refuseAdministration("admin_refused") }),
  node_halted: {
    ...only(ADMINISTRATION, { arrange: refuseAdministration("node_halted") }),
    ready: { arrange: halt },
    watch: { arrange: refuseWatches },
  },
};

function only(ids: readonly string[], found: ErrorCase): Record<string, ErrorCase> {
  return Object.fromEntries(ids.map((id) => [id, found]));
}

async function run(backend: MachineBackend, success: readonly Operation[]): Promise<void> {
  const command = { kind: "txn", compare: [], success, failure: [] } as const;
  await backend.execute(command, null, { timeoutMs: 1000 });
}

function puts(count: number, more: (index: number) => Partial<Extract<Operation, { type: "put" }>>): Operation[] {
  return Array.from({ length: count }, (_, index) => ({
    type: "put",
    key: `/many/${index}`,
    value: { json: 1 },
    ...more(index),
  }));
}

/** As a deployment elsewhere would have written it. */
async function putClusterOfNoPlatform({ nodes }: Setting): Promise<void> {
  const json = { name: "eu", jurisdiction: "eu", placement: [] };
  await run(nodes.backend("default"), [{ type: "put", key: "\0clusters/eu", value: { json } }]);
}

function halt({ nodes }: Setting): void {
  nodes.backend("default").halted = "a corrupt row";
}

function refuseAdministration(code: ErrorCode) {
  return ({ nodes }: Setting): void => {
    nodes.backend("default").administer = async () => {
      throw broken(code);
    };
  };
}

function useUpSpace({ nodes }: Setting): void {
  nodes.backend("default").execute = async () => ({
    ok: false,
    revision: 2,
    error: { code: "no_space", detail: "It is so." },
  });
}

function refuseWatches({ nodes }: Setting): void {
  const backend = nodes.backend("default");
  const connect = backend.connect.bind(backend);
  backend.connect = (sink) => ({
    ...connect(sink),
    subscribe: () => ({ ok: false, error: broken("node_halted").body }),
  });
}

async function compact({ nodes }: Setting): Promise<void> {
  await nodes.backend("default").execute({ kind: "compact", revision: 2 }, null, { timeoutMs: 1000 });
}

/** One key of it is there already. */
async function fillLease({ nodes }: Setting): Promise<void> {
  await run(
    nodes.backend("default"),
    puts(9_999, () => ({ lease: 1 })),
  );
}

async function useUpLeases({ nodes }: Setting): Promise<void> {
  await run(
    nodes.backend("default"),
    puts(99_999, () => ({ ttl: 60 })),
  );
}

async function putMany({ nodes }: Setting): Promise<void> {
  await run(
    nodes.backend("default"),
    puts(10_001, () => ({})),
  );
}

async function putLarge({ nodes }: Setting): Promise<void> {
  const json = "x".repeat(1_000_000);
  for (const key of LARGE) await run(nodes.backend("default"), [{ type: "put", key, value: { json } }]);
}

let forgetful: Promise<MachineBackend> | null = null;

/** A state that has forgotten a result: the same for all who ask, for none of them changes it. */
async function forgetResults({ nodes }: Setting): Promise<void> {
  forgetful ??= createForgetful(nodes.backend("default"));
  nodes.backends.set("default", await forgetful);
}

async function createForgetful(backend: MachineBackend): Promise<MachineBackend> {
  backend.nowMs += 11 * 60_000;
  for (let count = 0; count < 10_001; count += 1)
    await run(
      backend,
      puts(1, () => ({})),
    );
  const command = { kind: "txn", compare: [], success: puts(1, () => ({})), failure: [] } as const;
  // Storing a result is what makes old ones go.
  await backend.execute(command, { scope: "root", key: "new", hash: "h" }, { timeoutMs: 1000 });
  return backend;
}
