/** The examples of the routes as commands for a shell. */
import type { JsonValue } from "../base/json.ts";
import type { Example, RouteRow } from "./openapi-route.ts";

const LINE_CHARACTERS_MAX = 72;

/** A request as `curl` sends it, without a token. */
export function curlOf(row: RouteRow, example: Example, origin: string): string {
  const { method, parameters = [], replies } = row;
  const given = parameters.flatMap((parameter) => {
    const value = example.parameters?.[parameter.name];
    return value === undefined ? [] : [{ ...parameter, value }];
  });
  const path = given
    .filter((parameter) => parameter.in === "path")
    .reduce((text, { name, value }) => text.replace(`{${name}}`, encodeURIComponent(value)), row.path);
  const search = given
    .filter((parameter) => parameter.in === "query")
    // A slash may stand in a query as it is.
    .map(({ name, value }) => `${name}=${encodeURIComponent(value).replaceAll("%2F", "/")}`)
    .join("&");
  const isStream = replies.some(({ content }) => content?.["text/event-stream"] !== undefined);
  const first = ["curl", isStream ? "-N" : "", method === "GET" ? "" : `-X ${method}`].filter((word) => word !== "");
  const url = `${origin}${path}${search === "" ? "" : `?${search}`}`;
  const lines = [`${first.join(" ")} ${quote(url)}`];
  for (const parameter of given) {
    if (parameter.in === "header") lines.push(`-H ${quote(`${parameter.name.toLowerCase()}: ${parameter.value}`)}`);
  }
  if (example.body !== undefined) {
    const { body, mediaType = "application/json" } = example;
    const text = mediaType === "application/json" || typeof body !== "string" ? jsonOf(body) : body;
    lines.push(`-H ${quote(`content-type: ${mediaType}`)}`, `--data-binary ${quote(text)}`);
  }
  return lines.join(" \\\n  ");
}

/** On one line if that is short. */
function jsonOf(value: JsonValue): string {
  const line = JSON.stringify(value);
  return line.length <= LINE_CHARACTERS_MAX ? line : JSON.stringify(value, null, 2);
}

/** As one word of a POSIX shell. */
function quote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
