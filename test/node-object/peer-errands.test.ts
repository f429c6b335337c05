/** What administrators ask, on its way between nodes: it arrives as it was, and what is none of ours is refused. */
import { describe, expect, test } from "vitest";
import { PEER_HEADER } from "../../src/api/separate-node.ts";
import type { Errand, ErrandReply } from "../../src/node-object/errands.ts";
import { answerErrand, askByFetch, errandFrom, errandReplyFrom } from "../../src/node-object/peer-errands.ts";

const ERRANDS: readonly Errand[] = [
  { kind: "add", id: 4 },
  { kind: "remove", id: 4 },
  { kind: "promote", id: 4 },
  { kind: "renew", id: 4 },
  { kind: "transfer", to: null },
  { kind: "transfer", to: 2 },
  { kind: "restart" },
  { kind: "give_up", clusterId: "c", incarnation: 77, replaces: 7 },
  { kind: "init", members: [1, 2, 3] },
];

const REPLIES: readonly ErrandReply[] = [
  {
    kind: "done",
    leader: 2,
    membership: { index: 3, committed: true, voters: [1, 2], learners: [3] },
    admission: null,
  },
  { kind: "unchanged", leader: null, membership: null, admission: { clusterId: "c", incarnation: 77 } },
  { kind: "under_way", leader: 1, membership: null, admission: null },
  { kind: "refused", refusal: "change_pending" },
  { kind: "elsewhere", leader: 3 },
  { kind: "elsewhere", leader: null },
];

/** A node behind its peer route, and how another one asks it. */
function pair(own: (errand: Errand, timeoutMs: number) => Promise<ErrandReply>) {
  const asked: Request[] = [];
  const fetch = async (url: string, init?: RequestInit): Promise<Response> => {
    const request = new Request(url, init);
    asked.push(request);
    return await answerErrand(request, own);
  };
  const unasked = () => expect.unreachable("the own node is not asked");
  return { asked, ask: askByFetch(1, unasked, () => ({ fetch })) };
}

describe("errands between nodes", () => {
  test.each(ERRANDS)("%j arrives as it was", async (errand) => {
    const seen: unknown[] = [];
    const { ask, asked } = pair(async (...call) => {
      seen.push(call);
      return { kind: "elsewhere", leader: null };
    });
    expect(await ask(2, errand, 700.5)).toEqual({ kind: "elsewhere", leader: null });
    expect(seen).toEqual([[errand, 701]]);
    expect([asked[0]?.headers.get(PEER_HEADER), new URL(asked[0]?.url ?? "").pathname]).toEqual(["1", "/peer/admin"]);
  });

  test.each(REPLIES)("the reply %j comes back as it was", async (reply) => {
    const { ask } = pair(async () => reply);
    expect(await ask(2, { kind: "restart" }, 100)).toEqual(reply);
  });

  test("the own node is asked without a way between", async () => {
    const ask = askByFetch(
      1,
      async () => ({ kind: "elsewhere", leader: 5 }),
      () => expect.unreachable(),
    );
    expect(await ask(1, { kind: "restart" }, 100)).toEqual({ kind: "elsewhere", leader: 5 });
  });

  test("a node that cannot be reached, or that knows no such route, has not answered", async () => {
    const own = () => expect.unreachable();
    const broken = askByFetch(1, own, () => ({ fetch: async () => Promise.reject(new Error("reset")) }));
    expect(await broken(2, { kind: "restart" }, 100)).toBeNull();
    const older = askByFetch(1, own, () => ({ fetch: async () => new Response(null, { status: 404 }) }));
    expect(await older(2, { kind: "restart" }, 100)).toBeNull();
  });

  test.each([
    null,
    {},
    { kind: "add" },
    { kind: "add", id: "4" },
    { kind: "transfer" },
    { kind: "give_up", clusterId: "c" },
    { kind: "init", members: [] },
    { kind: "init", members: [1, 1] },
    { kind: "shut_down" },
  ])("%j is no errand", async (errand) => {
    expect(errandFrom(errand)).toBeNull();
    const body = JSON.stringify({ errand, timeout_ms: 5 });
    const request = new Request("http://node/peer/admin", { method: "POST", body });
    expect((await answerErrand(request, () => expect.unreachable())).status).toBe(400);
  });

  test.each([null, {}, { kind: "refused", refusal: "because" }, { kind: "finished" }])("%j is no reply", (reply) => {
    expect(errandReplyFrom(reply)).toBeNull();
  });
});
