/** Goal: the limits of design 01 §5 that the Durable Object keeps itself, at the limit and one past it. */
import { expect, test } from "vitest";
import { BODY_BYTES_MAX, LOG_ROW_BYTES_MAX } from "../../src/base/limits.ts";
import type { Entry } from "../../src/raft/types.ts";
import { withStorage } from "./bare-object.ts";
import { TestCluster } from "./cluster-harness.ts";
import { quietConsole } from "./quiet-console.ts";
import { TestSocket } from "./socket-client.ts";

quietConsole();

test("a message of a session holds 2 MiB, blanks and characters of several bytes counted", async () => {
  const cluster = new TestCluster();
  await cluster.leader();
  const session = await TestSocket.open(cluster, 1, "/v1/session");
  const message = (bytes: number) => `{"jsonrpc":"2.0","id":"é","method":"revision"}`.padEnd(bytes - 1, " ");
  session.send(message(BODY_BYTES_MAX));
  expect((await session.find(({ id }) => id === "é")).result).toEqual({ revision: expect.any(Number) });
  session.send(message(BODY_BYTES_MAX + 1));
  expect((await session.closing()).code).toBe(1009);
});

test("a row of the log holds 1 900 000 bytes, and no batch makes a larger one", async () => {
  const entry = (index: number, bytes: number): Entry => ({
    index,
    term: 1,
    timeMs: 1_000_000,
    kind: "command",
    payload: "x".repeat(bytes),
    payloadBytes: bytes,
  });
  const rowBytes = (state: DurableObjectState) =>
    state.storage.sql.exec<{ bytes: number }>("SELECT length(CAST(body AS BLOB)) AS bytes FROM log").toArray();
  // What one entry takes beside its payload is reckoned, generously: a row is never larger than that says.
  let [fits, over] = [LOG_ROW_BYTES_MAX - 1000, LOG_ROW_BYTES_MAX + 1];
  while (over - fits > 1) {
    const between = Math.floor((fits + over) / 2);
    await withStorage((storage) => {
      try {
        storage.write({ append: [entry(1, between)] });
        fits = between;
      } catch {
        over = between;
      }
    });
  }
  expect(fits).toBeGreaterThan(LOG_ROW_BYTES_MAX - 1000);
  await withStorage((storage, state) => {
    storage.write({ append: [entry(1, fits), entry(2, fits), entry(3, 1)] });
    const rows = rowBytes(state).map(({ bytes }) => bytes);
    expect(rows).toHaveLength(3);
    expect(Math.max(...rows)).toBeLessThanOrEqual(LOG_ROW_BYTES_MAX);
  });
  await withStorage((storage) => {
    expect(() => storage.write({ append: [entry(1, over)] })).toThrow(/fits a row of the log/);
  });
});
