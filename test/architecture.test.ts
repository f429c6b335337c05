/**
 * Goal: the layer table, the purity of the lower layers and the rules of the source hold in every file.
 * Method: parse each file of src and examples; then break each rule once in a sample, to show that the test sees it.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { type Folder, findings, impurities, LAYERS, runtimeImports, type SourceFile } from "./architecture-rules.ts";

const ROOT = join(import.meta.dirname, "..");

function sourcesUnder(folder: string): SourceFile[] {
  if (!existsSync(join(ROOT, folder))) return [];
  return readdirSync(join(ROOT, folder), { recursive: true, encoding: "utf8" })
    .map((name) => `${folder}/${name.replaceAll("\\", "/")}`)
    .filter((path) => /\.(ts|tsx|mjs)$/.test(path))
    .sort()
    .map((path) => ({ path, text: readFileSync(join(ROOT, path), "utf8") }));
}

const SOURCES = [...sourcesUnder("src"), ...sourcesUnder("examples")];

test("the sources are found", () => {
  expect(SOURCES.length).toBeGreaterThan(10);
  expect(SOURCES.map((file) => file.path)).toContain("src/base/assert.ts");
});

test("every file keeps to the layer table and the rules of the source", () => {
  expect(SOURCES.flatMap(findings)).toEqual([]);
});

test("the layer table has no cycle", () => {
  const below = (folder: Folder, seen: readonly Folder[]): void => {
    expect(seen, `a cycle through ${folder}`).not.toContain(folder);
    const rule = LAYERS[folder];
    for (const next of [...rule.imports, ...(Object.keys(rule.typesOnly ?? {}) as Folder[])]) {
      below(next, [...seen, folder]);
    }
  };
  for (const folder of Object.keys(LAYERS) as Folder[]) below(folder, []);
});

test("raft and kv never reach each other", () => {
  expect(LAYERS.raft.imports).not.toContain("kv");
  expect(LAYERS.kv.imports).not.toContain("raft");
});

test("all that the node runtime imports is pure, so that the simulator runs the real one", () => {
  const byPath = new Map(SOURCES.map((file) => [file.path, file]));
  const reached = new Set<string>();
  const pending = ["src/node-object/runtime.ts"];
  for (let path = pending.pop(); path !== undefined; path = pending.pop()) {
    const file = byPath.get(path);
    if (file === undefined) throw new Error(`${path} is imported but does not exist`);
    if (reached.has(path)) continue;
    reached.add(path);
    pending.push(...runtimeImports(file));
  }
  expect([...reached].flatMap((path) => impurities(byPath.get(path) as SourceFile))).toEqual([]);
});

const GOOD = "/** What it is for. */\n";
const SAMPLES: readonly (readonly [claim: string, path: string, text: string, finding: string])[] = [
  ["an import that points up", "src/kv/a.ts", 'import { x } from "../api/b.ts";', "kv may not import api"],
  ["an import across", "src/raft/a.ts", 'import type { X } from "../kv/b.ts";', "raft may not import kv"],
  ["an import across in an export", "src/kv/a.ts", 'export { x } from "../raft/b.ts";', "kv may not import raft"],
  ["an import in a type", "src/kv/a.ts", 'type X = import("../raft/b.ts").X;', "kv may not import raft"],
  ["a value of the api in the client", "src/client/a.ts", 'import { x } from "../api/app.ts";', "only types of api"],
  ["a type beside a value", "src/client/a.ts", 'import { type X, y } from "../api/app.ts";', "only types of api"],
  ["zod in the client", "src/client/a.ts", 'import * as z from "zod";', "client may not use"],
  ["a package in a pure layer", "src/kv/a.ts", 'import { x } from "hono";', "kv may not use"],
  ["a Node module in the Worker", "src/api/a.ts", 'import fs from "node:fs";', "api may not use"],
  ["a module chosen at run time", "src/api/a.ts", "const x = await import(name);", "a computed module"],
  ["an import out of the source", "src/api/a.ts", 'import { x } from "../../test/b.ts";', "no row of the layer table"],
  ["a file outside the table", "src/other/a.ts", "export const x = 1;", "no row of the layer table"],
  ["an example behind the front door", "examples/a/b.ts", 'import { x } from "../../src/kv/c.ts";', "not import kv"],
  ["async in a pure layer", "src/kv/a.ts", "export async function f() {}", "async function"],
  ["an async arrow in a pure layer", "src/kv/a.ts", "const f = async () => {};", "async function"],
  ["an async method in a pure layer", "src/kv/a.ts", "class A { async m() {} }", "async function"],
  ["await in a pure layer", "src/raft/a.ts", "await x;", "awaits"],
  ["a promise type in a pure layer", "src/raft/a.ts", "type X = Promise<number>;", "says Promise"],
  ["a clock in a pure layer", "src/raft/a.ts", "const x = Date.now();", "says Date"],
  ["chance in a pure layer", "src/base/a.ts", "const x = Math.random();", "says Math.random"],
  ["quoted chance in a pure layer", "src/base/a.ts", 'const x = Math["random"]();', "says Math.random"],
  ["a timer in a pure layer", "src/watch/a.ts", "setTimeout(f, 1);", "says setTimeout"],
  ["fetch in a pure layer", "src/watch/a.ts", "const f = { fetch };", "says fetch"],
  ["fetch through globalThis", "src/watch/a.ts", "globalThis.fetch(x);", "says globalThis"],
  ["crypto in a pure layer", "src/base/a.ts", "crypto.randomUUID();", "says crypto"],
  ["console in a pure layer", "src/base/a.ts", "console.log(1);", "says console"],
  ["process in a pure layer", "src/base/a.ts", "process.exit();", "says process"],
  ["the type any", "src/api/a.ts", "const x: any = 1;", 'the type "any"'],
  ["any inside a type", "src/api/a.ts", "type X = Record<string, any[]>;", 'the type "any"'],
  ["an empty name", "src/api/utils.ts", "export const x = 1;", 'named "utils"'],
  ["an empty name with a prefix", "src/api/key-helpers.ts", "export const x = 1;", 'named "helpers"'],
  ["a name in camel case", "src/api/myFile.ts", "export const x = 1;", "kebab-case"],
  ["text that is not TypeScript", "src/api/a.ts", "const = ;", "cannot be parsed"],
];

test.for(SAMPLES)("the rules refuse %s", ([, path, text, finding]) => {
  const found = findings({ path, text: GOOD + text });
  expect(found.join("\n")).toContain(finding);
  expect(found).toHaveLength(1);
});

test("the rules refuse a file without a header", () => {
  expect(findings({ path: "src/api/a.ts", text: "export const x = 1;\n" })).toEqual([
    "src/api/a.ts: has no header comment that says what it is for",
  ]);
});

test("the rules accept words in comments, strings and members, and types across allowed edges", () => {
  const text = `${GOOD}
// Promise, Date and any are only words here; so is await fetch().
import { assert } from "../base/assert.ts";
const note = "any Date from Math.random()";
const length = note.fetch.Date;
const table = { process: 1, Date: 2 };
`;
  expect(findings({ path: "src/kv/a.ts", text })).toEqual([]);
  expect(
    findings({ path: "src/client/a.ts", text: `${GOOD}import type { X } from "../api/app.ts";\nawait fetch("x");\n` }),
  ).toEqual([]);
});
