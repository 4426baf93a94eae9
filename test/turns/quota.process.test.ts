import { randomUUID } from 'node:crypto';
import fc from 'fast-check';
import { expect, onTestFinished, test } from 'vitest';
import { often, record, seed } from '../kit/fuzz-part.ts';
import type { StoredAllowance } from '../../src/turns/allowances.ts';
import { anAssistant, aTurn, type ErrorBody, request } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { problemOf } from '../support/problem.ts';
import { collectionIn, profileStatements } from '../support/profile.ts';
import { startRealProcess } from '../kit/processes.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ apis: 2, deliveryWorkers: 0, timing: { maintenanceEveryMs: 500 } });

const aLimited = async (turnsPerMonth: number | null, ofKey: number | null = null) => {
  const assistant = await anAssistant(stack, { input: { turnsPerMonth } });
  const { assistantId, keyId, apiKey } = assistant;
  if (ofKey !== null) await stack.service.assistants.updateApiKey(keyId, { turnsPerMonth: ofKey });
  const at =
    (url: string) =>
    (body: Record<string, unknown>, headers: Record<string, string> = {}) =>
      request(`${url}/api/v1/chat`, { body, headers, bearer: apiKey });
  const [one, other] = stack.urls as [string, string];
  const collection = stack.service.mongo.collection<StoredAllowance>('allowances');
  const countStored = async (): Promise<number> => {
    const rows = await stack.service.mongo.collection('conversations').find({ assistantId }).toArray();
    const texts = rows.flatMap(({ texts: all }) => Object.values(all as Record<string, { role: string }[]>).flat());
    const pending = rows.reduce((sum, { waiting }) => sum + (waiting as unknown[]).length, 0);
    return texts.filter(({ role }) => role === 'user').length + pending;
  };
  return { ...assistant, doors: [at(one), at(other)] as const, at, collection, countStored };
};

const isRefused = ({ status, body }: { status: number; body: unknown }): boolean =>
  status === 429 && (body as ErrorBody).error.code === 'quota_exceeded';

test('the turn after the last one is refused until the first of the next month, and repeated ones are answered', async () => {
  const { chat, apiKey, assistantId } = await aLimited(2);
  await stack.service.assistants.setChannel(assistantId, { connected: true, token: null });
  const [first, keyed] = [aTurn(), aTurn()];
  const key = { headers: { 'Idempotency-Key': randomUUID() } };
  const before = [await chat(first), await chat(keyed, key)];

  const refused = await chat(aTurn());
  const async = await chat(aTurn(), { headers: { Prefer: 'respond-async' } });
  const byChannel = await request(`${stack.url}/api/v1/channels/webhook/${assistantId}`, { body: aTurn() });
  const repeated = [await chat(first), await chat(keyed, key)];

  const { body, headers } = refused as unknown as { body: ErrorBody; headers: Headers };
  const now = new Date();
  const next = new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + 1));
  expect([refused, async, byChannel].map(problemOf)).toEqual(Array(3).fill('429 quota_exceeded'));
  expect(body.error.message).toContain(next.toISOString().slice(0, 10));
  expect(Math.abs(Number(headers.get('retry-after')) - (next.getTime() - Date.now()) / 1000)).toBeLessThan(60);
  expect(repeated.map(({ status, headers: sent }) => [status, sent.get('idempotent-replayed')])).toEqual([
    [200, 'true'],
    [200, 'true'],
  ]);
  expect(repeated.map(({ body: { messageId } }) => messageId)).toEqual(before.map(({ body: one }) => one.messageId));
  const raised = await eventually(async () => {
    await stack.service.assistants.updateAssistant(assistantId, { turnsPerMonth: 3 });
    const answer = await request(`${stack.url}/api/v1/chat`, { body: aTurn(), bearer: apiKey });
    expect(answer.status).toBe(200);
    return answer;
  });
  expect(raised.body.reply).not.toBe('');
});

test('a quota that is set later counts the turns that the month has already had', async () => {
  const { chat, keyId, assistantId } = await aLimited(null);
  for (let nth = 0; nth < 3; nth += 1) await chat(aTurn());
  await eventually(async () => {
    const row = await stack.service.mongo.collection('usage').findOne({ assistantId });
    expect(row?.['turns']).toBe(3);
  });

  await stack.service.assistants.updateApiKey(keyId, { turnsPerMonth: 4 });

  await eventually(async () => {
    const row = await stack.service.mongo.collection('allowances').findOne({ target: keyId });
    if (!row) await chat(aTurn());
    expect(row?.['used']).toBe(4);
  });
  expect(problemOf(await chat(aTurn()))).toBe('429 quota_exceeded');
});

test('many keys with quotas read the usage of their assistant once', async () => {
  const { assistantId } = await aLimited(null);
  const { createApiKey, updateApiKey } = stack.service.assistants;
  const keys = await Promise.all(
    Array.from({ length: 40 }, async (_, nth) => {
      const { apiKey, key } = await createApiKey({ assistantId, name: `key ${nth}`, limitPerMinute: 60 });
      await updateApiKey(key.keyId, { turnsPerMonth: 100 });
      return apiKey;
    }),
  );

  const sent = await profileStatements(stack, async () => {
    const answers = await Promise.all(
      keys.map((bearer) => request(`${stack.url}/api/v1/chat`, { bearer, body: aTurn() })),
    );
    expect(answers.map(({ status }) => status)).toEqual(keys.map(() => 200));
  });

  const isOfQuota = ({ command }: (typeof sent)[number]): boolean => JSON.stringify(command).includes('$keyId');
  expect(sent.filter((one) => collectionIn(one) === 'usage' && isOfQuota(one))).toHaveLength(1);
});

type Step = { door: 0 | 1; kind: 'new' | 'repeated' | 'keyed'; session: number };
const step = fc.record({
  door: fc.constantFrom<0 | 1>(0, 1),
  kind: fc.constantFrom<Step['kind']>('new', 'new', 'repeated', 'keyed'),
  session: fc.nat(2),
});

test('a quota is used exactly, whatever is sent at once through two processes and repeated', async () => {
  const property = async (groups: Step[][], quota: number, ofKey: number | null) => {
    const { doors, countStored, collection, keyId, assistantId } = await aLimited(quota, ofKey);
    const most = Math.min(quota, ofKey ?? quota);
    const run = randomUUID();
    const send = ({ door, kind, session }: Step) => {
      const message = kind === 'new' ? randomUUID() : `the same ${session}`;
      const headers = kind === 'keyed' ? { 'Idempotency-Key': `${run}-${session}` } : undefined;
      return doors[door]({ session_id: `${run}-${kind}-${session}`, message }, headers);
    };
    for (const group of groups) {
      const answers = await Promise.all(group.map(send));
      for (const answer of answers) expect([answer.status === 200 || isRefused(answer), answer.body]).toContain(true);
      expect(await countStored()).toBeLessThanOrEqual(most);
    }

    // What was reserved for repeated turns is given back, so that as many new ones fit as are left.
    await eventually(async () => {
      for (const door of [0, 1] as const) await send({ door, kind: 'new', session: 0 });
      expect(await countStored()).toBe(most);
    });
    expect(isRefused(await send({ door: 0, kind: 'new', session: 1 }))).toBe(true);
    expect(await countStored()).toBe(most);
    const rows = await collection.find({ target: { $in: [keyId, assistantId] } }).toArray();
    for (const { used, limit } of rows) expect(used).toBeLessThanOrEqual(limit);
  };
  const groups = fc.array(fc.array(step, { minLength: 1, maxLength: 8 }), { minLength: 1, maxLength: 3 });
  const ofKey = fc.option(fc.integer({ min: 1, max: 8 }));
  const numRuns = often({ short: 2, whole: 60 });
  await fc.assert(fc.asyncProperty(groups, fc.integer({ min: 1, max: 9 }), ofKey, property), { numRuns, seed });
  record('quotas', { assistants: numRuns });
});

test('what a killed process has reserved is given back, and what it has accepted stays counted', async () => {
  const { at, doors, countStored, collection, assistantId } = await aLimited(40);
  const api = await startRealProcess('api', stack.env);
  onTestFinished(() => api.kill());
  const send = at(api.url);
  await send(aTurn());

  const burst = Array.from({ length: 30 }, () => send(aTurn()).catch(() => null));
  await eventually(async () => expect(await countStored()).toBeGreaterThan(1));
  await api.kill();
  await Promise.all(burst);
  // One that it was killed before it accepted, in any case.
  const lost = { at: new Date(), turns: [{ turnId: randomUUID(), messageId: randomUUID() }] };
  await collection.updateOne({ target: assistantId }, { $set: { 'pending.lost': lost }, $inc: { used: 1 } });
  expect((await collection.findOne({ target: assistantId }))?.used).toBeLessThanOrEqual(40);

  // The reservations would be looked at after a minute. The test makes them old instead.
  await eventually(async () => {
    const [row] = await collection.find({ target: assistantId }).toArray();
    const old = new Date(Date.now() - 120_000);
    for (const token of Object.keys(row?.pending ?? {}))
      await collection.updateOne(
        { target: assistantId, [`pending.${token}`]: { $exists: true } },
        { $set: { [`pending.${token}.at`]: old, pendingFrom: old } },
      );
    expect(Object.keys(row?.pending ?? {})).toEqual([]);
  });
  expect((await collection.findOne({ target: assistantId }))?.used).toBe(await countStored());
  await eventually(async () => {
    await Promise.all(Array.from({ length: 10 }, (_, nth) => doors[(nth % 2) as 0 | 1](aTurn())));
    expect(await countStored()).toBe(40);
  });
  expect(isRefused(await doors[0](aTurn()))).toBe(true);
});
