/**
 * One reply of server-sent events, written one frame at a time (design 01 §4). Web standards only.
 *
 * V1. A write is awaited before the next begins, so `written` says that the reader took the frame, and what a slow reader
 *     costs is what its credit allows. Frames are never merged into one chunk.
 * V2. `onEnd` is called once, when the reader goes away, stays away for too long, or everything is written after `end`.
 */

/** Proxies cut silent connections; a comment keeps them, and tells us of readers that are gone. */
const COMMENT_MS = 15_000;
/** A reader that takes nothing for so long is gone, although nobody said so. */
const STUCK_MS_MAX = 90_000;

export interface StreamEvent {
  /** What the reader sends back as `Last-Event-ID`; null leaves the earlier one standing. */
  readonly id: string | null;
  /** One line of text. */
  readonly data: string;
  /** A later event of the same topic replaces one that still waits. */
  readonly replaces?: string;
  readonly written?: () => void;
}

export class EventStream {
  readonly response: Response;
  readonly #writer: WritableStreamDefaultWriter<Uint8Array>;
  readonly #onEnd: () => void;
  #waiting: (StreamEvent | "comment")[] = ["comment"];
  #state: "open" | "ending" | "ended" = "open";
  #isWriting = false;
  #commentsUnwritten = 0;
  readonly #timer: ReturnType<typeof setInterval>;

  constructor(options: { readonly onEnd: () => void }) {
    const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>();
    this.#writer = writable.getWriter();
    this.#onEnd = options.onEnd;
    this.response = new Response(readable, {
      headers: {
        "content-type": "text/event-stream",
        // Else a proxy may compress the stream, and hold it until it ends.
        "content-encoding": "identity",
        "cache-control": "no-store",
      },
    });
    const ended = () => this.#ended();
    this.#writer.closed.then(ended, ended);
    this.#timer = setInterval(() => this.#comment(), COMMENT_MS);
    void this.#write();
  }

  send(event: StreamEvent): void {
    if (this.#state !== "open") return;
    const { replaces } = event;
    if (replaces !== undefined) {
      this.#waiting = this.#waiting.filter((other) => other === "comment" || other.replaces !== replaces);
    }
    this.#waiting.push(event);
    void this.#write();
  }

  /** Ends the reply behind what was sent. */
  end(): void {
    if (this.#state !== "open") return;
    this.#state = "ending";
    void this.#write();
  }

  async #write(): Promise<void> {
    if (this.#isWriting) return;
    this.#isWriting = true;
    for (let event = this.#waiting.shift(); event !== undefined; event = this.#waiting.shift()) {
      if (!(await this.#isTaken(event === "comment" ? ":\n\n" : textOf(event)))) return;
      this.#commentsUnwritten = 0;
      if (event !== "comment") event.written?.();
    }
    this.#isWriting = false;
    if (this.#state === "ending") await this.#writer.close().catch(() => this.#ended());
  }

  /** False: the reader is gone, and `closed` says so too. */
  async #isTaken(text: string): Promise<boolean> {
    try {
      await this.#writer.write(encoder.encode(text));
      return true;
    } catch {
      return false;
    }
  }

  #comment(): void {
    // One comment waits at most; the others only count how long the reader has taken nothing.
    this.#commentsUnwritten += 1;
    if (this.#commentsUnwritten * COMMENT_MS > STUCK_MS_MAX) {
      // Not waited for: the abort itself is done only once the reader comes back and takes what is on its way.
      this.#writer.abort().catch(() => this.#ended());
      this.#ended();
    } else if (!this.#isWriting) {
      this.#waiting.push("comment");
      void this.#write();
    }
  }

  #ended(): void {
    if (this.#state === "ended") return;
    this.#state = "ended";
    clearInterval(this.#timer);
    this.#waiting = [];
    this.#onEnd();
  }
}

function textOf(event: StreamEvent): string {
  return event.id === null ? `data: ${event.data}\n\n` : `id: ${event.id}\ndata: ${event.data}\n\n`;
}

const encoder = new TextEncoder();
