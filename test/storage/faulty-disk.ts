/** A disk of the SQLite storage that counts statements and makes any of them fail. */
import type { Disk } from "../../src/node-object/sqlite-storage.ts";

export class InjectedFault extends Error {}

/** A disk that counts statements and fails before number `failBefore` (1 = the first). */
export class FaultyDisk implements Disk {
  readonly #disk: Disk;
  failBefore = Number.POSITIVE_INFINITY;
  statements: string[] = [];

  constructor(disk: Disk) {
    this.#disk = disk;
  }

  readonly sql: Disk["sql"] = (() => {
    const self = this;
    return {
      exec(statement, ...bindings) {
        if (self.statements.length + 1 >= self.failBefore)
          throw new InjectedFault(`before statement ${self.failBefore}`);
        self.statements.push(statement);
        return self.#disk.sql.exec(statement, ...bindings);
      },
      get databaseSize() {
        return self.#disk.sql.databaseSize;
      },
    };
  })();

  transactionSync<T>(work: () => T): T {
    return this.#disk.transactionSync(work);
  }

  async sync(): Promise<void> {
    await this.#disk.sync();
  }
}
