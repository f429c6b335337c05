/**
 * If-Match and If-None-Match (RFC 9110 §13) in terms of mod_revision, which is the ETag of a record.
 * A weak tag counts as its strong one: proxies weaken tags when they compress, and a revision names the exact content.
 */
import type { Compare } from "../kv/command.ts";
import { integerIn, quoted } from "./parameters.ts";
import { refusal } from "./problem.ts";

/** `any` is `*`; otherwise the revisions named. Null without the header. */
export type EtagCondition = "any" | readonly number[] | null;

export function etagOf(modRevision: number): string {
  return `"${modRevision}"`;
}

/** @throws ConcordError `invalid_kv` with the header's name as reason. */
export function readEtags(header: string | undefined, name: "if_match" | "if_none_match"): EtagCondition {
  if (header === undefined) return null;
  if (header.trim() === "*") return "any";
  return header.split(",").map((tag) => {
    const revision = integerIn(/^(?:W\/)?"([0-9]+)"$/.exec(tag.trim())?.[1] ?? "");
    if (revision !== null) return revision;
    throw refusal(
      "invalid_kv",
      name,
      `An entity tag is a quoted mod_revision such as "17", not ${quoted(tag.trim())}.`,
    );
  });
}

/** The compares under which a conditional write happens. */
export function comparesOf(key: string, ifMatch: EtagCondition, ifNoneMatch: EtagCondition): Compare[] {
  const compares: Compare[] = [];
  if (ifMatch === "any") compares.push({ target: "exists", key, op: "==", value: true });
  else if (ifMatch !== null) {
    const revision = ifMatch[0];
    // Compares are joined by AND, so "one of these" cannot be said.
    if (revision === undefined || ifMatch.length > 1) {
      throw refusal("invalid_kv", "if_match", "If-Match of a write names exactly one entity tag, or *.");
    }
    compares.push({ target: "mod_revision", key, op: "==", value: revision });
  }
  if (ifNoneMatch === "any") compares.push({ target: "exists", key, op: "==", value: false });
  else
    for (const revision of ifNoneMatch ?? []) compares.push({ target: "mod_revision", key, op: "!=", value: revision });
  return compares;
}

/** Whether a record (0 = absent) meets a condition's tags. */
export function matches(condition: Exclude<EtagCondition, null>, modRevision: number): boolean {
  return modRevision > 0 && (condition === "any" || condition.includes(modRevision));
}
