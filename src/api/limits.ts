/**
 * Limits of the HTTP surface alone, with their units; those that the state machine shares stand in `base/limits.ts`.
 * Imported by the client too, so: constants only.
 */
import { NESTING_MAX } from "../base/limits.ts";

/** How long a request waits for its answer unless it says `timeout_ms`. */
export const CALL_TIMEOUT_MS_DEFAULT = 5_000;
export const CALL_TIMEOUT_MS_MAX = 60_000;

/**
 * Depth of a request body as text. A value may be nested `NESTING_MAX` deep and stands at most four levels down in its
 * body (body, list, operation, value); anything deeper is refused before recursive code sees it.
 */
export const BODY_NESTING_MAX = NESTING_MAX + 4;

/** Clusters in one page of `GET /v1/clusters`. */
export const CLUSTERS_PAGE_MAX = 1000;

/** Requests in flight of one session. */
export const SESSION_REQUESTS_MAX = 256;
/** `max_message_bytes`: what a client says its socket delivers at most. */
export const MESSAGE_BYTES_MAX_MIN = 64 << 10;
export const MESSAGE_BYTES_MAX_MAX = 32 << 20;

export const TOPIC_BYTES_MAX = 256;
/** Of a topic's message as JSON text. */
export const TOPIC_PAYLOAD_BYTES_MAX = 64 << 10;
/** Bytes of topics sent to one connection and not acknowledged; what is over is dropped. */
export const TOPIC_WINDOW_BYTES = 256 << 10;
export const TOPICS_PER_CONNECTION_MAX = 100;
/** Subscriptions of all connections of one node. */
export const TOPICS_PER_NODE_MAX = 10_000;
