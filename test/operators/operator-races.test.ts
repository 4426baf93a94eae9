import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { anOperator, openOperatorClient, PASSWORD } from '../support/operator-client.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

const RUNS = sized({ everyday: 12, long: 60 });
/** Each run hashes many passwords. */
const CHANGES = sized({ everyday: 2, long: 20 });
const LINKS = sized({ everyday: 2, long: 6 });

const stack = useStack({ apis: 2, replyWorkers: 0, deliveryWorkers: 0, env: { TRUST_PROXY: '1' } });

/** Signs in a new agent. Each agent needs its own address, because the rate limit would refuse so many from one. */
const anAgent = async (address: string) => {
  const email = `agent-${randomUUID()}@example.com`;
  const { operatorId } = await stack.service.operators.createOperator({ email, role: 'agent', password: PASSWORD });
  const client = openOperatorClient(stack.url, { 'X-Forwarded-For': address });
  expect((await client.signIn(email)).status).toBe(200);
  return { ...client, email, operatorId };
};

const owners = async () =>
  (await stack.service.operators.listOperators()).filter(({ role, disabled }) => role === 'owner' && !disabled);

test('if owners remove or demote each other at once, one remains who can sign in', async () => {
  const left: number[] = [];
  const { operators } = stack.service;
  const [first, second] = [await anOperator(stack), await anOperator(stack)];
  const other = openOperatorClient(stack.urls[1] ?? '');
  for (let run = 0; run < RUNS; run += 1) {
    for (const { operatorId } of [first, second]) {
      await operators.updateOperator(operatorId, { role: 'owner', disabled: false });
    }
    // Disabling an owner ends their sessions. The owners are therefore changed through the store, as the admin command
    // does, which needs no sign-in.
    const changes = run % 2 === 0 ? { disabled: true } : { role: 'agent' as const };
    const answers = await Promise.allSettled([
      operators.updateOperator(first.operatorId, changes),
      operators.updateOperator(second.operatorId, run % 3 === 0 ? { role: 'agent' } : changes),
    ]);
    left.push((await owners()).length);
    expect(answers.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected']);
  }

  for (const { operatorId } of [first, second])
    await operators.updateOperator(operatorId, { role: 'owner', disabled: false });
  await first.signIn(first.email);
  other.setCookie((await second.signIn(second.email)) && second.cookie());
  const byEachOther = await Promise.all([
    first.call('PATCH', `/operators/${second.operatorId}`, { role: 'agent' }),
    other.call('PATCH', `/operators/${first.operatorId}`, { role: 'agent' }),
  ]);

  expect(new Set(left)).toEqual(new Set([1]));
  expect(byEachOther.map(({ status }) => status).toSorted()).not.toEqual([200, 200]);
  expect(await owners()).toHaveLength(1);
});

test('a role and a status changed in one request are both changed, or neither', async () => {
  const { operators } = stack.service;
  const last = await anOperator(stack);
  for (const { operatorId } of await owners()) {
    if (operatorId !== last.operatorId) await operators.updateOperator(operatorId, { disabled: true });
  }
  const agent = await anOperator(stack, 'agent');

  const refused = await last.call('PATCH', `/operators/${last.operatorId}`, { role: 'owner', disabled: true });
  const both = await last.call('PATCH', `/operators/${agent.operatorId}`, { role: 'owner', disabled: true });

  expect(refused.status).toBe(422);
  expect(await operators.getOperator(last.operatorId)).toMatchObject({ role: 'owner', disabled: false });
  expect(both.body).toMatchObject({ role: 'owner', disabled: true });
});

test('a session from the old password ends when the password change is done', async () => {
  const stayed: string[] = [];
  await Promise.all(
    Array.from({ length: CHANGES }, async (_, run) => {
      const agent = await anAgent(`203.0.113.${run}`);
      const thief = openOperatorClient(stack.urls[1] ?? '', { 'X-Forwarded-For': `192.0.2.${run}` });
      const cookies: (string | null)[] = [];
      let changed = false;
      const change = agent
        .call('PUT', '/session/password', { current: PASSWORD, next: `${PASSWORD} ${run}` })
        .finally(() => {
          changed = true;
        });
      while (!changed) {
        const { status } = await thief.signIn(agent.email);
        if (status === 200) cookies.push(thief.cookie());
      }
      expect((await change).status).toBe(204);
      for (const cookie of cookies) {
        thief.setCookie(cookie);
        if ((await thief.get('/session')).status === 200) stayed.push(`run ${run}`);
      }
    }),
  );

  expect(stayed).toEqual([]);
});

test('of many passwords set at once by one link, or of many changes, one succeeds', async () => {
  const owner = await anOperator(stack);
  const outcomes = await Promise.all(
    Array.from({ length: LINKS }, async (_, run) => {
      const { operatorId } = await anAgent(`203.0.113.${100 + run}`);
      const { body } = await owner.post<{ token: string }>(`/operators/${operatorId}/link`);
      const passwords = Array.from({ length: 4 }, (_one, index) => `chosen password ${run} ${index}`);
      const used = await Promise.all(
        passwords.map((password, index) =>
          openOperatorClient(stack.urls[index % 2] ?? '', { 'X-Forwarded-For': `198.51.100.${run * 8 + index}` }).post(
            '/links/use',
            { token: body.token, password },
          ),
        ),
      );
      return used.map(({ status }) => status).toSorted();
    }),
  );

  expect(outcomes).toEqual(outcomes.map(() => [200, 404, 404, 404]));
});
