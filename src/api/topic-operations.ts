/** Topics (design 01 §4), for every surface: lossy messages to whoever listens now, kept nowhere. */
import { utf8Length } from "../base/bytes.ts";
import type { JsonValue } from "../base/json.ts";
import { NESTING_MAX } from "../base/limits.ts";
import { nestsDeeperThan } from "./body.ts";
import type { ApiContext } from "./caller.ts";
import { TOPIC_BYTES_MAX, TOPIC_PAYLOAD_BYTES_MAX } from "./limits.ts";
import { refusal } from "./problem.ts";

/** @throws ConcordError `invalid_request`: `topic_size`, `invalid_topic`. */
export function checkedTopic(topic: string): string {
  const bytes = utf8Length(topic);
  if (bytes < 1 || bytes > TOPIC_BYTES_MAX) {
    throw refusal("invalid_request", "topic_size", `A topic has 1 to ${TOPIC_BYTES_MAX} bytes; this one has ${bytes}.`);
  }
  if (topic.isWellFormed() && !topic.includes("\0")) return topic;
  throw refusal("invalid_request", "invalid_topic", "A topic is UTF-8 text without NUL.");
}

/** @throws ConcordError `invalid_request`: `payload_too_large`, `depth_exceeded`. */
export function publishTopic(
  context: ApiContext,
  request: { readonly topic: string; readonly payload: JsonValue },
): void {
  const topic = checkedTopic(request.topic);
  const payload = JSON.stringify(request.payload);
  const bytes = utf8Length(payload);
  if (bytes > TOPIC_PAYLOAD_BYTES_MAX) {
    const detail = `The payload is ${bytes} bytes of JSON; a topic carries at most ${TOPIC_PAYLOAD_BYTES_MAX}.`;
    throw refusal("invalid_request", "payload_too_large", detail);
  }
  if (nestsDeeperThan(payload, NESTING_MAX)) {
    const detail = `A payload is nested at most ${NESTING_MAX} levels deep, as a value is.`;
    throw refusal("invalid_request", "depth_exceeded", detail);
  }
  context.backend.publish({ topic, payload });
}
