import { openOperators } from '../../src/operators/store.ts';
import type { Child, Parley } from './parley.ts';

const OPERATOR = { email: 'bench@example.com', password: 'correct horse battery', role: 'owner' } as const;

/** Creates an owner and signs them in, as a browser does. */
export const signIn = async (parley: Parley, { port }: Pick<Child, 'port'>) => {
  const { operators } = await openOperators(parley.service.mongo);
  const { operatorId } = await operators.createOperator(OPERATOR);
  const base = `http://127.0.0.1:${port}/operator/v1`;
  const { email, password } = OPERATOR;
  const signedIn = await fetch(`${base}/session`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ email, password }),
  });
  const cookies = signedIn.headers.getSetCookie().map((one) => one.split(';')[0]);
  const headers = { Cookie: cookies.join('; ') };
  return {
    operatorId,
    headers,
    get: async <Answer>(path: string): Promise<Answer> => {
      const response = await fetch(`${base}${path}`, { headers });
      if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
      return (await response.json()) as Answer;
    },
  };
};
