/** Long messages of a socket, which come in parts whose `data`, joined, is the message (S43). */
import type { WireChunk } from "../api/wire.ts";
import { fault } from "./check.ts";

export class ChunkJoiner {
  #parts: string[] = [];

  /** The message, once the last part is there; null before. @throws ConcordError for parts out of order. */
  add(chunk: WireChunk): string | null {
    if (chunk.index !== this.#parts.length) {
      const detail = `Part ${chunk.index} of a message came behind ${this.#parts.length} parts.`;
      throw fault("internal", "malformed_reply", detail);
    }
    this.#parts.push(chunk.data);
    if (!chunk.last) return null;
    const text = this.#parts.join("");
    this.#parts = [];
    return text;
  }
}
