/** The storage contract on every storage that runs without the Workers runtime. */
import { expect, test } from "vitest";
import { createRandom } from "../../src/base/random.ts";
import { memory, nodeSqlite, simulated } from "./disks.ts";
import { allRows, randomChanges } from "./state-model.ts";
import { opened, storageContract } from "./storage-contract.ts";

storageContract("SQLite of Node", (work) => work(nodeSqlite()));
storageContract("the memory disk", (work) => work(memory()));
storageContract("the simulator's disk", (work) => work(simulated()));

test("all of them hold equal rows and equal hashes after the same random writes", () => {
  const storages = [nodeSqlite(), memory(), simulated()].map((disk) => ({ disk, storage: opened(disk) }));
  const random = createRandom(51);
  for (let round = 0; round < 60; round += 1) {
    const state = randomChanges(random, 80, 120);
    for (const { disk, storage } of storages) disk.turn("kept", () => storage.write({ state }));
    const [first, ...others] = storages.map(({ storage }) => ({ rows: allRows(storage), hash: storage.stateHash }));
    for (const other of others) expect(other).toEqual(first);
  }
});
