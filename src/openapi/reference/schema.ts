import { html, type Html, inline } from './html.ts';

/** The part of a JSON Schema that this page reads. */
export type Schema = {
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

export type Schemas = Record<string, Schema>;

const DEEPEST = 5;

const FORMATS: Record<string, string> = {
  uuid: 'UUID',
  'date-time': 'time, ISO 8601',
  email: 'email address',
  uri: 'URL',
  password: 'string',
};

const TYPES: Record<string, string> = { integer: 'whole number', boolean: 'true or false' };

export const resolved = (schema: Schema, schemas: Schemas): Schema => {
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

export const fields = (all: Field[], schemas: Schemas, depth = 0): Html =>
  html`<ul class="fields">${all.map((one) => field(one, schemas, depth))}</ul>`;

/** Renders the fields of the objects in a schema, with one list for each variant. */
export const inside = (schema: Schema, schemas: Schemas, depth = 0): Html =>
  html`${objectsIn(schema, schemas).map(({ properties = {}, required = [] }) =>
    fields(
      Object.entries(properties).map(([name, one]) => ({ name, schema: one, required: required.includes(name) })),
      schemas,
      depth,
    ),
  )}`;

/** Describes a body that is not a single object: `list of …`, `string`, or one of several. */
export const kindOf = (schema: Schema, schemas: Schemas): Html | null => {
  if (resolved(schema, schemas).properties) return null;
  const several = waysOf(schema).length > 0 && objectsIn(schema, schemas).length > 1;
  return html`<p class="about">${several ? 'One of these:' : typeOf(schema, schemas)}</p>`;
};
