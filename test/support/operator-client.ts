import { randomUUID } from 'node:crypto';
import { type Answer, request } from './builders.ts';
import type { Stack } from './stack.ts';

export const PASSWORD = 'correct horse battery';

/** An operator's browser: it keeps its cookies and sends the headers of a page from the same origin. */
export const openOperatorClient = (url: string, headers: Record<string, string> = {}) => {
  let cookie: string | null = null;
  let device: string | null = null;
  let lastSet: string | null = null;
  const cookieHeader = (): { Cookie?: string } => {
    const kept = [cookie, device].filter((one) => one !== null);
    return kept.length > 0 ? { Cookie: kept.join('; ') } : {};
  };
  const call = async <Body = Record<string, unknown>>(
    method: string,
    path: string,
    body?: unknown,
    more: Record<string, string> = {},
  ): Promise<Answer<Body>> => {
    const answer = await request<Body>(`${url}/operator/v1${path}`, {
      method,
      ...(body !== undefined && { body }),
      headers: { Origin: url, 'Sec-Fetch-Site': 'same-origin', ...cookieHeader(), ...headers, ...more },
    });
    lastSet = null;
    for (const set of answer.headers.getSetCookie()) {
      const pair = set.split(';')[0] ?? '';
      if (/-device=/.test(pair)) device = pair;
      else [cookie, lastSet] = [pair, set];
    }
    return answer;
  };
  return {
    call,
    get: <Body = Record<string, unknown>>(path: string) => call<Body>('GET', path),
    post: <Body = Record<string, unknown>>(path: string, body?: unknown) => call<Body>('POST', path, body),
    signIn: (email: string, password = PASSWORD) => call('POST', '/session', { email, password }),
    cookie: () => cookie,
    setCookie: (value: string | null) => {
      cookie = value;
    },
    /** The cookie of a known device. */
    device: () => device,
    setDevice: (value: string | null) => {
      device = value;
    },
    /** The session's `Set-Cookie` header of the last response. */
    lastSet: () => lastSet,
  };
};
export type OperatorClient = ReturnType<typeof openOperatorClient>;

/** A new operator who is signed in. */
export const anOperator = async (stack: Stack, role: 'owner' | 'agent' = 'owner') => {
  const email = `${role}-${randomUUID()}@example.com`;
  const { operatorId } = await stack.service.operators.createOperator({ email, role, password: PASSWORD });
  const client = openOperatorClient(stack.url);
  const { status } = await client.signIn(email);
  if (status !== 200) throw new Error(`signing in was answered with ${status}`);
  return { ...client, operatorId, email };
};
