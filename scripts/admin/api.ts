import type * as z from 'zod';
import type { AnswerOf, Operation } from '../../src/operators/operation.ts';
import { ErrorBody } from '../../src/platform/process/errors.ts';
import { plainMessage } from '../../src/platform/process/logger.ts';
import { Failure, failureOf, notFoundFailure } from './failure.ts';
import type { Settings } from './settings.ts';

const PREFIX = '/operator/v1';
/** A call that takes longer than this counts as hanging. Reading a large import takes up to 20 s. */
const ANSWER_WITHIN_MS = 60_000;

/** The type of a value after JSON serialisation and parsing: times become strings. */
type Json<Value> = Value extends Date
  ? string
  : Value extends object
    ? { [Name in keyof Value]: Json<Value[Name]> }
    : Value;

export type Answered<One extends Operation> = Json<AnswerOf<One>>;

type BodyOf<One extends Operation> = One extends { body: infer Schema extends z.ZodType } ? z.input<Schema> : never;

type Call<One extends Operation> = {
  /** The value of `:id` in the path. */
  id?: string;
  /** The values of the path's other parameters. */
  params?: Record<string, string>;
  /** The kind of object that `id` names, for the error message if it does not exist. */
  what?: string;
  body?: BodyOf<One>;
  /** The bytes that an operation with `upload` sends. */
  file?: Uint8Array;
  query?: Record<string, string | number | undefined>;
};

export type Api = {
  /** Opens an answer that is read as it arrives. The reader is told of an answer that breaks off, or of a long silence. */
  read: <const One extends Operation>(operation: One, call?: Call<One>) => Promise<AsyncIterable<Uint8Array>>;
  call: <const One extends Operation>(operation: One, call?: Call<One>) => Promise<Answered<One>>;
};

const NO_TOKEN =
  'The admin command needs the API and an operator token: set PARLEY_URL and OPERATOR_TOKEN, or start the quickstart. ' +
  'An owner makes a token in the dashboard under “Operator tokens”; with MONGODB_URL set, so does ' +
  '`npm run admin -- token create --name NAME --scope manage`.';

const pathOf = (
  { path }: Operation,
  params: Record<string, string>,
  query: Record<string, string | number | undefined>,
): string => {
  const given = Object.entries(query).filter(([, value]) => value !== undefined);
  const named = Object.fromEntries(given.map(([name, value]) => [name, String(value)]));
  const search = given.length > 0 ? `?${new URLSearchParams(named).toString()}` : '';
  return `${PREFIX}${path.replace(/:(\w+)/g, (_whole, name: string) => encodeURIComponent(params[name] ?? ''))}${search}`;
};

const readJson = async (response: Response): Promise<unknown> => {
  if (response.status === 204) return undefined;
  try {
    return await response.json();
  } catch {
    return undefined; // another server's page; the caller reports it
  }
};

const reasonOf = (cause: unknown): string => {
  const inner = cause instanceof Error && cause.cause instanceof Error ? cause.cause : cause;
  return inner instanceof Error ? plainMessage(inner.message || inner.name).replace(/\.$/, '') : 'no answer';
};

/** Calls operations of the operator API by their declarations. Throws a `Failure` for any answer other than 2xx. */
export const openApi = ({ baseUrl, operatorToken }: Pick<Settings, 'baseUrl' | 'operatorToken'>): Api => {
  if (baseUrl === null || operatorToken === undefined) throw new Failure('no_operator_token', NO_TOKEN);

  type Sent = { body: unknown; file: Uint8Array | undefined; signal: AbortSignal };
  const send = async (method: string, path: string, sent: Sent) => {
    const body = sent.file ?? (sent.body === undefined ? undefined : JSON.stringify(sent.body));
    const headers = {
      Accept: 'application/json',
      Authorization: `Bearer ${operatorToken}`,
      ...(body !== undefined && { 'Content-Type': sent.file ? 'application/octet-stream' : 'application/json' }),
    };
    try {
      return await fetch(`${baseUrl}${path}`, {
        method,
        headers,
        redirect: 'error',
        signal: sent.signal,
        ...(body !== undefined && { body: body as string }), // the types of fetch do not list every view of bytes
      });
    } catch (cause) {
      throw new Failure('unavailable', `The API cannot be reached at ${baseUrl}: ${reasonOf(cause)}.`, { cause });
    }
  };

  const refuse = (
    response: Response,
    answer: unknown,
    { what, id = '' }: { what?: string | undefined; id?: string },
  ) => {
    if (response.status === 404 && what !== undefined) throw notFoundFailure(what, id);
    const parsed = ErrorBody.safeParse(answer);
    if (parsed.success) throw failureOf(parsed.data.error);
    throw new Failure('unavailable', `What answers at ${baseUrl} is not this service (status ${response.status}).`);
  };

  return {
    read: async (operation, { id = '', params = {}, what, query = {} } = {}) => {
      const left = new AbortController();
      const timer = setTimeout(() => left.abort(new Error('no answer in time')), ANSWER_WITHIN_MS);
      const { signal } = left;
      const path = pathOf(operation, { id, ...params }, query);
      const sent = { body: undefined, file: undefined, signal };
      try {
        const response = await send(operation.method.toUpperCase(), path, sent);
        if (!response.ok || !response.body) return refuse(response, await readJson(response), { what, id });
        const { body } = response;
        return (async function* () {
          try {
            for await (const piece of body) {
              timer.refresh();
              yield piece;
            }
          } finally {
            clearTimeout(timer);
          }
        })();
      } catch (cause) {
        clearTimeout(timer);
        throw cause;
      }
    },

    call: async <const One extends Operation>(
      operation: One,
      { id = '', params = {}, what, body, file, query = {} }: Call<One> = {},
    ): Promise<Answered<One>> => {
      const path = pathOf(operation, { id, ...params }, query);
      const signal = AbortSignal.timeout(ANSWER_WITHIN_MS);
      const response = await send(operation.method.toUpperCase(), path, { body, file, signal });
      const answer = await readJson(response);
      if (response.ok) return answer as Answered<One>; // tests check the server's answers against this schema
      return refuse(response, answer, { what, id });
    },
  };
};
