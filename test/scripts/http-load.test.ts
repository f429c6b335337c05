/** Goal: the benchmark counts every reply and stops at a wrong one. Method: a small server in this process. */
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, expect, test } from "vitest";
import { type Operation, percentile, runLoad } from "../../bench/http-load.ts";
import { Workload } from "../../bench/workload.ts";

let server: Server | undefined;

afterEach(() => server?.close());

async function serve(answer: (method: string, url: string, body: string) => [number, string]): Promise<string> {
  server = createServer((request, response) => {
    let body = "";
    request.on("data", (chunk: Buffer) => {
      body += chunk.toString();
    });
    request.on("end", () => {
      const [status, text] = answer(request.method ?? "", request.url ?? "", body);
      response.writeHead(status).end(text);
    });
  });
  const listening = server;
  await new Promise<void>((settle) => listening.listen(0, "127.0.0.1", settle));
  return `http://127.0.0.1:${(listening.address() as AddressInfo).port}`;
}

/** A store that gives one revision per put. */
function store(): (method: string, url: string, body: string) => [number, string] {
  const values = new Map<string, unknown>();
  let revision = 0;
  return (method, url, body) => {
    if (method === "GET") return values.has(url) ? [200, JSON.stringify({ value: values.get(url) })] : [404, ""];
    values.set(url, JSON.parse(body));
    revision += 1;
    return [200, JSON.stringify({ revision })];
  };
}

const LIMITS = { operationsMax: 300, durationMsMax: 20_000 };

test("a run makes as many operations as it is told, and each has a latency", async () => {
  const url = await serve(store());
  const workload = new Workload("/t");
  const puts = await runLoad({ url, clientsCount: 8, ...LIMITS, next: (client) => workload.put(client) });
  expect(puts.operationsCount).toBe(300);
  expect(puts.latenciesMs).toHaveLength(300);
  expect(workload.putsCount).toBe(300);
  const gets = await runLoad({ url, clientsCount: 8, ...LIMITS, next: (client) => workload.get(client) });
  expect(gets.operationsCount).toBe(300);
});

test("a run ends when its time is over", async () => {
  const url = await serve(store());
  const next = (): Operation => ({ method: "GET", path: "/", verify: () => {} });
  const result = await runLoad({ url, clientsCount: 2, operationsMax: 10_000_000, durationMsMax: 100, next });
  expect(result.operationsCount).toBeGreaterThan(0);
});

test("a stale value ends the run", async () => {
  const fresh = store();
  const url = await serve((method, path, body) =>
    method === "GET" ? [200, JSON.stringify({ value: { sequence: -1 } })] : fresh(method, path, body),
  );
  const workload = new Workload("/t");
  await runLoad({ url, clientsCount: 4, ...LIMITS, next: (client) => workload.put(client) });
  const gets = runLoad({ url, clientsCount: 4, ...LIMITS, next: (client) => workload.get(client) });
  await expect(gets).rejects.toThrow("wrong reply to a get");
});

test("one revision for two puts ends the run", async () => {
  const url = await serve(() => [200, '{"revision":1}']);
  const workload = new Workload("/t");
  const puts = runLoad({ url, clientsCount: 4, ...LIMITS, next: (client) => workload.put(client) });
  await expect(puts).rejects.toThrow("two puts were given the revision 1");
});

test("an error status ends the run", async () => {
  const url = await serve(() => [503, "no leader"]);
  const workload = new Workload("/t");
  const puts = runLoad({ url, clientsCount: 4, ...LIMITS, next: (client) => workload.put(client) });
  await expect(puts).rejects.toThrow("status 503: no leader");
});

test("percentiles are nearest ranks", () => {
  const ascending = Array.from({ length: 100 }, (_, index) => index + 1);
  expect([0.5, 0.9, 0.99, 1].map((share) => percentile(ascending, share))).toEqual([50, 90, 99, 100]);
  expect(percentile([7], 0.5)).toBe(7);
});
