/**
 * The ordered storage that the state machine stands on (design 02 §2): one flat map of text rows, ordered by key.
 * Synchronous. Implementations: memory (`memory-store.ts`), an overlay of uncommitted rows (`overlay.ts`), and the
 * SQLite of a Durable Object (`src/node-object`). One contract suite tests them all.
 *
 * O1. Keys are non-empty byte strings without NUL (see `src/kv/rows.ts`); order is byte order, which is `<`.
 * O2. Values are well-formed text. A row stays under `LOG_ROW_BYTES_MAX` bytes.
 * O3. A scan sees the store as it was when it was called; it returns an array, never a live cursor.
 */
export interface OrderedStore {
  get(key: string): string | undefined;
  put(key: string, value: string): void;
  /** Deleting an absent key is harmless. */
  delete(key: string): void;
  /** Rows with start <= key < end, ascending (or descending from the end when `reverse`), at most `limit`. */
  scan(range: ScanRange): Row[];
}

export interface ScanRange {
  readonly start: string;
  readonly end: string;
  readonly limit: number;
  readonly reverse?: boolean;
}

export type Row = readonly [key: string, value: string];
