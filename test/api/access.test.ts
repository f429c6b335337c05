/** Who may come in (design 05, Security). */
import { describe, expect, test } from "vitest";
import { createSetting } from "./fake-nodes.ts";
import { expectProblem } from "./harness.ts";

const TOKEN = { CONCORD_ROOT_TOKEN: "s3cret-token" };

describe("access by token", () => {
  test("the right token comes in, from any host, also in loopback development", async () => {
    const { send } = createSetting({ ...TOKEN, CONCORD_LOOPBACK_DEV: "1" });
    for (const scheme of ["Bearer", "bearer"]) {
      const headers = { authorization: `${scheme} s3cret-token` };
      expect((await send("GET", "https://edge.example/v1/revision", { headers })).status).toBe(200);
    }
  });

  test.each([
    [undefined, "no_token"],
    ["Bearer", "no_token"],
    ["Basic s3cret-token", "no_token"],
    ["s3cret-token", "no_token"],
    ["Bearer wrong", "unknown_token"],
    ["Bearer s3cret-token2", "unknown_token"],
    ["Bearer s3cret-toke", "unknown_token"],
  ])("the authorization %j is refused as %s", async (authorization, reason) => {
    const { send, nodes } = createSetting(TOKEN);
    for (const target of ["/v1/revision", "/", "/readyz", "/v1/clusters", "/c/a/v1/revision", "/internal/clusters"]) {
      const answer = await send("GET", target, authorization === undefined ? {} : { headers: { authorization } });
      expectProblem(answer, { status: 401, code: "unauthenticated", reason });
      expect(answer.headers.get("www-authenticate")).toContain("Bearer");
    }
    expect(nodes.stubs).toBe(0);
  });

  test("a local caller needs the token where there is one", async () => {
    const { send } = createSetting({ ...TOKEN, CONCORD_LOOPBACK_DEV: "1" });
    expectProblem(await send("GET", "/v1/revision"), { status: 401, code: "unauthenticated", reason: "no_token" });
  });

  test("the token and cookies stay in the Worker; the node sees a principal", async () => {
    const { send, nodes } = createSetting(TOKEN);
    await send("GET", "/v1/revision", { headers: { authorization: "Bearer s3cret-token", cookie: "a=b" } });
    const headers = nodes.requests[0]?.headers;
    expect([headers?.has("authorization"), headers?.has("cookie")]).toEqual([false, false]);
    expect(headers?.get("x-concord-principal")).toBe("root");
  });

  test("liveness needs no token", async () => {
    const { send, nodes } = createSetting(TOKEN);
    expect((await send("GET", "https://edge.example/livez")).body).toEqual({ status: "live" });
    expect(nodes.stubs).toBe(0);
  });
});

describe("access without a root token", () => {
  test.each(["127.0.0.1:8787", "localhost:8787", "localhost", "[::1]:8787", "[::1]", "LOCALHOST:1"])(
    "the host %s is served in loopback development",
    async (host) => {
      const { send } = createSetting();
      expect((await send("GET", `http://${host}/v1/revision`, { headers: { host } })).status).toBe(200);
    },
  );

  test.each([
    ["http://192.168.1.7:8787", {}],
    ["http://edge.example", {}],
    ["http://localhost.example", {}],
    ["http://127.0.0.1.example", {}],
    ["http://127.0.0.2:8787", {}],
    ["http://0.0.0.0:8787", {}],
    ["http://127.0.0.1:8787", { host: "evil.example" }],
    ["http://127.0.0.1:8787", { host: "evil.example:8787" }],
    ["http://evil.example", { host: "127.0.0.1:8787" }],
    ["http://192.168.1.7:8787", { "cf-connecting-ip": "127.0.0.1" }],
    ["http://192.168.1.7:8787", { "x-forwarded-for": "127.0.0.1", "x-forwarded-host": "localhost" }],
    ["http://192.168.1.7:8787", { forwarded: "for=127.0.0.1;host=localhost", "x-real-ip": "::1" }],
    ["http://192.168.1.7:8787", { "x-concord-principal": "root", "x-concord-internal": "1" }],
  ])("%s with %j is a foreign host", async (base, headers) => {
    const { send, nodes } = createSetting();
    for (const path of ["/v1/revision", "/", "/livez", "/c/a/v1/revision"]) {
      const answer = await send("GET", base + path, { headers: headers as Record<string, string> });
      expectProblem(answer, { status: 403, code: "forbidden", reason: "foreign_host" });
    }
    expect(nodes.stubs).toBe(0);
  });

  test("a page of the same origin is served, others are not", async () => {
    const { send, nodes } = createSetting();
    const ask = (origin: string) => send("POST", "/v1/txn", { headers: { origin }, body: {} });
    expect((await ask("http://127.0.0.1:8787")).status).toBe(200);
    const asked = nodes.stubs;
    for (const origin of [
      "http://evil.example",
      "http://127.0.0.1:9999",
      "http://localhost:8787",
      "null",
      "file://",
      "",
    ]) {
      expectProblem(await ask(origin), { status: 403, code: "forbidden", reason: "foreign_origin" });
    }
    expect(nodes.stubs).toBe(asked);
  });

  test.each([{}, { CONCORD_LOOPBACK_DEV: "0" }, { CONCORD_LOOPBACK_DEV: "true" }, { CONCORD_ROOT_TOKEN: "" }])(
    "the environment %j serves nobody",
    async (environment) => {
      const { send } = createSetting(environment);
      for (const headers of [{}, { authorization: "Bearer " }, { authorization: "Bearer x" }]) {
        const answer = await send("GET", "/v1/revision", { headers });
        expectProblem(answer, { status: 403, code: "forbidden", reason: "no_root_token" });
      }
    },
  );
});
