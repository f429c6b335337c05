/**
 * An empty project with the packed package in it, made without a network: the tarball is unpacked where npm would put it,
 * and its dependencies are those that this repository has installed.
 */
import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join, resolve } from "node:path";
import { promisify } from "node:util";
import { buildPackage } from "../../scripts/build-package.ts";
import { ROOT } from "../../scripts/local-cluster/project.ts";
import { toolEnvironment } from "../../scripts/local-cluster/tool-environment.ts";

const run = promisify(execFile);

export interface ConsumerProject {
  readonly folder: string;
  readonly tarball: string;
  /** The unpacked package. */
  readonly packageFolder: string;
  /** Paths within the package, sorted. */
  readonly files: readonly string[];
  write(path: string, text: string): void;
  remove(): void;
}

export async function createConsumerProject(): Promise<ConsumerProject> {
  const folder = mkdtempSync(join(tmpdir(), "concord-consumer-"));
  await buildPackage(join(ROOT, "dist"));
  // The build has just been done; npm would do it again.
  await run("npm", ["pack", "--offline", "--ignore-scripts", "--pack-destination", folder], { cwd: ROOT });
  const tarball = join(folder, readdirSync(folder).find((name) => name.endsWith(".tgz")) ?? "no tarball");
  const modules = join(folder, "node_modules");
  const packageFolder = join(modules, "concord-edge");
  mkdirSync(packageFolder, { recursive: true });
  await run("tar", ["-xzf", tarball, "-C", packageFolder, "--strip-components=1"]);
  for (const name of Object.keys(readManifest(packageFolder).dependencies)) {
    mkdirSync(dirname(join(modules, name)), { recursive: true });
    symlinkSync(join(ROOT, "node_modules", name), join(modules, name));
  }
  writeFileSync(join(folder, "package.json"), JSON.stringify({ name: "consumer", private: true, type: "module" }));
  return {
    folder,
    tarball,
    packageFolder,
    files: readdirSync(packageFolder, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name).slice(packageFolder.length + 1))
      .sort(),
    write: (path, text) => {
      mkdirSync(dirname(join(folder, path)), { recursive: true });
      writeFileSync(join(folder, path), text);
    },
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}

export interface Manifest {
  readonly dependencies: Readonly<Record<string, string>>;
  readonly exports: Readonly<Record<string, string | Readonly<Record<string, string>>>>;
}

export function readManifest(folder: string): Manifest {
  return JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as Manifest;
}

/** Runs a program to its end and answers what it printed. @throws Error with its output */
export async function output(program: string, args: readonly string[], folder: string): Promise<string> {
  try {
    const { stdout } = await run(program, [...args], { cwd: folder, env: toolEnvironment() });
    return stdout;
  } catch (error) {
    const { stdout = "", stderr = "" } = error as { stdout?: string; stderr?: string };
    throw new Error(`${program} ${args.join(" ")} failed:\n${stdout}${stderr}`, { cause: error });
  }
}

/** The Node of this machine, if it is another one than ours. */
export async function machinesNode(): Promise<string | null> {
  const own = join(ROOT, "node_modules");
  for (const folder of (process.env.PATH ?? "").split(delimiter)) {
    if (resolve(folder).startsWith(own)) continue;
    const program = join(folder, "node");
    const version = await run(program, ["--version"]).then(
      ({ stdout }) => stdout.trim(),
      () => null,
    );
    if (version === null) continue;
    return version !== process.version && Number.parseInt(version.slice(1), 10) >= 20 ? program : null;
  }
  return null;
}
