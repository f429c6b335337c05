/**
 * Peers that live in other processes: what takes the place of their stubs (api/separate-node.ts). All else of the transport is
 * the same, be a peer an object of this process or a process of its own.
 *
 * U1. Requests leave through one binding, whose network the host of the process confines to where the peers are.
 * U2. The secret goes to the configured address and nowhere else: no redirect is followed.
 */
import { OBJECT_HEADER } from "../api/call.ts";
import { SECRET_HEADER, type SeparateNode } from "../api/separate-node.ts";
import { objectName } from "./node-environment.ts";
import type { PeerPlatform } from "./peer-transport.ts";

/** The binding `PEER_NETWORK`, which reaches peers by the URL of each request. */
export interface PeerNetwork {
  fetch(url: string, init?: RequestInit): Promise<Response>;
}

/** @throws RangeError if there is no such binding. */
export function stubsByUrl(
  node: SeparateNode,
  cluster: string,
  network: PeerNetwork | undefined,
): PeerPlatform["stub"] {
  if (network === undefined) throw new RangeError("PEERS needs the service binding PEER_NETWORK");
  return (id) => ({
    fetch(url, init) {
      const { pathname, search } = new URL(url);
      const headers = new Headers(init?.headers);
      headers.set(OBJECT_HEADER, objectName({ cluster, id }));
      headers.set(SECRET_HEADER, node.secret);
      return network.fetch(`${node.peers.get(id)}${pathname}${search}`, { ...init, headers, redirect: "manual" });
    },
  });
}
