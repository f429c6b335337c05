/**
 * Goal: what is as large as may be travels through put, history, watch and txn, over HTTP and over a session alike; what is
 * larger gets the same error on both (design 01 §5).
 * Method: the SDK against one `workerd` process, once with each transport.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { TXN_BYTES_MAX, VALUE_BYTES_MAX } from "../../src/base/limits.ts";
import { Concord, ConcordError, type WireOperation } from "../../src/client/index.ts";
import { startWorkerdCluster, type WorkerdCluster } from "./workerd-cluster.ts";

const folder = mkdtempSync(join(tmpdir(), "concord-large-"));
let cluster: WorkerdCluster;

beforeAll(async () => {
  cluster = await startWorkerdCluster(folder);
});

afterAll(async () => {
  await cluster.stop();
  rmSync(folder, { recursive: true, force: true });
});

/** As JSON text it has exactly so many bytes. */
const text = (bytes: number) => "v".repeat(bytes - 2);

async function refusal(call: Promise<unknown>): Promise<string> {
  try {
    await call;
    return "nothing";
  } catch (error) {
    if (!(error instanceof ConcordError)) throw error;
    return `${error.code} ${error.reason}`;
  }
}

describe.each(["http", "session"] as const)(
  "over %s",
  (transport) => {
    const root = `/large/${transport}`;
    let concord: Concord;
    beforeAll(() => {
      concord = Concord.connect({ url: cluster.url, transport, timeoutMs: 60_000, attemptTimeoutMs: 30_000 });
    });
    afterAll(() => concord.close());

    test("a value of 1 MiB is put, read, listed in history and watched with the one before it; one byte more is refused", async () => {
      const key = `${root}/value`;
      const watch = concord.sync.watch({ key }, { prev_values: true });
      await watch.open();
      const large = text(VALUE_BYTES_MAX);
      for (let round = 0; round < 2; round += 1) await concord.kv.put(key, large);
      expect((await concord.kv.get(key))?.value).toBe(large);
      const history: unknown[] = [];
      for await (const { value } of concord.kv.history(key)) history.push(value);
      expect(history).toEqual([large, large]);
      const seen: unknown[] = [];
      for await (const event of watch) if (seen.push([event.value, event.prev_value]) === 2) break;
      expect(seen).toEqual([
        [large, null],
        [large, large],
      ]);
      expect(await refusal(concord.kv.put(key, text(VALUE_BYTES_MAX + 1)))).toBe("invalid_kv value_too_large");
    });

    test("a txn of 128 operations is one revision for a watcher; 129 are refused", async () => {
      const operations = (count: number) =>
        Array.from({ length: count }, (_, n): WireOperation => ({ type: "put", key: `${root}/many/${n}`, value: n }));
      const watch = concord.sync.watchGrouped({ prefix: `${root}/many/` });
      await watch.open();
      expect((await concord.txn({ success: operations(128) })).responses.length).toBe(128);
      const { value } = await watch.next();
      expect(value?.events.length).toBe(128);
      await watch.return();
      expect(await refusal(concord.txn({ success: operations(129) }))).toBe("invalid_txn too_many_operations");
    });

    test("a txn as large as may be passes; a larger one is refused", async () => {
      const half = text(TXN_BYTES_MAX / 2 - 500);
      const txn = (extra: string) => ({
        success: [
          { type: "put" as const, key: `${root}/txn/a`, value: half },
          { type: "put" as const, key: `${root}/txn/b`, value: half + extra },
        ],
      });
      expect((await concord.txn(txn(""))).succeeded).toBe(true);
      expect((await concord.kv.get(`${root}/txn/b`))?.value).toBe(half);
      expect(await refusal(concord.txn(txn("x".repeat(2000))))).toBe("invalid_txn txn_too_large");
    });

    test("10 000 deletes of one revision reach a watcher whole; a delete of more is refused", async () => {
      const prefix = `${root}/gone/`;
      const put = (from: number, count: number) =>
        concord.kv.putMany(Array.from({ length: count }, (_, n) => ({ key: `${prefix}${from + n}`, value: 1 })));
      for (let from = 0; from < 10_000; from += 500) await put(from, 500);
      const watch = concord.sync.watchGrouped({ prefix }, { filter: "deletes" });
      await watch.open();
      await put(10_000, 1);
      const all: WireOperation = { type: "delete", prefix };
      expect(await refusal(concord.txn({ success: [all] }))).toBe("too_many_keys null");
      await concord.kv.delete(`${prefix}10000`);
      expect((await watch.next()).value?.events.length).toBe(1);
      const { revision, responses } = await concord.txn({ success: [all] });
      expect(responses).toEqual([{ type: "delete", deleted: 10_000 }]);
      const { value } = await watch.next();
      expect(value?.revision).toBe(revision);
      expect(new Set(value?.events.map(({ key }) => key)).size).toBe(10_000);
      await watch.return();
    });
  },
  120_000,
);
