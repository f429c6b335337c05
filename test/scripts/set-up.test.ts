/**
 * Goal: set-up installs when, and only when, the installed packages differ from the lock file, and its script does not
 * outlive whoever started it.
 * Method: small folders with the two lock files that npm writes; nothing is installed. Small processes that are killed.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { installEnvironment, reasonToInstall } from "../../scripts/set-up.mjs";

const PROJECT = join(import.meta.dirname, "..", "..");

type Packages = Record<string, { version?: string; integrity?: string; optional?: boolean }>;

const WANTED: Packages = {
  "": {},
  "node_modules/a": { version: "1.0.0", integrity: "sha512-a" },
  "node_modules/b": { version: "2.0.0", integrity: "sha512-b" },
  "node_modules/other-platform": { version: "1.0.0", integrity: "sha512-c", optional: true },
};
const INSTALLED: Packages = {
  "node_modules/a": { version: "1.0.0", integrity: "sha512-a" },
  "node_modules/b": { version: "2.0.0", integrity: "sha512-b" },
};

let root: string;

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "concord-set-up-"));
  mkdirSync(join(root, "node_modules", "node", "bin"), { recursive: true });
  writeFileSync(join(root, "node_modules", "node", "bin", "node"), "");
  write("package-lock.json", WANTED);
  write("node_modules/.package-lock.json", INSTALLED);
});

afterEach(() => rmSync(root, { recursive: true, force: true }));

function write(path: string, packages: Packages): void {
  writeFileSync(join(root, path), JSON.stringify({ packages }));
}

test("nothing is installed when all packages but those of other platforms are there", () => {
  expect(reasonToInstall(root)).toBe(null);
});

test("a fresh clone is installed", () => {
  rmSync(join(root, "node_modules"), { recursive: true });
  expect(reasonToInstall(root)).toBe("packages are not installed yet");
});

test("a package that is missing is installed", () => {
  write("node_modules/.package-lock.json", { "node_modules/a": INSTALLED["node_modules/a"] ?? {} });
  expect(reasonToInstall(root)).toBe("node_modules/b is not installed");
});

test("another version of a package is replaced", () => {
  write("node_modules/.package-lock.json", { ...INSTALLED, "node_modules/b": { version: "1.9.0" } });
  expect(reasonToInstall(root)).toContain("node_modules/b is at 1.9.0");
});

test("another content of the same version is replaced", () => {
  const changed = { version: "2.0.0", integrity: "sha512-other" };
  write("node_modules/.package-lock.json", { ...INSTALLED, "node_modules/b": changed });
  expect(reasonToInstall(root)).toContain("node_modules/b");
});

test("a package that left the lock file is removed", () => {
  write("node_modules/.package-lock.json", { ...INSTALLED, "node_modules/old": { version: "1.0.0" } });
  expect(reasonToInstall(root)).toBe("node_modules/old is not in the lock file");
});

test("an install that was cut short is done again", () => {
  writeFileSync(join(root, "node_modules", ".package-lock.json"), '{"packages":{"node_mod');
  expect(reasonToInstall(root)).toBe("packages are not installed yet");
});

test("an install without the pinned Node is done again", () => {
  rmSync(join(root, "node_modules", "node"), { recursive: true });
  expect(reasonToInstall(root)).toBe("the pinned Node is missing");
});

test("a project without a lock file is refused", () => {
  rmSync(join(root, "package-lock.json"));
  expect(() => reasonToInstall(root)).toThrow("package-lock.json is missing");
});

test("npm runs without the executables that it is about to delete", () => {
  const path = [join(root, "node_modules", ".bin"), "/usr/bin", join(root, "bin")].join(":");
  expect(installEnvironment(root, { PATH: path, HOME: "/home" })).toEqual({
    PATH: `/usr/bin:${join(root, "bin")}`,
    HOME: "/home",
  });
});

test("this project's own packages match its lock file", () => {
  expect(reasonToInstall(PROJECT)).toBe(null);
});

test("the lock file names no host to download from, so that any registry serves", () => {
  expect(readFileSync(join(PROJECT, "package-lock.json"), "utf8")).not.toMatch(/https?:\/\/[^"]*\.tgz/);
});

test("every dependency has an exact version", () => {
  const manifest = JSON.parse(readFileSync(join(PROJECT, "package.json"), "utf8")) as Record<string, object>;
  const versions = Object.values({ ...manifest.dependencies, ...manifest.devDependencies }) as string[];
  expect(versions.filter((version) => !/^\d+\.\d+\.\d+(-[\w.]+)?$/.test(version))).toEqual([]);
});

test("every npm script goes through set-up", () => {
  const { scripts } = JSON.parse(readFileSync(join(PROJECT, "package.json"), "utf8")) as {
    scripts: Record<string, string>;
  };
  expect(Object.keys(scripts)).toEqual(expect.arrayContaining(["start", "test", "check", "sim", "bench", "types"]));
  for (const command of Object.values(scripts)) expect(command).toMatch(/^exec node scripts\/set-up\.mjs \S+\.ts$/);
});

describe("a script whose starter ends", () => {
  const SET_UP = join(PROJECT, "scripts", "set-up.mjs");
  /** Says that it runs, and ends cleanly when it is asked to. */
  const SCRIPT = `
    import { writeFileSync } from "node:fs";
    const [folder] = process.argv.slice(2);
    let signals = 0;
    process.on("SIGTERM", () => {
      signals += 1;
      if (signals === 1) setTimeout(() => { writeFileSync(folder + "/ended", String(signals)); process.exit(0); }, 1500);
    });
    setInterval(() => {}, 1000);
    writeFileSync(folder + "/pid", String(process.pid));`;

  async function startScript(program: string, args: readonly string[]): Promise<ChildProcess> {
    writeFileSync(join(root, "script.mjs"), SCRIPT);
    const starter = spawn(program, args, { cwd: PROJECT, stdio: "ignore" });
    await expect.poll(() => existsSync(join(root, "pid")), { timeout: 20_000 }).toBe(true);
    return starter;
  }

  async function ended(): Promise<string> {
    const path = join(root, "ended");
    await expect.poll(() => existsSync(path), { timeout: 15_000 }).toBe(true);
    const pid = Number(readFileSync(join(root, "pid"), "utf8"));
    await expect.poll(() => existsSync(`/proc/${pid}`), { timeout: 5_000 }).toBe(false);
    return readFileSync(path, "utf8");
  }

  test("is asked to end, once, when the starter is killed", async () => {
    const code = `require("node:child_process").spawn(process.execPath, process.argv.slice(1), { stdio: "ignore" });`;
    const starter = await startScript(process.execPath, ["-e", code, SET_UP, join(root, "script.mjs"), root]);
    starter.kill("SIGKILL");
    expect(await ended()).toBe("1");
  });

  test("is asked to end, once, when npm is told to end", async () => {
    const command = `exec node ${SET_UP} ${join(root, "script.mjs")} ${root}`;
    writeFileSync(join(root, "package.json"), JSON.stringify({ name: "x", scripts: { start: command } }));
    const npm = await startScript("npm", ["--prefix", root, "start"]);
    npm.kill("SIGTERM");
    expect(await ended()).toBe("1");
    if (npm.exitCode === null && npm.signalCode === null) await once(npm, "exit");
  });
});
