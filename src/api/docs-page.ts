/**
 * `GET /docs`: the OpenAPI document as one page of plain HTML, for people without tools.
 *
 * P1. No script, no form, no address outside of the page but `openapi.json`: the policy forbids all else, and names the
 *     one style by its digest.
 * P2. All text is escaped on its way in; a few marks of Markdown become elements afterwards.
 */
import type { JsonObject, JsonValue } from "../base/json.ts";
import { escapeHtml, isObject, listOf, objectOf, textOf, typeHtml } from "./docs-schema.ts";
import { STYLE } from "./docs-style.ts";

export interface DocsPage {
  readonly html: string;
  readonly contentSecurityPolicy: string;
}

export async function docsPage(document: JsonObject): Promise<DocsPage> {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(STYLE)));
  const hash = btoa(String.fromCharCode(...digest));
  return {
    html: pageHtml(document),
    contentSecurityPolicy: [
      "default-src 'none'",
      `style-src 'sha256-${hash}'`,
      ...["base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "sandbox"],
    ].join("; "),
  };
}

interface Operation {
  readonly method: string;
  readonly path: string;
  readonly body: JsonObject;
}

function pageHtml(document: JsonObject): string {
  const info = objectOf(document.info);
  const title = textOf(info.title);
  const tags = listOf(document.tags).map(objectOf);
  const operations = operationsOf(document);
  const groups = tags.map((tag) => ({
    tag,
    operations: operations.filter(({ body }) => listOf(body.tags).includes(textOf(tag.name))),
  }));
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${escapeHtml(title)} API</title>
<style>${STYLE}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the routes</a>
<nav aria-label="Routes">
<p><a href="#main"><b>${escapeHtml(title)}</b></a></p>
${groups.map(({ tag, operations: own }) => navHtml(textOf(tag.name), own)).join("\n")}
<h2>More</h2>
<ul><li><a href="#errors">errors</a></li><li><a href="#schemas">schemas</a></li><li><a href="openapi.json">openapi.json</a></li></ul>
</nav>
<main id="main">
<h1>${escapeHtml(title)} <small>HTTP API, version ${escapeHtml(textOf(info.version))}</small></h1>
${markdownHtml(textOf(info.description))}
${groups.map(({ tag, operations: own }) => groupHtml(document, tag, own)).join("\n")}
${errorsHtml(document)}
${schemasHtml(document)}
</main>
</body>
</html>
`;
}

function operationsOf(document: JsonObject): Operation[] {
  return Object.entries(objectOf(document.paths)).flatMap(([path, item]) =>
    Object.entries(objectOf(item)).map(([method, body]) => ({
      method: method.toUpperCase(),
      path,
      body: objectOf(body),
    })),
  );
}

function navHtml(name: string, operations: readonly Operation[]): string {
  const items = operations.map(
    ({ method, path, body }) => `<li><a href="#${idOf(body)}"><span>${method}</span> ${escapeHtml(path)}</a></li>`,
  );
  return `<h2>${escapeHtml(name)}</h2>\n<ul>${items.join("")}</ul>`;
}

function idOf(operation: JsonObject): string {
  return escapeHtml(textOf(operation.operationId));
}

function groupHtml(document: JsonObject, tag: JsonObject, operations: readonly Operation[]): string {
  const name = escapeHtml(textOf(tag.name));
  return `<section aria-labelledby="tag-${name}">
<h2 id="tag-${name}">${name}</h2>
${markdownHtml(textOf(tag.description))}
${operations.map((operation) => operationHtml(document, operation)).join("\n")}
</section>`;
}

function operationHtml(document: JsonObject, { method, path, body }: Operation): string {
  const id = idOf(body);
  return `<article aria-labelledby="${id}">
<h3 id="${id}"><a href="#${id}"><span>${method}</span> ${escapeHtml(path)}</a></h3>
<p><b>${escapeHtml(textOf(body.summary))}</b></p>
${markdownHtml(textOf(body.description))}
${samplesHtml(body)}
${parametersHtml(document, body)}
${bodyHtml(body)}
${methodsHtml(body)}
${repliesHtml(body)}
</article>`;
}

function samplesHtml(body: JsonObject): string {
  return listOf(body["x-codeSamples"])
    .map(objectOf)
    .map((sample) => codeHtml(textOf(sample.label), escapeHtml(textOf(sample.source))))
    .join("\n");
}

/** A box that may have to be scrolled, so it takes the focus. */
function codeHtml(label: string, html: string): string {
  return `<figure><figcaption>${escapeHtml(label)}</figcaption><pre tabindex="0"><code>${html}</code></pre></figure>`;
}

function parametersHtml(document: JsonObject, body: JsonObject): string {
  const rows = listOf(body.parameters)
    .map((parameter) => resolved(document, objectOf(parameter)))
    .map(({ name, in: place, required, schema, description }) => {
      const mark = required === true ? " <em>required</em>" : "";
      const type = `${typeHtml(objectOf(schema))}${boundsHtml(objectOf(schema))}`;
      return `<tr><th scope="row"><code>${escapeHtml(textOf(name))}</code>${mark}</th><td>${escapeHtml(textOf(place))}</td><td>${type}</td><td>${inlineHtml(textOf(description))}</td></tr>`;
    });
  return tableHtml("Parameters", ["name", "in", "type", "meaning"], rows);
}

function boundsHtml({ minimum, maximum, default: preset }: JsonObject): string {
  const parts = [
    ...(typeof minimum === "number" ? [`from ${minimum}`] : []),
    ...(typeof maximum === "number" && maximum < Number.MAX_SAFE_INTEGER ? [`to ${maximum}`] : []),
    ...(preset === undefined ? [] : [`default ${escapeHtml(String(preset))}`]),
  ];
  return parts.length === 0 ? "" : `, ${parts.join(" ")}`;
}

function resolved(document: JsonObject, part: JsonObject): JsonObject {
  if (typeof part.$ref !== "string") return part;
  return part.$ref
    .slice(2)
    .split("/")
    .reduce((found, step) => objectOf(found[step]), document);
}

function tableHtml(caption: string, heads: readonly string[], rows: readonly string[]): string {
  if (rows.length === 0) return "";
  const head = heads.map((name) => `<th scope="col">${name}</th>`).join("");
  return `<div class="wide" tabindex="0" role="group" aria-label="${caption}"><table><caption>${caption}</caption><thead><tr>${head}</tr></thead><tbody>
${rows.join("\n")}
</tbody></table></div>`;
}

function bodyHtml({ requestBody }: JsonObject): string {
  if (!isObject(requestBody)) return "";
  const { required, description, content } = requestBody;
  const types = Object.entries(objectOf(content)).map(([media, value]) => mediaHtml(media, objectOf(value)));
  return `<h4>Body${required === true ? "" : " (optional)"}</h4>
${markdownHtml(textOf(description))}
<ul>${types.map((type) => `<li>${type}</li>`).join("")}</ul>`;
}

function mediaHtml(media: string, { schema }: JsonObject): string {
  const name = media === "*/*" ? "any other type" : escapeHtml(media);
  if (!isObject(schema)) return `${name}: bytes`;
  const shown = isObject(schema["x-data"]) ? schema["x-data"] : schema;
  const type = typeHtml(shown);
  return type.includes("\n")
    ? `${name}: <pre tabindex="0"><code>${type}</code></pre>`
    : `${name}: <code>${type}</code>`;
}

function methodsHtml(body: JsonObject): string {
  const rows = Object.entries(objectOf(body["x-methods"])).map(([name, method]) => {
    const { params, result, notification } = objectOf(method);
    const mark = notification === true ? " <em>answered only with an id</em>" : "";
    return `<tr><th scope="row"><code>${escapeHtml(name)}</code>${mark}</th><td><pre tabindex="0"><code>${typeHtml(objectOf(params))}</code></pre></td><td><code>${typeHtml(objectOf(result))}</code></td></tr>`;
  });
  const told = Object.entries(objectOf(body["x-notifications"])).map(
    ([name, params]) =>
      `<tr><th scope="row"><code>${escapeHtml(name)}</code></th><td><pre tabindex="0"><code>${typeHtml(objectOf(params))}</code></pre></td></tr>`,
  );
  return `${tableHtml("Methods", ["method", "params", "result"], rows)}
${tableHtml("Notifications from the server", ["method", "params"], told)}`;
}

function repliesHtml(body: JsonObject): string {
  const replies = Object.entries(objectOf(body.responses)).map(([status, reply]) => ({
    status,
    reply: objectOf(reply),
  }));
  const answers = replies.filter(({ status }) => Number(status) < 400);
  const problems = replies.filter(({ status }) => Number(status) >= 400);
  const rows = answers.map(({ status, reply }) => {
    const media = Object.entries(objectOf(reply.content)).map(([name, value]) => mediaHtml(name, objectOf(value)));
    return `<tr><th scope="row">${status}</th><td>${inlineHtml(textOf(reply.description))}</td><td>${media.join("<br>")}</td></tr>`;
  });
  const examples = answers.flatMap(({ reply }) => examplesHtml(reply));
  return `${tableHtml("Answers", ["status", "meaning", "body"], rows)}
${examples.length === 0 ? "" : `<details><summary>Examples of answers</summary>${examples.join("\n")}</details>`}
<details><summary>Errors</summary><ul>${problems.map(({ status, reply }) => `<li>${status}: ${problemHtml(reply)}</li>`).join("")}</ul></details>`;
}

function examplesHtml(reply: JsonObject): string[] {
  return Object.values(objectOf(reply.content)).flatMap((media) =>
    Object.values(objectOf(objectOf(media).examples))
      .map(objectOf)
      .map(({ summary, value }) => codeHtml(textOf(summary), exampleHtml(value))),
  );
}

function exampleHtml(value: JsonValue | undefined): string {
  return escapeHtml(typeof value === "string" ? value : JSON.stringify(value, null, 2));
}

/** The codes of a status, each with a link to what it means. */
function problemHtml(reply: JsonObject): string {
  const codes = Object.keys(objectOf(objectOf(objectOf(reply.content)["application/problem+json"]).examples));
  if (codes.length === 0) return inlineHtml(textOf(reply.description));
  return codes.map((code) => `<a href="#error-${escapeHtml(code)}">${escapeHtml(code)}</a>`).join(", ");
}

function errorsHtml(document: JsonObject): string {
  const rows = Object.entries(objectOf(objectOf(document.components).examples)).map(([code, example]) => {
    const { status, title, retry } = objectOf(objectOf(example).value);
    const name = escapeHtml(code);
    return `<tr id="error-${name}"><th scope="row"><code>${name}</code></th><td>${String(status)}</td><td>${escapeHtml(textOf(retry))}</td><td>${escapeHtml(textOf(title))}</td></tr>`;
  });
  return `<section aria-labelledby="errors"><h2 id="errors">errors</h2>
${tableHtml("Codes", ["code", "status", "retry", "meaning"], rows)}</section>`;
}

function schemasHtml(document: JsonObject): string {
  const schemas = Object.entries(objectOf(objectOf(document.components).schemas)).sort(([a], [b]) => (a < b ? -1 : 1));
  const parts = schemas.map(([name, schema]) => {
    const id = escapeHtml(name);
    return `<article aria-labelledby="schema-${id}"><h3 id="schema-${id}">${id}</h3>
${markdownHtml(textOf(objectOf(schema).description))}
<pre tabindex="0"><code>${typeHtml(objectOf(schema))}</code></pre></article>`;
  });
  return `<section aria-labelledby="schemas"><h2 id="schemas">schemas</h2>\n${parts.join("\n")}</section>`;
}

function markdownHtml(text: string): string {
  if (text === "") return "";
  return text
    .split("\n\n")
    .map((part) => `<p>${inlineHtml(part)}</p>`)
    .join("\n");
}

/** Code and strong; nothing else of Markdown is used. */
function inlineHtml(text: string): string {
  return escapeHtml(text)
    .replace(/`([^`]+)`/g, "<code>$1</code>")
    .replace(/\*\*([^*]+)\*\*/g, "<strong>$1</strong>");
}
