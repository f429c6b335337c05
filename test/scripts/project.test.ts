/** Goal: what the project promises about its own configuration and documents holds. Method: read them. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import { unstable_readConfig } from "wrangler";

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
  const files = Object.values(manifest.scripts).map((command) => command.split(" ")[2] ?? "");
  expect(files.filter((file) => !existsSync(join(ROOT, file)))).toEqual([]);
});

test("every npm command in the documents exists", () => {
  const named = DOCUMENTS.flatMap((path) => [...read(path).matchAll(/npm run ([a-z]+)/g)].map((match) => match[1]));
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
  const named = ["README.md", "docs/architecture.md"].flatMap((path) =>
    [...read(path).matchAll(/\b(?:src|test|scripts|bench)\/[\w/.-]*[\w]/g)].map((match) => match[0]),
  );
  expect(named.length).toBeGreaterThan(10);
  expect(named.filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
});

test("CONTRIBUTING stays short", () => {
  expect(read("CONTRIBUTING.md").split("\n").length).toBeLessThanOrEqual(120);
});
