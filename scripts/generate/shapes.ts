import { apiDocument, PUBLIC_OPERATIONS } from '../../src/api/document.ts';

/** The part of JSON Schema that the API document uses. */
export type Schema = {
  $ref?: string;
  type?: string | string[];
  const?: string;
  enum?: string[];
  anyOf?: Schema[];
  oneOf?: Schema[];
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  additionalProperties?: boolean | Schema;
  description?: string;
};

/** A named type of the client packages. */
export type Shape = { name: string; schema: Schema };

type Parameter = { in: string; name: string; required?: boolean; schema: Schema };
type Media = Record<string, { schema: Schema; example?: unknown }>;
export type ApiOperation = {
  method: string;
  path: string;
  operationId: string;
  summary: string;
  description?: string;
  tags: string[];
  parameters?: Parameter[];
  requestBody?: { content: Media };
  responses: Record<string, { content?: Media }>;
};

const PREFIX = '/api/v1/';

/** The document as clients read it: plain JSON. */
const document = apiDocument() as unknown as {
  paths: Record<string, Record<string, Omit<ApiOperation, 'method' | 'path'>>>;
  webhooks: Record<string, { post: { requestBody: { content: Media } } }>;
  components: { schemas: Record<string, Schema> };
};

/** What callers with an API key or a verify token call. */
export const API_OPERATIONS: ApiOperation[] = PUBLIC_OPERATIONS.filter(({ path }) => path.startsWith(PREFIX)).map(
  ({ method, path: declared }) => {
    const path = declared.replace(/:(\w+)/g, '{$1}');
    return { method, path, ...(document.paths[path]?.[method] as Omit<ApiOperation, 'method' | 'path'>) };
  },
);

/** A type has one name, whether it is sent or received. */
const nameOf = (ref: string): string => {
  const name = ref.split('/').at(-1) ?? '';
  const sent = name.replace(/Output$/, '');
  return Object.hasOwn(document.components.schemas, sent) ? sent : name;
};

const capital = (name: string): string => name.charAt(0).toUpperCase() + name.slice(1);

const innerOf = (schema: Schema): Schema[] => [
  ...Object.values(schema.properties ?? {}),
  ...(schema.anyOf ?? []),
  ...(schema.oneOf ?? []),
  ...(schema.items ? [schema.items] : []),
  ...(typeof schema.additionalProperties === 'object' ? [schema.additionalProperties] : []),
];

/** Replaces references to components by the names of types. */
const withNames = (schema: Schema, found: (name: string) => void): Schema => {
  if (schema.$ref !== undefined) {
    const name = nameOf(schema.$ref);
    found(name);
    return { ...schema, $ref: name };
  }
  const change = (one: Schema): Schema => withNames(one, found);
  const { properties, anyOf, oneOf, items, additionalProperties } = schema;
  if (innerOf(schema).length === 0) return schema;
  return {
    ...schema,
    ...(properties && {
      properties: Object.fromEntries(Object.entries(properties).map(([name, one]) => [name, change(one)])),
    }),
    ...(anyOf && { anyOf: anyOf.map(change) }),
    ...(oneOf && { oneOf: oneOf.map(change) }),
    ...(items && { items: change(items) }),
    ...(typeof additionalProperties === 'object' && { additionalProperties: change(additionalProperties) }),
  };
};

const jsonOf = (content: Media | undefined): Schema | undefined => content?.['application/json']?.schema;

/** The parameters of a query as one type. */
const queryOf = ({ operationId, parameters = [] }: ApiOperation): Shape[] => {
  const query = parameters.filter((one) => one.in === 'query');
  if (query.length === 0) return [];
  const required = query.filter((one) => one.required).map(({ name }) => name);
  const properties = Object.fromEntries(query.map(({ name, schema }) => [name, schema]));
  return [{ name: `${capital(operationId)}Query`, schema: { type: 'object', properties, required } }];
};

/** A body or an answer without a name in the document gets the operation's name. */
const bodiesOf = ({ operationId, requestBody, responses }: ApiOperation): Shape[] => {
  const all = [
    ['Body', jsonOf(requestBody?.content)],
    ...Object.entries(responses)
      .filter(([status]) => status.startsWith('2'))
      .map(([, { content }]) => ['Answer', jsonOf(content)] as const),
  ] as const;
  return all.flatMap(([part, schema]) => (schema ? [{ name: `${capital(operationId)}${part}`, schema }] : []));
};

/** The event kinds, each with the name of its type. */
export const EVENT_TYPES: [kind: string, name: string][] = Object.entries(document.webhooks).map(([kind, { post }]) => [
  kind,
  nameOf(jsonOf(post.requestBody.content)?.$ref ?? ''),
]);

/** Every type that callers and receivers meet. */
export const listShapes = (): Shape[] => {
  const shapes = new Map<string, Schema>();
  const add = (name: string, schema: Schema): void => {
    if (shapes.has(name)) return;
    shapes.set(name, {});
    shapes.set(name, withNames(schema, addNamed));
  };
  const addNamed = (name: string): void => add(name, document.components.schemas[name] ?? {});
  for (const operation of API_OPERATIONS) {
    for (const { name, schema } of [...queryOf(operation), ...bodiesOf(operation)]) {
      if (schema.$ref === undefined) add(name, schema);
      else addNamed(nameOf(schema.$ref));
    }
  }
  for (const [, name] of EVENT_TYPES) addNamed(name);
  return [...shapes].map(([name, schema]) => ({ name, schema }));
};

/** The codes of errors that callers get. */
export const listErrorCodes = (): string[] => {
  const { properties } = document.components.schemas['Error']?.properties?.['error'] ?? {};
  return properties?.['code']?.enum ?? [];
};
