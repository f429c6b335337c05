/**
 * How the commands that start clusters end when they cannot do what was asked: one message for a person, no stack, and an
 * exit code of 1, or 2 with the usage for arguments that are wrong.
 */
import { resolve } from "node:path";
import { LockHeldError } from "../exclusive-lock.mjs";

/** The command line says something that cannot be meant. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

/** @param hints `elsewhere`: what to do instead when the data folder is in use. */
export async function runCommand(
  command: () => Promise<void>,
  hints: { readonly usage: string; readonly elsewhere: string },
): Promise<void> {
  try {
    await command();
  } catch (error) {
    process.exitCode = error instanceof UsageError ? 2 : 1;
    process.stderr.write(`${messageOf(error, hints)}\n`);
  }
}

function messageOf(error: unknown, hints: { readonly usage: string; readonly elsewhere: string }): string {
  if (error instanceof LockHeldError) {
    const holders = `process ${error.pids.join(", ")} (${error.purpose})`;
    return `Another cluster is running on this data folder: ${holders} holds ${error.path}.\nStop it, or ${hints.elsewhere}`;
  }
  const message = error instanceof Error ? error.message : String(error);
  return error instanceof UsageError ? `${message}\n\n${hints.usage}` : message;
}

/** What `parseArgs` refuses is an error of the usage. */
export function parsed<T>(parse: () => T): T {
  try {
    return parse();
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error));
  }
}

/** @throws UsageError */
export function portOf(
  text: string | undefined,
  name: string,
  range: { readonly byDefault: number; readonly max: number },
) {
  const port = text === undefined ? range.byDefault : Number(text);
  if (text !== "" && Number.isInteger(port) && port >= 1 && port <= range.max) return port;
  throw new UsageError(`${name} wants a number from 1 to ${range.max}, not ${JSON.stringify(text)}`);
}

/** An absolute path; what the user wrote is relative to where the user is, for npm itself moves to the project's root. */
export function folderOf(text: string | undefined, byDefault: string): string {
  if (text === "") throw new UsageError("--data wants the path of a folder");
  return text === undefined ? byDefault : resolve(process.env.INIT_CWD ?? process.cwd(), text);
}
