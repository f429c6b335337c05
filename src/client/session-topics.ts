/**
 * The topics of one session: subscribers on this connection share one subscription of the node per topic.
 *
 * M1. Messages are acknowledged as they come: what a slow subscriber does not take is dropped here, beyond
 *     `SUBSCRIBER_CHARS_MAX`, and counted in the `dropped` of the next message that it gets. So no subscriber slows the
 *     others, and memory is bounded.
 */
import type { WireTopicMessage } from "../api/wire.ts";
import type { ConcordError } from "../base/errors.ts";
import { ItemQueue } from "./item-queue.ts";

const SUBSCRIBER_CHARS_MAX = 256 << 10;
/** An acknowledgement each time so much has come: a quarter of what the node lets stand. */
const ACKNOWLEDGE_CHARS = 64 << 10;

interface Subscriber {
  readonly queue: ItemQueue<WireTopicMessage>;
  dropped: number;
}

export class SessionTopics {
  readonly #notify: (method: string, params: object) => void;
  readonly #byTopic = new Map<string, Set<Subscriber>>();
  #unacknowledged = 0;

  constructor(notify: (method: string, params: object) => void) {
    this.#notify = notify;
  }

  get isEmpty(): boolean {
    return this.#byTopic.size === 0;
  }

  add(topic: string): ItemQueue<WireTopicMessage> {
    const queue = new ItemQueue<WireTopicMessage>();
    const subscribers = this.#byTopic.get(topic);
    if (subscribers === undefined) this.#byTopic.set(topic, new Set([{ queue, dropped: 0 }]));
    else subscribers.add({ queue, dropped: 0 });
    return queue;
  }

  /** True when nobody on this connection wants the topic any more. */
  remove(topic: string, queue: ItemQueue<WireTopicMessage>): boolean {
    const subscribers = this.#byTopic.get(topic);
    if (subscribers === undefined) return false;
    for (const subscriber of subscribers) if (subscriber.queue === queue) subscribers.delete(subscriber);
    return subscribers.size === 0 && this.#byTopic.delete(topic);
  }

  onMessage(message: WireTopicMessage, chars: number): void {
    this.#unacknowledged += chars;
    if (this.#unacknowledged >= ACKNOWLEDGE_CHARS) {
      this.#unacknowledged = 0;
      this.#notify("topic.ack", { seq: message.seq });
    }
    for (const subscriber of this.#byTopic.get(message.topic) ?? []) {
      const dropped = subscriber.dropped + message.dropped;
      const isFull = subscriber.queue.bytes + chars > SUBSCRIBER_CHARS_MAX;
      subscriber.dropped = isFull ? dropped + 1 : 0;
      if (!isFull) subscriber.queue.push({ ...message, dropped }, chars);
    }
  }

  end(error: ConcordError): void {
    for (const subscribers of this.#byTopic.values()) for (const { queue } of subscribers) queue.end(error);
    this.#byTopic.clear();
  }
}
