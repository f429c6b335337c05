/**
 * The SQLite of Node as a disk of the SQLite storage, with the turns of the platform: what a turn wrote is committed at
 * its end, or rolled back as by a crash before the commit.
 */
import { DatabaseSync, type SQLInputValue, type StatementSync } from "node:sqlite";
import type { Disk } from "../../src/node-object/sqlite-storage.ts";

export class NodeSqliteDisk implements Disk {
  readonly database = new DatabaseSync(":memory:");
  readonly #prepared = new Map<string, StatementSync>();

  readonly sql: Disk["sql"] = (() => {
    const self = this;
    return {
      exec(statement, ...bindings) {
        const rows = self.#prepare(statement).all(...(bindings as SQLInputValue[]));
        return { toArray: () => rows };
      },
      get databaseSize() {
        const pages = self.database.prepare("PRAGMA page_count").get()?.page_count;
        return Number(pages) * 4096;
      },
    };
  })();

  transactionSync<T>(work: () => T): T {
    return this.#within("SAVEPOINT work", "RELEASE work", ["ROLLBACK TO work", "RELEASE work"], work);
  }

  async sync(): Promise<void> {}

  turn<T>(outcome: "kept" | "undone", work: () => T): T {
    return this.#within("BEGIN", outcome === "kept" ? "COMMIT" : "ROLLBACK", ["ROLLBACK"], work);
  }

  #within<T>(begin: string, end: string, undo: readonly string[], work: () => T): T {
    this.database.exec(begin);
    let result: T;
    try {
      result = work();
    } catch (error) {
      for (const statement of undo) this.database.exec(statement);
      throw error;
    }
    this.database.exec(end);
    return result;
  }

  #prepare(statement: string): StatementSync {
    const known = this.#prepared.get(statement);
    if (known !== undefined) return known;
    const prepared = this.database.prepare(statement);
    this.#prepared.set(statement, prepared);
    return prepared;
  }
}
