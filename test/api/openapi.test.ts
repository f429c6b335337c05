/**
 * Goal: the OpenAPI document describes every route and nothing else, and is a valid document of version 3.1.
 * Method: compare it with the routes of a node and of the Worker; a validator; structural rules; the routes' own word.
 */
import { Validator } from "@seriousme/openapi-schema-validator";
import { Ajv2020 } from "ajv/dist/2020.js";
import { beforeAll, describe, expect, test } from "vitest";
import { createApi } from "../../src/api/app.ts";
import { openApiDocument, ROUTES } from "../../src/api/openapi-document.ts";
import { METHODS } from "../../src/api/session-methods.ts";
import { ERROR_CODES } from "../../src/base/errors.ts";
import { createSetting } from "./fake-nodes.ts";
import { type Body, createHarness } from "./harness.ts";
import { MachineBackend } from "./machine-backend.ts";
import { requestOf } from "./openapi-requests.ts";

/** Loose on purpose, as replies in tests are. */
let document: Body;

beforeAll(async () => {
  document = await openApiDocument("https://db.example");
});

interface Described {
  readonly name: string;
  readonly operation: Body;
}

function operations(): Described[] {
  return Object.entries(document.paths).flatMap(([path, item]) =>
    Object.entries(item as Body).map(([method, operation]) => ({ name: `${method.toUpperCase()} ${path}`, operation })),
  );
}

/** What the Worker answers or passes on under a path of its own. */
const OF_THE_WORKER = ["GET /", "GET /openapi.json", "GET /docs", "GET /v1/clusters", "POST /v1/clusters"];

test("every route is described, and nothing else is", () => {
  const { routes } = createApi(new MachineBackend(), { principal: "root" });
  const ofNodes = routes
    .filter(({ method }) => method !== "ALL")
    .map(({ method, path }) => `${method} ${path.replace(/^(.*topics)\/\*$/, "$1/{topic}").replace("/*", "/{key}")}`)
    .map((route) => route.replace(/:(\w+)/g, "{$1}"));
  expect(
    operations()
      .map(({ name }) => name)
      .sort(),
  ).toEqual([...new Set([...ofNodes, ...OF_THE_WORKER])].sort());
});

test("a validator for OpenAPI 3.1 accepts the document", async () => {
  expect(document.openapi).toMatch(/^3\.1\./);
  const result = await new Validator().validate(structuredClone(document));
  expect(result.errors ?? []).toEqual([]);
  expect(result.valid).toBe(true);
});

test("every reference leads somewhere, and every component is used", () => {
  const text = JSON.stringify(document);
  const named = new Set([...text.matchAll(/"\$ref":"#([^"]+)"/g)].map((match) => match[1] ?? ""));
  expect(named.size).toBeGreaterThan(50);
  const broken = [...named].filter((path) => {
    const steps = path.slice(1).split("/");
    return steps.reduce<Body>((found, step) => found?.[step], document) === undefined;
  });
  expect(broken).toEqual([]);
  const ofMessages = operations().flatMap(({ operation }) => {
    const { send, receive = [] } = operation["x-messages"] ?? {};
    return send === undefined ? [] : [send, ...receive];
  });
  const unused = Object.entries(document.components as Record<string, object>)
    .filter(([kind]) => kind !== "securitySchemes")
    .flatMap(([kind, parts]) => Object.keys(parts).map((name) => `/components/${kind}/${name}`))
    .filter((path) => !named.has(path) && !ofMessages.includes(path.split("/").at(-1)));
  expect(unused).toEqual([]);
});

test("every operation has an id of its own, a tag that exists, a summary and an answer", () => {
  const ids = operations().map(({ operation }) => operation.operationId);
  expect(new Set(ids).size).toBe(ids.length);
  const tags = document.tags.map(({ name }: Body) => name);
  for (const { name, operation } of operations()) {
    expect(tags, name).toEqual(expect.arrayContaining(operation.tags));
    expect(operation.summary, name).toMatch(/^[A-Z].*[^.]$/);
    expect(
      Object.keys(operation.responses).some((status) => Number(status) < 400),
      name,
    ).toBe(true);
  }
});

test("the parameters of a path are exactly those that its template names, and no parameter is declared twice", () => {
  for (const { name, operation } of operations()) {
    const parameters = (operation.parameters ?? []).map(resolved);
    const ofPath = parameters.filter(({ in: place }: Body) => place === "path");
    expect(
      ofPath.map((parameter: Body) => `{${parameter.name}}`),
      name,
    ).toEqual(name.match(/\{\w+\}/g) ?? []);
    expect(ofPath.every(({ required }: Body) => required === true)).toBe(true);
    const keys = parameters.map((parameter: Body) => `${parameter.in} ${parameter.name}`.toLowerCase());
    expect(new Set(keys).size, name).toBe(keys.length);
  }
});

function resolved(part: Body): Body {
  if (part.$ref === undefined) return part;
  return part.$ref
    .slice(2)
    .split("/")
    .reduce((found: Body, step: string) => found[step], document);
}

describe("parameters in queries", () => {
  const described = ROUTES.filter(({ by, examples }) => by !== "worker" && examples.length > 0);

  test.each(described.map((row) => [`${row.method} ${row.path}`, row] as const))(
    "%s takes those that it describes and no other",
    async (_name, row) => {
      // A route names what it takes when it is asked for something else.
      const taken = new Set<string>();
      for (const example of row.examples) {
        const { send } = createSetting();
        const { target, method, headers, body } = requestOf(row, example);
        const separator = target.includes("?") ? "&" : "?";
        const answer = await send(method, `${target}${separator}nonsense=1`, {
          headers,
          ...(body === undefined ? {} : { body }),
        });
        if (answer.body?.reason !== "unknown_parameter") continue;
        const names = /there are: (.*)\.$/.exec(answer.body.detail)?.[1] ?? "";
        for (const parameter of names.split(", ")) if (parameter !== "") taken.add(parameter);
      }
      const inQuery = (row.parameters ?? []).filter((parameter) => parameter.in === "query");
      // Named by a socket alone, which no request of an example opens.
      const names = inQuery.map(({ name }) => name).filter((name) => name !== "max_message_bytes");
      if (taken.size > 0) expect([...taken].sort()).toEqual(names.sort());
      else
        expect([
          "GET /livez",
          "GET /readyz",
          "GET /healthz",
          "POST /v1/topics/{topic}",
          "GET /v1/topics/{topic}",
        ]).toContain(`${row.method} ${row.path}`);
    },
  );
});

describe("schemas", () => {
  test("each is a schema of JSON Schema 2020-12", () => {
    const ajv = new Ajv2020({ strict: false });
    ajv.addSchema({ ...document, $id: "document" });
    for (const name of Object.keys(document.components.schemas)) {
      expect(() => ajv.getSchema(`document#/components/schemas/${name}`), name).not.toThrow();
    }
  });

  test("examples of bodies and answers fit their schemas, and every problem its own", () => {
    const ajv = new Ajv2020({ strict: false, allErrors: true });
    ajv.addSchema({ ...document, $id: "document" });
    let checked = 0;
    const check = (path: string, content: Body): void => {
      for (const [media, { schema, examples = {} }] of Object.entries(content) as [string, Body][]) {
        if (schema === undefined || !media.endsWith("json")) continue;
        const pointer = `${path}/content/${media.replaceAll("/", "~1")}/schema`;
        const validate = ajv.getSchema(`document#${pointer}`);
        for (const [name, example] of Object.entries(examples) as [string, Body][]) {
          // The bare value of a record is told beside it.
          if (name === "raw") continue;
          checked += 1;
          validate?.(resolved(example).value);
          expect(validate?.errors ?? [], `${pointer} ${name}`).toEqual([]);
        }
      }
    };
    for (const { name, operation } of operations()) {
      const [method = "", template = ""] = name.split(" ");
      const base = `/paths/${template.replaceAll("/", "~1").replaceAll("{", "%7B").replaceAll("}", "%7D")}/${method.toLowerCase()}`;
      if (operation.requestBody !== undefined) check(`${base}/requestBody`, operation.requestBody.content);
      for (const [status, { content = {} }] of Object.entries(operation.responses) as [string, Body][]) {
        check(`${base}/responses/${status}`, content);
      }
    }
    expect(checked).toBeGreaterThan(200);
  });
});

describe("errors", () => {
  test("a code stands under its status and nowhere else", () => {
    for (const { name, operation } of operations()) {
      for (const [status, response] of Object.entries(operation.responses) as [string, Body][]) {
        const problem = response.content?.["application/problem+json"];
        if (problem?.examples === undefined) continue;
        for (const code of Object.keys(problem.examples)) {
          expect(ERROR_CODES[code as keyof typeof ERROR_CODES].status, `${name} ${code}`).toBe(Number(status));
        }
      }
    }
  });
});

describe("what depends on the request", () => {
  test("servers and commands name the origin that was asked", async () => {
    const { send, nodes } = createSetting();
    const { body, status } = await send("GET", "http://localhost:9000/openapi.json");
    expect(status).toBe(200);
    expect(body.servers.map(({ url }: Body) => url)).toEqual([
      "http://localhost:9000",
      "http://localhost:9000/c/{cluster}",
    ]);
    expect(body.paths["/v1/revision"].get["x-codeSamples"][0].source).toBe("curl 'http://localhost:9000/v1/revision'");
    expect((await send("GET", "/openapi.json")).body.servers[0].url).toBe("http://127.0.0.1:8787");
    expect(nodes.stubs).toBe(0);
  });

  test("it is described and served without a token, but not by a deployment that has none", async () => {
    const guarded = createSetting({ CONCORD_ROOT_TOKEN: "secret" });
    for (const target of ["/openapi.json", "/docs"]) {
      expect((await guarded.send("GET", `https://db.example${target}`)).status).toBe(200);
      expect((await guarded.send("HEAD", `https://db.example${target}`)).status).toBe(200);
      const refused = await guarded.send("POST", `https://db.example${target}`, { body: {} });
      expect([refused.status, refused.headers.get("allow")]).toEqual([405, "GET, HEAD"]);
      expect((await createSetting({}).send("GET", target)).body.reason).toBe("no_root_token");
      expect((await createSetting().send("GET", `https://db.example${target}`)).body.reason).toBe("foreign_host");
    }
  });
});

describe("the session", () => {
  test("has exactly the methods that are described, each with params and result", () => {
    const methods = document.paths["/v1/session"].get["x-methods"];
    expect(Object.keys(methods)).toEqual([...METHODS.keys()]);
    for (const [name, method] of Object.entries(methods) as [string, Body][]) {
      expect(method.params, name).toBeTypeOf("object");
      expect(method.result, name).toBeTypeOf("object");
    }
    expect(methods["kv.get"].params.properties).toHaveProperty("consistency");
    expect(methods["kv.batch"].params.oneOf[0].properties).toHaveProperty("idempotency_key");
  });
});

test("a node of its own does not serve the document: the Worker does", async () => {
  const { get } = createHarness();
  expect((await get("/openapi.json")).status).toBe(404);
});
