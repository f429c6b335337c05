/** What the OpenAPI document says of what stays open: watches, sessions, topics. */
import { TOPIC_BYTES_MAX } from "./limits.ts";
import { FLAG, header, inPath, KEY_IN_QUERY, query, RANGE, REVISION, SHARED } from "./openapi-parameters.ts";
import * as replies from "./openapi-replies.ts";
import type { Reply, RouteRow } from "./openapi-route.ts";
import { sessionExtensions } from "./openapi-session.ts";
import { CLAIMED } from "./openapi-sync.ts";
import * as requests from "./schema.ts";

const EVENTS = "text/event-stream";
const OPENED: Reply = { status: 101, description: "The WebSocket is open. Asked for by `Upgrade: websocket`." };
const NO_SOCKET: Reply = {
  status: 426,
  description: "A problem of code `invalid_request`: no upgrade was asked for, or this host has no WebSockets.",
  content: { "application/problem+json": replies.problem },
  headers: ["upgrade"],
};
const TOPIC = inPath("topic", { type: "string", minLength: 1, maxLength: TOPIC_BYTES_MAX }, "UTF-8 text without NUL.");
const NAMED = { topic: "builds" };

const WATCH_DESCRIPTION = `Exactly one of \`key\`, \`prefix\`, and \`start\` with \`end\`. Events of the past first, then live: no gap, no repeat, in order.

**Server-sent events** (\`Accept: text/event-stream\` or none): each frame is one event with \`id:\` = its position and \`data:\` = the frame as JSON; a reader that comes back sends \`Last-Event-ID\`. A start that is compacted is 410. A comment comes every 15 s.

**WebSocket**: each frame is one message. The client acknowledges what it took by \`{"ack":"<position>"}\`: at most 256 KiB are unacknowledged, and a watch that is far behind and silent for 10 s ends with \`slow_consumer\`. \`{"progress":true}\` asks for a \`progress\` frame; the text \`ping\` is answered \`pong\`. After the last frame the server closes with 1000; what it does not understand it answers by 1008.

Browsers cannot send \`Authorization\` with a WebSocket: they offer the sub-protocols \`bearer\` and the token.`;

const TOPIC_DESCRIPTION = `Messages from now on, as server-sent events or WebSocket messages. Lossy: at most 256 KiB are unacknowledged per connection; what is over is dropped and counted in \`dropped\` of the next message. Over a WebSocket the client acknowledges by \`{"ack":<seq>}\`.`;

export const STREAM_ROUTES: readonly RouteRow[] = [
  {
    method: "GET",
    path: "/v1/watch",
    id: "watch",
    tag: "sync",
    by: "node",
    summary: "Events as they come",
    description: WATCH_DESCRIPTION,
    parameters: [
      KEY_IN_QUERY,
      ...RANGE,
      query(
        "from_revision",
        { ...REVISION, minimum: 1 },
        "First revision wanted; default: from now on. Excludes `after`.",
      ),
      query("after", { type: "string" }, "A position to resume behind."),
      query("include_values", { ...FLAG, default: true }, "False: events without `value`."),
      query("prev_values", FLAG, "Events with `prev_value`."),
      query("filter", { type: "string", enum: ["puts", "deletes"] }, "Only these."),
      query("cluster_id", { type: "string" }, "As the header `concord-cluster`, for readers that cannot send one."),
      SHARED.max_message_bytes,
      header("Last-Event-ID", { type: "string" }, "Wins over `after` and `from_revision`. Events alone."),
    ],
    replies: [
      { status: 200, description: "Frames, as the data of events.", content: { [EVENTS]: replies.watchFrame } },
      OPENED,
      NO_SOCKET,
    ],
    errors: ["invalid_selector", "invalid_kv", "compacted", "node_halted"],
    examples: [
      {
        name: "events",
        summary: "Everything below a prefix from revision 2 on",
        parameters: { prefix: "/work/", from_revision: "2" },
        status: 200,
        reply: [
          ":\n",
          `id: 2\ndata: ${JSON.stringify({ kind: "events", events: [CLAIMED], complete: true, position: "2" })}\n`,
          `id: 2\ndata: ${JSON.stringify({ kind: "ready", revision: 2, position: "2" })}\n\n`,
        ].join("\n"),
      },
    ],
    extensions: () => ({ "x-messages": { send: "WatchRequest", receive: ["WatchFrame", "Chunk"] } }),
  },
  {
    method: "GET",
    path: "/v1/session",
    id: "session",
    tag: "session",
    by: "node",
    summary: "Every operation over one WebSocket",
    description: `JSON-RPC 2.0, pipelined, no batches. The server speaks first: the notification \`session\` with \`cluster_id\`, \`node\`, \`leader\` and \`revision\`. At most 256 requests are in flight, else \`overloaded\`; a message of over 2 MiB closes with 1009. An error has the problem document as its \`data\`; its \`code\` is -32700 (no JSON), -32600 (no request), -32601 (no such method), -32602 (status 400) or -32000. Params are strict, and have the names and values of the HTTP routes. The methods stand under \`x-methods\`, what the server sends by itself under \`x-notifications\`.`,
    parameters: [SHARED.max_message_bytes],
    replies: [OPENED, NO_SOCKET],
    examples: [],
    extensions: sessionExtensions,
  },
  {
    method: "POST",
    path: "/v1/topics/{topic}",
    wide: true,
    id: "publish",
    tag: "topics",
    by: "node",
    summary: "Publishes a message",
    description: "To whoever listens now, on every node that can be reached. Any JSON of up to 64 KiB.",
    parameters: [TOPIC],
    body: { required: true, content: { "application/json": requests.json } },
    replies: [{ status: 202, description: "On its way.", content: { "application/json": replies.published } }],
    examples: [
      {
        name: "publish",
        summary: "A message",
        parameters: NAMED,
        body: { line: 7, text: "compiling" },
        status: 202,
        reply: { topic: "builds", revision: 2 },
      },
    ],
  },
  {
    method: "GET",
    path: "/v1/topics/{topic}",
    wide: true,
    id: "subscribe",
    tag: "topics",
    by: "node",
    summary: "Messages of a topic",
    description: TOPIC_DESCRIPTION,
    parameters: [TOPIC, SHARED.max_message_bytes],
    replies: [
      { status: 200, description: "Messages, as the data of events.", content: { [EVENTS]: replies.topicMessage } },
      OPENED,
      NO_SOCKET,
    ],
    examples: [{ name: "subscribe", summary: "As events", parameters: NAMED, status: 200, reply: ":\n\n" }],
    extensions: () => ({ "x-messages": { send: "TopicRequest", receive: ["TopicMessage", "Chunk"] } }),
  },
];
