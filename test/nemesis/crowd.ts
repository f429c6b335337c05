/** All clients of a run: their connections, loops, leases and watches, and the order in which they come to an end. */
import { setTimeout as sleep } from "node:timers/promises";
import { createRandom, nextInteger, type Random } from "../../src/base/random.ts";
import { Violation } from "../simulator/violation.ts";
import { connect } from "./access.ts";
import { REGISTER_PREFIX } from "./checks.ts";
import { type Change, LEASE_PREFIX } from "./evidence.ts";
import { LeaseBook, runKeepers, runShortLeases } from "./lease-holders.ts";
import { ACCOUNT_PREFIX, commit, type Load, openAccounts, REPEAT_PREFIX, runLoad } from "./load.ts";
import { type LoadClient, opOf, type Records, recordWrite } from "./recorder.ts";
import { ALL_PREFIX, startWatcher, type Watcher, type WatcherPlan } from "./watchers.ts";

export interface CrowdOptions {
  readonly urls: readonly string[];
  readonly clients: number;
  readonly random: Random;
  readonly records: Records;
}

const LOOPS_PER_CLIENT = 2;
/** The longest TTL, a grace per change of leader, and the turn of the last of five to notice. */
const LEASES_END_MS_MAX = 30_000;
const MARK_ATTEMPTS_MAX = 5;
const MOVE_EVERY_MS = 3000;

export class Crowd {
  /** Rejects with what ends any of the loops; else stays pending. */
  readonly failed: Promise<never>;
  readonly #options: CrowdOptions;
  readonly #over = new AbortController();
  readonly #clients: LoadClient[];
  readonly #book = new LeaseBook();
  readonly #watchers: Watcher[] = [];
  readonly #loops: Promise<void>[] = [];
  #fail: (error: unknown) => void = () => {};

  constructor(options: CrowdOptions) {
    this.#options = options;
    this.failed = new Promise((_, reject) => {
      this.#fail = reject;
    });
    this.failed.catch(() => {}); // Raced against by whoever runs this.
    this.#clients = Array.from({ length: options.clients }, (_, position) => this.#client(position));
  }

  /** Begins: the accounts exist and all watches are open then. */
  async open(): Promise<void> {
    const [first] = this.#clients;
    if (first === undefined) throw new Error("a crowd needs a client");
    await openAccounts(first);
    for (const plan of this.#watcherPlans()) this.#watchers.push(startWatcher(plan, this.#ownRandom()));
    this.#options.records.watchers.push(...this.#watchers.map(({ record }) => record));
    await Promise.all(this.#watchers.map(({ opened }) => opened));
    const { signal } = this.#over;
    const load: Load = { clients: this.#clients, registers: { generation: 0, uses: 0 }, signal };
    for (const client of this.#clients) {
      for (let loop = 0; loop < LOOPS_PER_CLIENT; loop += 1) this.#loop(runLoad(load, client));
      this.#loop(runKeepers(client, this.#book, signal));
      this.#loop(runShortLeases(client, this.#book, signal));
    }
  }

  /** No call is under way then, and no keeper has a lease. */
  async endLoad(): Promise<void> {
    this.#over.abort();
    await Promise.race([Promise.all(this.#loops), this.failed]);
  }

  /** @throws Violation if a lease outlives its TTL by far */
  async leasesEnded(): Promise<void> {
    const [client] = this.#clients;
    const deadlineMs = performance.now() + LEASES_END_MS_MAX;
    for (;;) {
      const page = await client?.concord.kv.page({ prefix: LEASE_PREFIX }, { keys_only: true });
      if (page?.records.length === 0) return;
      if (performance.now() > deadlineMs) {
        const keys = page?.records.map(({ key }) => String(key)).join(", ");
        throw new Violation("lease ends in time", `${LEASES_END_MS_MAX} ms after the end of the load there is ${keys}`);
      }
      await sleep(100);
    }
  }

  /** Every watcher has what it wants, or has had the time for it. */
  async caughtUp(patienceMs: number): Promise<void> {
    const marks = [REGISTER_PREFIX, ACCOUNT_PREFIX, LEASE_PREFIX, REPEAT_PREFIX].map((prefix) => `${prefix}~mark`);
    const put = await this.#mark(marks.map((key): Change => ({ key, kind: "put" })));
    const gone = await this.#mark(marks.map((key): Change => ({ key, kind: "delete" })));
    await Promise.all(
      this.#watchers.map((watcher) => watcher.reach(watcher.record.filter === "puts" ? put : gone, patienceMs)),
    );
  }

  async close(): Promise<void> {
    this.#over.abort();
    for (const { concord } of this.#clients) concord.close();
    await Promise.all(this.#watchers.map((watcher) => watcher.close()));
    await Promise.allSettled(this.#loops);
  }

  #loop(work: Promise<void>): void {
    this.#loops.push(work);
    work.catch((error: unknown) => {
      // What a loop makes of the end of its client is nobody's concern.
      if (!this.#over.signal.aborted) this.#fail(error);
    });
  }

  async #mark(changes: readonly Change[]): Promise<number> {
    const [client] = this.#clients;
    for (let attempt = 0; client !== undefined && attempt < MARK_ATTEMPTS_MAX; attempt += 1) {
      const plan = { op: opOf(client), kind: "mark", changes };
      const answer = await recordWrite(client, plan, [() => commit(client, plan)]);
      if (answer !== null) return answer.revision;
    }
    throw new Violation("progress after healing", "a healed cluster that nobody loads does not take a write");
  }

  #client(position: number): LoadClient {
    const { urls, records } = this.#options;
    const random = this.#ownRandom();
    const transport = position % 2 === 0 ? "session" : "http";
    // Two of each four stay with a node, over either transport.
    const home = position % 4 < 2 ? position % urls.length : null;
    const concord = connect({ urls, home, transport, random, onKeptAlive: (kept) => this.#book.note(kept) });
    const own = {
      name: `client ${position} (${transport}, ${home === null ? "any node" : `node ${home + 1}`})`,
      revisions: [],
    };
    records.clients.push(own);
    return { position, concord, random, records, own, nextOp: 0 };
  }

  /** Of one who runs beside others: the order of their turns is not the seed's. */
  #ownRandom(): Random {
    return createRandom(nextInteger(this.#options.random, 0, 2 ** 31));
  }

  #watcherPlans(): WatcherPlan[] {
    const { urls } = this.#options;
    const random = this.#ownRandom();
    const onNode = urls.map((_, home): WatcherPlan => {
      const transport = home % 2 === 0 ? "session" : "http";
      return {
        name: `watcher of everything on node ${home + 1} (${transport})`,
        selector: { prefix: ALL_PREFIX },
        prevValues: home < 2,
        isGrouped: home === 2,
        moveEveryMs: null,
        fromStart: true,
        connect: () => connect({ urls, home, transport, random }),
      };
    });
    const roaming = (
      plan: Pick<WatcherPlan, "selector" | "filter" | "isGrouped" | "fromStart">,
      name: string,
    ): WatcherPlan => ({
      ...plan,
      name: `roaming watcher of ${name}`,
      moveEveryMs: MOVE_EVERY_MS,
      connect: () =>
        connect({ urls, home: null, transport: nextInteger(random, 0, 1) === 0 ? "session" : "http", random }),
    });
    const accounts = { start: ACCOUNT_PREFIX, end: `${ACCOUNT_PREFIX}\u007f` };
    return [
      ...onNode,
      roaming({ selector: { prefix: LEASE_PREFIX }, fromStart: true }, "leases"),
      roaming({ selector: { range: accounts }, isGrouped: true, fromStart: false }, "accounts"),
      roaming({ selector: { prefix: REGISTER_PREFIX }, filter: "deletes", fromStart: true }, "deleted registers"),
      roaming({ selector: { prefix: REPEAT_PREFIX }, filter: "puts", fromStart: false }, "repeated requests"),
    ];
  }
}
