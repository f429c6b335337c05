/**
 * The package as others import it: one ES module per entry with shared chunks, so that a class is the same whichever entry
 * it comes from, and the declarations that the entries reach. Dependencies are imported, never bundled.
 */
import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { promisify } from "node:util";
import { build } from "esbuild";
import { executable, ROOT } from "./local-cluster/project.ts";
import { toolEnvironment } from "./local-cluster/tool-environment.ts";

/** By the name in `exports` of package.json. */
export const ENTRIES = {
  client: "src/client/index.ts",
  admin: "src/client/admin.ts",
  testing: "src/testing/index.ts",
  worker: "src/embedding/index.ts",
} as const;

/** What Node 20 runs. */
const TARGET = "es2023";

/** Builds into `folder`, whose earlier content is removed. @throws Error when a tool fails */
export async function buildPackage(folder: string): Promise<void> {
  rmSync(folder, { recursive: true, force: true });
  await buildModules(folder);
  await buildDeclarations(join(folder, "types"));
}

async function buildModules(folder: string): Promise<void> {
  await build({
    absWorkingDir: ROOT,
    entryPoints: ENTRIES,
    outdir: folder,
    bundle: true,
    splitting: true,
    chunkNames: "chunks/[name]-[hash]",
    format: "esm",
    platform: "neutral",
    target: TARGET,
    packages: "external",
    external: ["cloudflare:workers"],
    legalComments: "none",
    logLevel: "warning",
  });
}

async function buildDeclarations(folder: string): Promise<void> {
  mkdirSync(join(ROOT, ".concord"), { recursive: true });
  const all = mkdtempSync(join(ROOT, ".concord", "declarations-"));
  try {
    const config = join(all, "tsconfig.json");
    writeFileSync(config, JSON.stringify(declarationConfig(all)));
    await promisify(execFile)(executable("tsc"), ["-p", config], { cwd: ROOT, env: toolEnvironment() });
    for (const path of reachableDeclarations(all)) {
      const target = join(folder, path);
      mkdirSync(dirname(target), { recursive: true });
      writeFileSync(target, publishedText(readFileSync(join(all, path), "utf8")));
    }
  } finally {
    rmSync(all, { recursive: true, force: true });
  }
}

function declarationConfig(folder: string) {
  return {
    extends: join(ROOT, "src", "tsconfig.json"),
    compilerOptions: {
      noEmit: false,
      declaration: true,
      emitDeclarationOnly: true,
      // `npm run check` checks; here the types are only written down.
      noCheck: true,
      rootDir: join(ROOT, "src"),
      outDir: folder,
    },
    include: [],
    files: [...Object.values(ENTRIES), "worker-configuration.d.ts"].map((path) => join(ROOT, path)),
  };
}

const IMPORTED = /(from |import\(|import )"(\.{1,2}\/[^"]+)\.ts"/g;

/** The declarations that the entries import, directly or not, as paths within `folder`. */
function reachableDeclarations(folder: string): string[] {
  const reached = new Set<string>();
  const pending = Object.values(ENTRIES).map((entry) => declarationOf(relative("src", entry)));
  for (let path = pending.pop(); path !== undefined; path = pending.pop()) {
    if (reached.has(path)) continue;
    reached.add(path);
    for (const [, , imported] of readFileSync(join(folder, path), "utf8").matchAll(IMPORTED)) {
      pending.push(declarationOf(join(dirname(path), `${imported}.ts`)));
    }
  }
  return [...reached].sort();
}

function declarationOf(path: string): string {
  return path.replace(/\.ts$/, ".d.ts");
}

/** Citations in comments of what only this repository's makers have: "(design 01 §3)", "(S38)", "; see design 01 §2". */
const CITATION = /\s+\((?:design \d|S\d)[^()]*\)|;\s+see design \d[^.;]*/g;

/** Every module resolution understands the name of a JavaScript file beside its declaration. */
function publishedText(text: string): string {
  return text.replaceAll(IMPORTED, '$1"$2.js"').replaceAll(CITATION, "");
}
