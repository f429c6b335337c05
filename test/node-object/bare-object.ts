/** An object with no node in it (its name is none of ours), so that a test has SQLite and the platform to itself. */
import { env, runInDurableObject } from "cloudflare:test";
import type { Disk } from "../../src/node-object/sqlite-storage.ts";
import { SqliteStorage } from "../../src/node-object/sqlite-storage.ts";

export function bareStub(name = `bare ${crypto.randomUUID()}`): DurableObjectStub {
  return env.NODES.get(env.NODES.idFromName(name));
}

/** A stub whose requests ask for an upgrade, so that `runInDurableObject` may answer with a socket. */
export function upgrading(stub: DurableObjectStub): DurableObjectStub {
  return new Proxy(stub, {
    get(target, property) {
      if (property !== "fetch") return Reflect.get(target, property, target) as unknown;
      return (url: string, init: RequestInit) => target.fetch(url, { ...init, headers: { upgrade: "websocket" } });
    },
  });
}

/** Runs `work` in a new bare object. */
export async function inObject<T>(work: (state: DurableObjectState) => T | Promise<T>): Promise<T> {
  return await runInDurableObject(bareStub(), (_, state) => work(state));
}

/** Runs `work` on a new, loaded storage. */
export async function withStorage<T>(
  work: (storage: SqliteStorage, state: DurableObjectState) => T | Promise<T>,
): Promise<T> {
  return await inObject((state) => {
    const storage = new SqliteStorage(state.storage);
    storage.load();
    return work(storage, state);
  });
}

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
