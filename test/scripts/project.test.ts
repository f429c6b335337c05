/** Goal: what the project promises about its own configuration and documents holds. Method: read them. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { unstable_readConfig } from "wrangler";
import { createApi } from "../../src/api/app.ts";
import * as apiLimits from "../../src/api/limits.ts";
import { ERROR_CODES } from "../../src/base/errors.ts";
import * as baseLimits from "../../src/base/limits.ts";
import { MachineBackend } from "../api/machine-backend.ts";

const ROOT = join(import.meta.dirname, "..", "..");
const config = unstable_readConfig({ config: join(ROOT, "wrangler.toml") });
const manifest = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")) as { scripts: Record<string, string> };

const DOCUMENTS = [
  ...["README.md", "CONTRIBUTING.md", "CHANGELOG.md"],
  ...readdirSync(join(ROOT, "docs"), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".md"))
    .map((name) => `docs/${name}`),
];

function read(path: string): string {
  return readFileSync(join(ROOT, path), "utf8");
}

test("pending timers keep a node in memory: the compatibility date is 2026-10-01 or later", () => {
  expect(config.compatibility_date).toMatch(/^\d{4}-\d{2}-\d{2}$/);
  expect((config.compatibility_date ?? "") >= "2026-10-01").toBe(true);
});

test("a deployment starts closed: wrangler.toml has neither a token nor the loopback switch", () => {
  expect(Object.keys(config.vars).sort()).toEqual([
    "ELECTION_TIMEOUT_MS_MAX",
    "ELECTION_TIMEOUT_MS_MIN",
    "HEARTBEAT_MS",
    "NODE_COUNT",
  ]);
  expect(read("wrangler.toml")).not.toContain("CONCORD_LOOPBACK_DEV");
});

test("the nodes' class is stored in SQLite", () => {
  expect(config.durable_objects.bindings).toMatchObject([{ name: "NODES", class_name: "ConcordNode" }]);
  expect(config.migrations).toMatchObject([{ new_sqlite_classes: ["ConcordNode"] }]);
});

test("every script that package.json names exists", () => {
  const files = Object.values(manifest.scripts).map((command) => command.split(" ")[3] ?? "");
  expect(files.filter((file) => !existsSync(join(ROOT, file)))).toEqual([]);
});

test("every npm command in the documents exists", () => {
  const named = DOCUMENTS.flatMap((path) => [...read(path).matchAll(/npm run ([a-z-]+)/g)].map((match) => match[1]));
  expect(named.length).toBeGreaterThan(5);
  expect(named.filter((name) => manifest.scripts[name ?? ""] === undefined)).toEqual([]);
});

test("every link in the documents leads to a file", () => {
  const broken = DOCUMENTS.flatMap((path) =>
    [...read(path).matchAll(/\]\(([^)#]+)\)/g)]
      .map((match) => match[1] ?? "")
      .filter((link) => !link.startsWith("http") && !existsSync(join(ROOT, dirname(path), link)))
      .map((link) => `${path}: ${link}`),
  );
  expect(broken).toEqual([]);
});

test("every source folder and file that the documents name exists", () => {
  // Folders of later parts stand in the layer table, which says so.
  const named = ["README.md", "docs/api.md", "docs/architecture.md"].flatMap((path) =>
    [...read(path).matchAll(/\b(?:src|test|scripts|bench)\/[\w/.-]*[\w]/g)].map((match) => match[0]),
  );
  expect(named.length).toBeGreaterThan(10);
  expect(named.filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
});

describe("docs/api.md", () => {
  const text = read("docs/api.md");
  /** First three cells of the rows of a section's table. */
  function rowsOf(heading: string): string[][] {
    const section = text.split(/^## /m).find((part) => part.startsWith(`${heading}\n`)) ?? "";
    return [...section.matchAll(/^\| `(\w+)` \|([^|]*)\|([^|]*)\|/gm)].map((row) =>
      row.slice(1, 4).map((cell) => cell.trim()),
    );
  }

  test("names every route of a node and of the Worker", () => {
    const { routes } = createApi(new MachineBackend(), { principal: "root" });
    const ofNodes = routes
      .filter(({ method }) => method !== "ALL")
      .map(
        ({ method, path }) =>
          `${method} ${path.replace("topics/*", "topics/{topic}").replace("/*", "/{key}").replace(":id", "{id}")}`,
      );
    expect(ofNodes).toContain("PUT /v1/kv/{key}");
    const ofWorker = ["GET /", "GET /livez", "GET /openapi.json", "GET /docs", "GET /v1/clusters", "POST /v1/clusters"];
    const missing = [...ofNodes, ...ofWorker].filter((route) => !new RegExp(`\`${escaped(route)}[\`?]`).test(text));
    expect(missing).toEqual([]);
    expect(text).toContain("/c/{cluster}/v1/");
  });

  test("names every error code with its status and retry class, and no other", () => {
    const named = rowsOf("Errors");
    const wanted = Object.entries(ERROR_CODES).map(([code, { status, retry }]) => [code, String(status), retry]);
    expect(named.sort()).toEqual(wanted.sort());
  });

  test("names only limits that exist, with their values", () => {
    const named = rowsOf("Limits");
    expect(named.length).toBeGreaterThan(25);
    const limits: Readonly<Record<string, unknown>> = { ...baseLimits, ...apiLimits };
    for (const [name, value] of named) expect([name, value]).toEqual([name, String(limits[name ?? ""])]);
  });
});

function escaped(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}

test("CONTRIBUTING stays short", () => {
  expect(read("CONTRIBUTING.md").split("\n").length).toBeLessThanOrEqual(120);
});
