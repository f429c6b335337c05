/**
 * First step of every npm script: makes the installed packages match package-lock.json, then runs the named script
 * with the Node that the lock file pins. Must run on a fresh clone with Node 20 and npm alone, so it is plain
 * JavaScript and imports nothing that is installed.
 *
 * Usage: node scripts/set-up.mjs <script> [arguments]
 *
 * U1. If nothing has to be installed, nothing is written and the network is not touched.
 * U2. Two set-ups at once install once: the second waits for the first.
 * U3. When the process that started it is gone (npm was killed), the script is asked to end. The npm scripts `exec` it,
 *     so that this process is npm and no shell.
 */
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { constants as osConstants } from "node:os";
import { delimiter, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { acquireLock, LockHeldError } from "./exclusive-lock.mjs";

const NODE_MAJOR_MIN = 20;
const INSTALL_WAIT_MS_MAX = 10 * 60 * 1000;
const PARENT_POLL_MS = 1000;
const SIGNALS_FORWARDED = /** @type {const} */ (["SIGINT", "SIGTERM", "SIGHUP"]);

/**
 * Why the installed packages differ from the lock file; null if they match. Compares npm's own record of what it
 * installed, so that an install by hand counts as well as one by this script.
 * @param {string} root
 * @returns {string | null}
 */
export function reasonToInstall(root) {
  const wanted = readPackages(join(root, "package-lock.json"));
  if (wanted === null) throw new Error("package-lock.json is missing or not valid JSON");
  const installed = readPackages(join(root, "node_modules", ".package-lock.json"));
  if (installed === null) return "packages are not installed yet";
  for (const [path, entry] of Object.entries(wanted)) {
    if (path === "") continue;
    const found = installed[path];
    if (found === undefined) {
      // Optional packages are those of other platforms: npm leaves them out.
      if (entry.optional === true || entry.devOptional === true) continue;
      return `${path} is not installed`;
    }
    if (found.version !== entry.version || found.integrity !== entry.integrity) {
      return `${path} is at ${found.version}, the lock file says ${entry.version}`;
    }
  }
  for (const path of Object.keys(installed)) {
    if (wanted[path] === undefined) return `${path} is not in the lock file`;
  }
  if (!existsSync(bundledNode(root))) return "the pinned Node is missing";
  return null;
}

/**
 * @typedef {{ readonly version?: string, readonly integrity?: string, readonly optional?: boolean,
 *   readonly devOptional?: boolean }} LockEntry
 * @param {string} path
 * @returns {Record<string, LockEntry> | null}
 */
function readPackages(path) {
  try {
    const parsed = JSON.parse(readFileSync(path, "utf8"));
    return typeof parsed.packages === "object" && parsed.packages !== null ? parsed.packages : null;
  } catch (error) {
    if (error instanceof SyntaxError || /** @type {NodeJS.ErrnoException} */ (error).code === "ENOENT") return null;
    throw error;
  }
}

/** @param {string} root */
function bundledNode(root) {
  return join(root, "node_modules", "node", "bin", process.platform === "win32" ? "node.exe" : "node");
}

/**
 * The environment without this project's own executables on the PATH: npm is about to delete them.
 * @param {string} root
 * @param {NodeJS.ProcessEnv} environment
 * @returns {NodeJS.ProcessEnv}
 */
export function installEnvironment(root, environment) {
  const own = join(root, "node_modules");
  const path = (environment.PATH ?? "").split(delimiter).filter((folder) => !resolve(folder).startsWith(own));
  return { ...environment, PATH: path.join(delimiter) };
}

/** @param {string} root */
async function installPackages(root) {
  mkdirSync(join(root, ".concord"), { recursive: true });
  const lock = await acquireLock(join(root, ".concord", "set-up.lock"), {
    purpose: "installs packages",
    waitMsMax: INSTALL_WAIT_MS_MAX,
  });
  try {
    const reason = reasonToInstall(root);
    if (reason === null) return;
    process.stderr.write(`Setting up, once: ${reason}. Installing from package-lock.json …\n`);
    const startedMs = Date.now();
    const progress = setInterval(() => {
      process.stderr.write(`  still installing (${Math.round((Date.now() - startedMs) / 1000)} s)\n`);
    }, 15_000);
    // Development packages whatever NODE_ENV says, and errors only: Node 20 as host is intended.
    const code = await run("npm", ["ci", "--include=dev", "--no-audit", "--no-fund", "--loglevel=error"], {
      cwd: root,
      env: installEnvironment(root, process.env),
      quiet: true,
    }).finally(() => clearInterval(progress));
    if (code !== 0) throw new Error(`npm ci failed with exit code ${code}; its messages are above`);
    const left = reasonToInstall(root);
    if (left !== null) throw new Error(`after npm ci: ${left}. Does an npm setting (ignore-scripts, omit) forbid it?`);
    process.stderr.write(`Set up in ${Math.round((Date.now() - startedMs) / 1000)} s.\n`);
  } finally {
    lock.release();
  }
}

/**
 * Runs a program to its end, forwarding signals; answers its exit code (128 + signal number when it was killed).
 * @param {string} program
 * @param {readonly string[]} args
 * @param {{ cwd?: string, env?: NodeJS.ProcessEnv, quiet?: boolean }} options `quiet`: standard output goes to ours
 *   for errors, so that the output of the script that follows stays clean.
 * @returns {Promise<number>}
 */
function run(program, args, options) {
  return new Promise((settle, fail) => {
    const child = spawn(program, args, {
      cwd: options.cwd,
      env: options.env ?? process.env,
      // The channel tells the script when this process is gone, however it ended.
      stdio: options.quiet === true ? ["ignore", 2, 2] : ["inherit", "inherit", "inherit", "ipc"],
    });
    let isAsked = false;
    const forward = (/** @type {NodeJS.Signals} */ signal) => {
      isAsked = true;
      child.kill(signal);
    };
    for (const signal of SIGNALS_FORWARDED) process.on(signal, forward);
    const unwatch = watchParent(() => {
      // A second signal would mean "at once"; one that npm has passed on is enough for a clean end.
      if (!isAsked) forward("SIGTERM");
    });
    child.once("error", fail);
    child.once("exit", (code, signal) => {
      unwatch();
      for (const name of SIGNALS_FORWARDED) process.off(name, forward);
      settle(code ?? 128 + osConstants.signals[/** @type {NodeJS.Signals} */ (signal)]);
    });
  });
}

/**
 * Calls back once when another process has become the parent, which happens when the first one ends.
 * @param {() => void} onGone
 * @returns {() => void} ends the watch
 */
function watchParent(onGone) {
  const parent = process.ppid;
  // A child of the first process (in a container) has no parent that could end before it.
  if (parent === 1) return () => {};
  const poll = setInterval(() => {
    if (process.ppid === parent) return;
    clearInterval(poll);
    onGone();
  }, PARENT_POLL_MS);
  poll.unref();
  return () => clearInterval(poll);
}

/**
 * @param {string} root
 * @param {readonly string[]} args
 */
async function main(root, args) {
  const [script, ...rest] = args;
  if (script === undefined) throw new Error("usage: node scripts/set-up.mjs <script> [arguments]");
  if (Number.parseInt(process.versions.node, 10) < NODE_MAJOR_MIN) {
    throw new Error(`Node ${NODE_MAJOR_MIN} or later is needed; this is ${process.versions.node}`);
  }
  if (reasonToInstall(root) !== null) await installPackages(root);
  const bin = join(root, "node_modules", ".bin");
  process.exitCode = await run(bundledNode(root), [resolve(root, script), ...rest], {
    env: { ...process.env, PATH: `${bin}${delimiter}${process.env.PATH ?? ""}` },
  });
}

if (process.argv[1] !== undefined && resolve(process.argv[1]) === fileURLToPath(import.meta.url)) {
  const root = dirname(dirname(fileURLToPath(import.meta.url)));
  main(root, process.argv.slice(2)).catch((error) => {
    const text = error instanceof LockHeldError ? `another process installs packages: ${error.message}` : error.message;
    process.stderr.write(`Set-up failed: ${text}\n`);
    process.exitCode = 1;
  });
}
