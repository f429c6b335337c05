/** Ports on the loopback interface. */
import { createServer } from "node:net";

export const HOST = "127.0.0.1";

/** Whether a server could listen on `port` right now. */
export async function isPortFree(port: number): Promise<boolean> {
  return (await tryListen(port)) !== null;
}

/** A port that is free now; another process may take it before it is used. */
export async function freePort(): Promise<number> {
  const port = await tryListen(0);
  if (port === null) throw new Error(`no port of ${HOST} can be listened on`);
  return port;
}

function tryListen(port: number): Promise<number | null> {
  return new Promise((settle, fail) => {
    const server = createServer();
    server.once("error", (error: NodeJS.ErrnoException) => {
      if (error.code === "EADDRINUSE" || error.code === "EACCES") settle(null);
      else fail(error);
    });
    server.listen({ host: HOST, port, exclusive: true }, () => {
      const address = server.address();
      const bound = typeof address === "object" && address !== null ? address.port : port;
      server.close(() => settle(bound));
    });
  });
}
