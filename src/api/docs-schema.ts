/** Schemas of the OpenAPI document as types that a person reads, with links to named ones. HTML out. */
import type { JsonObject, JsonValue } from "../base/json.ts";

const NAMED = "#/components/schemas/";
/** An object of more members than this, or of longer text, takes a line per member. */
const LINE_CHARACTERS_MAX = 96;

export function escapeHtml(text: string): string {
  return text
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll('"', "&quot;")
    .replaceAll("'", "&#39;");
}

export function isObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function objectOf(value: JsonValue | undefined): JsonObject {
  return isObject(value) ? value : {};
}

export function listOf(value: JsonValue | undefined): readonly JsonValue[] {
  return Array.isArray(value) ? value : [];
}

export function textOf(value: JsonValue | undefined): string {
  return typeof value === "string" ? value : "";
}

/** A type in the manner of TypeScript. */
export function typeHtml(schema: JsonObject, indent = ""): string {
  const { $ref } = schema;
  if (typeof $ref === "string") {
    const name = escapeHtml($ref.slice(NAMED.length));
    return `<a href="#schema-${name}">${name}</a>`;
  }
  for (const choice of ["oneOf", "anyOf"]) {
    const options = listOf(schema[choice]);
    if (options.length > 0) return choiceHtml(options, indent);
  }
  const all = listOf(schema.allOf);
  if (all.length > 0) return all.map((part) => typeHtml(objectOf(part), indent)).join(" &amp; ");
  if (Array.isArray(schema.enum)) return schema.enum.map(literalHtml).join(" | ");
  if (schema.const !== undefined) return literalHtml(schema.const);
  if (Array.isArray(schema.type)) return schema.type.map((type) => escapeHtml(String(type))).join(" | ");
  if (schema.type === "array") return arrayHtml(objectOf(schema.items), indent);
  if (schema.type === "object" && isObject(schema.properties)) return objectHtml(schema, indent);
  return typeof schema.type === "string" ? escapeHtml(schema.type) : "any JSON";
}

function literalHtml(value: JsonValue): string {
  return escapeHtml(JSON.stringify(value));
}

function choiceHtml(options: readonly JsonValue[], indent: string): string {
  const line = options.map((option) => typeHtml(objectOf(option), indent)).join(" | ");
  if (isShort(line)) return line;
  return options.map((option) => `\n${indent}  | ${typeHtml(objectOf(option), `${indent}    `)}`).join("");
}

function arrayHtml(items: JsonObject, indent: string): string {
  const item = typeHtml(items, indent);
  return items.oneOf === undefined && items.anyOf === undefined ? `${item}[]` : `(${item})[]`;
}

function objectHtml(schema: JsonObject, indent: string): string {
  const wanted = listOf(schema.required);
  const inner = `${indent}  `;
  const members = Object.entries(objectOf(schema.properties)).map(([name, member]) => {
    const mark = wanted.includes(name) ? "" : "?";
    const note = textOf(objectOf(member).description);
    return { text: `${escapeHtml(name)}${mark}: ${typeHtml(objectOf(member), inner)}`, note };
  });
  if (members.length === 0) return "{}";
  const line = `{ ${members.map(({ text }) => text).join(", ")} }`;
  if (isShort(line) && members.every(({ note }) => note === "")) return line;
  const lines = members.map(({ text, note }) => {
    const comment = note === "" ? "" : `  <i>// ${escapeHtml(note)}</i>`;
    return `\n${inner}${text}${comment}`;
  });
  return `{${lines.join("")}\n${indent}}`;
}

function isShort(html: string): boolean {
  return !html.includes("\n") && html.replace(/<[^>]*>|&\w+;/g, "").length <= LINE_CHARACTERS_MAX;
}
