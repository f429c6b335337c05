/** Ports and addresses of this machine. */
import { createServer } from "node:net";

export const HOST = "127.0.0.1";

/** Whether a server could listen on `port` right now. @throws Error if this machine has no such address */
export async function isPortFree(port: number, host = HOST): Promise<boolean> {
  return (await tryListen(port, host)) !== null;
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
  throw new Error(`no ${count} ports in a row of ${HOST} can be listened on`);
}

/** A port that is free now; another process may take it before it is used. */
export async function freePort(): Promise<number> {
  const port = await tryListen(0, HOST);
  if (port === null) throw new Error(`no port of ${HOST} can be listened on`);
  return port;
}

function tryListen(port: number, host: string): Promise<number | null> {
  return new Promise((settle, fail) => {
    const server = createServer();
    server.once("error", (error: NodeJS.ErrnoException) => {
      if (error.code === "EADDRINUSE" || error.code === "EACCES") settle(null);
      else fail(error);
    });
    // An IPv6 address has brackets wherever a port may follow, and only there.
    server.listen({ host: host.replace(/^\[(.*)\]$/, "$1"), port, exclusive: true }, () => {
      const address = server.address();
      const bound = typeof address === "object" && address !== null ? address.port : port;
      server.close(() => settle(bound));
    });
  });
}
