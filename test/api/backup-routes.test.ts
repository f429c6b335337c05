/** `GET /v1/cluster/snapshot` and `POST /v1/cluster/restore`: what is asked, streamed and refused before a node acts. */
import { expect, test } from "vitest";
import { createApi } from "../../src/api/app.ts";
import { PRINCIPAL_HEADER } from "../../src/api/call.ts";
import { ConcordError } from "../../src/base/errors.ts";
import { beginIntake, endIntake, takeBackupText } from "../../src/kv/backup-intake.ts";
import { createSetting } from "./fake-nodes.ts";
import { createHarness, expectProblem } from "./harness.ts";

const NDJSON = { "content-type": "application/x-ndjson" };

async function backupOf(harness: ReturnType<typeof createHarness>): Promise<string> {
  for (const key of ["/a", "/b"]) await harness.put(`/v1/kv?key=${key}`, { key });
  return (await harness.get("/v1/cluster/snapshot")).text;
}

test("a backup is a stream of lines that says what it is of", async () => {
  const harness = createHarness();
  const text = await backupOf(harness);
  const answer = await harness.get("/v1/cluster/snapshot");
  expect(answer.text).toBe(text);
  expect(Object.fromEntries(answer.headers)).toMatchObject({
    "content-type": "application/x-ndjson",
    "content-encoding": "identity",
    "content-disposition": 'attachment; filename="c-1-2.backup"',
    "concord-backup-revision": "2",
    "concord-backup-index": "2",
    "concord-node": "1",
    "concord-cluster": "c-1",
  });
  const intake = beginIntake();
  takeBackupText(intake, text);
  expect(endIntake(intake)).toMatchObject({ revision: 2 });
  expect(harness.backend.openBackups).toBe(0);
});

test("a reader that goes away ends it; one that stays behind is not read ahead of", async () => {
  const harness = createHarness();
  await backupOf(harness);
  const response = await harness.api.request("/v1/cluster/snapshot");
  const reader = response.body!.getReader();
  expect(harness.backend.openBackups).toBe(1);
  await reader.read();
  await reader.cancel();
  expect(harness.backend.openBackups).toBe(0);
});

test("a backup that is lost breaks off, and is no backup", async () => {
  const harness = createHarness();
  await backupOf(harness);
  harness.backend.backupPiecesMax = 3;
  const response = await harness.api.request("/v1/cluster/snapshot");
  expect(response.status).toBe(200);
  await expect(response.text()).rejects.toThrow("Lost.");
  expect(harness.backend.openBackups).toBe(0);
});

test("what refuses a backup is told before a byte of it", async () => {
  const harness = createHarness();
  harness.backend.failure = new ConcordError({ code: "overloaded", reason: "backup_running", detail: "It is so." });
  const answer = await harness.get("/v1/cluster/snapshot");
  expectProblem(answer, { status: 503, code: "overloaded", reason: "backup_running", retry: "yes" });
  expectProblem(await harness.get("/v1/cluster/snapshot?revision=2"), {
    status: 400,
    code: "invalid_request",
    reason: "unknown_parameter",
  });
  expect((await harness.send("HEAD", "/v1/cluster/snapshot")).status).toBe(405);
  expect(harness.backend.openBackups).toBe(0);
});

test("a restore takes the text as it comes, and answers what the cluster is now", async () => {
  const harness = createHarness();
  const body = await backupOf(harness);
  const answer = await harness.send("POST", "/v1/cluster/restore?revision_jump=5", { headers: NDJSON, body });
  expect(answer.body).toEqual({
    cluster_id: "c-2",
    revision: 7,
    backup: { cluster_id: "c-1", revision: 2, index: 2, time_ms: harness.backend.nowMs },
  });
  expect(harness.backend.restores).toEqual([{ wish: { revisionJump: 5 }, bytes: body.length }]);
});

test.each([
  ["a jump of nothing", "?revision_jump=0", NDJSON, 400, "invalid_request", "invalid_revision_jump"],
  ["a jump too far", "?revision_jump=1000000000001", NDJSON, 400, "invalid_request", "invalid_revision_jump"],
  ["a jump that is no number", "?revision_jump=far", NDJSON, 400, "invalid_request", "invalid_revision_jump"],
  ["a parameter of something else", "?timeout_ms=5", NDJSON, 400, "invalid_request", "unknown_parameter"],
  ["another media type", "", { "content-type": "application/json" }, 415, "unsupported_media_type", "content_type"],
  ["another cluster", "", { ...NDJSON, "concord-cluster": "c-9" }, 410, "cluster_changed", undefined],
] as const)("a restore with %s is refused unread", async (_, query, headers, status, code, reason) => {
  const harness = createHarness();
  const answer = await harness.send("POST", `/v1/cluster/restore${query}`, { headers, body: "x" });
  expectProblem(answer, { status, code, ...(reason === undefined ? {} : { reason }) });
  expect(harness.backend.restores).toEqual([]);
});

test("no body is a backup that ends early", async () => {
  const answer = await createHarness().send("POST", "/v1/cluster/restore");
  expectProblem(answer, { status: 400, code: "invalid_request", reason: "backup_truncated" });
});

test("both need the root token's principal", async () => {
  const { backend } = createHarness();
  const api = createApi(backend, {});
  for (const [method, path] of [
    ["GET", "/v1/cluster/snapshot"],
    ["POST", "/v1/cluster/restore"],
  ] as const) {
    const ask = (headers: Record<string, string>) => api.request(path, { method, headers });
    expect((await ask({})).status).toBe(401);
    expect(await (await ask({ [PRINCIPAL_HEADER]: "somebody" })).json()).toMatchObject({
      status: 403,
      code: "not_admin",
    });
  }
  expect([backend.openBackups, backend.restores]).toEqual([0, []]);
});

test("the Worker hands an upload of any size to one node, once, however it ends", async () => {
  const { nodes, send } = createSetting();
  const body = new Uint8Array(5 << 20).fill(0x20);
  const answer = await send("POST", "/v1/cluster/restore", { headers: NDJSON, body });
  expectProblem(answer, { status: 400, code: "invalid_request" });
  expect(nodes.backend("default").restores).toEqual([{ wish: { revisionJump: null }, bytes: 5 << 20 }]);
  nodes.faults.set("default/2", { kind: "refuse" }); // which leads, as the first answer said
  const broken = await send("POST", "/v1/cluster/restore", { headers: NDJSON, body: new Uint8Array(1) });
  expectProblem(broken, { status: 504, code: "timeout", retry: "same-request" });
  expect(nodes.asked).toEqual(["default/1", "default/2"]);
});

test("the Worker asks any node for a backup, not the leader before the others", async () => {
  const { nodes, send } = createSetting();
  await send("GET", "/v1/revision"); // from here on it knows that node 2 leads
  expect((await send("GET", "/v1/cluster/snapshot")).status).toBe(200);
  expect(nodes.asked.at(-1)).toBe("default/1");
});
