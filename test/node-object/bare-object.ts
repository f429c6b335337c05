/** An object with no node in it (its name is none of ours), so that a test has SQLite and the platform to itself. */
import { env, runInDurableObject } from "cloudflare:test";
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
