/**
 * `/v1/watch`, `/v1/session`, `/v1/topics/{topic}`: what stays open (design 01 §4, §7). A WebSocket where the caller asks
 * for one and the host has them, server-sent events else; a session is a WebSocket alone.
 */
import type { Hono } from "hono";
import { ConcordError } from "../base/errors.ts";
import type { Frame } from "../watch/frames.ts";
import { BEARER_PROTOCOL } from "./access.ts";
import type { Connection, ConnectionSubscription } from "./backend.ts";
import { readJson } from "./body.ts";
import { type ApiCall, type ApiEnvironment, parametersOf, principalOf } from "./call.ts";
import type { ApiContext } from "./caller.ts";
import { pathRest } from "./parameters.ts";
import { positionText } from "./position-text.ts";
import { problemOf, problemResponse, refusal } from "./problem.ts";
import { EventStream } from "./stream-events.ts";
import type { SocketHost, SocketOpening } from "./stream-socket.ts";
import { checkedTopic, publishTopic } from "./topic-operations.ts";
import { TopicWindow } from "./topic-window.ts";
import { frameText, isLastFrame } from "./watch-frames.ts";
import { decodeWatch, maxMessageBytesOf, WATCH_PARAMETERS, watchOfQuery } from "./watch-parameters.ts";
import { WATCH_ID } from "./watch-socket.ts";
import type { WirePublished } from "./wire.ts";

const TOPICS_PATH = "/v1/topics/";

/** @param sockets absent: the host has no WebSockets (plain Node); such a request is answered 426. */
export function mountStreams(app: Hono<ApiEnvironment>, context: ApiContext, sockets: SocketHost | undefined): void {
  for (const path of ["/v1/watch", "/v1/session", `${TOPICS_PATH}*`]) app.use(path, refuseHead);
  app.get("/v1/watch", (call) => getWatch(context, call, sockets));
  app.get("/v1/session", (call) => getSession(context, call, sockets));
  app.get(`${TOPICS_PATH}*`, (call) => getTopic(context, call, sockets));
  app.post(`${TOPICS_PATH}*`, (call) => postTopic(context, call));
}

/** It would open a stream that nobody reads. */
export async function refuseHead(call: ApiCall, next: () => Promise<void>): Promise<Response | undefined> {
  if (call.req.raw.method !== "HEAD") {
    await next();
    return undefined;
  }
  return problemResponse({ code: "method_not_allowed", detail: "A stream is opened by GET." }, { allow: "GET" });
}

async function getWatch(context: ApiContext, call: ApiCall, sockets: SocketHost | undefined): Promise<Response> {
  const principal = principalOf(context, call);
  if (isUpgrade(call)) {
    const parameters = parametersOf(call, "invalid_request", [...WATCH_PARAMETERS, "max_message_bytes"]);
    const subscription = decodeWatch(context, WATCH_ID, watchOfQuery(parameters));
    const maxMessageBytes = maxMessageBytesOf(parameters);
    return upgraded(call, sockets, { kind: "watch", subscription, principal, maxMessageBytes });
  }
  checkAccept(call);
  const parameters = parametersOf(call, "invalid_request", WATCH_PARAMETERS);
  const fields = watchOfQuery(parameters, call.req.header("last-event-id"));
  return await streamWatch(context, decodeWatch(context, WATCH_ID, fields));
}

function getSession(context: ApiContext, call: ApiCall, sockets: SocketHost | undefined): Response {
  const principal = principalOf(context, call);
  const parameters = parametersOf(call, "invalid_request", ["max_message_bytes"]);
  const maxMessageBytes = maxMessageBytesOf(parameters);
  if (isUpgrade(call)) return upgraded(call, sockets, { kind: "session", principal, maxMessageBytes });
  return upgradeRequired("upgrade_required", "A session is a WebSocket: send the request as an upgrade.");
}

function getTopic(context: ApiContext, call: ApiCall, sockets: SocketHost | undefined): Response {
  const principal = principalOf(context, call);
  const topic = topicOf(call);
  if (isUpgrade(call)) {
    const parameters = parametersOf(call, "invalid_request", ["max_message_bytes"]);
    const maxMessageBytes = maxMessageBytesOf(parameters);
    return upgraded(call, sockets, { kind: "topic", topic, principal, maxMessageBytes });
  }
  checkAccept(call);
  parametersOf(call, "invalid_request", []);
  return streamTopic(context, topic);
}

async function postTopic(context: ApiContext, call: ApiCall): Promise<Response> {
  principalOf(context, call);
  parametersOf(call, "invalid_request", []);
  const topic = topicOf(call);
  publishTopic(context, { topic, payload: await readJson(call.req.raw, "invalid_request") });
  const reply: WirePublished = { topic, revision: context.backend.position().revision };
  return call.json(reply, 202);
}

function topicOf(call: ApiCall): string {
  return checkedTopic(pathRest(call.req.url, TOPICS_PATH, "invalid_request"));
}

function isUpgrade(call: ApiCall): boolean {
  return call.req.header("upgrade")?.toLowerCase() === "websocket";
}

function upgraded(call: ApiCall, sockets: SocketHost | undefined, opening: SocketOpening): Response {
  if (sockets === undefined) {
    return upgradeRequired("upgrade_unavailable", "This host has no WebSockets; watch and topics also come as SSE.");
  }
  const response = sockets.open(opening);
  // The Worker has taken the token away and left the name.
  const offered = call.req.header("sec-websocket-protocol")?.split(",") ?? [];
  if (offered.some((name) => name.trim() === BEARER_PROTOCOL)) {
    response.headers.set("sec-websocket-protocol", BEARER_PROTOCOL);
  }
  return response;
}

function upgradeRequired(reason: string, detail: string): Response {
  const problem = { ...problemOf({ code: "invalid_request", reason, detail }), status: 426 };
  const { headers } = problemResponse({ code: "invalid_request", detail });
  headers.set("upgrade", "websocket");
  return new Response(JSON.stringify(problem), { status: 426, headers });
}

function checkAccept(call: ApiCall): void {
  const accept = call.req.header("accept");
  if (accept === undefined || accept === "") return;
  const ranges = accept.split(",").map((range) => range.split(";")[0]?.trim().toLowerCase());
  if (ranges.some((range) => range === "text/event-stream" || range === "text/*" || range === "*/*")) return;
  const detail = "Events come as text/event-stream, or over a WebSocket; the request accepts neither.";
  throw refusal("invalid_request", "accept", detail);
}

/** @throws ConcordError `compacted`, so that an EventSource stops, and whatever refuses the watch. */
async function streamWatch(context: ApiContext, subscription: ConnectionSubscription): Promise<Response> {
  const early: Frame[] = [];
  let stream: EventStream | null = null;
  const connection = context.backend.connect({
    onFrames: (frames) => {
      if (stream === null) early.push(...frames);
      else sendFrames(stream, connection, frames);
    },
    onTopic: () => {},
    onDropped: () => stream?.end(),
  });
  const subscribed = connection.subscribe(subscription);
  // The first frames come at once: whether the start is compacted is known before the headers leave.
  await Promise.resolve();
  const refused = subscribed.ok ? compactionIn(early) : new ConcordError(subscribed.error);
  if (refused !== null) {
    connection.close();
    throw refused;
  }
  stream = new EventStream({ onEnd: () => connection.close() });
  sendFrames(stream, connection, early);
  return stream.response;
}

function compactionIn([first]: readonly Frame[]): ConcordError | null {
  if (first?.kind !== "compacted") return null;
  return new ConcordError({
    code: "compacted",
    detail: `Events at or below revision ${first.compactRevision} are compacted: list the records and watch from there.`,
    compact_revision: first.compactRevision,
  });
}

/** A frame counts as acknowledged when its reader took it. */
function sendFrames(stream: EventStream, connection: Connection, frames: readonly Frame[]): void {
  for (const frame of frames) {
    const data = frameText(frame);
    switch (frame.kind) {
      case "events":
      case "ready":
      case "progress":
        stream.send({
          id: positionText(frame.position),
          data,
          written: () => connection.acknowledge(WATCH_ID, frame.position),
        });
        break;
      case "slow_consumer":
        stream.send({ id: positionText(frame.position), data });
        break;
      case "leader_changed":
        stream.send({ id: null, data, replaces: frame.kind });
        break;
      default:
        stream.send({ id: null, data });
    }
    if (isLastFrame(frame)) stream.end();
  }
}

function streamTopic(context: ApiContext, topic: string): Response {
  const window = new TopicWindow();
  let stream: EventStream | null = null;
  const connection = context.backend.connect({
    onFrames: () => {},
    onTopic: (message) => {
      const admitted = window.admit(message);
      if (admitted === null) return;
      const { text, seq } = admitted;
      stream?.send({ id: null, data: text, written: () => window.acknowledge(seq) });
    },
    onDropped: () => stream?.end(),
  });
  try {
    connection.subscribeTopic(topic);
  } catch (error) {
    connection.close();
    throw error;
  }
  stream = new EventStream({ onEnd: () => connection.close() });
  return stream.response;
}
