import { html, type Html, inline, prose } from './html.ts';
import { fields, inside, kindOf, resolved, type Schema, type Schemas } from './schema.ts';

type Content = Record<string, { schema?: Schema; example?: unknown; examples?: Record<string, { value: unknown }> }>;
type Parameter = { in: string; name: string; required?: boolean; schema?: Schema; description?: string };
type Header = { $ref?: string; description?: string };
type Response = { description?: string; headers?: Record<string, Header>; content?: Content };

export type Operation = {
  operationId: string;
  summary: string;
  description?: string;
  tags: string[];
  security?: Record<string, unknown>[];
  parameters?: Parameter[];
  requestBody?: { content: Content };
  responses: Record<string, Response>;
};

export type Shared = { schemas: Schemas; security: Record<string, string> };

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
export const operation = (method: string, path: string, one: Operation, shared: Shared): Html =>
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
