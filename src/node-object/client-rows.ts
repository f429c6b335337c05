/**
 * What the sockets of clients hold, as rows: a local table that is not replicated (design 01 §4). A socket outlives the
 * instance that accepted it; whoever it belongs to and what it watches is found here, where it stands in its attachment.
 *
 * A row that this code cannot read is another version's: its connection is reported as unreadable and its client has to
 * come again, which loses nothing.
 */
import type { SocketTerms } from "../api/stream-socket.ts";
import type { WatchOptions } from "../watch/hub.ts";
import type { SqlValue } from "./sqlite-rows.ts";

/** What this file needs of `ctx.storage.sql`. */
export interface ClientSql {
  exec(statement: string, ...bindings: SqlValue[]): { toArray(): Readonly<Record<string, unknown>>[] };
}

export type ClientKind = "watch" | "topic" | "session";

export interface ClientTerms extends SocketTerms {
  readonly kind: ClientKind;
}

export interface StoredClient {
  /** Null: there is no readable row of the connection itself. */
  readonly terms: ClientTerms | null;
  readonly watches: ReadonlyMap<number, WatchOptions>;
  readonly topics: readonly string[];
}

interface LoadedClient {
  terms: ClientTerms | null;
  readonly watches: Map<number, WatchOptions>;
  readonly topics: string[];
}

/** Items of a connection: itself, a watch by its id, a topic by its name. */
const SELF = "";
const WATCH = "w";
const TOPIC = "t";
/** Version of the texts in `data`. */
const FORMAT = 1;

export class ClientRows {
  readonly #sql: ClientSql;

  constructor(sql: ClientSql) {
    this.#sql = sql;
  }

  /** Every connection that has rows. */
  load(): Map<string, StoredClient> {
    this.#sql.exec(
      "CREATE TABLE IF NOT EXISTS clients (connection TEXT NOT NULL, item TEXT NOT NULL, data TEXT NOT NULL, " +
        "PRIMARY KEY (connection, item)) WITHOUT ROWID",
    );
    const clients = new Map<string, LoadedClient>();
    const unreadable = new Set<string>();
    for (const row of this.#sql.exec("SELECT connection, item, data FROM clients").toArray()) {
      const connection = String(row.connection);
      const item = String(row.item);
      const client: LoadedClient = clients.get(connection) ?? { terms: null, watches: new Map(), topics: [] };
      clients.set(connection, client);
      const data = dataOf(String(row.data));
      if (data === null) unreadable.add(connection);
      else if (item === SELF) client.terms = data as ClientTerms;
      else if (item.startsWith(WATCH)) {
        const watchId = Number(item.slice(WATCH.length));
        client.watches.set(watchId, { ...(data as Omit<WatchOptions, "connection" | "watchId">), connection, watchId });
      } else client.topics.push(item.slice(TOPIC.length));
    }
    for (const connection of unreadable) clients.set(connection, { terms: null, watches: new Map(), topics: [] });
    return clients;
  }

  addClient(connection: string, { kind, principal, maxMessageBytes }: ClientTerms): void {
    this.#put(connection, SELF, { kind, principal, maxMessageBytes });
  }

  addWatch(options: WatchOptions): void {
    const { connection, watchId, selector, includeValues, prevValues, filter } = options;
    this.#put(connection, `${WATCH}${watchId}`, { selector, includeValues, prevValues, filter });
  }

  removeWatch(connection: string, watchId: number): void {
    this.#remove(connection, `${WATCH}${watchId}`);
  }

  addTopic(connection: string, topic: string): void {
    this.#put(connection, `${TOPIC}${topic}`, {});
  }

  removeTopic(connection: string, topic: string): void {
    this.#remove(connection, `${TOPIC}${topic}`);
  }

  removeClient(connection: string): void {
    this.#sql.exec("DELETE FROM clients WHERE connection = ?", connection);
  }

  #put(connection: string, item: string, data: object): void {
    const text = JSON.stringify([FORMAT, data]);
    this.#sql.exec("INSERT OR REPLACE INTO clients VALUES (?, ?, ?)", connection, item, text);
  }

  #remove(connection: string, item: string): void {
    this.#sql.exec("DELETE FROM clients WHERE connection = ? AND item = ?", connection, item);
  }
}

function dataOf(text: string): object | null {
  try {
    const parsed: unknown = JSON.parse(text);
    const [format, data] = Array.isArray(parsed) ? (parsed as unknown[]) : [];
    return format === FORMAT && typeof data === "object" && data !== null ? data : null;
  } catch (error) {
    if (error instanceof SyntaxError) return null;
    throw error;
  }
}
