/**
 * Topics: messages to whoever listens now. Lossy, unordered between publishers, kept nowhere; for what may
 * be missed, such as progress and log lines.
 */
import type { WireTopicMessage } from "../api/wire.ts";
import type { ConcordError } from "../base/errors.ts";
import type { JsonValue } from "../base/json.ts";
import type { Caller } from "./caller.ts";
import { CALL, checkKind, checkMembers } from "./check.ts";
import { Feed } from "./feed.ts";
import type { CallOptions } from "./options.ts";
import type { LinkedController } from "./signals.ts";
import { StreamKeeper } from "./stream-keeper.ts";
import type { Stream, Streams } from "./streams.ts";
import type { Input } from "./typed-value.ts";

export interface TopicMessage<T = JsonValue> {
  readonly topic: string;
  readonly payload: T;
  /** Messages that were lost right before this one because this side was too slow. */
  readonly dropped: number;
}

export interface SubscribeOptions {
  /** The connection is gone; messages are missed, uncounted, until the next one stands. */
  readonly onInterrupted?: (error: ConcordError) => void;
  /** Ends the subscription when aborted; the iteration is then done. */
  readonly signal?: AbortSignal;
}

/** A subscription in progress. Iterate it once; leaving the loop ends it. */
export class Subscription<T> extends Feed<TopicMessage<T>> {
  readonly #reader: TopicReader<T>;

  constructor(reader: TopicReader<T>, link: LinkedController) {
    super(reader.items(link), link);
    this.#reader = reader;
  }

  /** Messages known to be lost, so far. */
  get dropped(): number {
    return this.#reader.dropped;
  }

  /** Starts it now rather than with the first `next`, and resolves when it stands. */
  async open(): Promise<void> {
    await this.#reader.open();
  }
}

export class TopicClient {
  readonly #caller: Caller;
  readonly #streams: Streams;

  constructor(caller: Caller, streams: Streams) {
    this.#caller = caller;
    this.#streams = streams;
  }

  /**
   * Tells everybody who listens now. Says nothing about who that is. The payload is at most 64 KiB of JSON.
   * @throws ConcordError `timeout` if the message may have been told; it is not repeated then.
   */
  async publish<V>(topic: string, payload: Input<V>, options: CallOptions = {}): Promise<void> {
    checkKind("topic", topic, "string");
    checkMembers(options, CALL);
    const params = { topic, payload: payload as JsonValue };
    await this.#caller.write("topic.publish", params, { ...options, idempotencyKey: null });
  }

  /** Messages from the moment when the subscription stands, on any node, with gaps whenever the connection breaks. */
  subscribe<T = JsonValue>(topic: string, options: SubscribeOptions = {}): Subscription<T> {
    this.#caller.checkOpen();
    checkKind("topic", topic, "string");
    checkMembers(options, "onInterrupted signal");
    const link = this.#caller.link(options.signal);
    return new Subscription(
      new TopicReader<T>(this.#caller, this.#streams, topic, { ...options, signal: link.signal }),
      link,
    );
  }
}

class TopicReader<T> {
  dropped = 0;
  readonly #keeper: StreamKeeper<Stream<WireTopicMessage>>;

  constructor(caller: Caller, streams: Streams, topic: string, options: SubscribeOptions & { signal: AbortSignal }) {
    this.#keeper = new StreamKeeper({
      clock: caller.clock,
      random: caller.random,
      signal: options.signal,
      open: (signal) => streams.openTopic(topic, signal),
      onInterrupted: (error) => options.onInterrupted?.(error),
    });
  }

  async open(): Promise<void> {
    await this.#keeper.stream();
  }

  async *items(link: LinkedController): AsyncGenerator<TopicMessage<T>, void, void> {
    try {
      for (let stream = await this.#keeper.stream(); stream !== null; stream = await this.#keeper.stream()) {
        const { item, error } = await stream.next();
        if (error !== null) {
          this.#keeper.interrupt(error);
          continue;
        }
        this.#keeper.noteProgress();
        this.dropped += item.dropped;
        yield { topic: item.topic, payload: item.payload as T, dropped: item.dropped };
      }
    } finally {
      link.abort();
    }
  }
}
