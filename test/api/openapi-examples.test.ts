/**
 * Goal: what the OpenAPI document shows is what happens. Method: every example is sent through the Worker to nodes over
 * the real state machine, on a cluster of its own in the state that the examples speak of.
 */
import { describe, expect, test } from "vitest";
import { ZodType } from "zod";
import { createEdge } from "../../src/api/edge.ts";
import { ROUTES } from "../../src/api/openapi-document.ts";
import { type Example, NODE_HEADERS, type Reply, type RouteRow } from "../../src/api/openapi-route.ts";
import { createSetting } from "./fake-nodes.ts";
import { prepare, requestOf } from "./openapi-requests.ts";

const ORIGIN = "http://127.0.0.1:8787";
/** Tells of nodes, of which there are none here: the shape is compared, not the values. */
const SHAPE_ALONE = ["clusterStatus"];

const examples = ROUTES.flatMap((row) => row.examples.map((example) => ({ row, example })));

async function answerTo(row: RouteRow, example: Example): Promise<Response> {
  const { nodes, send } = createSetting();
  await prepare({ send });
  const { method, target, headers, body } = requestOf(row, example);
  const request = new Request(`${ORIGIN}${target}`, { method, headers, ...(body === undefined ? {} : { body }) });
  return await createEdge({ random: () => 0 }).fetch(request, { NODES: nodes, CONCORD_LOOPBACK_DEV: "1" });
}

function replyOf(row: RouteRow, status: number): Reply {
  const reply = row.replies.find((candidate) => candidate.status === status);
  if (reply === undefined) throw new Error(`${row.id} does not describe ${status}`);
  return reply;
}

/** The stream's text until it holds `length` characters. */
async function beginning(response: Response, length: number): Promise<string> {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  while (reader !== undefined && text.length < length) {
    const { value, done } = await reader.read();
    if (done) break;
    text += value;
  }
  await reader?.cancel();
  return text;
}

describe.each(examples.map(({ row, example }) => ({ title: `${row.method} ${row.path}`, row, example })))(
  "$title",
  ({ row, example }) => {
    test(`${example.name}: ${example.summary}`, async () => {
      const response = await answerTo(row, example);
      const isStream = /^(?:text\/event-stream|application\/x-ndjson)$/.test(
        response.headers.get("content-type") ?? "",
      );
      const shown = typeof example.reply === "string" ? example.reply : "";
      const text = isStream ? await beginning(response, shown.length) : await response.text();
      expect(response.status, text).toBe(example.status);
      const reply = replyOf(row, example.status);
      const media = response.headers.get("content-type")?.split(";")[0] ?? "";
      if (reply.content !== undefined) expect(Object.keys(reply.content)).toContain(media);
      if (row.by !== "worker") {
        for (const name of NODE_HEADERS) expect(response.headers.has(name), name).toBe(true);
      }
      if (isStream) {
        expect(text.startsWith(shown), text).toBe(true);
        return;
      }
      const body: unknown = text === "" ? undefined : JSON.parse(text);
      if (!SHAPE_ALONE.includes(row.id)) expect(body).toEqual(example.reply);
      const schema = reply.content?.[media];
      if (schema instanceof ZodType && example.name !== "raw") {
        // Equal afterwards: nothing is answered that the schema does not name.
        expect(schema.parse(body)).toEqual(body);
        expect(schema.parse(example.reply)).toEqual(example.reply);
      }
    });
  },
);

test("every route that can be asked by one request has an example", () => {
  const without = ROUTES.filter(({ examples: own }) => own.length === 0).map(({ id }) => id);
  // A WebSocket, and what the document would repeat of itself.
  expect(without).toEqual(["session", "openapi", "docs"]);
});

test("every header that an answer is said to have, it has", async () => {
  for (const { row, example } of examples) {
    const response = await answerTo(row, example);
    await response.body?.cancel();
    for (const name of replyOf(row, example.status).headers ?? []) {
      // A list is no record and has no tag.
      if (name === "etag" && example.name === "list") continue;
      expect(response.headers.has(name), `${row.id} ${example.name} ${name}`).toBe(true);
    }
  }
});
