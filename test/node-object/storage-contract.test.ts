/** The storage contract on the SQLite of a Durable Object. */
import { SqliteStorage } from "../../src/node-object/sqlite-storage.ts";
import { storageContract, type TestDisk } from "../storage/storage-contract.ts";
import { inObject } from "./bare-object.ts";

class Undone extends Error {}

function objectDisk({ storage }: DurableObjectState): TestDisk {
  return {
    open: () => new SqliteStorage(storage),
    turn(outcome, work) {
      const results: ReturnType<typeof work>[] = [];
      try {
        storage.transactionSync(() => {
          results.push(work());
          if (outcome === "undone") throw new Undone();
        });
      } catch (error) {
        if (!(error instanceof Undone)) throw error;
      }
      return results[0] as ReturnType<typeof work>;
    },
  };
}

storageContract("SQLite of a Durable Object", async (work) => {
  await inObject((state) => work(objectDisk(state)));
});
