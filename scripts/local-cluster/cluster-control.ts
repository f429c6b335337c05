/**
 * How `npm run cluster -- VERB` reaches the process that runs the nodes: a file in the data folder names it and the port on the
 * loopback interface where it takes verbs, with a key that only readers of the file know.
 *
 * O1. The file is believed only while the process that it names lives (by id and time of start).
 */
import { randomBytes, timingSafeEqual } from "node:crypto";
import { readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage } from "node:http";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { processIdentity } from "../exclusive-lock.mjs";
import type { FiveCluster, ProcessState } from "./five.ts";
import { HOST } from "./ports.ts";
import type { ControlRequest } from "./verbs.ts";

const REQUEST_BYTES_MAX = 10_000;
/** Above what the slowest verb takes: an orderly restart. */
const ASK_TIMEOUT_MS = 60_000;
const END_WAIT_MS_MAX = 30_000;
const END_POLL_MS = 50;

export interface ControlReply {
  /** Null if it was done. */
  readonly error: string | null;
  readonly states: readonly ProcessState[];
  readonly cuts: readonly string[];
}

/** The process that runs the nodes of a data folder. */
export interface ClusterHandle {
  readonly pid: number;
  readonly identity: string;
  readonly controlUrl: string;
  readonly key: string;
  /** Of nodes 1 to 5. */
  readonly urls: readonly string[];
}

export interface Control {
  close(): void;
}

/** Takes verbs until it is closed, and writes down where. `stop`: everything is to end, soon after the answer. */
export async function serveControl(folder: string, five: FiveCluster, stop: () => void): Promise<Control> {
  const key = randomBytes(24).toString("hex");
  const server = createServer((request, response) => {
    const answer = (status: number, body: string): void => {
      response.writeHead(status, { "content-type": "application/json", connection: "close" }).end(body);
    };
    if (!isKey(request.headers.authorization ?? "", key)) {
      answer(404, "{}");
      return;
    }
    readAll(request)
      .then(async (text) => await perform(five, stop, JSON.parse(text) as ControlRequest))
      .then(
        (reply) => answer(200, JSON.stringify(reply)),
        (error: unknown) => answer(500, JSON.stringify({ ...report(five), error: String(error) })),
      );
  });
  await new Promise<void>((settle, fail) => {
    server.once("error", fail);
    server.listen({ host: HOST, port: 0 }, settle);
  });
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  writeHandle(folder, {
    pid: process.pid,
    identity: processIdentity(process.pid) ?? "unknown",
    controlUrl: `http://${HOST}:${port}/`,
    key,
    urls: five.urls,
  });
  return {
    close() {
      rmSync(pathOf(folder), { force: true });
      server.close();
    },
  };
}

function isKey(given: string, key: string): boolean {
  const left = Buffer.from(`Bearer ${key}`);
  const right = Buffer.from(given);
  return left.length === right.length && timingSafeEqual(left, right);
}

async function readAll(request: IncomingMessage): Promise<string> {
  let text = "";
  for await (const chunk of request.setEncoding("utf8")) {
    text += String(chunk);
    if (text.length > REQUEST_BYTES_MAX) throw new Error("the request is too long");
  }
  return text;
}

async function perform(five: FiveCluster, stop: () => void, request: ControlRequest): Promise<ControlReply> {
  try {
    await carryOut(five, stop, request);
    return { ...report(five), error: null };
  } catch (error) {
    return { ...report(five), error: error instanceof Error ? error.message : String(error) };
  }
}

function report(five: FiveCluster): Pick<ControlReply, "states" | "cuts"> {
  return { states: five.urls.map((_url, position) => five.state(position + 1)), cuts: five.cuts() };
}

async function carryOut(five: FiveCluster, stop: () => void, request: ControlRequest): Promise<void> {
  switch (request.verb) {
    case "status":
      return;
    case "stop":
      return stop();
    case "heal":
      return await five.heal();
    case "partition":
      return await partition(five, request.groups, request.isOneWay);
    case "kill":
    case "restart":
      return await five[request.verb](...request.nodes);
    default:
      for (const node of request.nodes) await five[request.verb](node);
  }
}

async function partition(five: FiveCluster, groups: readonly (readonly number[])[], isOneWay: boolean): Promise<void> {
  if (!isOneWay) return await five.partition(groups);
  const [senders = [], ...others] = groups;
  for (const from of senders) for (const to of others.flat()) await five.oneWay(from, to);
}

function pathOf(folder: string): string {
  return join(folder, "cluster.json");
}

function writeHandle(folder: string, handle: ClusterHandle): void {
  const path = pathOf(folder);
  const draft = `${path}.${handle.pid}.tmp`;
  rmSync(draft, { force: true });
  writeFileSync(draft, JSON.stringify(handle), { mode: 0o600 });
  renameSync(draft, path);
}

/** Null: nobody runs nodes on this folder. */
export function findCluster(folder: string): ClusterHandle | null {
  let text: string;
  try {
    text = readFileSync(pathOf(folder), "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw error;
  }
  const handle = JSON.parse(text) as ClusterHandle;
  return isAlive(handle) ? handle : null;
}

function isAlive({ pid, identity }: ClusterHandle): boolean {
  return processIdentity(pid) === identity;
}

export async function askCluster(handle: ClusterHandle, request: ControlRequest): Promise<ControlReply> {
  const response = await fetch(handle.controlUrl, {
    method: "POST",
    headers: { authorization: `Bearer ${handle.key}` },
    body: JSON.stringify(request),
    signal: AbortSignal.timeout(ASK_TIMEOUT_MS),
  });
  return (await response.json()) as ControlReply;
}

/** @throws Error if the process does not end. */
export async function waitForEnd(handle: ClusterHandle): Promise<void> {
  const deadlineMs = Date.now() + END_WAIT_MS_MAX;
  while (isAlive(handle)) {
    if (Date.now() > deadlineMs) throw new Error(`process ${handle.pid} does not end`);
    await sleep(END_POLL_MS);
  }
}
