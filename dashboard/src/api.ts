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

/** Calls the operator API. Throws a `Problem` for any answer other than 2xx. */
export const call = async <Answer>(
  method: Method,
  path: string,
  { body, signal }: { body?: unknown; signal?: AbortSignal } = {},
): Promise<Answer> => {
  let response: Response;
  try {
    response = await fetch(`${PREFIX}${path}`, {
      method,
      headers: {
        Accept: 'application/json',
        ...(body !== undefined && { 'Content-Type': 'application/json' }),
        ...(!isAttended() && { 'X-Parley-Unattended': '1' }),
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
      ...(signal && { signal }),
    });
  } catch (cause) {
    if (signal?.aborted) throw cause;
    throw new Problem(0, undefined);
  }
  const answer = await bodyOf(response);
  if (!response.ok) throw new Problem(response.status, answer);
  return answer as Answer; // the server validates answers by this schema
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
