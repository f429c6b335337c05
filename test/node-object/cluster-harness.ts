/**
 * A cluster of real nodes inside the Workers runtime, with the faults that the platform has: aborted instances, evicted
 * instances, lost storage, failing statements. Every cluster has a name, and so objects, of its own.
 */
import { env, evictDurableObject, runInDurableObject } from "cloudflare:test";
import type { ClusterStatus, NodeStatus } from "../../src/api/backend.ts";
import { PRINCIPAL_HEADER } from "../../src/api/call.ts";
import { PEER_HEADER } from "../../src/api/separate-node.ts";
import { openMachine } from "../../src/kv/machine.ts";
import type { OrderedStore, Row } from "../../src/kv/store.ts";
import { SqliteStorage } from "../../src/node-object/sqlite-storage.ts";
import { eventually } from "./eventually.ts";

export interface Reply {
  readonly status: number;
  readonly body: Record<string, unknown>;
  readonly headers: Headers;
}

export interface CallInit {
  readonly method?: string;
  readonly body?: unknown;
  readonly headers?: Record<string, string>;
}

export const NODES = [1, 2, 3, 4, 5] as const;

export class TestCluster {
  readonly name = `t-${crypto.randomUUID().slice(0, 18)}`;

  stub(id: number): DurableObjectStub {
    return env.NODES.get(env.NODES.idFromName(`${this.name}/${id}`));
  }

  /** One request to one node. Rejects when the connection breaks, as for any client. */
  async call(id: number, path: string, init: CallInit = {}): Promise<Reply> {
    const headers = { "content-type": "application/json", [PRINCIPAL_HEADER]: "test", ...init.headers };
    const method = init.method ?? (init.body === undefined ? "GET" : "POST");
    const body = init.body === undefined ? {} : { body: JSON.stringify(init.body) };
    const response = await this.stub(id).fetch(`http://node${path}`, { method, headers, ...body });
    const text = await response.text();
    return { status: response.status, body: text === "" ? {} : JSON.parse(text), headers: response.headers };
  }

  async put(id: number, key: string, value: unknown, headers: Record<string, string> = {}): Promise<Reply> {
    return await this.call(id, `/v1/kv?key=${encodeURIComponent(key)}`, { method: "PUT", body: value, headers });
  }

  async get(id: number, key: string, query = ""): Promise<Reply> {
    return await this.call(id, `/v1/kv?key=${encodeURIComponent(key)}${query}`);
  }

  async txn(id: number, body: unknown, headers: Record<string, string> = {}): Promise<Reply> {
    return await this.call(id, "/v1/txn", { body, headers });
  }

  /** What one node says of itself; null while it cannot be reached. */
  async status(id: number): Promise<NodeStatus | null> {
    const asking = id === 1 ? 2 : 1;
    try {
      const response = await this.stub(id).fetch("http://node/peer/status", {
        headers: { [PEER_HEADER]: String(asking) },
      });
      return response.ok ? ((await response.json()) as NodeStatus) : null;
    } catch {
      return null;
    }
  }

  /** Asks every node for something that needs the cluster: what sleeps wakes. Nobody waits for the answers. */
  nudge(): void {
    for (const id of NODES) {
      this.call(id, "/v1/revision?timeout_ms=900").catch(() => {
        // A node that is paused or has just been ended cannot be woken.
      });
    }
  }

  async cluster(id: number): Promise<ClusterStatus> {
    const { body } = await this.call(id, "/v1/cluster");
    return body as unknown as ClusterStatus;
  }

  /** Waits until a node leads and a majority says so; the leader's id. */
  async leader(timeoutMs = 10_000): Promise<number> {
    const endMs = Date.now() + timeoutMs;
    let nudgeAtMs = 0;
    for (;;) {
      if (Date.now() >= nudgeAtMs) {
        this.nudge();
        nudgeAtMs = Date.now() + 1000;
      }
      const nodes = (await Promise.all(NODES.map((id) => this.status(id)))).filter((node) => node !== null);
      const term = Math.max(0, ...nodes.map((node) => node.term));
      const leader = nodes.find((node) => node.role === "leader" && node.term === term);
      const followers = nodes.filter((node) => node.leader === leader?.id && node.term === term);
      if (leader !== undefined && followers.length >= 3) return leader.id;
      if (Date.now() > endMs) throw new Error(`no leader: ${JSON.stringify(nodes)}`);
      await scheduler.wait(10);
    }
  }

  /** Waits until all of `ids` have applied the same and say that their digests are equal. */
  async converged(ids: readonly number[] = NODES, timeoutMs = 10_000): Promise<NodeStatus[]> {
    const endMs = Date.now() + timeoutMs;
    for (;;) {
      const nodes = await Promise.all(ids.map((id) => this.status(id)));
      const digests = new Set(nodes.map((node) => (node === null ? "none" : `${node.applied_index} ${node.digest}`)));
      const done = nodes.every((node) => node !== null && node.applied_index === node.last_index);
      if (digests.size === 1 && done && !digests.has("none")) return nodes.filter((node) => node !== null);
      if (Date.now() > endMs) throw new Error(`not converged: ${JSON.stringify(nodes)}`);
      await scheduler.wait(20);
    }
  }

  /** Hands the thread over `count` times, to act in the middle of what is under way and not between two waves of it. */
  async hops(count: number): Promise<void> {
    const bystander = env.NODES.get(env.NODES.idFromName("bystander"));
    for (let hop = 0; hop < count; hop += 1) await (await bystander.fetch("http://node/")).body?.cancel();
  }

  /** Runs `work` inside the node's instance. */
  async inside<T>(id: number, work: (state: DurableObjectState) => T | Promise<T>): Promise<T> {
    return await runInDurableObject(this.stub(id), (_, state) => work(state));
  }

  /** Ends the instance as a crash would: memory and the unsynced turn are lost, all sockets break. */
  async abort(id: number): Promise<void> {
    try {
      await this.inside(id, (state) => state.abort("test: crash"));
    } catch {
      // The abort breaks the very call that asks for it.
    }
  }

  /**
   * Evicts the instance gracefully: memory is lost, what is in flight is let finish. An awake node never gets there by
   * itself (a pending timer or an open outgoing stream holds it), so both are taken from it first.
   */
  async evict(id: number): Promise<void> {
    await this.#stopTimers(id);
    await this.#closeStreamsOf(id);
    const evicted = evictDurableObject(this.stub(id)).then(
      () => true,
      () => true, // an object that is not running cannot be evicted, which is as good
    );
    const late = scheduler.wait(2000).then(() => false);
    if (!(await Promise.race([evicted, late]))) await this.abort(id);
  }

  /** Cuts the node off: no timer fires, nothing is answered, nothing is heard. {@link abort} brings it back. */
  async pause(id: number): Promise<void> {
    await runInDurableObject(this.stub(id), (instance) => {
      const node = instance as unknown as Record<string, unknown>;
      node.fetch = () => new Promise(() => {});
      node.webSocketMessage = () => {};
      node.alarm = () => {};
    });
    await this.#stopTimers(id);
    await this.#closeStreamsOf(id);
  }

  async #stopTimers(id: number): Promise<void> {
    await this.inside(id, (state) => {
      const last = Number(setTimeout(() => {}, 0));
      for (let timer = 1; timer <= last; timer += 1) clearTimeout(timer);
      return state.storage.deleteAlarm();
    });
  }

  /** Ends the streams that the node dialled, from their other ends. */
  async #closeStreamsOf(id: number): Promise<void> {
    const others = NODES.filter((other) => other !== id);
    await Promise.all(
      others.map((other) =>
        this.inside(other, (state) => {
          for (const socket of state.getWebSockets(`peer:${id}`)) socket.close(1000);
        }),
      ),
    );
  }

  /** Loses the node's storage and its memory, as if the disk had been replaced. */
  async wipe(id: number): Promise<void> {
    await this.inside(id, async (state) => {
      await state.storage.deleteAll();
      await state.storage.sync();
    });
    await this.abort(id);
  }

  /** Every durable row of the node's state, and the entry that they stand at. */
  async rows(id: number): Promise<{ readonly appliedIndex: number; readonly rows: readonly Row[] }> {
    return await this.inside(id, (state) => {
      const storage = new SqliteStorage(state.storage);
      storage.load(); // which of its tables holds the state
      const rows = storage.scan({ start: "\u0001", end: "\u00ff\u00ff", limit: Number.MAX_SAFE_INTEGER });
      return { appliedIndex: openMachine(durableStore(storage)).appliedIndex, rows };
    });
  }

  /** Waits until all of `ids` have applied and flushed everything, and hold the same rows; how many those are. */
  async equalRows(ids: readonly number[] = NODES): Promise<number> {
    const [node] = await this.converged(ids);
    const read = async () => {
      const all = await Promise.all(ids.map((id) => this.rows(id)));
      const behind = all.filter(({ appliedIndex }) => appliedIndex < (node?.applied_index ?? 0)).length;
      return { behind, different: new Set(all.map(({ rows }) => JSON.stringify(rows))).size };
    };
    await eventually(read, { behind: 0, different: 1 }, 5000);
    return (await this.rows(ids[0] ?? 1)).rows.length;
  }

  /**
   * Makes the node crash right before its `count`-th SQL statement from now (1 = the next), within whatever turn that is.
   * Resolves at once; `crashed` tells whether it has happened.
   */
  async crashBeforeStatement(id: number, count: number): Promise<{ crashed: boolean }> {
    const outcome = { crashed: false };
    await this.onStatement(id, count, (state) => {
      outcome.crashed = true;
      state.abort("test: crash between statements");
    });
    return outcome;
  }

  async onStatement(id: number, count: number, act: (state: DurableObjectState) => void): Promise<void> {
    await this.inside(id, (state) => {
      const { sql } = state.storage;
      const exec = sql.exec.bind(sql);
      let left = count;
      const replacement = (statement: string, ...bindings: SqlStorageValue[]) => {
        left -= 1;
        if (left === 0) act(state);
        return exec(statement, ...bindings);
      };
      Object.defineProperty(sql, "exec", { value: replacement, configurable: true });
    });
  }
}

function durableStore(storage: SqliteStorage): OrderedStore {
  const refuse = () => {
    throw new Error("the rows of a running node are only read");
  };
  return { get: (key) => storage.get(key), scan: (range) => storage.scan(range), put: refuse, delete: refuse };
}
