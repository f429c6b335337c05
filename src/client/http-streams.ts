/**
 * Watches and topics as server-sent events: one request per stream, read as it is used.
 *
 * H1. What is not read yet stays with the node: the stream itself holds back, so nothing is acknowledged.
 * H2. The node sends a comment every 15 s. Twice that without a byte, while somebody waits, is the end of the stream.
 */
import type { WireTopicMessage, WireWatchFrame } from "../api/wire.ts";
import { ConcordError } from "../base/errors.ts";
import { EventStreamParser } from "./event-stream.ts";
import { flatSelector, queryText, topicPath } from "./http-routes.ts";
import { errorOfResponse, requestHeaders } from "./http-transport.ts";
import type { Next } from "./item-queue.ts";
import type { ResolvedOptions } from "./options.ts";
import { linkedController, onAbort } from "./signals.ts";
import type { OpenedWatch, Stream, Streams, WatchParameters, WatchStream } from "./streams.ts";

const SILENCE_MS_MAX = 30_000;
/** How long a node may be without a leader while another one may have it. */
const LEADERLESS_MS_MAX = 5_000;

export class HttpStreams implements Streams {
  readonly #options: ResolvedOptions;

  constructor(options: ResolvedOptions) {
    this.#options = options;
  }

  async openWatch(parameters: WatchParameters, signal: AbortSignal): Promise<OpenedWatch> {
    const target = `/v1/watch${queryText(flatSelector(parameters))}`;
    const { response, end } = await this.#open(target, signal);
    const { headers } = response;
    const revision = headers.get("concord-revision");
    return {
      stream: new WatchEvents(this.#options, response, end),
      position: parameters.after ?? null,
      clusterId: headers.get("concord-cluster"),
      revision: revision === null ? null : Number(revision),
    };
  }

  async openTopic(topic: string, signal: AbortSignal): Promise<Stream<WireTopicMessage>> {
    const { response, end } = await this.#open(topicPath(topic), signal);
    return new EventStream<WireTopicMessage>(this.#options, response, end);
  }

  close(): void {
    // Nothing is held: every stream belongs to who opened it.
  }

  async #open(target: string, signal: AbortSignal): Promise<{ response: Response; end: () => void }> {
    const { clock, attemptTimeoutMs, fetch, base } = this.#options;
    const link = linkedController(signal);
    const cancel = clock.after(attemptTimeoutMs, link.abort);
    const gone = new Promise<never>((_, reject) => {
      const error = broken(`The stream did not open within ${attemptTimeoutMs} ms.`);
      onAbort(link.signal, () => reject(error));
    });
    gone.catch(() => {}); // Aborting is also how a stream that was opened ends; nobody waits for this then.
    try {
      const headers = requestHeaders(this.#options, "text/event-stream");
      const request = new Request(base + target, { headers, signal: link.signal });
      const response = await Promise.race([Promise.resolve(fetch(request)), gone]);
      if (response.status >= 400) throw await Promise.race([errorOfResponse(response), gone]);
      const type = response.headers.get("content-type") ?? "";
      if (response.body !== null && type.startsWith("text/event-stream")) return { response, end: link.abort };
      throw broken(`Something on the way answered with ${type === "" ? "no" : type} content instead of events.`);
    } catch (error) {
      link.abort();
      if (error instanceof ConcordError) throw error;
      throw broken("The connection broke before the stream was open.", error);
    } finally {
      cancel();
      link.unlink();
    }
  }
}

interface Patience {
  readonly ms: number;
  readonly error: ConcordError;
}

class EventStream<T> implements Stream<T> {
  readonly #options: ResolvedOptions;
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  readonly #end: () => void;
  readonly #parser = new EventStreamParser();
  readonly #decoder = new TextDecoder();
  readonly #texts: string[] = [];
  #error: ConcordError | null = null;
  #stop: (error: ConcordError) => void = () => {};

  constructor(options: ResolvedOptions, response: Response, end: () => void) {
    if (response.body === null) throw broken("The stream has no body.");
    this.#options = options;
    this.#reader = response.body.getReader() as ReadableStreamDefaultReader<Uint8Array>;
    this.#end = end;
  }

  /** How much longer the node is waited for, and what is wrong with it then. */
  protected patience(): Patience {
    return { ms: SILENCE_MS_MAX, error: broken(`Nothing was heard from the node for ${SILENCE_MS_MAX} ms.`) };
  }

  async next(): Promise<Next<T>> {
    for (;;) {
      const text = this.#texts.shift();
      if (text !== undefined) return this.#parse(text);
      if (this.#error !== null) return { item: null, error: this.#error };
      const read = await this.#readOrStop();
      if (typeof read === "string") this.#texts.push(...this.#parser.push(read));
      else this.#fail(read);
    }
  }

  close(): void {
    this.#fail(broken("The stream was closed."));
  }

  #parse(text: string): Next<T> {
    try {
      return { item: JSON.parse(text) as T, bytes: text.length, error: null };
    } catch (cause) {
      const error = broken("The node sent an event that is no JSON.", cause);
      this.#fail(error);
      return { item: null, error };
    }
  }

  /** The next bytes as text, or why there are none. */
  async #readOrStop(): Promise<string | ConcordError> {
    const { ms, error } = this.patience();
    const stopped = new Promise<ConcordError>((resolve) => {
      this.#stop = resolve;
    });
    const cancel = this.#options.clock.after(ms, () => this.#stop(error), true);
    try {
      const read = await Promise.race([this.#reader.read(), stopped]);
      if (read instanceof ConcordError) return read;
      return read.done ? broken("The stream ended.") : this.#decoder.decode(read.value, { stream: true });
    } catch (cause) {
      return broken("The connection broke.", cause);
    } finally {
      cancel();
    }
  }

  #fail(error: ConcordError): void {
    if (this.#error !== null) return;
    this.#error = error;
    this.#stop(error);
    this.#end();
    this.#reader.cancel().catch(() => {}); // It may be broken already; then there is nothing to cancel.
  }
}

class WatchEvents extends EventStream<WireWatchFrame> implements WatchStream {
  readonly #clock: ResolvedOptions["clock"];
  #leaderlessSinceMs: number | null = null;

  constructor(options: ResolvedOptions, response: Response, end: () => void) {
    super(options, response, end);
    this.#clock = options.clock;
  }

  protected override patience(): Patience {
    const silence = super.patience();
    if (this.#leaderlessSinceMs === null) return silence;
    const ms = Math.max(0, this.#leaderlessSinceMs + LEADERLESS_MS_MAX - this.#clock.nowMs());
    const detail = "This node knows no leader; another one may.";
    return ms < silence.ms ? { ms, error: new ConcordError({ code: "no_leader", detail }) } : silence;
  }

  override async next(): Promise<Next<WireWatchFrame>> {
    const next = await super.next();
    if (next.item?.kind === "leader_changed") {
      this.#leaderlessSinceMs = next.item.leader === null ? this.#clock.nowMs() : null;
    }
    return next;
  }

  acknowledge(): void {
    // By being read (H1).
  }
}

function broken(detail: string, cause?: unknown): ConcordError {
  return new ConcordError({ code: "timeout", reason: "connection", detail }, cause === undefined ? {} : { cause });
}
