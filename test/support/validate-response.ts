import addFormats from 'ajv-formats';
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import { apiDocument as builtDocument } from '../../src/api/document.ts';

type Header = { $ref?: string; required?: boolean };
type Response = {
  headers?: Record<string, Header>;
  content?: Record<string, { schema: object; examples?: Record<string, unknown> }>;
};
type Operation = { operationId: string; responses: Record<string, Response> };
type Document = {
  paths: Record<string, Record<string, Operation>>;
  webhooks: Record<string, unknown>;
  components: { headers: Record<string, Header> };
};

export type Seen = { method: string; url: string; status: number; headers: Headers; body: unknown };

const METHODS = ['get', 'post', 'put', 'patch', 'delete'];
const GENERAL: Record<number, string[]> = { 404: ['not_found'], 405: ['method_not_allowed'] };

const load = () => {
  const document = builtDocument() as unknown as Document; // read as plain JSON with the types above
  // The whole document is compiled, because schemas refer to its components.
  const ajv = new Ajv2020({ strict: false, allErrors: true, validateFormats: true });
  addFormats.default(ajv);
  ajv.addSchema({ ...document, $id: 'api' });
  const operations = Object.entries(document.paths).flatMap(([path, item]) =>
    METHODS.filter((method) => item[method]).map((method) => ({
      path,
      method,
      pattern: new RegExp(`^${path.replace(/[.]/g, '\\.').replace(/\{\w+\}/g, '[^/]+')}/?$`),
      operation: item[method] as Operation,
    })),
  );
  return { document, ajv, operations };
};
let loaded: ReturnType<typeof load> | undefined;

/** The OpenAPI document, loaded once per process on first use. */
export const apiDocument = (): ReturnType<typeof load> => (loaded ??= load());

/** The value at a path of names, as in a JSON pointer. */
export const pointer = (document: unknown, parts: string[]): unknown =>
  parts.reduce<unknown>((node, part) => (node as Record<string, unknown> | undefined)?.[part], document);

const fragmentOf = (parts: string[]): string =>
  parts.map((part) => `/${encodeURIComponent(part.replace(/~/g, '~0').replace(/\//g, '~1'))}`).join('');

export const validatorOf = (parts: string[]): ValidateFunction => {
  const { ajv } = apiDocument();
  const found = ajv.getSchema(`api#${fragmentOf(parts)}`);
  if (!found) throw new Error(`the document has no schema at ${parts.join(' ')}`);
  return found;
};

const checkHeaders = (response: Response, { headers }: Seen): string[] =>
  Object.entries(response.headers ?? {}).flatMap(([name, header]) => {
    const { required } = header.$ref
      ? (apiDocument().document.components.headers[header.$ref.split('/').at(-1) as string] as Header)
      : header;
    return required && headers.get(name) === null ? [`header ${name} is missing`] : [];
  });

const checkBody = (response: Response, where: string[], { method, headers, body }: Seen): string[] => {
  if (method === 'HEAD') return body === null || body === '' ? [] : ['HEAD was answered with a body'];
  const type = headers.get('content-type')?.split(';')[0];
  if (!response.content) return body === null || body === '' ? [] : ['a body where none is documented'];
  const media = type === undefined ? undefined : response.content[type];
  if (type === undefined || !media) return [`content type ${type} is not documented`];
  const validate = validatorOf([...where, 'content', type, 'schema']);
  if (!validate(body)) return [`body: ${apiDocument().ajv.errorsText(validate.errors)}`];
  const code = (body as { error?: { code: string } } | null)?.error?.code;
  if (code !== undefined && media.examples && !Object.hasOwn(media.examples, code))
    return [`code ${code} is not documented`];
  return [];
};

/** An address that is not documented may return only the general errors of the document's introduction. */
const checkUndocumented = ({ method, status, body }: Seen): string[] => {
  const codes = GENERAL[status];
  if (!codes) return [`status ${status} of an address that is not documented`];
  const validate = validatorOf(['components', 'schemas', 'Error']);
  if (method === 'HEAD') return [];
  if (!validate(body)) return [`body: ${apiDocument().ajv.errorsText(validate.errors)}`];
  return codes.includes((body as { error: { code: string } }).error.code) ? [] : ['not the code of its status'];
};

/** False for a path that cannot be decoded. Such a path belongs to no operation. */
const isDecodable = (pathname: string): boolean => {
  try {
    return decodeURIComponent(pathname) !== '';
  } catch {
    return false;
  }
};

/**
 * Returns the operation and the status of a response, or null if no operation has this address. Throws if the OpenAPI
 * document does not allow the response.
 */
export const validateResponse = (seen: Seen): { operationId: string; status: number } | null => {
  const { pathname } = new URL(seen.url);
  const method = seen.method === 'HEAD' ? 'get' : seen.method.toLowerCase();
  const found = isDecodable(pathname)
    ? apiDocument().operations.find((one) => one.method === method && one.pattern.test(pathname))
    : undefined;
  const response = found?.operation.responses[seen.status];
  const problems = !found
    ? checkUndocumented(seen)
    : !response
      ? [`status ${seen.status} is not documented`]
      : [
          ...checkHeaders(response, seen),
          ...checkBody(response, ['paths', found.path, found.method, 'responses', String(seen.status)], seen),
        ];
  if (problems.length > 0) {
    throw new Error(`${seen.method} ${pathname} ${seen.status} breaks the OpenAPI document: ${problems.join('; ')}`);
  }
  return found ? { operationId: found.operation.operationId, status: seen.status } : null;
};
