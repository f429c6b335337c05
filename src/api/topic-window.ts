/**
 * What one connection has been sent of its topics and has not acknowledged (design 01 §4). Topics are lossy: what is over
 * the window is counted and forgotten, so that a client that does not read costs nothing.
 *
 * T1. At most `TOPIC_WINDOW_BYTES` are unacknowledged.
 * T2. `seq` counts what was sent to this connection, from 1; it goes on after hibernation (`save`).
 */
import { utf8Length } from "../base/bytes.ts";
import type { TopicMessage } from "./backend.ts";
import { TOPIC_WINDOW_BYTES } from "./limits.ts";

/** Entries that remember what is unacknowledged; further messages join the last one. */
const LEDGER_ENTRIES_MAX = 16;
/** Names, seq and dropped of one message. */
const MESSAGE_OVERHEAD_BYTES = 64;

interface LedgerEntry {
  seq: number;
  bytes: number;
}

export class TopicWindow {
  #seq = 0;
  #dropped = 0;
  #unacknowledged = 0;
  readonly #ledger: LedgerEntry[] = [];

  /** `saved`: what {@link save} gave in an earlier instance. */
  constructor(saved: readonly number[] = []) {
    const [seq = 0, dropped = 0, ...ledger] = saved;
    this.#seq = seq;
    this.#dropped = dropped;
    for (let at = 0; at + 1 < ledger.length; at += 2) this.#charge(ledger[at] ?? 0, ledger[at + 1] ?? 0);
  }

  /** The text for the client, or null when the message is dropped. */
  admit(message: TopicMessage): { readonly seq: number; readonly text: string } | null {
    const topic = JSON.stringify(message.topic);
    const bytes = utf8Length(message.payload) + utf8Length(topic) + MESSAGE_OVERHEAD_BYTES;
    if (this.#unacknowledged + bytes > TOPIC_WINDOW_BYTES) {
      this.#dropped += 1;
      return null;
    }
    const seq = this.#seq + 1;
    const text = `{"topic":${topic},"payload":${message.payload},"seq":${seq},"dropped":${this.#dropped}}`;
    this.#seq = seq;
    this.#dropped = 0;
    this.#charge(seq, bytes);
    return { seq, text };
  }

  /** The client has everything up to `seq`. */
  acknowledge(seq: number): void {
    let count = 0;
    for (const entry of this.#ledger) {
      if (!(entry.seq <= seq)) break;
      this.#unacknowledged -= entry.bytes;
      count += 1;
    }
    this.#ledger.splice(0, count);
  }

  /** A few numbers; empty while nothing was sent or lost. */
  save(): number[] {
    if (this.#seq === 0 && this.#dropped === 0) return [];
    return [this.#seq, this.#dropped, ...this.#ledger.flatMap(({ seq, bytes }) => [seq, bytes])];
  }

  #charge(seq: number, bytes: number): void {
    this.#unacknowledged += bytes;
    const last = this.#ledger.at(-1);
    if (last !== undefined && this.#ledger.length >= LEDGER_ENTRIES_MAX) {
      last.seq = seq;
      last.bytes += bytes;
    } else this.#ledger.push({ seq, bytes });
  }
}
