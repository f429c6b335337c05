/**
 * The OpenAPI 3.1 document (`GET /openapi.json`): made of the rows of the routes and of the schemas that validate
 * requests. Loaded and built on first use, once per isolate; no node is asked. What names the origin of a request (servers,
 * commands) is added for each.
 */
import { Hono } from "hono";
import { type DescribeRouteOptions, describeRoute, generateSpecs, loadVendor, resolver } from "hono-openapi";
import type { ZodType } from "zod";
import { ERROR_CODES, type ErrorCode } from "../base/errors.ts";
import type { JsonObject, JsonValue } from "../base/json.ts";
import { ERROR_TITLES } from "./error-titles.ts";
import { ADMIN_ROUTES } from "./openapi-admin.ts";
import { BACKUP_ROUTES } from "./openapi-backups.ts";
import { CLUSTER_ROUTES } from "./openapi-clusters.ts";
import { curlOf } from "./openapi-curl.ts";
import { LEASE_ROUTES } from "./openapi-leases.ts";
import { OF_NODES, SHARED } from "./openapi-parameters.ts";
import { RECORD_ROUTES } from "./openapi-records.ts";
import * as replies from "./openapi-replies.ts";
import {
  type Example,
  NODE_HEADERS,
  type Parameter,
  REPLY_HEADERS,
  type Reply,
  type RouteRow,
  sharedErrors,
  TAGS,
} from "./openapi-route.ts";
import { convertSchema } from "./openapi-schemas.ts";
import { STREAM_ROUTES } from "./openapi-streams.ts";
import { SYNC_ROUTES } from "./openapi-sync.ts";
import { TRANSACTION_ROUTES } from "./openapi-transactions.ts";
import { PROBLEM_CONTENT_TYPE, problemOf } from "./problem.ts";

/** Every route of the API, in the order of the document. */
export const ROUTES: readonly RouteRow[] = [
  ...RECORD_ROUTES,
  ...TRANSACTION_ROUTES,
  ...SYNC_ROUTES,
  ...STREAM_ROUTES,
  ...LEASE_ROUTES,
  ...CLUSTER_ROUTES,
  ...ADMIN_ROUTES,
  ...BACKUP_ROUTES,
];

const DESCRIPTION = `A strongly consistent coordination database. Records with revisions, transactions, leases, watches.

Strict: an unknown or repeated query parameter, an unknown field or a wrong type is an error. \`/v1/…\` is the cluster \`default\`, \`/c/{cluster}/v1/…\` another one. Every error is a problem document with a \`code\` and with \`retry\`. Another method on a known path is 405 \`method_not_allowed\`, an unknown path 404 \`not_found\`.

Callers send \`Authorization: Bearer <token>\` with the root token. Without a root token only the local development server answers, to this machine.`;

/** Named by extensions and descriptions alone. */
const NAMED_IN_TEXT = [
  ...[replies.watchFrame, replies.watchRequest, replies.chunk],
  ...[replies.topicMessage, replies.topicRequest],
];

loadVendor("zod", {
  toOpenAPISchema: (schema, context) => {
    const converted = convertSchema(schema as ZodType);
    context.components.schemas = { ...context.components.schemas, ...converted.components };
    return converted.schema;
  },
});

/** Codes that a route can answer, in the order of {@link ERROR_CODES}. */
export function errorsOf(row: RouteRow): ErrorCode[] {
  const listed = new Set<ErrorCode>([...sharedErrors(row), ...(row.errors ?? [])]);
  return (Object.keys(ERROR_CODES) as ErrorCode[]).filter((code) => listed.has(code));
}

type Components = NonNullable<NonNullable<Parameters<typeof generateSpecs>[1]>["documentation"]>["components"];
type DocumentedParameters = NonNullable<NonNullable<Components>["parameters"]>;

let built: JsonObject | null = null;

/** @param origin of the request, such as `https://db.example`. */
export async function openApiDocument(origin: string): Promise<JsonObject> {
  // Two first requests at once build it twice: a promise that a request has made must not be awaited by another one.
  built ??= await build();
  const servers = serversOf(origin);
  const paths = structuredClone(built.paths) as Record<string, Record<string, JsonObject>>;
  for (const row of ROUTES) {
    const samples = row.examples.map((example) => ({
      lang: "Shell",
      label: example.summary,
      source: curlOf(row, example, origin),
    }));
    const operations = paths[row.path];
    const method = row.method.toLowerCase();
    if (operations === undefined) continue;
    operations[method] = {
      ...operations[method],
      ...(row.by === "node" ? {} : { servers: servers.slice(0, 1) }),
      ...(samples.length === 0 ? {} : { "x-codeSamples": samples }),
    };
  }
  return { ...built, servers, paths };
}

function serversOf(origin: string): JsonObject[] {
  const variables = { cluster: { default: "default", description: "A cluster that was created." } };
  return [
    { url: origin, description: "The cluster `default`" },
    { url: `${origin}/c/{cluster}`, description: "Another cluster", variables },
  ];
}

async function build(): Promise<JsonObject> {
  const extensions: Record<string, JsonObject> = {};
  const schemaOf = (schema: ZodType, form?: "inline"): JsonObject => {
    const converted = convertSchema(schema, form);
    Object.assign(extensions, converted.components);
    return converted.schema;
  };
  const app = new Hono();
  const shared: Record<string, JsonObject> = {};
  for (const row of ROUTES) {
    const operation = { ...operationOf(row, shared), ...row.extensions?.(schemaOf) };
    app.on(row.method, honoPath(row), describeRoute(operation as DescribeRouteOptions));
  }
  for (const schema of NAMED_IN_TEXT) schemaOf(schema);
  const document = await generateSpecs(app, {
    documentation: {
      info: {
        title: "Concord Edge",
        version: "1",
        description: DESCRIPTION,
        license: { name: "MIT", identifier: "MIT" },
      },
      tags: [...TAGS],
      security: [{ bearer: [] }, {}],
      components: {
        securitySchemes: {
          bearer: {
            type: "http",
            scheme: "bearer",
            description: "The root token. Without one only the local development server answers, to this machine.",
          },
        },
        parameters: shared as DocumentedParameters,
        headers: Object.fromEntries(
          Object.entries(REPLY_HEADERS).map(([name, description]) => [
            name,
            { description, schema: { type: "string" } },
          ]),
        ),
        examples: problemExamples(),
        schemas: extensions,
      },
    },
    excludeStaticFile: false,
    defaultValidationErrorResponse: false,
  });
  // As it will be sent; also takes away what has no value.
  return JSON.parse(JSON.stringify(document));
}

function honoPath({ path, wide }: RouteRow): string {
  return path.replace(/\{(\w+)\}/, wide === true ? ":$1{.+}" : ":$1");
}

/** @param shared takes the parameters that are named by reference. */
function operationOf(row: RouteRow, shared: Record<string, JsonObject>): object {
  const { id, tag, summary, description, by, access, parameters = [], body, examples } = row;
  const all = by !== "worker" ? [...parameters, ...OF_NODES] : parameters;
  return {
    operationId: id,
    tags: [tag],
    summary,
    ...(description === undefined ? {} : { description }),
    ...(access === "open" ? { security: [] } : {}),
    ...(all.length === 0 ? {} : { parameters: all.map((parameter) => parameterOf(parameter, examples, shared)) }),
    ...(body === undefined
      ? {}
      : {
          requestBody: {
            ...(body.description === undefined ? {} : { description: body.description }),
            required: body.required,
            content: contentOf(body.content, (media) => bodyExamples(examples, media)),
          },
        }),
    responses: responsesOf(row),
  };
}

/** One that many routes have by reference, unless this route has examples for it. */
function parameterOf(
  parameter: Parameter,
  examples: readonly Example[],
  shared: Record<string, JsonObject>,
): JsonObject {
  const own = { ...parameter } as unknown as JsonObject;
  const used = examples.flatMap(({ name, parameters }) => {
    const value = parameters?.[parameter.name];
    return value === undefined ? [] : [[name, { value: typed(value, parameter) }] as const];
  });
  if (used.length > 0) return { ...own, examples: Object.fromEntries(used) };
  const name = Object.entries(SHARED).find(([, candidate]) => candidate === parameter)?.[0];
  if (name === undefined) return own;
  shared[name] = own;
  return { $ref: `#/components/parameters/${name}` };
}

function typed(value: string, { schema }: Parameter): JsonValue {
  return schema.type === "string" ? value : (JSON.parse(value) as JsonValue);
}

function contentOf(
  content: Readonly<Record<string, ZodType | null>>,
  examplesOf: (media: string) => readonly (readonly [string, JsonObject])[],
): object {
  return Object.fromEntries(
    Object.entries(content).map(([media, schema]) => {
      const examples = examplesOf(media);
      const shown = examples.length === 0 ? {} : { examples: Object.fromEntries(examples) };
      return [media, { ...mediaSchema(media, schema), ...shown }];
    }),
  );
}

function mediaSchema(media: string, schema: ZodType | null): object {
  if (schema === null) return {};
  if (media !== "text/event-stream") return { schema: resolver(schema) };
  const described = convertSchema(schema).schema;
  return { schema: { type: "string", description: "Events; the `data` of each is JSON.", "x-data": described } };
}

function bodyExamples(examples: readonly Example[], media: string): [string, JsonObject][] {
  return examples.flatMap(({ name, summary, body, mediaType = "application/json" }) =>
    body === undefined || !isOf(mediaType, media) ? [] : [[name, { summary, value: body }]],
  );
}

function replyExamples(examples: readonly Example[], status: number, media: string): [string, JsonObject][] {
  return examples.flatMap((example) =>
    example.status === status && example.reply !== undefined && media !== "*/*"
      ? [[example.name, { summary: example.summary, value: example.reply }]]
      : [],
  );
}

/** `*\/*` takes what is not JSON. */
function isOf(mediaType: string, media: string): boolean {
  return media === mediaType || (media === "*/*" && mediaType !== "application/json");
}

function responsesOf(row: RouteRow): object {
  const responses: Record<string, object> = {};
  for (const reply of row.replies) responses[String(reply.status)] = responseOf(row, reply);
  const byStatus = Map.groupBy(errorsOf(row), (code) => ERROR_CODES[code].status);
  for (const [status, codes] of byStatus) responses[String(status)] = problemResponseOf(codes);
  return responses;
}

function responseOf(row: RouteRow, reply: Reply): object {
  const isAnswer = row.by !== "worker" && reply.status < 400 && reply.status >= 200;
  const headers = [...(isAnswer ? NODE_HEADERS : []), ...(reply.headers ?? [])];
  const { content } = reply;
  return {
    description: reply.description,
    ...(headers.length === 0 ? {} : { headers: headersOf(headers) }),
    ...(content === undefined
      ? {}
      : { content: contentOf(content, (media) => replyExamples(row.examples, reply.status, media)) }),
  };
}

function problemResponseOf(codes: readonly ErrorCode[]): object {
  const headers = [
    ...(codes.some((code) => ERROR_CODES[code].retry === "yes") ? ["retry-after"] : []),
    ...(codes.includes("unauthenticated") ? ["www-authenticate"] : []),
    ...(codes.includes("precondition_failed") ? ["etag"] : []),
  ];
  const only = { type: "object", properties: { code: { enum: codes } } };
  return {
    description: codes.map((code) => `\`${code}\`: ${ERROR_TITLES[code]}.`).join(" "),
    ...(headers.length === 0 ? {} : { headers: headersOf(headers) }),
    content: {
      [PROBLEM_CONTENT_TYPE]: {
        schema: { allOf: [{ $ref: "#/components/schemas/Problem" }, only] },
        examples: Object.fromEntries(codes.map((code) => [code, { $ref: `#/components/examples/${code}` }])),
      },
    },
  };
}

function headersOf(names: readonly string[]): object {
  return Object.fromEntries(names.map((name) => [name, { $ref: `#/components/headers/${name}` }]));
}

function problemExamples(): Record<string, { value: object }> {
  const codes = new Set(ROUTES.flatMap(errorsOf));
  return Object.fromEntries(
    [...codes].map((code) => [code, { value: problemOf({ code, detail: `${ERROR_TITLES[code]}.` }) }]),
  );
}
