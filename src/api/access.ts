/**
 * Who may come in (design 05, Security): a root token, or, without one, only a caller on this machine in development.
 *
 * W1. Nothing that a caller writes proves where it calls from: CF-Connecting-IP and X-Forwarded-* are never read. In
 *     loopback development the start scripts bind 127.0.0.1; the Host and Origin checks are what keeps pages of other
 *     sites out (DNS rebinding, cross-site requests).
 * W2. Tokens are compared as digests, in constant time.
 * W3. A browser cannot set headers on a WebSocket: there the token may come as a second sub-protocol, `bearer, <token>`.
 *     Nothing sends it unasked, as a cookie would be, so pages of other sites gain nothing.
 */
import type { ErrorBody } from "../base/errors.ts";

export interface AccessRules {
  /** Empty counts as absent. */
  readonly rootToken: string | undefined;
  /** `CONCORD_LOOPBACK_DEV=1`, set by the start scripts alone. */
  readonly loopbackDev: boolean;
}

export type Access =
  | { readonly granted: true; readonly principal: string }
  | { readonly granted: false; readonly error: ErrorBody };

export const ROOT_PRINCIPAL = "root";

const GRANTED: Access = { granted: true, principal: ROOT_PRINCIPAL };

export async function authorize(request: Request, rules: AccessRules): Promise<Access> {
  const { rootToken } = rules;
  if (rootToken !== undefined && rootToken !== "") return await checkToken(request, rootToken);
  const refused = localityOf(request, rules.loopbackDev);
  return refused === null ? GRANTED : { granted: false, error: refused };
}

/** Whether the request may be answered at all when there is no root token; null if so. */
export function localityOf(request: Request, loopbackDev: boolean): ErrorBody | null {
  if (!loopbackDev) {
    return forbidden("no_root_token", "This deployment has no root token yet; set the secret CONCORD_ROOT_TOKEN.");
  }
  const url = new URL(request.url);
  const host = request.headers.get("host") ?? url.host;
  if (!isLoopback(url.hostname) || !isLoopback(hostnameOf(host))) {
    return forbidden("foreign_host", "Without a root token only localhost, 127.0.0.1 and [::1] are served.");
  }
  const origin = request.headers.get("origin");
  if (origin !== null && hostOfOrigin(origin) !== host.toLowerCase()) {
    return forbidden("foreign_origin", "Without a root token pages of other origins are not served.");
  }
  return null;
}

function forbidden(reason: string, detail: string): ErrorBody {
  return { code: "forbidden", reason, detail };
}

function isLoopback(hostname: string): boolean {
  return hostname === "localhost" || hostname === "127.0.0.1" || hostname === "[::1]";
}

/** Host without its port; an IPv6 address keeps its brackets. */
function hostnameOf(host: string): string {
  return host.toLowerCase().replace(/:[0-9]*$/, "");
}

/** `null` and anything that is no http origin have no host. */
function hostOfOrigin(origin: string): string | null {
  return /^https?:\/\/([^/?#@]+)$/.exec(origin.toLowerCase())?.[1] ?? null;
}

async function checkToken(request: Request, rootToken: string): Promise<Access> {
  const { headers } = request;
  const given = /^Bearer +(\S+)$/i.exec(headers.get("authorization") ?? "")?.[1] ?? tokenOfProtocols(headers);
  if (given === undefined) return unauthenticated("no_token", "Send the token as Authorization: Bearer <token>.");
  if (await sameText(rootToken, given)) return GRANTED;
  return unauthenticated("unknown_token", "The token is not valid here.");
}

/** Takes as long whatever the difference is: digests of equal length are compared (W2). */
export async function sameText(expected: string, given: string): Promise<boolean> {
  const [left, right] = await Promise.all([digestOf(expected), digestOf(given)]);
  let difference = 0;
  for (const [position, byte] of left.entries()) difference |= byte ^ (right[position] ?? 0);
  return difference === 0;
}

/** The sub-protocol under which a browser sends its token; the reply names it and not the token. */
export const BEARER_PROTOCOL = "bearer";

function tokenOfProtocols(headers: Headers): string | undefined {
  if (headers.get("upgrade")?.toLowerCase() !== "websocket") return undefined;
  return /^\s*bearer\s*,\s*([^\s,]+)\s*$/.exec(headers.get("sec-websocket-protocol") ?? "")?.[1];
}

function unauthenticated(reason: string, detail: string): Access {
  return { granted: false, error: { code: "unauthenticated", reason, detail } };
}

async function digestOf(text: string): Promise<Uint8Array> {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text)));
}
