/** Ports and addresses of this machine. */
import { createServer } from "node:net";

export const HOST = "127.0.0.1";

/** Whether a server could listen on `port` right now. @throws Error if this machine has no such address */
export function isPortFree(port: number, host = HOST): Promise<boolean> {
  return new Promise((settle, fail) => {
    const server = createServer();
    server.once("error", (error: NodeJS.ErrnoException) => {
      if (error.code === "EADDRINUSE" || error.code === "EACCES") settle(false);
      else fail(error);
    });
    // An IPv6 address has brackets wherever a port may follow, and only there.
    server.listen({ host: host.replace(/^\[(.*)\]$/, "$1"), port, exclusive: true }, () => {
      server.close(() => settle(true));
    });
  });
}

/** Whether only programs of this machine reach that address. */
export function isLoopback(host: string): boolean {
  return host === HOST || host === "localhost" || host === "[::1]";
}

/** Below the ports that systems give to outgoing connections, which would take one while its server is down. */
const LASTING_PORTS = { from: 15_000, to: 30_000 };
const LASTING_TRIES_MAX = 100;

/** The first of so many ports in a row that are free now and stay so unless another server takes one. */
export async function freePortsFrom(count: number): Promise<number> {
  const { from, to } = LASTING_PORTS;
  for (let tried = 0; tried < LASTING_TRIES_MAX; tried += 1) {
    const first = from + Math.floor(Math.random() * (to - from - count));
    let free = 0;
    while (free < count && (await isPortFree(first + free))) free += 1;
    if (free === count) return first;
  }
  throw new Error(`found no ${count} ports in a row of ${HOST} that can be listened on`);
}

/** A port that is free now and stays so unless another server takes it. */
export function freePort(): Promise<number> {
  return freePortsFrom(1);
}
