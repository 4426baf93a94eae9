import { Agent, get } from 'node:http';
import { expect, onTestFinished, test } from 'vitest';
import { anOperator } from '../support/operator-client.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ deliveryWorkers: 0, replyWorkers: 0 });

/** The shortest time of many requests with a cookie, one after the other on one connection, in ms. */
const shortestWith = async (cookie: string): Promise<number> => {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  onTestFinished(() => agent.destroy());
  const ask = (): Promise<void> =>
    new Promise((resolve, reject) => {
      get(`${stack.url}/operator/v1/nothing`, { agent, headers: { Cookie: cookie } }, (answer) => {
        answer.resume().once('end', resolve);
      }).once('error', reject);
    });
  let shortest = Number.POSITIVE_INFINITY;
  for (let nth = 0; nth < 100; nth += 1) {
    const begun = performance.now();
    await ask();
    shortest = Math.min(shortest, performance.now() - begun);
  }
  return shortest;
};

const MANY = Array.from({ length: 2_900 }, (_, nth) => `${nth.toString(36)}=`)
  .join('; ')
  .slice(0, 15_000);

test('a session among thousands of other cookies is found', async () => {
  const { cookie, device, call } = await anOperator(stack);

  const { status } = await call('GET', '/session', undefined, { Cookie: `${MANY}; ${cookie()};${device()}; z=1` });

  expect(status).toBe(200);
});

test('a caller without a session who sends thousands of cookies costs little more than one with a long one', async () => {
  const long = await shortestWith(`a=${'b'.repeat(MANY.length)}`);

  const many = await shortestWith(MANY);

  expect(many).toBeLessThan(2 * long);
});
