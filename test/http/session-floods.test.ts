import { request as sendRequest } from 'node:http';
import { expect, onTestFinished, test } from 'vitest';
import { anAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator, openOperatorClient, PASSWORD } from '../support/operator-client.ts';
import { watchPool } from '../support/pool.ts';
import { sized } from '../support/size.ts';
import { useOpened, useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });
/** More than the connections to MongoDB, and many times what a session may use of them. */
const FLOOD = sized({ everyday: 40, long: 80 });
/** Enough to use more connections than a session may, if a form made it several. */
const FLOOD_OF_A_FORM = sized({ everyday: 20, long: FLOOD });

const owner = useOpened(() => anOperator(stack));

test.each(['/operator/v1/inbox?limit=10', '/operator/queues/api/queues?activeQueue=turns'])(
  'of a session that sends many requests at once a few are worked on, and all are answered: %s',
  async (path) => {
    const headers = { Cookie: owner.cookie() ?? '' };
    const stop = watchPool(stack.service.aside.mongo);

    const statuses = await Promise.all(
      Array.from({ length: FLOOD }, async () => (await fetch(`${stack.url}${path}`, { headers })).status),
    );

    expect(stop()).toBeLessThan(8);
    expect([...new Set(statuses)]).toEqual([200]);
  },
);

const FORMS: [string, (session: string, nth: number) => Record<string, string>][] = [
  ['another cookie beside it', (session, nth) => ({ Cookie: `x=${nth}; ${session}; y=${nth}` })],
  ['a name that is nearly the same', (session, nth) => ({ Cookie: `\u00a0parley=${nth}; ${session}` })],
  ['a second session', (session, nth) => ({ Cookie: `${session}; parley=${nth}` })],
  ['a header that is no token', (session, nth) => ({ Cookie: session, Authorization: `Basic ${nth}` })],
  [
    'another spelling',
    (session, nth) => {
      const at = 'parley=s%3A'.length + (nth % 20);
      const code = session.charCodeAt(at).toString(16);
      return { Cookie: `${session.slice(0, at)}%${nth % 2 ? code : code.toUpperCase()}${session.slice(at + 1)}` };
    },
  ],
];

test.each(FORMS)('a session stays one with %s', async (_what, headersOf) => {
  const session = owner.cookie() ?? '';
  const stop = watchPool(stack.service.aside.mongo);

  const statuses = await Promise.all(
    Array.from({ length: FLOOD_OF_A_FORM }, async (_, nth) => {
      const answer = await fetch(`${stack.url}/operator/v1/inbox?limit=10`, { headers: headersOf(session, nth) });
      return answer.status;
    }),
  );

  expect(stop()).toBeLessThan(8);
  expect([...new Set(statuses)]).toEqual([200]);
});

test('paths that end like the playground’s are limited too', async () => {
  const stop = watchPool(stack.service.aside.mongo);

  const calls = Array.from({ length: FLOOD }, () => [
    owner.get('/nothing/playground'),
    owner.post('/assistants/nobody/playground', { sessionId: 'try', message: 'Hello' }),
  ]);
  const statuses = (await Promise.all(calls.flat())).map(({ status }) => status);

  expect(stop()).toBeLessThan(8);
  expect([...new Set(statuses)]).toEqual([404]);
});

test('live updates and turns of the playground do not hold up the rest of their session', async () => {
  const leave = new AbortController();
  const follow = () =>
    fetch(`${stack.url}/operator/v1/live`, { headers: { Cookie: owner.cookie() ?? '' }, signal: leave.signal });
  const opened = await Promise.all([follow(), follow(), follow()]);

  const { status } = await owner.get('/session');

  expect([...opened, { status }].map((one) => one.status)).toEqual([200, 200, 200, 200]);
  leave.abort();
});

/** So many requests of somebody else are answered before one that waits. */
const OTHERS = 20;
const ARRIVED_WITHIN_MS = 15_000;

const signedIn = async (email: string) => {
  const client = openOperatorClient(stack.url);
  await client.signIn(email);
  return client;
};

const manySessions = async () => {
  const { email } = await anOperator(stack);
  return Promise.all(Array.from({ length: 5 }, () => signedIn(email)));
};

const manyPeople = async () => {
  const { assistantId } = await anAssistant(stack);
  return Promise.all(
    Array.from({ length: 7 }, async (_, nth) => {
      const email = `agent-${nth}-${assistantId}@example.com`;
      const access = { role: 'agent' as const, assistantIds: [assistantId] };
      await stack.service.operators.createOperator({ email, password: PASSWORD, ...access });
      return signedIn(email);
    }),
  );
};

test.each([
  ['a person who signs in again and again is', manySessions, '/session'],
  ['a page that asks again and again who is signed in is', manySessions, '/session/current'],
  ['many people of one assistant are', manyPeople, '/session'],
])('%s worked on no more at once', async (_who, open, path) => {
  const [sessions, other] = [await open(), await anOperator(stack)];
  const last = sessions.pop();
  const bodies = sessions.map((one) => {
    const headers = { Cookie: one.cookie() ?? '', 'Content-Type': 'application/json', 'Content-Length': 9 };
    const sent = sendRequest(`${stack.url}/operator/v1/session/password`, { method: 'PUT', headers });
    sent.on('error', () => undefined).write('{');
    return sent;
  });
  onTestFinished(() => bodies.forEach((one) => one.destroy()));
  const asking = async () => {
    const answers: string[] = [];
    const asked = last?.get(path).then(() => answers.push('person'));
    for (let count = 0; count < OTHERS; count += 1) await other.get('/session');
    return { asked, before: [...answers] };
  };

  // The bodies may arrive after the first ones that ask.
  const { asked } = await eventually(async () => {
    const one = await asking();
    expect(one.before).toEqual([]);
    return one;
  }, ARRIVED_WITHIN_MS);

  for (const body of bodies) body.destroy();
  await asked;
});

const CHECKS = 80;

test('many checks of the readiness at once ask MongoDB once', async () => {
  let asked = 0;
  const client = stack.service.mongo.getClient();
  const count = () => {
    asked += 1;
  };
  client.on('connectionCheckOutStarted', count);

  const statuses = await Promise.all(
    Array.from({ length: CHECKS }, async () => (await fetch(`${stack.url}/readyz`)).status),
  );

  client.off('connectionCheckOutStarted', count);
  expect([...new Set(statuses)]).toEqual([200]);
  expect(asked).toBeGreaterThan(0);
  expect(asked).toBeLessThan(CHECKS / 4);
});
