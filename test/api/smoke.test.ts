import { expect, test } from "vitest";
import { createApi } from "../../src/api/app.ts";
import { MachineBackend } from "./machine-backend.ts";
test("smoke", async () => {
  const b = new MachineBackend();
  const app = createApi(b, { principal: "root", internal: true });
  const r = async (m: string, p: string, body?: unknown, h: Record<string, string> = {}) => {
    const x = await app.request(p, { method: m, headers: { ...(body === undefined ? {} : { "content-type": "application/json" }), ...h }, ...(body === undefined ? {} : { body: typeof body === "string" ? body : JSON.stringify(body) }) });
    console.log(m, p, x.status, JSON.stringify(Object.fromEntries(x.headers)), await x.text());
    return x;
  };
  await r("PUT", "/v1/kv?key=a", { x: 1 });
  await r("GET", "/v1/kv?key=a");
  await r("GET", "/v1/kv/a");
  await r("GET", "/v1/kv/b");
  await r("PUT", "/v1/kv/a", 1, { "if-match": '"7"' });
  await r("GET", "/v1/kv?prefix=");
  await r("POST", "/v1/txn", { compare: [{ target: "exists", key: "a", op: "==", value: true }], success: [{ type: "get", key: "a" }] });
  await r("POST", "/v1/txn", { success: [{ type: "gett", key: "a" }] });
  await r("PATCH", "/v1/txn", {});
  await r("POST", "/v1/leases", { ttl_s: 10 });
  await r("GET", "/v1/leases/1");
  await r("GET", "/internal/clusters", undefined, { "x-concord-internal": "1" });
  await r("GET", "/internal/clusters");
  await r("GET", "/nope");
  expect(1).toBe(1);
});
