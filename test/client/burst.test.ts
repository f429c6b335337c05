/**
 * Goal: more calls at once than the cluster carries out in a while all end well, without being sent again and again.
 * Method: the model's cluster behind a queue that is served at a fixed rate, over both transports; a driven clock.
 */
import { describe, expect, test } from "vitest";
import { Concord, type ConnectOptions } from "../../src/client/index.ts";
import { DrivenClock } from "./driven-clock.ts";
import { type Answer, type Asked, ModelCluster, URL_BASE } from "./model-cluster.ts";
import { errorOf, settle, within } from "./streaming.ts";

const TURN_MS = 20;

/** A cluster that carries out requests one by one, in order, and keeps the results of keyed writes. */
class SlowCluster {
  readonly model = new ModelCluster();
  readonly clock = new DrivenClock(settle);
  /** Writes received, the same one again included. */
  attempts = 0;
  underWayMax = 0;
  requestsMax = 0;
  /** Writes carried out, by key. */
  readonly results = new Map<string, Answer>();
  refuses: (waiting: number) => boolean = () => false;
  readonly #queue: { readonly asked: Asked; readonly key: string | null; answer(answer: Answer): void }[] = [];
  #credit = 0;
  #requests = 0;

  constructor() {
    this.model.answer = (asked) => {
      const { idempotency_key: key, ...params } = asked.params;
      return this.#ask({ ...asked, params }, key === undefined ? null : String(key));
    };
  }

  connect(transport: "session" | "http", options: Partial<ConnectOptions> = {}): Concord {
    return Concord.connect({
      url: URL_BASE,
      fetch: (request) => this.#fetch(request),
      transport,
      webSocket: this.model.openSocket,
      clock: this.clock,
      timeoutMs: 60_000,
      ...options,
    });
  }

  /** Time passes, and `ratePerS` requests are carried out in each second of it. */
  async serve(durationMs: number, ratePerS: number): Promise<void> {
    for (let ms = 0; ms < durationMs; ms += TURN_MS) {
      this.#credit = Math.min(this.#credit, 1) + (ratePerS * TURN_MS) / 1_000;
      for (; this.#credit >= 1 && this.#queue.length > 0; this.#credit -= 1) this.#serveNext();
      await this.clock.advance(TURN_MS);
    }
  }

  #serveNext(): void {
    const next = this.#queue.shift();
    if (next === undefined) return;
    const { asked, key, answer } = next;
    const kept = key === null ? undefined : this.results.get(key);
    const result = kept ?? this.model.handle(asked);
    if (key !== null) this.results.set(key, result);
    answer(result);
  }

  #ask(asked: Asked, key: string | null): Promise<Answer> | undefined {
    if (asked.method === "revision") return undefined;
    this.attempts += 1;
    if (this.refuses(this.#queue.length)) {
      return Promise.resolve({ problem: { code: "overloaded", retry: "yes", detail: "It is so." } });
    }
    return new Promise((answer) => {
      this.#queue.push({ asked, key, answer });
      this.underWayMax = Math.max(this.underWayMax, this.#queue.length);
    });
  }

  async #fetch(request: Request): Promise<Response> {
    const { pathname } = new URL(request.url);
    if (pathname === "/v1/revision") return await this.model.fetch(request);
    this.#requests += 1;
    this.requestsMax = Math.max(this.requestsMax, this.#requests);
    const end = () => {
      this.#requests -= 1;
    };
    request.signal.addEventListener("abort", end, { once: true });
    const asked = { method: "txn", params: JSON.parse(await request.text()) };
    const answer = await this.#ask(asked, request.headers.get("idempotency-key"));
    if (!request.signal.aborted) end();
    if (typeof answer !== "object") throw new TypeError("fetch failed");
    return "problem" in answer ? this.model.problemResponse(answer.problem) : this.model.json(answer.result);
  }
}

function putMany(concord: Concord, count: number) {
  const ended = { done: 0, failed: [] as unknown[] };
  for (let index = 0; index < count; index += 1) {
    concord.kv.put(`/burst/${index}`, index).then(
      () => (ended.done += 1),
      (error: unknown) => ended.failed.push(error),
    );
  }
  return ended;
}

function expectEachOnce(cluster: SlowCluster, count: number): void {
  expect(cluster.results.size).toBe(count);
  expect(cluster.model.revision).toBe(count);
  expect(cluster.model.records.size).toBe(count);
}

describe("2000 calls at once", () => {
  test("over a session, at 300 a second, are each sent once and wait for their turn", { timeout: 60_000 }, async () => {
    const cluster = new SlowCluster();
    const ended = putMany(cluster.connect("session"), 2_000);
    await cluster.serve(8_000, 300);
    expect([ended.done, ended.failed]).toEqual([2_000, []]);
    expectEachOnce(cluster, 2_000);
    expect(cluster.attempts).toBe(2_000);
    expect(cluster.underWayMax).toBe(256);
    expect([cluster.model.socketsOpened.length, cluster.requestsMax]).toEqual([1, 0]);
  });

  test("over a session, at a rate at which 256 are too many, stay on it and are not lost", {
    timeout: 60_000,
  }, async () => {
    const cluster = new SlowCluster();
    const ended = putMany(cluster.connect("session"), 2_000);
    await cluster.serve(58_000, 42);
    expect([ended.done, ended.failed]).toEqual([2_000, []]);
    expectEachOnce(cluster, 2_000);
    expect(cluster.attempts).toBeLessThan(1.2 * 2_000);
    expect([cluster.model.socketsOpened.length, cluster.requestsMax]).toEqual([1, 0]);
  });

  test("over HTTP are at most 64 requests at a time", { timeout: 60_000 }, async () => {
    const cluster = new SlowCluster();
    const ended = putMany(cluster.connect("http"), 2_000);
    await cluster.serve(8_000, 300);
    expect([ended.done, ended.failed]).toEqual([2_000, []]);
    expectEachOnce(cluster, 2_000);
    expect([cluster.attempts, cluster.requestsMax]).toEqual([2_000, 64]);
  });

  test("fall over to HTTP in an orderly way when the session dies meanwhile", { timeout: 60_000 }, async () => {
    const cluster = new SlowCluster();
    const ended = putMany(cluster.connect("session"), 2_000);
    await cluster.serve(1_000, 300);
    cluster.model.refusesSockets = true;
    cluster.model.breakAll();
    await cluster.serve(14_000, 300);
    expect([ended.done, ended.failed]).toEqual([2_000, []]);
    expectEachOnce(cluster, 2_000);
    expect(cluster.attempts).toBeLessThan(1.2 * 2_000);
    expect(cluster.requestsMax).toBe(64);
  });

  test("of which most are refused as too many are asked by fewer and fewer", { timeout: 60_000 }, async () => {
    const cluster = new SlowCluster();
    cluster.refuses = (waiting) => waiting >= 100;
    const ended = putMany(cluster.connect("session"), 2_000);
    await cluster.serve(10_000, 300);
    expect([ended.done, ended.failed]).toEqual([2_000, []]);
    expectEachOnce(cluster, 2_000);
    expect(cluster.attempts).toBeLessThan(1.5 * 2_000);
    expect(cluster.requestsMax).toBe(0);
  });
});

describe("a call that waits for its turn", () => {
  test.each(["session", "http"] as const)(
    "over %s ends by its own time, and nothing of it was done",
    async (transport) => {
      const cluster = new SlowCluster();
      const concord = cluster.connect(transport);
      const ended = putMany(concord, 400);
      await cluster.serve(1_000, 10);
      const put = errorOf(concord.kv.put("/late", 1, { timeoutMs: 3_000 }));
      const aborting = new AbortController();
      const aborted = errorOf(concord.kv.put("/aborted", 1, { signal: aborting.signal }));
      await cluster.serve(1_000, 10);
      aborting.abort();
      expect((await aborted).body.reason).toBe("aborted");
      await cluster.serve(2_100, 10);
      expect(await put).toMatchObject({ code: "overloaded", retry: "yes", body: { reason: "not_sent" } });
      expect((await put).message).toContain("for its turn");
      expect(ended.failed).toEqual([]);
      expect([...cluster.model.records.keys()].filter((key) => !key.startsWith("/burst/"))).toEqual([]);
    },
  );

  test("is carried elsewhere when the session that it waits for answers nothing (S84)", async () => {
    const cluster = new SlowCluster();
    const concord = cluster.connect("session");
    await concord.currentRevision();
    const answer = cluster.model.answer;
    cluster.model.answer = () => "silence";
    const aborting = new AbortController();
    const given = Array.from({ length: 256 }, () => errorOf(concord.currentRevision({ signal: aborting.signal })));
    await settle();
    aborting.abort();
    await Promise.all(given);
    const read = concord.currentRevision({ timeoutMs: 8_000 });
    await cluster.clock.advance(6_900);
    expect(cluster.model.socketsOpened[0]?.isClosed).toBe(false);
    cluster.model.answer = answer;
    expect(await within(cluster.clock, 500, read)).toBe(0);
    expect(cluster.model.socketsOpened[0]?.isClosed).toBe(true);
  });
});
