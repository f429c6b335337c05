import { describe, expect, test } from "vitest";
import type { NodeStatus } from "../../src/api/backend.ts";
import { ConcordError, type ErrorBody } from "../../src/base/errors.ts";
import type { CommandResult, Outcome, QueryResult } from "../../src/kv/command.ts";
import { NodeBackend } from "../../src/node-object/backend.ts";
import {
  compareDigests,
  gatherNodes,
  leaderOf,
  type NodeReport,
  nodeReportFrom,
  type StatusSource,
} from "../../src/node-object/cluster-status.ts";
import { nodeConfigOf, nodesCountOf, objectName, parseObjectName } from "../../src/node-object/node-environment.ts";
import type { Runtime } from "../../src/node-object/runtime.ts";

describe("names and variables", () => {
  test("a node's name is its cluster and its number, and nothing else is", () => {
    expect(parseObjectName("default/1", 5)).toEqual({ cluster: "default", id: 1 });
    expect(parseObjectName(objectName({ cluster: "a/b", id: 5 }), 5)).toEqual({ cluster: "a/b", id: 5 });
    for (const name of [
      undefined,
      "",
      "default",
      "default/",
      "/1",
      "default/0",
      "default/6",
      "default/01",
      "default/1x",
    ]) {
      expect(parseObjectName(name, 5), String(name)).toBeNull();
    }
    expect(parseObjectName("default/4", 3)).toBeNull();
  });

  test("the variables become a configuration; what is absent has a default", () => {
    expect(nodeConfigOf({}, 2, 7)).toEqual({
      id: 2,
      members: [1, 2, 3, 4, 5],
      heartbeatMs: 50,
      quiesceAfterMs: 10_000,
      quotaBytes: 4 * 2 ** 30,
      logKeepEntries: 10_000,
      logKeepBytes: 64 << 20,
      housekeepingMs: 1000,
      protocolMax: 2,
      compaction: { keepRevisions: 100_000, keepMs: 600_000, historyBytesMax: 2 ** 30 },
      electionTimeoutMsMin: 300,
      electionTimeoutMsMax: 600,
      fence: true,
      seed: 7,
    });
    expect(
      nodeConfigOf(
        { NODE_COUNT: "3", HEARTBEAT_MS: "250", ELECTION_TIMEOUT_MS_MIN: "1500", ELECTION_TIMEOUT_MS_MAX: "3000" },
        1,
        0,
      ),
    ).toMatchObject({
      members: [1, 2, 3],
      heartbeatMs: 250,
      electionTimeoutMsMin: 1500,
      electionTimeoutMsMax: 3000,
    });
  });

  test("a process that serves one node owns its data folder alone, so reads stand behind no write", () => {
    const peers = Object.fromEntries([1, 3, 4, 5].map((id) => [id, `http://10.0.0.${id}`]));
    const separate = { NODE_ID: "2", PEERS: JSON.stringify(peers), CLUSTER_SECRET: "correct-horse-battery" };
    expect(nodeConfigOf(separate, 2, 0).fence).toBe(false);
    expect(() => nodeConfigOf({ ...separate, PEERS: "" }, 2, 0)).toThrow(/PEERS/);
  });

  test("a configuration that cannot work is refused by the name of its variable", () => {
    for (const count of ["0", "2", "4", "9", "five", "1.5"])
      expect(() => nodesCountOf({ NODE_COUNT: count })).toThrow(/NODE_COUNT/);
    expect(() => nodeConfigOf({ HEARTBEAT_MS: "0" }, 1, 0)).toThrow(/HEARTBEAT_MS/);
    expect(() => nodeConfigOf({ HEARTBEAT_MS: "200" }, 1, 0)).toThrow(/ELECTION_TIMEOUT_MS_MIN/);
    expect(() => nodeConfigOf({ ELECTION_TIMEOUT_MS_MAX: "300" }, 1, 0)).toThrow(/ELECTION_TIMEOUT_MS_MAX/);
  });
});

function status(id: number, changes: Partial<NodeStatus> = {}): NodeStatus {
  return {
    id,
    state: "formed",
    role: "follower",
    member: "voter",
    term: 3,
    leader: 1,
    first_index: 1,
    last_index: 10,
    commit_index: 10,
    applied_index: 10,
    revision: 8,
    digest: "d10",
    digest_index: 10,
    set_hash: 77,
    set_hash_index: 10,
    incarnation: 100 + id,
    storage_bytes: 4096,
    quiescent: false,
    halted: null,
    snapshot_out: null,
    snapshot_in: null,
    format: 2,
    protocol: 1,
    colo: null,
    last_contact_ms: null,
    ...changes,
  };
}

/** Nodes by id; a digest at an index is `d<index>` unless `forgets` says otherwise. */
function source(
  nodes: readonly NodeStatus[],
  digest = (_: number, index: number): string | null => `d${index}`,
  reports: Readonly<Record<number, Partial<NodeReport>>> = {},
): StatusSource {
  return {
    report: async (id) => {
      const status = nodes.find((node) => node.id === id);
      return status === undefined ? null : { status, membership: null, contacts: [], ...reports[id] };
    },
    digestAt: async (id, index) => digest(id, index),
  };
}

describe("cluster status", () => {
  test("a peer that does not answer is shown as unreachable, in its place", async () => {
    const { nodes, membership } = await gatherNodes([1, 2, 3], source([status(1), status(3)]));
    expect(nodes.map((node) => [node.id, node.state, node.role])).toEqual([
      [1, "formed", "follower"],
      [2, "unreachable", null],
      [3, "formed", "follower"],
    ]);
    expect(membership).toBeNull();
  });

  test("who takes part and who was heard when is what the leader says; without one the longest log counts", async () => {
    const told = (index: number, voters: number[]) => ({ index, committed: true, voters, learners: [] });
    const reports = {
      1: {
        membership: told(7, [1, 2, 3]),
        contacts: [
          [1, 0],
          [2, 40],
        ] as const,
      },
      3: { membership: told(2, [1, 2]), contacts: [[2, 9]] as const },
    };
    const all = [status(1, { role: "leader" }), status(2), status(3, { last_index: 11 })];
    const led = await gatherNodes([1, 2, 3], source(all, undefined, reports));
    expect(led.membership).toEqual({ node: 1, ...told(7, [1, 2, 3]) });
    expect(led.nodes.map((node) => node.last_contact_ms)).toEqual([0, 40, null]);
    const leaderless = all.map((node) => ({ ...node, leader: null }));
    const left = await gatherNodes([1, 2, 3], source(leaderless, undefined, reports));
    expect(left.membership).toEqual({ node: 3, ...told(2, [1, 2]) });
    expect(left.nodes.map((node) => node.last_contact_ms)).toEqual([null, null, null]);
  });

  test("digests are compared at the lowest index that a formed node has applied", async () => {
    const behind = status(2, { digest_index: 7, digest: "d7" });
    const nodes = [
      status(1),
      behind,
      status(3),
      status(4, { state: "halted", digest_index: 2 }),
      status(5, { state: "unreachable", digest_index: 0 }),
    ];
    expect(await compareDigests(nodes, source(nodes))).toEqual({ index: 7, equal: true });
    const odd = source(nodes, (id, index) => (id === 3 ? "other" : `d${index}`));
    expect(await compareDigests(nodes, odd)).toEqual({ index: 7, equal: false });
    const forgetful = source(nodes, (id) => (id === 3 ? null : "d7"));
    expect(await compareDigests(nodes, forgetful)).toBeNull();
    expect(await compareDigests([], source([]))).toBeNull();
  });

  test("the leader is whom the highest term names", () => {
    expect(
      leaderOf([
        status(1, { term: 3, leader: 1 }),
        status(2, { term: 4, leader: 2 }),
        status(3, { term: 5, leader: null }),
      ]),
    ).toBe(2);
    expect(leaderOf([status(1, { leader: null })])).toBeNull();
  });

  test("an answer in another form than ours counts as none", () => {
    const bare = { membership: null, contacts: [] };
    expect(nodeReportFrom(JSON.stringify(status(2)), 2)).toEqual({ status: status(2), ...bare });
    expect(nodeReportFrom(JSON.stringify({ ...status(2), later: 1, role: "learner" }), 2)).toEqual({
      status: status(2, { role: null }),
      ...bare,
    });
    const more = {
      snapshot_out: { index: 4, rows_total: 9 },
      snapshot_in: { index: 4, rows: 3, rows_total: 9 },
      membership: { index: 3, committed: false, voters: [1, 2], learners: [3] },
      contacts: [[1, 5]],
    };
    const { membership, contacts, ...ofNode } = more;
    expect(nodeReportFrom(JSON.stringify({ ...status(2), ...more, contacts: [[1, 5], [1], "x"] }), 2)).toEqual({
      status: status(2, ofNode),
      membership,
      contacts,
    });
    const bad = [
      "",
      "[]",
      "{}",
      JSON.stringify(status(3)),
      JSON.stringify({ ...status(2), term: -1 }),
      JSON.stringify({ ...status(2), state: "odd" }),
    ];
    for (const text of bad) expect(nodeReportFrom(text, 2), text).toBeNull();
  });
});

describe("backend", () => {
  const ran: Outcome<CommandResult> = { ok: true, revision: 4, result: { kind: "compact", compact_revision: 1 } };
  const seen: Outcome<QueryResult> = { ok: true, revision: 4, result: { kind: "revision" } };
  const failure = (code: ErrorBody["code"]): ErrorBody => ({ code, detail: "." });

  function backend(answers: {
    execute?: Outcome<CommandResult>;
    barrier?: ErrorBody | null;
    wait?: ErrorBody | null;
    query?: Outcome<QueryResult>;
  }) {
    const calls: string[] = [];
    const runtime = {
      execute: ({ proposal, respond }: Parameters<Runtime["execute"]>[0]) => {
        calls.push(`execute ${JSON.stringify(proposal)}`);
        respond(answers.execute ?? ran);
      },
      barrier: ({ timeoutMs, respond }: Parameters<Runtime["barrier"]>[0]) => {
        calls.push(`barrier ${timeoutMs}`);
        respond(answers.barrier ?? null);
      },
      waitRevision: ({ revision, respond }: Parameters<Runtime["waitRevision"]>[0]) => {
        calls.push(`wait ${revision}`);
        respond(answers.wait ?? null);
      },
      query: () => {
        calls.push("query");
        return answers.query ?? seen;
      },
    } as unknown as Runtime;
    const node = new NodeBackend({
      runtime,
      turn: (work) => work(),
      clusterName: "c",
      ask: async () => null,
      nowMs: () => 0,
      members: [1],
      source: source([]),
      connections: { connect: () => expect.unreachable() },
      wait: () => expect.unreachable(),
    });
    return { node, calls };
  }

  test("apply errors are outcomes; cluster errors reject", async () => {
    const refused: Outcome<CommandResult> = { ok: false, revision: 4, error: failure("unknown_lease") };
    expect(
      await backend({ execute: refused }).node.execute({ kind: "compact", revision: 1 }, null, { timeoutMs: 1 }),
    ).toBe(refused);
    for (const code of ["no_leader", "timeout", "overloaded", "cluster_not_ready", "node_halted"] as const) {
      const { node } = backend({ execute: { ok: false, revision: 0, error: failure(code) } });
      await expect(node.execute({ kind: "compact", revision: 1 }, null, { timeoutMs: 1 })).rejects.toThrow(
        ConcordError,
      );
    }
  });

  test("a command is proposed with its idempotency, and without the field if it has none", async () => {
    const { node, calls } = backend({});
    await node.execute({ kind: "compact", revision: 1 }, null, { timeoutMs: 1 });
    await node.execute({ kind: "compact", revision: 1 }, { scope: "s", key: "k", hash: "h" }, { timeoutMs: 1 });
    expect(calls).toEqual([
      'execute {"format":1,"command":{"kind":"compact","revision":1}}',
      'execute {"format":1,"command":{"kind":"compact","revision":1},"idempotency":{"scope":"s","key":"k","hash":"h"}}',
    ]);
  });

  test("a linearizable read passes a barrier first; a serializable one waits only for its revision", async () => {
    const { node, calls } = backend({});
    await node.query({ kind: "revision" }, { consistency: "linearizable", timeoutMs: 9 });
    await node.query({ kind: "revision" }, { consistency: "serializable", timeoutMs: 9 });
    await node.query({ kind: "revision" }, { consistency: "serializable", timeoutMs: 9, minRevision: 3 });
    expect(calls).toEqual(["barrier 9", "query", "query", "wait 3", "query"]);
  });

  test("a read whose barrier fails is not evaluated", async () => {
    const { node, calls } = backend({ barrier: failure("no_leader"), wait: failure("behind") });
    await expect(node.query({ kind: "revision" }, { consistency: "linearizable", timeoutMs: 9 })).rejects.toThrow(
      /no_leader/,
    );
    const waiting = node.query({ kind: "revision" }, { consistency: "serializable", timeoutMs: 9, minRevision: 3 });
    await expect(waiting).rejects.toThrow(/behind/);
    expect(calls).toEqual(["barrier 9", "wait 3"]);
  });
});
