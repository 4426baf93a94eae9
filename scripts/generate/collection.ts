import { API_OPERATIONS, type ApiOperation } from './shapes.ts';

const variable = (name: string): string => `{{${name}}}`;

/** The `{id}` of `/conversations/{id}` is the variable `conversation_id`. */
const withVariables = (path: string): string =>
  path.replace(/(\w+)s\/\{id\}/g, '$1s/{{$1_id}}').replace(/\/\{(\w+)\}/g, '/{{$1}}');

const urlOf = ({ path, parameters = [] }: ApiOperation): object => {
  const named = withVariables(path);
  const query = parameters
    .filter((one) => one.in === 'query')
    .map(({ name, schema }) => ({ key: name, value: '', description: schema.description, disabled: true }));
  return { raw: `{{url}}${named}`, host: ['{{url}}'], path: named.split('/').slice(1), query };
};

const headersOf = ({ parameters = [], requestBody }: ApiOperation): object[] => [
  ...(requestBody ? [{ key: 'Content-Type', value: 'application/json' }] : []),
  ...parameters
    .filter((one) => one.in === 'header')
    .map(({ name, schema }) => ({ key: name, value: '', description: schema.description, disabled: true })),
];

const requestOf = (operation: ApiOperation): object => {
  const { method, summary, description, requestBody, path } = operation;
  const example = requestBody?.content['application/json']?.example;
  const token = path.includes('/channels/') ? 'verify_token' : 'api_key';
  return {
    name: summary,
    request: {
      method: method.toUpperCase(),
      description,
      auth: { type: 'bearer', bearer: [{ key: 'token', value: variable(token), type: 'string' }] },
      header: headersOf(operation),
      url: urlOf(operation),
      ...(example !== undefined && { body: { mode: 'raw', raw: JSON.stringify(example, null, 2) } }),
    },
  };
};

const VARIABLES = ['api_key', 'verify_token', 'assistant_id', 'conversation_id', 'turn_id'];

/** The public API as a collection for Postman; Bruno and others import it too. */
export const apiCollection = (): string => {
  const groups = Map.groupBy(API_OPERATIONS, ({ tags }) => tags[0] ?? '');
  const collection = {
    info: { name: 'Parley', schema: 'https://schema.getpostman.com/json/collection/v2.1.0/collection.json' },
    variable: [{ key: 'url', value: 'http://127.0.0.1:3000' }, ...VARIABLES.map((key) => ({ key, value: '' }))],
    item: [...groups].map(([name, some]) => ({ name, item: some.map(requestOf) })),
  };
  return JSON.stringify(collection);
};
