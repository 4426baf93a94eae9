import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { anAssistant, aTurn, request } from '../support/builders.ts';
import { watchNeighbour } from '../support/neighbour.ts';
import { watchPool } from '../support/pool.ts';
import { anOperator } from '../support/operator-client.ts';
import { useStack } from '../support/stack.ts';
import { atPace } from '../support/pace.ts';

const stack = useStack({ deliveryWorkers: 0 });

const SEARCHES = 40;
const CONVERSATIONS = 3_000;

/** Words that every conversation has. Such a search reads all of them several times. */
const COMMON = 'search=alpha+bet';

/** An assistant with many projected conversations, and a program that searches them. */
const aSearchedInbox = async () => {
  const assistant = await anAssistant(stack);
  const { assistantId } = assistant;
  const rows = Array.from({ length: CONVERSATIONS }, (_, nth) => ({
    _id: randomUUID() as never,
    key: randomUUID(),
    assistantId,
    updatedAt: new Date(Date.now() - nth),
    seq: 1,
    resolvedAt: null,
    session: `session ${nth}`,
    terms: ['alpha', 'beta', 'delta', 'gamma', `w${nth}`],
  }));
  await stack.service.mongo.collection('search').insertMany(rows);
  const owner = await anOperator(stack);
  const made = await owner.post<{ secret: string }>('/tokens', {
    name: 'a program',
    scope: 'read',
    assistantIds: [assistantId],
  });
  const search = (query = COMMON, signal?: AbortSignal) =>
    fetch(`${stack.url}/operator/v1/inbox?${query}`, {
      headers: { Authorization: `Bearer ${made.body.secret}` },
      ...(signal && { signal }),
    });
  return { ...assistant, owner, search, secret: made.body.secret };
};

/** How many statements have read the words of conversations since MongoDB started. */
const readsOfSearch = async (): Promise<number> => {
  const stats = stack.service.mongo.collection('search').aggregate([{ $collStats: { latencyStats: {} } }]);
  const [row] = await stats.toArray();
  return Number(row?.['latencyStats'].reads.ops);
};

test('forty searches at once leave visitors their connections, and a person who searches is soon served', async () => {
  const { owner, search } = await aSearchedInbox();
  const neighbour = await anAssistant(stack);
  const stopWatching = watchPool(stack.service.mongo);
  let answered = 0;
  const answeredBefore = { page: 0, search: 0 };
  const program = Array.from({ length: SEARCHES }, async () => {
    const { status } = await search();
    answered += 1;
    return status;
  });
  const person = async () => {
    await Promise.race(program);
    const page = await owner.get('/inbox');
    answeredBefore.page = answered;
    const found = await owner.get(`/inbox?${COMMON}`);
    answeredBefore.search = answered;
    return [page.status, found.status];
  };

  const { statuses } = await watchNeighbour(
    () => neighbour.chat(aTurn()),
    async () => {
      expect(await person()).toEqual([200, 200]);
      await Promise.all(program);
    },
  );

  expect(statuses).toEqual([200]);
  expect([...new Set(await Promise.all(program))].filter((status) => status !== 200 && status !== 503)).toEqual([]);
  expect(stopWatching()).toBeLessThan(atPace(16));
  expect(answeredBefore.page).toBeLessThan(SEARCHES / 2);
  expect(answeredBefore.search).toBeLessThan(SEARCHES / 2);
});

test('searches whose callers left are not made', async () => {
  const { search } = await aSearchedInbox();
  const before = await readsOfSearch();
  await search();
  const ofOne = (await readsOfSearch()) - before;
  const leaving = new AbortController();
  const left = Array.from({ length: SEARCHES }, () => search(COMMON, leaving.signal).catch(() => null));
  await Promise.race(left);

  leaving.abort();
  await Promise.all(left);
  expect((await search()).status).toBe(200); // made after all others of this caller

  expect((await readsOfSearch()) - before).toBeLessThan((ofOne * SEARCHES) / 2);
  expect(stack.logs.filter(({ msg }) => msg === 'request failed')).toEqual([]);
});

test('a token has a rate limit, and other tokens have their own', async () => {
  const [one, other] = [await aSearchedInbox(), await aSearchedInbox()];
  const agents = ({ secret, assistantId }: typeof one) =>
    request(`${stack.url}/operator/v1/assistants/${assistantId}/agents`, { bearer: secret });

  const statuses: number[] = [];
  for (let sent = 0; sent < 620; sent += 20) {
    statuses.push(...(await Promise.all(Array.from({ length: 20 }, async () => (await agents(one)).status))));
  }
  const refused = await agents(one);

  expect(statuses.filter((status) => status === 200)).toHaveLength(600);
  expect(refused.status).toBe(429);
  expect(Number(refused.headers.get('Retry-After'))).toBeGreaterThan(0);
  expect((await agents(other)).status).toBe(200);
});
