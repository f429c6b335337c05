/** Administration over HTTP: what is asked reaches the backend, and what is wrong is refused before it does. */
import { describe, expect, test } from "vitest";
import type { AdminAction } from "../../src/api/backend.ts";
import { ConcordError } from "../../src/base/errors.ts";
import { createHarness, expectProblem } from "./harness.ts";

const ACCEPTED: readonly (readonly [path: string, body: unknown, action: AdminAction])[] = [
  ["members", { add: 4 }, { kind: "add", node: 4 }],
  ["members", { remove: 4 }, { kind: "remove", node: 4 }],
  ["members", { promote: 4 }, { kind: "promote", node: 4 }],
  ["leader/transfer", { to: 3 }, { kind: "transfer", to: 3 }],
  ["leader/transfer", {}, { kind: "transfer", to: null }],
  ["leader/transfer", undefined, { kind: "transfer", to: null }],
  ["nodes/2/restart", undefined, { kind: "restart", node: 2 }],
  ["nodes/2/repair", undefined, { kind: "repair", node: 2, force: false }],
  ["nodes/2/repair", { force: true }, { kind: "repair", node: 2, force: true }],
  ["init", { members: [3, 1, 2] }, { kind: "init", members: [1, 2, 3] }],
];

const REFUSED: readonly (readonly [path: string, body: unknown, reason: string])[] = [
  ["members", {}, "member_change"],
  ["members", { add: 1, remove: 2 }, "member_change"],
  ["members", { add: "1" }, "wrong_type"],
  ["members", { add: 0 }, "node"],
  ["members", { remove: 1.5 }, "node"],
  ["members", { demote: 1 }, "unknown_field"],
  ["members?force=1", { add: 1 }, "unknown_parameter"],
  ["members?timeout_ms=0", { add: 1 }, "invalid_timeout_ms"],
  ["leader/transfer", { to: -1 }, "node"],
  ["leader/transfer", { from: 1 }, "unknown_field"],
  ["nodes/01/restart", {}, "node"],
  ["nodes/x/repair", {}, "node"],
  ["nodes/1/restart", { force: true }, "unknown_field"],
  ["nodes/1/repair", { force: 1 }, "wrong_type"],
  ["init", {}, "missing_field"],
  ["init", { members: [] }, "members"],
  ["init", { members: [1, 1] }, "members"],
  ["init", { members: [0] }, "node"],
  ["init", { members: [1, 2, 3, 4, 5, 6, 7, 8] }, "members"],
];

describe("administration", () => {
  test.each(ACCEPTED)("%s with %j is passed on", async (path, body, action) => {
    const { backend, post, send } = createHarness();
    const target = `/v1/cluster/${path}?timeout_ms=700`;
    const answer = body === undefined ? await send("POST", target) : await post(target, body);
    expect(answer.body).toEqual({ outcome: "done", detail: "It is done.", leader: 2, membership: null });
    expect(answer.status).toBe(200);
    expect(backend.actions).toEqual([{ action, options: { timeoutMs: 700 } }]);
  });

  test.each(REFUSED)("%s with %j is refused: %s", async (path, body, reason) => {
    const { backend, post } = createHarness();
    expectProblem(await post(`/v1/cluster/${path}`, body), { status: 400, code: "invalid_request", reason });
    expect(backend.actions).toEqual([]);
  });

  test("a refusal of the cluster is told with its reason", async () => {
    const { backend, post } = createHarness();
    backend.failure = new ConcordError({ code: "admin_refused", reason: "change_pending", detail: "One at a time." });
    const answer = await post("/v1/cluster/members", { add: 4 });
    expectProblem(answer, { status: 409, code: "admin_refused", reason: "change_pending" });
  });

  test("who holds another token than the root token administers nothing", async () => {
    const { backend, post } = createHarness();
    const headers = { "x-concord-principal": "agent-7" };
    expectProblem(await post("/v1/cluster/members", { add: 4 }, headers), { status: 403, code: "not_admin" });
    expect(backend.actions).toEqual([]);
  });

  test("it is done by POST alone", async () => {
    const { get } = createHarness();
    const answer = await get("/v1/cluster/members");
    expectProblem(answer, { status: 405, code: "method_not_allowed" });
    expect(answer.headers.get("allow")).toBe("POST");
  });
});
