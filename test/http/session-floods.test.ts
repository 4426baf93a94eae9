import { expect, test } from 'vitest';
import { anOperator } from '../support/operator-client.ts';
import { watchPool } from '../support/pool.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });
const FLOOD = 200;

test.each(['/operator/v1/inbox?limit=10', '/operator/queues/api/queues?activeQueue=turns'])(
  'of a session that sends many requests at once a few are worked on, and all are answered: %s',
  async (path) => {
    const owner = await anOperator(stack);
    const headers = { Cookie: owner.cookie() ?? '' };
    const stop = watchPool(stack.service.aside.mongo);

    const statuses = await Promise.all(
      Array.from({ length: FLOOD }, async () => (await fetch(`${stack.url}${path}`, { headers })).status),
    );

    expect(stop()).toBeLessThan(8);
    expect([...new Set(statuses)]).toEqual([200]);
  },
);

test('live updates and turns of the playground do not hold up the rest of their session', async () => {
  const owner = await anOperator(stack);
  const leave = new AbortController();
  const follow = () =>
    fetch(`${stack.url}/operator/v1/live`, { headers: { Cookie: owner.cookie() ?? '' }, signal: leave.signal });
  const opened = await Promise.all([follow(), follow(), follow()]);

  const { status } = await owner.get('/session');

  expect([...opened, { status }].map((one) => one.status)).toEqual([200, 200, 200, 200]);
  leave.abort();
});
