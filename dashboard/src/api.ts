import { isAttended } from './attended.ts';
import { Problem } from './problem.ts';

const PREFIX = '/operator/v1';

type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';

const bodyOf = async (response: Response): Promise<unknown> => {
  if (response.status === 204) return undefined;
  try {
    return await response.json();
  } catch {
    return undefined; // a proxy's own page; the status is enough
  }
};

/** `file` is sent as it is. */
type Options = { body?: unknown; file?: Blob; signal?: AbortSignal; accept?: string };

const send = async (
  method: Method,
  path: string,
  { body, file, signal, accept = 'application/json' }: Options,
): Promise<Response> => {
  let response: Response;
  try {
    response = await fetch(`${PREFIX}${path}`, {
      method,
      headers: {
        Accept: accept,
        ...(body !== undefined && { 'Content-Type': 'application/json' }),
        ...(file && { 'Content-Type': 'application/octet-stream' }),
        ...(!isAttended() && { 'X-Parley-Unattended': '1' }),
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
      ...(file && { body: file }),
      ...(signal && { signal }),
    });
  } catch (cause) {
    if (signal?.aborted) throw cause;
    throw new Problem(0, undefined);
  }
  if (!response.ok) throw new Problem(response.status, await bodyOf(response));
  return response;
};

/** Calls the operator API. Throws a `Problem` for any answer other than 2xx. */
export const call = async <Answer>(
  method: Method,
  path: string,
  options: Omit<Options, 'accept'> = {},
): Promise<Answer> => (await bodyOf(await send(method, path, options))) as Answer; // the server validates answers

/** Calls an operation whose answer is a stream of events. */
export const openStream = async (path: string, body: unknown): Promise<ReadableStream<Uint8Array>> => {
  const response = await send('POST', path, { body, accept: 'text/event-stream' });
  if (!response.body) throw new Problem(0, undefined);
  return response.body;
};

/** A path with encoded parts: `at`/assistants/${id}`. */
export const at = (parts: TemplateStringsArray, ...values: string[]): string =>
  String.raw({ raw: parts }, ...values.map(encodeURIComponent));

export const withQuery = (path: string, query: Record<string, string | number | null | undefined>): string => {
  const given = Object.entries(query).flatMap(([name, value]) =>
    value === undefined || value === null || value === '' ? [] : [[name, String(value)]],
  );
  return given.length > 0 ? `${path}?${new URLSearchParams(given).toString()}` : path;
};
