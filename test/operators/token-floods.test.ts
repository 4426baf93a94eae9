import { request as send } from 'node:http';
import { expect, onTestFinished, test } from 'vitest';
import { request } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { limiterOf } from '../support/limits.ts';
import { anOperator } from '../support/operator-client.ts';
import { problemOf } from '../support/problem.ts';
import { useOpened, useStack } from '../support/stack.ts';

const stack = useStack({ deliveryWorkers: 0, env: { TRUST_PROXY: '1' } });
const owner = useOpened(() => anOperator(stack));

type Made = { secret: string; token: { tokenId: string } };
const aToken = async (scope = 'manage', assistantIds: string[] | null = null): Promise<Made> => {
  const { status, body } = await owner.post<Made>('/tokens', { name: 'a program', scope, assistantIds });
  expect(status).toBe(201);
  return body;
};
const list = (bearer: string, headers: Record<string, string> = {}) =>
  request(`${stack.url}/operator/v1/assistants`, { bearer, headers });
const countOf = async (window: string) =>
  Number(await stack.service.redis.get(`${stack.env['REDIS_PREFIX']}:limit:${window}`));

const FAILING = 60;
const TOKEN_LIMIT = 600;
const REFUSED_AT_ONCE = 100;

test('where refusals are late, a token waits before it is looked up, unless it is known', async () => {
  const address = '203.0.113.79';
  const from = { 'X-Forwarded-For': address };
  const [{ secret: known }, { secret: unknown }] = [await aToken(), await aToken()];
  let invented = 0;
  const failing = (count: number) =>
    Promise.all(
      Array.from({ length: count }, () => {
        invented += 1;
        return list(`op_${String(invented).padStart(43, 'x')}`, from);
      }),
    );
  await list(known, from);
  await failing(FAILING + REFUSED_AT_ONCE);
  const late = failing(20);
  await eventually(async () => expect(await countOf(`failing:${address}`)).toBe(FAILING + REFUSED_AT_ONCE + 20));
  const ended: string[] = [];
  const since = performance.now();
  const [first, second] = await Promise.all([
    list(known, from).finally(() => ended.push('known')),
    list(unknown, from).finally(() => ended.push('unknown')),
  ]);

  expect([first.status, second.status]).toEqual([200, 200]);
  expect(ended).toEqual(['known', 'unknown']);
  expect(performance.now() - since).toBeGreaterThan(950);
  await late;
});

test('a token that goes on after 100 refusals waits for each further one, and others of its team do not', async () => {
  const [{ secret, token }, { secret: other }] = [await aToken(), await aToken()];
  const limiter = limiterOf(stack);
  const counted = Array.from({ length: TOKEN_LIMIT + REFUSED_AT_ONCE }, () => limiter.forToken(token.tokenId));
  await Promise.allSettled(counted);
  const ended: string[] = [];
  const since = performance.now();

  const refused = await Promise.all([
    list(secret).finally(() => ended.push('refused')),
    list(secret).finally(() => ended.push('refused')),
    list(other).finally(() => ended.push('other')),
  ]);

  expect(performance.now() - since).toBeGreaterThan(950);
  expect(refused.map((answer) => (answer.status === 200 ? '200' : problemOf(answer)))).toEqual([
    '429 rate_limited',
    '429 rate_limited',
    '200',
  ]);
  expect(ended).toEqual(['other', 'refused', 'refused']);
});

test('what a token may not do takes its turn in its team', async () => {
  const name = JSON.stringify({ name: 'By a program' });
  const holders = await Promise.all(Array.from({ length: 3 }, () => aToken()));
  const reader = await aToken('read');
  const ended: string[] = [];
  const headersOf = ({ secret }: Made) => ({
    Authorization: `Bearer ${secret}`,
    'Content-Type': 'application/json',
    'Content-Length': String(name.length),
  });
  // Two of each token hold the six places of the team until their body comes.
  const held = [...holders, ...holders].map((one) => {
    const asked = send(`${stack.url}/operator/v1/assistants`, { method: 'POST', headers: headersOf(one) });
    onTestFinished(() => void asked.destroy());
    asked.flushHeaders();
    const status = new Promise<number | undefined>((resolve, reject) => {
      asked.on('error', reject).on('response', (answer) => {
        ended.push('held');
        answer.resume();
        resolve(answer.statusCode);
      });
    });
    return { asked, status };
  });
  await eventually(async () => {
    for (const { token } of holders) expect(await countOf(`token:${token.tokenId}`)).toBe(2);
  });

  const forbidden = request(`${stack.url}/operator/v1/assistants`, { bearer: reader.secret, body: name }).finally(() =>
    ended.push('forbidden'),
  );
  await eventually(async () => expect(await countOf(`token:${reader.token.tokenId}`)).toBe(1));
  await owner.get('/assistants'); // a later request of somebody else is answered before
  for (const { asked } of held) asked.end(name);

  expect(await Promise.all(held.map(({ status }) => status))).toEqual(held.map(() => 201));
  expect(problemOf(await forbidden)).toBe('403 forbidden');
  expect(ended[0]).toBe('held');
});
