/**
 * The layer table and the rules of the source, as data and as functions of a file's text. `architecture.test.ts` runs
 * them over the repository; the samples there show that each rule can fail. Reads syntax trees, not text: a word in a
 * comment or a string breaks no rule.
 */
import { dirname, join, normalize } from "node:path/posix";
import { parseSync } from "vite";

export type Folder =
  | "base"
  | "raft"
  | "kv"
  | "watch"
  | "api"
  | "client"
  | "agents"
  | "coordinator"
  | "node-object"
  | "testing"
  | "embedding"
  | "cli"
  | "dashboard"
  | "worker.ts"
  | "examples";

interface LayerRule {
  /** Folders that it may import, itself aside. */
  readonly imports: readonly Folder[];
  /** Folders of which it may import types only, and the files of which it may import values too. */
  readonly typesOnly?: { readonly [folder in Folder]?: readonly string[] };
  /** Packages and platform modules that it may import at run time. */
  readonly packages: readonly string[];
  /** Runs to completion: no promises, clocks, chance or I/O (design 00). */
  readonly pure?: true;
}

/** An import may only point down. A new edge is a change of this table. */
export const LAYERS: { readonly [folder in Folder]: LayerRule } = {
  base: { imports: [], packages: [], pure: true },
  raft: { imports: ["base"], packages: [], pure: true },
  kv: { imports: ["base"], packages: [], pure: true },
  watch: { imports: ["kv", "base"], packages: [], pure: true },
  api: { imports: ["watch", "kv", "base"], packages: ["hono", "hono-openapi", "zod"] },
  client: {
    imports: ["base"],
    // Codes and limits cost a few bytes; the routes would bring zod and hono into every application.
    typesOnly: { api: ["api/limits.ts", "api/cluster-name.ts"], kv: [] },
    packages: [],
  },
  agents: { imports: ["client", "base"], packages: [] },
  coordinator: { imports: ["client", "base"], packages: [] },
  "node-object": {
    imports: ["coordinator", "agents", "client", "api", "watch", "kv", "raft", "base"],
    packages: ["cloudflare:workers", "hono"],
  },
  testing: {
    imports: ["client", "api", "watch", "kv", "raft", "base"],
    // What runs without the platform: it has to start in any JavaScript process.
    typesOnly: {
      "node-object": [
        "node-object/runtime.ts",
        "node-object/backend.ts",
        "node-object/connections.ts",
        "node-object/staged-snapshot.ts",
        "node-object/versions.ts",
        "node-object/state-seals.ts",
      ],
    },
    packages: [],
  },
  embedding: { imports: ["worker.ts", "node-object", "api", "base"], packages: [] },
  cli: { imports: ["client", "base"], packages: ["commander", "node:*"] },
  dashboard: { imports: ["client", "base"], packages: ["preact", "@preact/signals", "uplot"] },
  "worker.ts": { imports: ["node-object", "client", "api", "base"], packages: ["cloudflare:workers", "hono"] },
  examples: { imports: ["client"], packages: ["concord-edge", "node:*"] },
};

/** Names that a pure layer does not say: each is a clock, chance, a timer, I/O, or a thing that comes later. */
const IMPURE_NAMES: ReadonlySet<string> = new Set(
  (
    "Date Promise setTimeout setInterval setImmediate clearTimeout clearInterval queueMicrotask performance Temporal " +
    "fetch Request Response WebSocket WebSocketPair crypto console process global globalThis self navigator caches " +
    "Atomics SharedArrayBuffer WeakRef FinalizationRegistry AbortController AbortSignal localStorage"
  ).split(" "),
);

/** File names that say nothing about what is inside. */
const EMPTY_NAMES = /^(utils?|helpers?|common|misc|shared|manager)$/;

export interface SourceFile {
  /** Path from the root of the repository, with slashes. */
  readonly path: string;
  readonly text: string;
}

/** One broken rule, as `path: what is wrong`. */
export type Finding = string;

interface Import {
  readonly source: string;
  readonly typeOnly: boolean;
}

interface Node {
  readonly type: string;
  readonly [field: string]: unknown;
}

/** Every finding about one file. */
export function findings(file: SourceFile): Finding[] {
  const parsed = parseSync(file.path, file.text);
  const [error] = parsed.errors;
  if (error !== undefined) return [`${file.path}: cannot be parsed: ${error.message}`];
  const program = parsed.program as unknown as Node;
  const found = [...importFindings(file.path, program), ...nameFindings(file.path), ...anyFindings(program)];
  if (!file.text.startsWith("/**")) found.push("has no header comment that says what it is for");
  const folder = folderOf(file.path);
  if (folder !== null && LAYERS[folder].pure === true) found.push(...impurityFindings(program));
  return found.map((text) => `${file.path}: ${text}`);
}

/** Findings that make a file unfit for the simulator: a pure layer's rules, but for the folder it lies in. */
export function impurities(file: SourceFile): Finding[] {
  const program = parseSync(file.path, file.text).program as unknown as Node;
  const packages = importsOf(program).filter((item) => !item.typeOnly && !item.source.startsWith("."));
  return [...impurityFindings(program), ...packages.map((item) => `imports ${item.source}`)].map(
    (text) => `${file.path}: ${text}`,
  );
}

/** Paths of the repository's files that `file` imports at run time. */
export function runtimeImports(file: SourceFile): string[] {
  const program = parseSync(file.path, file.text).program as unknown as Node;
  return importsOf(program)
    .filter((item) => !item.typeOnly && item.source.startsWith("."))
    .map((item) => normalize(join(dirname(file.path), item.source)));
}

/** The row of the layer table that a path belongs to. */
export function folderOf(path: string): Folder | null {
  const [top, second] = path.split("/");
  if (top === "examples") return "examples";
  if (top !== "src" || second === undefined || !(second in LAYERS) || second === "examples") return null;
  return second as Folder;
}

function importFindings(path: string, program: Node): string[] {
  const folder = folderOf(path);
  if (folder === null) return ["belongs to no row of the layer table"];
  return importsOf(program).flatMap((item) => {
    const reason = item.source.startsWith(".") ? layerReason(path, folder, item) : packageReason(folder, item);
    return reason === null ? [] : [reason];
  });
}

function layerReason(path: string, folder: Folder, item: Import): string | null {
  const target = normalize(join(dirname(path), item.source));
  const targetFolder = folderOf(target);
  if (targetFolder === null) return `imports ${item.source}, which belongs to no row of the layer table`;
  if (targetFolder === folder) return null;
  const rule = LAYERS[folder];
  if (rule.imports.includes(targetFolder)) return null;
  const valueFiles = rule.typesOnly?.[targetFolder];
  if (valueFiles === undefined) return `imports ${target}, but ${folder} may not import ${targetFolder}`;
  if (item.typeOnly || valueFiles.includes(target.slice("src/".length))) return null;
  return `imports values of ${target}, but ${folder} may import only types of ${targetFolder}`;
}

function packageReason(folder: Folder, item: Import): string | null {
  const rule = LAYERS[folder];
  const allowed = rule.packages.some((name) =>
    name.endsWith("*")
      ? item.source.startsWith(name.slice(0, -1))
      : item.source === name || item.source.startsWith(`${name}/`),
  );
  return allowed ? null : `imports ${item.source}, which ${folder} may not use`;
}

function importsOf(program: Node): Import[] {
  const found: Import[] = [];
  walk(program, (node) => {
    const source = (node.source as Node | null | undefined)?.value;
    switch (node.type) {
      case "ImportDeclaration":
      case "ExportNamedDeclaration":
      case "ExportAllDeclaration":
        if (typeof source === "string") found.push({ source, typeOnly: isTypeOnly(node) });
        break;
      case "TSImportType":
        if (typeof source === "string") found.push({ source, typeOnly: true });
        break;
      case "ImportExpression":
        // A source that is computed can be anything, so it is allowed nowhere.
        found.push({ source: typeof source === "string" ? source : "a computed module", typeOnly: false });
        break;
      case "TSExternalModuleReference":
        found.push({ source: String((node.expression as Node).value), typeOnly: false });
        break;
    }
  });
  return found;
}

function isTypeOnly(node: Node): boolean {
  return node.importKind === "type" || node.exportKind === "type";
}

function nameFindings(path: string): string[] {
  const base = path.slice(path.lastIndexOf("/") + 1).replace(/\.(ts|tsx|mjs)$/, "");
  const empty = base.split(/[-.]/).find((part) => EMPTY_NAMES.test(part));
  const reasons = empty === undefined ? [] : [`is named "${empty}", which says nothing about what is inside`];
  if (!/^[a-z0-9]+([-.][a-z0-9]+)*$/.test(base)) reasons.push("is not named in kebab-case");
  return reasons;
}

function anyFindings(program: Node): string[] {
  const found: string[] = [];
  walk(program, (node) => {
    if (node.type === "TSAnyKeyword") found.push('uses the type "any"');
  });
  return found;
}

function impurityFindings(program: Node): string[] {
  const found = new Set<string>();
  walk(program, (node, parent, field) => {
    if (node.async === true) found.add("has an async function");
    if (node.type === "AwaitExpression" || (node.type === "ForOfStatement" && node.await === true)) found.add("awaits");
    if (node.type === "ImportExpression") found.add("imports dynamically");
    if (node.type === "Identifier" && IMPURE_NAMES.has(String(node.name)) && !isOwnName(parent, field)) {
      found.add(`says ${String(node.name)}`);
    }
    if (isMathRandom(node)) found.add("says Math.random");
  });
  return [...found];
}

/** Whether an identifier names a member or a property, so that it does not mean the global of that name. */
function isOwnName(parent: Node | null, field: string): boolean {
  if (parent === null || parent.computed === true) return false;
  return (
    (parent.type === "MemberExpression" && field === "property") ||
    (field === "key" && parent.type !== "ImportAttribute" && parent.shorthand !== true)
  );
}

function isMathRandom(node: Node): boolean {
  if (node.type !== "MemberExpression") return false;
  const object = node.object as Node;
  const property = node.property as Node;
  return object.type === "Identifier" && object.name === "Math" && (property.name ?? property.value) === "random";
}

/** Visits every node below `node`, itself included, with its parent and the field of the parent that holds it. */
function walk(node: Node, visit: (node: Node, parent: Node | null, field: string) => void): void {
  const step = (value: unknown, parent: Node | null, field: string): void => {
    if (Array.isArray(value)) {
      for (const item of value) step(item, parent, field);
    } else if (typeof value === "object" && value !== null && typeof (value as Node).type === "string") {
      visit(value as Node, parent, field);
      for (const [name, child] of Object.entries(value)) step(child, value as Node, name);
    }
  };
  step(node, null, "");
}
