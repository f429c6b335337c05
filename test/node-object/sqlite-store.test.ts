/** The contract of the ordered store on the state rows of a Durable Object, bare and behind the write-back buffer. */
import { Overlay } from "../../src/kv/overlay.ts";
import type { OrderedStore } from "../../src/kv/store.ts";
import { SqliteStorage } from "../../src/node-object/sqlite-storage.ts";
import { storeContract } from "../kv/store-contract.ts";
import { inObject } from "./bare-object.ts";

function stateStore(state: DurableObjectState): OrderedStore {
  const storage = new SqliteStorage(state.storage);
  storage.load();
  state.storage.sql.exec("DELETE FROM state");
  return {
    get: (key) => storage.get(key),
    scan: (range) => storage.scan(range),
    put: (key, value) => storage.write({ state: [[key, value]] }),
    delete: (key) => storage.write({ state: [[key, null]] }),
  };
}

const outside = (): OrderedStore => {
  throw new Error("a store exists only inside its object");
};

storeContract("SQLite", outside, {
  numRuns: 30,
  within: async (work) => await inObject((state) => work(() => stateStore(state))),
});

storeContract("the buffer over SQLite", outside, {
  numRuns: 30,
  within: async (work) => await inObject((state) => work(() => new Overlay(stateStore(state)))),
});

storeContract("the buffer over SQLite, flushed after every change", outside, {
  numRuns: 30,
  within: async (work) =>
    await inObject((state) =>
      work(() => {
        const below = stateStore(state);
        const buffer = new Overlay(below);
        const flush = () => {
          for (const [key, value] of buffer.drain()) {
            if (value === null) below.delete(key);
            else below.put(key, value);
          }
        };
        return {
          get: (key) => buffer.get(key),
          scan: (range) => buffer.scan(range),
          put: (key, value) => {
            buffer.put(key, value);
            flush();
          },
          delete: (key) => {
            buffer.delete(key);
            flush();
          },
        };
      }),
    ),
});
