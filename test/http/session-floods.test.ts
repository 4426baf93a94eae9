import { expect, test } from 'vitest';
import { anOperator } from '../support/operator-client.ts';
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
