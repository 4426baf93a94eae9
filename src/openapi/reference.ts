import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ApiDocument } from './document.ts';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import { type RequestHandler, Router } from 'express';
import { mount } from '../http/operation.ts';
import { pageHeaders } from '../http/http.ts';
import { monitoringOperations } from '../monitoring/operations.ts';

/** Text that is already HTML. Any other value is escaped when it is inserted. */
class Html {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

type Part = Html | string | number | null | undefined | false | Part[];

const ESCAPES: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };
const escaped = (text: string): string => text.replace(/[&<>"]/g, (one) => ESCAPES[one] ?? one);

const textOf = (part: Part): string => {
  if (part instanceof Html) return part.text;
  if (Array.isArray(part)) return part.map(textOf).join('');
  return part === null || part === undefined || part === false ? '' : escaped(String(part));
};

const html = (strings: TemplateStringsArray, ...parts: Part[]): Html =>
  new Html(strings.map((text, index) => text + textOf(parts[index])).join(''));

/** Renders the Markdown in the document's texts. These texts contain no markup except `code`. */
const inline = (text: string): Html =>
  new Html(
    text
      .split('`')
      .map((part, index) => (index % 2 === 1 ? `<code>${escaped(part)}</code>` : escaped(part)))
      .join(''),
  );

/** Renders paragraphs, which are separated by blank lines. */
const prose = (text: string | undefined): Html =>
  html`${(text ?? '')
    .split(/\n{2,}/)
    .filter((one) => one.trim() !== '')
    .map((one) => html`<p>${inline(one)}</p>`)}`;

/** The part of a JSON Schema that this page reads. */
type Schema = {
  $ref?: string;
  type?: string | string[];
  format?: string;
  description?: string;
  enum?: unknown[];
  const?: unknown;
  default?: unknown;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  minItems?: number;
  maxItems?: number;
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  prefixItems?: Schema[];
  additionalProperties?: Schema | boolean;
  anyOf?: Schema[];
  oneOf?: Schema[];
};

type Schemas = Record<string, Schema>;

const DEEPEST = 5;

const FORMATS: Record<string, string> = {
  uuid: 'UUID',
  'date-time': 'time, ISO 8601',
  email: 'email address',
  uri: 'URL',
  password: 'string',
};

const TYPES: Record<string, string> = { integer: 'whole number', boolean: 'true or false' };

const resolved = (schema: Schema, schemas: Schemas): Schema => {
  const name = schema.$ref?.split('/').at(-1);
  return name === undefined ? schema : { ...schemas[name], ...schema };
};

const waysOf = ({ anyOf, oneOf }: Schema): Schema[] => [...(anyOf ?? []), ...(oneOf ?? [])];

const literal = (value: unknown): Html => html`<code>${JSON.stringify(value)}</code>`;

const joined = (parts: Html[], between: string): Html =>
  html`${parts.map((part, index) => html`${index > 0 && between}${part}`)}`;

const typeOf = (given: Schema, schemas: Schemas): Html => {
  const schema = resolved(given, schemas);
  const ways = waysOf(schema);
  if (ways.length > 0) {
    const each = ways.map((way) => typeOf(way, schemas));
    return joined([...new Map(each.map((one) => [one.text, one])).values()], ' or ');
  }
  if (schema.const !== undefined) return literal(schema.const);
  if (schema.enum) return joined(schema.enum.map(literal), ', ');
  if (schema.type === 'array') {
    const items = schema.items ?? schema.prefixItems?.[0];
    return items ? html`list of ${typeOf(items, schemas)}` : html`list`;
  }
  const names = [schema.type ?? 'anything'].flat();
  return html`${FORMATS[schema.format ?? ''] ?? names.map((name) => TYPES[name] ?? name).join(' or ')}`;
};

const isBound = (value: number | undefined): value is number =>
  value !== undefined && Math.abs(value) < Number.MAX_SAFE_INTEGER;

const range = (from: number | undefined, to: number | undefined, unit: string): string[] => {
  const figure = (value: number): string => value.toLocaleString('en');
  if (isBound(from) && isBound(to)) return [`${figure(from)}–${figure(to)}${unit}`];
  if (isBound(to)) return [`at most ${figure(to)}${unit}`];
  return isBound(from) && from > 0 ? [`at least ${figure(from)}${unit}`] : [];
};

const limitsOf = (given: Schema, schemas: Schemas): string[] => {
  const schema = resolved(given, schemas);
  return [
    ...range(schema.minimum, schema.maximum, ''),
    ...range(schema.minLength, schema.maxLength, ' characters'),
    ...range(schema.minItems, schema.maxItems, ' entries'),
    ...waysOf(schema).flatMap((way) => limitsOf(way, schemas)),
  ];
};

/** The objects inside a schema. The page lists the fields of these objects. */
const objectsIn = (given: Schema, schemas: Schemas): Schema[] => {
  const schema = resolved(given, schemas);
  if (schema.properties) return [schema];
  const inner = [...waysOf(schema), ...(schema.items ? [schema.items] : [])];
  return inner.flatMap((one) => objectsIn(one, schemas));
};

type Field = { name: string; schema: Schema; required: boolean };

const field = ({ name, schema: given, required }: Field, schemas: Schemas, depth: number): Html => {
  const schema = resolved(given, schemas);
  const notes = [
    ...limitsOf(schema, schemas),
    ...(schema.default === undefined ? [] : [`default ${JSON.stringify(schema.default)}`]),
  ];
  return html`<li>
<p class="field"><code class="name">${name}</code> <span class="type">${joined([typeOf(given, schemas), ...notes.map((note) => html`${note}`)], ', ')}</span>${
    required && html` <span class="required">required</span>`
  }</p>
${schema.description !== undefined && html`<p class="about">${inline(schema.description)}</p>`}
${depth < DEEPEST && inside(given, schemas, depth + 1)}</li>`;
};

const fields = (all: Field[], schemas: Schemas, depth = 0): Html =>
  html`<ul class="fields">${all.map((one) => field(one, schemas, depth))}</ul>`;

/** Renders the fields of the objects in a schema, with one list for each variant. */
const inside = (schema: Schema, schemas: Schemas, depth = 0): Html =>
  html`${objectsIn(schema, schemas).map(({ properties = {}, required = [] }) =>
    fields(
      Object.entries(properties).map(([name, one]) => ({ name, schema: one, required: required.includes(name) })),
      schemas,
      depth,
    ),
  )}`;

/** Describes a body that is not a single object: `list of …`, `string`, or one of several. */
const kindOf = (schema: Schema, schemas: Schemas): Html | null => {
  if (resolved(schema, schemas).properties) return null;
  const several = waysOf(schema).length > 0 && objectsIn(schema, schemas).length > 1;
  return html`<p class="about">${several ? 'One of these:' : typeOf(schema, schemas)}</p>`;
};

type Content = Record<string, { schema?: Schema; example?: unknown; examples?: Record<string, { value: unknown }> }>;
type Parameter = { in: string; name: string; required?: boolean; schema?: Schema; description?: string };
type Header = { $ref?: string; description?: string };
type Response = { description?: string; headers?: Record<string, Header>; content?: Content };

type Operation = {
  operationId: string;
  summary: string;
  description?: string;
  tags: string[];
  security?: Record<string, unknown>[];
  parameters?: Parameter[];
  requestBody?: { content: Content };
  responses: Record<string, Response>;
};

type Shared = { schemas: Schemas; security: Record<string, string> };

const PLACES: Record<string, string> = { path: 'In the path', query: 'In the query', header: 'Headers' };

const example = (value: unknown): Html =>
  html`<pre><code>${typeof value === 'string' ? value : JSON.stringify(value, null, 2)}</code></pre>`;

const examplesOf = ({ example: one, examples = {} }: Content[string]): unknown[] =>
  one === undefined ? Object.values(examples).map(({ value }) => value) : [one];

const body = (content: Content, { schemas }: Shared): Html =>
  html`${Object.entries(content).map(
    ([type, { schema, ...given }]) => html`<p class="type">${type}</p>
${schema && html`${kindOf(schema, schemas)}${inside(schema, schemas)}`}
${examplesOf(given).slice(0, 1).map(example)}`,
  )}`;

/** True for an error response. All errors have the same fields, which are listed once at the top of the page. */
const isError = ({ content }: Response): boolean =>
  Object.values(content ?? {}).some(({ schema }) => schema?.$ref?.endsWith('/Error') ?? false);

const answer = ([status, response]: [string, Response], shared: Shared): Html => {
  const names = Object.keys(response.headers ?? {});
  const about = html`<span class="status s${status.charAt(0)}">${status}</span> ${
    isError(response)
      ? inline(
          (response.description ?? '')
            .split('\n\n')
            .map((line) => line.split(': ')[0])
            .join(', '),
        )
      : inline(response.description ?? '')
  }`;
  return html`<details><summary>${about}</summary>
${isError(response) ? prose(response.description) : body(response.content ?? {}, shared)}
${names.length > 0 && html`<p class="about">Headers: ${names.map((name, index) => html`${index > 0 && ', '}<code>${name}</code>`)}</p>`}
</details>`;
};

const parameters = (all: Parameter[], { schemas }: Shared): Html =>
  html`${[...Map.groupBy(all, (one) => one.in)].map(
    ([place, some]) => html`<h4>${PLACES[place] ?? place}</h4>
${fields(
  some.map(({ name, schema = {}, required = false, description }) => ({
    name,
    schema: { ...resolved(schema, schemas), ...(description !== undefined && { description }) },
    required,
  })),
  schemas,
)}`,
  )}`;

const authorization = ({ security = [] }: Operation, shared: Shared): Html => {
  const ways = security.flatMap((one) => Object.keys(one).map((name) => shared.security[name] ?? name));
  return html`<p class="about">${ways.length === 0 ? 'Open to anyone.' : html`Needs ${inline(ways.join(', or '))}.`}</p>`;
};

/** Renders one operation or webhook. */
const operation = (method: string, path: string, one: Operation, shared: Shared): Html =>
  html`<section class="operation" id="${one.operationId}">
<h3><a href="#${one.operationId}">${inline(one.summary)}</a></h3>
<p class="call"><span class="method ${method}">${method.toUpperCase()}</span> <code>${path}</code></p>
${prose(one.description)}
${one.tags[0] !== 'Events' && authorization(one, shared)}
${parameters(one.parameters ?? [], shared)}
${one.requestBody && html`<h4>Body</h4>${body(one.requestBody.content, shared)}`}
<h4>Answers</h4>
${Object.entries(one.responses).map((response) => answer(response, shared))}
</section>`;

const STYLE = readFileSync(join(import.meta.dirname, 'reference.css'), 'utf8');

/**
 * The hash by which the content security policy allows the page's only style sheet. No other style and no script may
 * run.
 */
const STYLE_HASH = `'sha256-${createHash('sha256').update(STYLE).digest('base64')}'`;

const WAYS_IN: Record<string, string> = {
  apiKey: 'an API key (`Authorization: Bearer sk_…`)',
  verifyToken: 'the channel’s verify token, where it has one (`Authorization: Bearer …`)',
  session: 'an operator’s session (cookie)',
  metricsToken: 'the metrics token (`Authorization: Bearer …`) or a loopback peer',
};

type Listed = { method: string; path: string; operation: Operation };

/** The type of this document. The library's own types cover every possible document and are too wide here. */
type Read = {
  info: { title: string; version: string; description: string };
  tags: { name: string; description: string }[];
  paths: Record<string, Record<string, Operation>>;
  webhooks: Record<string, Record<string, Operation>>;
  components: { schemas: Schemas };
};

const listed = (paths: Read['paths']): Listed[] =>
  Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, one]) => ({ method, path, operation: one })),
  );

const contents = (groups: [Read['tags'][number], Listed[]][]): Html => html`<nav aria-label="Contents">
${groups.map(
  ([{ name }, some]) => html`<details><summary>${name}</summary><ul>
${some.map(({ operation: one }) => html`<li><a href="#${one.operationId}">${inline(one.summary)}</a></li>`)}
</ul></details>`,
)}
</nav>`;

const chapter = ([{ name, description }, some]: [Read['tags'][number], Listed[]], shared: Shared): Html =>
  html`<section class="chapter" id="${name.toLowerCase()}"><h2>${name}</h2>${prose(description)}
${some.map(({ method, path, operation: one }) => operation(method, path, one, shared))}
</section>`;

/** Renders the whole API on one page. The page has no script and loads nothing. */
const referencePage = (document: ApiDocument): string => {
  const { info, tags, paths, webhooks, components } = JSON.parse(JSON.stringify(document)) as Read;
  const shared: Shared = { schemas: components.schemas, security: WAYS_IN };
  const all = Map.groupBy([...listed(paths), ...listed(webhooks)], ({ operation: one }) => one.tags[0] ?? '');
  const groups = tags.map((tag): [typeof tag, Listed[]] => [tag, all.get(tag.name) ?? []]);
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${info.title} API reference</title>
<link rel="icon" href="data:,">
<style>${new Html(STYLE)}</style>
</head>
<body>
<a class="skip" href="#page">Skip to the reference</a>
<header><strong>${info.title}</strong> <span class="type">API reference, version ${info.version}</span>
<span class="links"><a href="/openapi.json">OpenAPI document</a> <a href="/operator/">Dashboard</a></span></header>
<div class="columns">
${contents(groups)}
<main id="page" tabindex="-1">
<h1>${info.title} API</h1>
${prose(info.description)}
<h2>Every error</h2>
${inside(components.schemas.Error ?? {}, components.schemas)}
${groups.map((group) => chapter(group, shared))}
</main>
</div>
</body>
</html>
`.text;
};

const POLICY = { styleSrc: [STYLE_HASH], imgSrc: ['data:'], baseUri: ["'none'"], formAction: ["'none'"] };

/**
 * Serves `/docs`, the readable form of the document. The page has some hundred kB, so it is rendered and compressed at
 * the first request and then kept in memory.
 */
export const referenceRoutes = (document: ApiDocument, { tls }: { tls: boolean }): Router => {
  let made: Promise<{ plain: Buffer; compressed: Buffer }> | null = null;
  const make = async () => {
    const plain = Buffer.from(referencePage(document));
    return { plain, compressed: await promisify(gzip)(plain) };
  };
  const answer: RequestHandler = async (req, res) => {
    made ??= make();
    const { plain, compressed } = await made;
    res.vary('Accept-Encoding').type('html');
    if (req.acceptsEncodings('gzip') !== 'gzip') return void res.send(plain);
    res.set('Content-Encoding', 'gzip').send(compressed);
  };
  const router = Router({ caseSensitive: true });
  mount(router, [{ operation: monitoringOperations.reference, handlers: [pageHeaders(tls, POLICY), answer] }]);
  return router;
};
