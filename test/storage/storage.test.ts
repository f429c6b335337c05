/** The storage contract on every storage that runs without the Workers runtime. */
import { memory, nodeSqlite, simulated } from "./disks.ts";
import { storageContract } from "./storage-contract.ts";

storageContract("SQLite of Node", (work) => work(nodeSqlite()));
storageContract("the memory disk", (work) => work(memory()));
storageContract("the simulator's disk", (work) => work(simulated()));
