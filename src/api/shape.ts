/**
 * Turns the first complaint of a schema into an error of ours: a stable `reason` and a sentence that names the path
 * and what would be right.
 */
import type { output, ZodType } from "zod";
import type { ErrorCode } from "../base/errors.ts";
import { quoted } from "./parameters.ts";
import { refusal } from "./problem.ts";

/** @throws ConcordError `code` with reason `wrong_type`, `missing_field`, `unknown_field` or `unsupported_…`. */
export function shaped<Schema extends ZodType>(schema: Schema, value: unknown, code: ErrorCode): output<Schema> {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const issue = result.error.issues[0];
  if (issue === undefined) throw refusal(code, "wrong_type", "The body does not have the right shape.");
  const path = issue.path;
  const place = pathText(path);
  const found = valueAt(value, path);
  if (issue.code === "unrecognized_keys") {
    throw refusal(code, "unknown_field", `${place} does not have the field ${firstOf(issue.keys)}.`);
  }
  if (found === undefined) throw refusal(code, "missing_field", `${place} is missing; it must be ${wanted(issue)}.`);
  if (issue.code === "invalid_value" || issue.code === "invalid_union") {
    throw refusal(code, unsupported(path), `${place} must be ${wanted(issue)}, is ${shown(found)}.`);
  }
  throw refusal(code, "wrong_type", `${place} must be ${wanted(issue)}, is ${shown(found)}.`);
}

const NAMES_SHOWN_MAX = 3;

type Issue = NonNullable<ReturnType<ZodType["safeParse"]>["error"]>["issues"][number];

function wanted(issue: Issue): string {
  switch (issue.code) {
    case "invalid_type":
      return issue.expected === "nonoptional" ? "present" : `of type ${issue.expected}`;
    case "invalid_value":
      return oneOf(issue.values);
    case "invalid_union":
      return "options" in issue && issue.options !== undefined ? oneOf(issue.options) : "of another shape";
    default:
      return issue.message;
  }
}

function oneOf(values: readonly unknown[]): string {
  const names = values.map((value) => JSON.stringify(value));
  return names.length === 1 ? String(names[0]) : `one of ${names.join(", ")}`;
}

/** An operator, an operation or a compare that does not exist has its own reason; callers probe for features by it. */
function unsupported(path: readonly PropertyKey[]): string {
  const field = path.at(-1);
  if (field === "op" || field === "type") return "unsupported_op";
  if (field === "target") return "unsupported_target";
  return "unsupported_value";
}

/** The first few names, and how many there are besides: a body can hold a hundred thousand. */
function firstOf(names: readonly string[]): string {
  const shown = names.slice(0, NAMES_SHOWN_MAX).map(quoted).join(", ");
  const hidden = names.length - NAMES_SHOWN_MAX;
  return hidden > 0 ? `${shown} and ${hidden} more` : shown;
}

function pathText(path: readonly PropertyKey[]): string {
  let text = "";
  for (const step of path) {
    if (typeof step === "number") text += `[${step}]`;
    else text += text === "" ? String(step) : `.${String(step)}`;
  }
  return text === "" ? "The body" : text;
}

function valueAt(root: unknown, path: readonly PropertyKey[]): unknown {
  let value = root;
  for (const step of path) {
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, step)) return undefined;
    value = Reflect.get(value, step);
  }
  return value;
}

function shown(value: unknown): string {
  if (value === null || typeof value === "number" || typeof value === "boolean") return String(value);
  if (typeof value === "string") return quoted(value);
  return Array.isArray(value) ? "an array" : "an object";
}
