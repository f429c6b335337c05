/**
 * Goal: a link between two nodes can be cut in one direction or both, and heals without losing or changing what it carries.
 * Method: echo servers as nodes, plain sockets as their peers.
 */
import { once } from "node:events";
import { createServer, type Server, type Socket, connect as socketTo } from "node:net";
import { afterEach, beforeEach, expect, test } from "vitest";
import { type LinkProxy, startLinkProxy } from "../../scripts/local-cluster/link-proxy.ts";

interface EchoNode {
  readonly server: Server;
  readonly port: number;
  readonly sockets: Socket[];
  heard: string;
}

const nodes = new Map<number, EchoNode>();
let links: LinkProxy;
const clients: Socket[] = [];

beforeEach(async () => {
  const ports = new Map<number, number>();
  for (const id of [1, 2, 3]) {
    const node = await listen();
    nodes.set(id, node);
    ports.set(id, node.port);
  }
  links = await startLinkProxy(ports);
});

afterEach(async () => {
  for (const client of clients.splice(0)) client.destroy();
  await links.close();
  for (const { server, sockets } of nodes.values()) {
    for (const socket of sockets) socket.destroy();
    server.close();
  }
});

async function listen(): Promise<EchoNode> {
  const sockets: Socket[] = [];
  const server = createServer((socket) => {
    sockets.push(socket);
    socket.on("error", () => {});
    socket.on("data", (chunk: Buffer) => {
      node.heard += chunk.toString();
      socket.write(`<${chunk.toString()}>`);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const node: EchoNode = { server, port: (server.address() as { port: number }).port, sockets, heard: "" };
  return node;
}

function dial(from: number, to: number) {
  const socket = socketTo(links.portOf(from, to), "127.0.0.1");
  clients.push(socket);
  let heard = "";
  let isOver = false;
  socket.on("error", () => {});
  socket.on("data", (chunk: Buffer) => {
    heard += chunk.toString();
  });
  socket.on("close", () => {
    isOver = true;
  });
  return { socket, heard: () => heard, isOver: () => isOver };
}

const heardBy = (id: number) => nodes.get(id)?.heard;
const openAt = (id: number) => nodes.get(id)?.sockets.filter((socket) => !socket.destroyed).length;
/** Long enough for a byte that may pass, on a busy machine. */
const aWhile = () => new Promise((resolve) => setTimeout(resolve, 150));

test("a link carries both directions, and the end of either side", async () => {
  const { socket, heard, isOver } = dial(1, 2);
  socket.write("a");
  await expect.poll(heard).toBe("<a>");
  socket.end();
  await expect.poll(isOver).toBe(true);
  await expect.poll(() => openAt(2)).toBe(0);
  const second = dial(3, 2);
  second.socket.write("b");
  await expect.poll(second.heard).toBe("<b>");
  nodes.get(2)?.sockets.at(-1)?.destroy();
  await expect.poll(second.isOver).toBe(true);
});

test("what is cut waits for the heal, in order; other links and the other direction go on", async () => {
  const forth = dial(1, 2);
  const back = dial(2, 1);
  const other = dial(1, 3);
  forth.socket.write("a");
  back.socket.write("x");
  await expect.poll(() => forth.heard() + back.heard()).toBe("<a><x>");
  links.cut(1, 2);
  expect(links.cuts()).toEqual(["1>2"]);
  forth.socket.write("b");
  await aWhile();
  forth.socket.write("c");
  // On the stream that node 2 has opened, its words arrive and the answers do not.
  back.socket.write("y");
  other.socket.write("o");
  await expect.poll(other.heard).toBe("<o>");
  await expect.poll(() => heardBy(1)).toBe("xy");
  await aWhile();
  expect(heardBy(2)).toBe("a");
  expect(back.heard()).toBe("<x>");
  links.heal();
  await expect.poll(() => heardBy(2)).toBe("abc");
  await expect.poll(back.heard).toBe("<x><y>");
});

test("a connection that is opened across a cut reaches nobody before the heal, and nobody at all if it was given up", async () => {
  links.cut(1, 2);
  links.cut(2, 1);
  const kept = dial(1, 2);
  const dropped = dial(1, 2);
  kept.socket.write("k");
  dropped.socket.write("d");
  await aWhile();
  dropped.socket.destroy();
  await aWhile();
  expect(openAt(2)).toBe(0);
  links.heal();
  await expect.poll(kept.heard).toBe("<k>");
  await aWhile();
  expect(heardBy(2)).toBe("k");
});

test("an end that goes away across a cut leaves the other half open until the heal", async () => {
  const { socket, heard } = dial(1, 2);
  socket.write("a");
  await expect.poll(heard).toBe("<a>");
  links.cut(1, 2);
  socket.destroy();
  await aWhile();
  expect(openAt(2)).toBe(1);
  links.heal();
  await expect.poll(() => openAt(2)).toBe(0);
});

test("a node that is not there is an end of the connection", async () => {
  nodes.get(3)?.server.close();
  const { socket, isOver } = dial(1, 3);
  socket.write("a");
  await expect.poll(isOver).toBe(true);
});

test("much data passes whole through a link that is cut and healed meanwhile", async () => {
  const { socket, heard } = dial(1, 2);
  const text = Array.from({ length: 400_000 }, (_, position) => String(position % 10)).join("");
  for (let from = 0; from < text.length; from += 40_000) {
    socket.write(text.slice(from, from + 40_000));
    if (from === 120_000) {
      links.cut(1, 2);
      links.cut(2, 1);
      await aWhile();
    }
    if (from === 280_000) links.heal();
  }
  await expect.poll(() => heardBy(2)?.length, { timeout: 5000 }).toBe(text.length);
  expect(heardBy(2)).toBe(text);
  await expect.poll(() => heard().replaceAll(/[<>]/g, "").length, { timeout: 5000 }).toBe(text.length);
  expect(heard().replaceAll(/[<>]/g, "")).toBe(text);
});
