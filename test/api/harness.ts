/** Requests to an API over the real state machine, and what tests say about the replies. */
import { expect } from "vitest";
import { type Api, createApi } from "../../src/api/app.ts";
import { MachineBackend } from "./machine-backend.ts";

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /** Parsed if it is JSON. */
  readonly body: Body;
}

/** Loose on purpose: tests look into replies by name and compare with `expect`. */
// biome-ignore lint/suspicious/noExplicitAny: a reply in a test
export type Body = any;

export interface Harness {
  readonly backend: MachineBackend;
  readonly api: Api;
  /** Errors that the API logged. */
  readonly errors: string[];
  send(method: string, target: string, options?: SendOptions): Promise<Answer>;
  get(target: string, headers?: Record<string, string>): Promise<Answer>;
  put(target: string, body: unknown, headers?: Record<string, string>): Promise<Answer>;
  post(target: string, body: unknown, headers?: Record<string, string>): Promise<Answer>;
  delete(target: string, headers?: Record<string, string>): Promise<Answer>;
}

export interface SendOptions {
  readonly headers?: Record<string, string>;
  /** Sent as it is. */
  readonly body?: string | Uint8Array<ArrayBuffer>;
}

export function createHarness(): Harness {
  const backend = new MachineBackend();
  const errors: string[] = [];
  const api = createApi(backend, {
    principal: "root",
    log: (_level, message, fields) => errors.push(`${message}: ${String(fields.error)}`),
  });
  const send: Harness["send"] = async (method, target, options = {}) => {
    const { headers = {}, body } = options;
    const response = await api.request(target, body === undefined ? { method, headers } : { method, headers, body });
    return await answerOf(response);
  };
  const withJson =
    (method: string) =>
    (target: string, body: unknown, headers: Record<string, string> = {}) =>
      send(method, target, { headers: { "content-type": "application/json", ...headers }, body: JSON.stringify(body) });
  return {
    backend,
    api,
    errors,
    send,
    get: (target, headers = {}) => send("GET", target, { headers }),
    put: withJson("PUT"),
    post: withJson("POST"),
    delete: (target, headers = {}) => send("DELETE", target, { headers }),
  };
}

export async function answerOf(response: Response): Promise<Answer> {
  const text = await response.text();
  const isJson = /\bjson\b/.test(response.headers.get("content-type") ?? "");
  return {
    status: response.status,
    headers: response.headers,
    text,
    body: isJson && text !== "" ? JSON.parse(text) : null,
  };
}

/** A refusal is a complete problem document of that code and reason. */
export function expectProblem(
  answer: Answer,
  expected: { readonly status: number; readonly code: string; readonly reason?: string; readonly retry?: string },
): void {
  const { status, code, reason, retry = "no" } = expected;
  expect(answer.body, answer.text).toMatchObject({ status, code, retry, ...(reason === undefined ? {} : { reason }) });
  expect(answer.status).toBe(status);
  expect(answer.headers.get("content-type")).toBe("application/problem+json");
  expect(answer.body.type).toBe(`urn:concord:problem:${code}`);
  expect(answer.body.title).toMatch(/^[A-Z].+[^.]$/);
  expect(answer.body.detail).toMatch(/\.$/);
  expect(answer.text).not.toMatch(/\bat .+\.ts|node_modules|Error:/);
}

/** JSON text nested `levels` deep. */
export function nested(levels: number): string {
  return "[".repeat(levels) + "]".repeat(levels);
}
