/** A socket to a node of the model, and the session that the node serves over it. */
import type { WireWatchFrame } from "../../src/api/wire.ts";
import type { JsonValue, SocketLike } from "../../src/client/index.ts";
import type { Answer, Asked, ModelCluster } from "./model-cluster.ts";
import { ModelWatch, parsePosition, type WatchTerms } from "./model-watch.ts";

type Listener = (event: unknown) => void;

interface ServedWatch {
  readonly watch: ModelWatch;
  /** Positions of frames that are not acknowledged. */
  readonly owed: string[];
}

export class ModelSocket implements SocketLike {
  readonly url: string;
  readonly protocols: readonly string[];
  readonly node: number;
  /** Everything that the client sent, oldest first. */
  readonly sent: string[] = [];
  readonly acknowledged: { readonly watchId: number; readonly position: string }[] = [];
  readonly cancelled: number[] = [];
  /** Nothing arrives and nothing is answered. */
  isFrozen = false;
  isClosed = false;
  unansweredMax = 0;
  readonly #cluster: ModelCluster;
  readonly #listeners = new Map<string, Listener[]>();
  readonly #watches = new Map<number, ServedWatch>();
  readonly #topics = new Map<string, () => void>();
  #unanswered = 0;
  #topicSeq = 0;

  constructor(
    cluster: ModelCluster,
    options: { readonly url: string; readonly protocols: readonly string[]; readonly node: number },
  ) {
    this.#cluster = cluster;
    this.url = options.url;
    this.protocols = options.protocols;
    this.node = options.node;
    queueMicrotask(() => this.#open());
  }

  addEventListener(type: string, listener: Listener): void {
    this.#listeners.set(type, [...(this.#listeners.get(type) ?? []), listener]);
  }

  send(text: string): void {
    if (this.isClosed) throw new Error("the socket is closed");
    this.sent.push(text);
    if (this.isFrozen) return;
    if (text === "ping") {
      if (this.#cluster.isAlive) this.#deliver("pong");
    } else void this.#onRequest(JSON.parse(text));
  }

  close(): void {
    this.#end();
  }

  /** The connection breaks. */
  fail(): void {
    if (this.isClosed) return;
    this.#end();
    this.#fire("close", { code: 1006 });
  }

  notify(method: string, params: object): void {
    this.deliver({ jsonrpc: "2.0", method, params });
  }

  deliver(message: object): void {
    const text = JSON.stringify(message);
    const max = this.#cluster.messageCharsMax;
    if (text.length <= max) {
      this.#deliver(text);
      return;
    }
    const count = Math.ceil(text.length / max);
    for (let index = 0; index < count; index += 1) {
      const data = text.slice(index * max, (index + 1) * max);
      this.#deliver(JSON.stringify({ kind: "chunk", index, last: index === count - 1, data }));
    }
  }

  #open(): void {
    if (this.#cluster.refusesSockets) {
      this.isClosed = true;
      this.#fire("error", {});
      this.#fire("close", { code: 1006 });
      return;
    }
    if (this.isClosed) return;
    this.#cluster.sockets.add(this);
    this.#fire("open", {});
    if (!this.#cluster.greets) return;
    const { clusterId, leader } = this.#cluster;
    const revision = this.#cluster.applied(this.node);
    this.notify("session", { cluster_id: clusterId, node: this.node, leader, revision, ready: leader !== null });
  }

  async #onRequest({ id, method, params }: Asked & { readonly id?: number }): Promise<void> {
    if (id === undefined) return this.#onNotification(method, params);
    this.#unanswered += 1;
    this.unansweredMax = Math.max(this.unansweredMax, this.#unanswered);
    const answer = (await this.#cluster.answer({ method, params })) ?? this.#handle(method, params);
    if (answer === "silence") return;
    if (answer === "break") return this.fail();
    this.#unanswered -= 1;
    if ("result" in answer) this.deliver({ jsonrpc: "2.0", id, result: answer.result });
    else {
      const data = { detail: "It is so.", ...answer.problem };
      this.deliver({ jsonrpc: "2.0", id, error: { code: -32000, message: "It is so.", data } });
    }
    this.#cluster.pump();
  }

  #onNotification(method: string, params: Asked["params"]): void {
    if (method !== "watch.ack") return;
    const watchId = Number(params.watch_id);
    const position = String(params.position);
    this.acknowledged.push({ watchId, position });
    const served = this.#watches.get(watchId);
    if (served === undefined) return;
    const before = served.owed.filter((owed) => !isAfter(owed, position));
    served.owed.splice(0, before.length);
    served.watch.pump();
  }

  #handle(method: string, params: Asked["params"]): Answer {
    const revision = this.#cluster.applied(this.node);
    switch (method) {
      case "watch.create":
        return this.#createWatch(params);
      case "watch.cancel": {
        const watchId = Number(params.watch_id);
        this.cancelled.push(watchId);
        this.#watches.get(watchId)?.watch.forget();
        return { result: { cancelled: this.#watches.delete(watchId), revision } };
      }
      case "watch.progress": {
        const served = this.#watches.get(Number(params.watch_id));
        if (served !== undefined && this.#cluster.watches.has(served.watch)) {
          served.watch.tellProgress();
        }
        return { result: { revision } };
      }
      case "topic.subscribe": {
        const topic = String(params.topic);
        if (!this.#topics.has(topic)) {
          this.#topics.set(
            topic,
            this.#cluster.subscribe(topic, (payload) => this.#tellTopic(topic, payload)),
          );
        }
        return { result: { revision } };
      }
      case "topic.unsubscribe":
        this.#topics.get(String(params.topic))?.();
        this.#topics.delete(String(params.topic));
        return { result: { revision } };
      default:
        return this.#cluster.handle({ method, params });
    }
  }

  #createWatch(params: Asked["params"]): Answer {
    const {
      watch_id,
      timeout_ms: _,
      ...terms
    } = params as unknown as WatchTerms & { watch_id: number; timeout_ms?: number };
    const refused = this.#cluster.refusalOf(terms);
    if (refused !== null) return { problem: refused };
    const owed: string[] = [];
    const watch = new ModelWatch(this.#cluster, this.node, terms, {
      transport: "session",
      hasRoom: () => owed.length < this.#cluster.creditFrames,
      send: (frame) => {
        if (frame.kind === "events") owed.push(frame.position);
        this.notify("watch", { watch_id, ...frame } satisfies WireWatchFrame & { watch_id: number });
      },
      break: () => this.fail(),
    });
    this.#watches.set(watch_id, { watch, owed });
    const position = watch.position;
    if (this.#cluster.losesWatches) watch.forget();
    else if (this.#cluster.isCompacted(terms)) {
      queueMicrotask(() => watch.tell({ kind: "compacted", compact_revision: this.#cluster.compactRevision }));
    }
    return {
      result: { watch_id, position, revision: this.#cluster.applied(this.node), cluster_id: this.#cluster.clusterId },
    };
  }

  #tellTopic(topic: string, payload: JsonValue): void {
    this.#topicSeq += 1;
    this.notify("topic", { topic, payload, seq: this.#topicSeq, dropped: 0 });
  }

  #deliver(text: string): void {
    // As on a network: never within the call that caused it.
    queueMicrotask(() => {
      if (!this.isClosed && !this.isFrozen) this.#fire("message", { data: text });
    });
  }

  #end(): void {
    this.isClosed = true;
    this.#cluster.sockets.delete(this);
    for (const { watch } of this.#watches.values()) watch.forget();
    for (const unsubscribe of this.#topics.values()) unsubscribe();
  }

  #fire(type: string, event: object): void {
    for (const listener of this.#listeners.get(type) ?? []) listener(event);
  }
}

function isAfter(left: string, right: string): boolean {
  const a = parsePosition(left);
  const b = parsePosition(right);
  return a.revision === b.revision ? a.opIndex > b.opIndex : a.revision > b.revision;
}
