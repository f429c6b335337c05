/** Goal: the docs page shows the whole document, safely, to whoever has a browser and nothing else. Method: read its HTML. */
import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import { docsPage } from "../../src/api/docs-page.ts";
import { openApiDocument, ROUTES } from "../../src/api/openapi-document.ts";
import { METHODS } from "../../src/api/session-methods.ts";
import { createSetting } from "./fake-nodes.ts";

const ORIGIN = "https://db.example";

async function page(origin = ORIGIN): Promise<{ html: string; contentSecurityPolicy: string; visible: string }> {
  const { html, contentSecurityPolicy } = await docsPage(await openApiDocument(origin));
  const visible = html
    .replace(/<style>.*<\/style>/s, "")
    .replace(/<[^>]*>/g, "")
    .replaceAll("&quot;", '"')
    .replaceAll("&#39;", "'")
    .replaceAll("&amp;", "&");
  return { html, contentSecurityPolicy, visible };
}

test("it is served with a policy that allows its one style and nothing else, and wakes no node", async () => {
  const { send, nodes } = createSetting();
  const { status, headers, text } = await send("GET", "/docs");
  expect([status, headers.get("content-type")]).toEqual([200, "text/html; charset=utf-8"]);
  const style = /<style>(.*)<\/style>/s.exec(text)?.[1] ?? "";
  const digest = createHash("sha256").update(style).digest("base64");
  const policy = headers.get("content-security-policy");
  expect(policy).toBe(
    `default-src 'none'; style-src 'sha256-${digest}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox`,
  );
  expect(headers.get("x-content-type-options")).toBe("nosniff");
  expect(headers.get("cache-control")).toBe("no-store");
  expect(nodes.stubs).toBe(0);
});

test("it holds no script, no inline style, and no address but its own document", async () => {
  const { html } = await page();
  expect(html).not.toMatch(/<script|<link|<img|<iframe|<form|javascript:|\son[a-z]+=|\sstyle=/i);
  const addresses = [...html.matchAll(/(?:href|src)="([^#"][^"]*)"/g)].map((match) => match[1]);
  expect(addresses).toEqual(["openapi.json"]);
});

test("it shows every route with a command, every parameter, error, schema and method of the session", async () => {
  const { html, visible } = await page();
  const document = await openApiDocument(ORIGIN);
  for (const { id, method, path, parameters = [], examples } of ROUTES) {
    expect(html).toContain(`<h3 id="${id}">`);
    expect(visible).toContain(`${method} ${path}`);
    for (const { name } of parameters) expect(html).toContain(`<code>${name}</code>`);
    if (examples.length > 0) expect(visible).toMatch(new RegExp(`curl[^\n]* '${ORIGIN}`));
  }
  const { examples, schemas } = document.components as unknown as Record<string, Record<string, object>>;
  for (const code of Object.keys(examples ?? {})) expect(html).toContain(`id="error-${code}"`);
  for (const name of Object.keys(schemas ?? {})) expect(html).toContain(`id="schema-${name}"`);
  for (const name of METHODS.keys()) expect(html).toContain(`<code>${name}</code>`);
});

test("its ids are its own, its links lead somewhere, its headings leave out no level", async () => {
  const { html } = await page();
  const ids = [...html.matchAll(/\sid="([^"]+)"/g)].map((match) => match[1]);
  expect(new Set(ids).size).toBe(ids.length);
  const targets = [...html.matchAll(/(?:href="#|aria-labelledby=")([^"]+)"/g)].map((match) => match[1]);
  expect(targets.length).toBeGreaterThan(200);
  expect(targets.filter((target) => !ids.includes(target))).toEqual([]);
  const main = html.slice(html.indexOf("<main"));
  const levels = [...main.matchAll(/<h([1-6])/g)].map((match) => Number(match[1]));
  expect(levels[0]).toBe(1);
  for (const [index, level] of levels.entries()) expect(level - (levels[index - 1] ?? 0)).toBeLessThanOrEqual(1);
});

test("every element that is opened is closed", async () => {
  const { html } = await page();
  const open: string[] = [];
  for (const [, slash, name = ""] of html
    .replace(/<style>.*<\/style>/s, "")
    .matchAll(/<(\/?)([a-z][a-z0-9]*)[^>]*>/g)) {
    if (["meta", "br"].includes(name)) continue;
    if (slash === "") open.push(name);
    else expect(open.pop()).toBe(name);
  }
  expect(open).toEqual([]);
});

test("what scrolls can be reached by keyboard, and a first link leads past the navigation", async () => {
  const { html } = await page();
  expect(html.match(/<pre(?! tabindex="0")/g)).toBeNull();
  expect(html.match(/<div class="wide"(?! tabindex="0" role="group" aria-label)/g)).toBeNull();
  expect(html).toMatch(/<body>\s*<a class="skip" href="#main">/);
  expect(html).toContain("color-scheme:light dark");
});

test("text of a caller is text: an origin cannot break out of the page or of a command", async () => {
  const { html } = await page(`http://a'"<b>&`);
  expect(html).not.toContain("<b>&");
  // Closed, escaped and opened again, as a shell wants a quote inside quotes.
  expect(html).toContain("curl &#39;http://a&#39;\\&#39;&#39;&quot;&lt;b&gt;&amp;/v1/kv");
});
