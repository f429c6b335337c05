/** Server-sent events of the model: handed over when they are read, in pieces that do not care for lines or characters. */
import type { ModelCluster } from "./model-cluster.ts";
import { ModelWatch, type WatchTerms } from "./model-watch.ts";

export interface EventRequest {
  readonly request: Request;
  readonly node: number;
  /** A watch; else a topic. */
  readonly terms?: WatchTerms;
  readonly topic?: string;
}

/** Bytes of a piece: small, so that lines and characters are torn. */
const PIECE_BYTES = 37;

export function eventResponse(cluster: ModelCluster, { request, node, terms, topic }: EventRequest): Response {
  const pieces: Uint8Array[] = [];
  let isWanted = false;
  let isOver = false;
  let controller: ReadableStreamDefaultController<Uint8Array> | null = null;
  const hand = () => {
    if (!isWanted || isOver) return;
    const piece = pieces.shift();
    if (piece === undefined) return;
    isWanted = false;
    controller?.enqueue(piece);
  };
  const write = (text: string) => {
    const bytes = new TextEncoder().encode(text);
    for (let at = 0; at < bytes.length; at += PIECE_BYTES) pieces.push(bytes.slice(at, at + PIECE_BYTES));
    hand();
  };
  const close = () => {
    if (isOver) return;
    // What was written before still arrives.
    for (let piece = pieces.shift(); piece !== undefined; piece = pieces.shift()) controller?.enqueue(piece);
    isOver = true;
    controller?.close();
  };
  const stop = open(cluster, { node, terms, topic, write, close, hasRoom: () => pieces.length === 0 });
  const body = new ReadableStream<Uint8Array>(
    {
      start(given) {
        controller = given;
        given.enqueue(new TextEncoder().encode(":\n\n"));
      },
      pull() {
        isWanted = true;
        hand();
        stop.pump();
        hand();
      },
      cancel() {
        isOver = true;
        stop.forget();
      },
    },
    { highWaterMark: 0 },
  );
  request.signal.addEventListener("abort", () => {
    stop.forget();
    if (!isOver) controller?.error(new DOMException("aborted", "AbortError"));
    isOver = true;
  });
  const headers = {
    "content-type": "text/event-stream",
    "concord-cluster": cluster.clusterId,
    "concord-revision": String(cluster.applied(node)),
  };
  return new Response(body, { headers });
}

interface Opening {
  readonly node: number;
  readonly terms: WatchTerms | undefined;
  readonly topic: string | undefined;
  readonly write: (text: string) => void;
  readonly close: () => void;
  readonly hasRoom: () => boolean;
}

function open(cluster: ModelCluster, { node, terms, topic, write, close, hasRoom }: Opening) {
  if (terms !== undefined) {
    const watch = new ModelWatch(cluster, node, terms, {
      transport: "events",
      hasRoom,
      send: (frame) => write(`id: ${"position" in frame ? frame.position : ""}\r\ndata: ${JSON.stringify(frame)}\n\n`),
      break: close,
    });
    return { pump: () => watch.pump(), forget: () => watch.forget() };
  }
  let seq = 0;
  const forget = cluster.subscribe(topic ?? "", (payload) => {
    seq += 1;
    write(`data: ${JSON.stringify({ topic, payload, seq, dropped: 0 })}\n\n`);
  });
  cluster.topicStreams.add(end);
  return { pump: () => {}, forget: end };

  function end(): void {
    cluster.topicStreams.delete(end);
    forget();
    close();
  }
}
