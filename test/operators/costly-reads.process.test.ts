import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { expect, onTestFinished, test } from 'vitest';
import { USAGE_COUNTERS } from '../../src/insights/usage.ts';
import { anAssistant, aTurn, request } from '../support/builders.ts';
import { limiterOf } from '../support/limits.ts';
import { watchNeighbour } from '../support/neighbour.ts';
import { watchPool } from '../support/pool.ts';
import { anOperator } from '../support/operator-client.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';
import { atPace } from '../support/pace.ts';

const stack = useStack({ deliveryWorkers: 0 });

const SEARCHES = 40;
const CONVERSATIONS = sized({ everyday: 300, long: 3_000 });

/** Words that every conversation has. Such a search reads all of them several times. */
const COMMON = 'search=alpha+bet';

/** An assistant with many projected conversations, and a program that searches them. */
const aSearchedInbox = async (conversations = CONVERSATIONS) => {
  const assistant = await anAssistant(stack);
  const { assistantId } = assistant;
  const rows = Array.from({ length: conversations }, (_, nth) => ({
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
  /** The token of a program that may also read others. */
  const tokenFor = async (...others: string[]) => {
    const limits = { scope: 'read', assistantIds: [assistantId, ...others] };
    const made = { name: 'a program', ...limits };
    return (await owner.post<{ secret: string; token: { tokenId: string } }>('/tokens', made)).body;
  };
  const {
    secret,
    token: { tokenId },
  } = await tokenFor();
  const search = (query = COMMON, { signal, token = secret }: { signal?: AbortSignal; token?: string } = {}) =>
    fetch(`${stack.url}/operator/v1/inbox?${query}`, {
      headers: { Authorization: `Bearer ${token}` },
      ...(signal && { signal }),
    });
  return { ...assistant, owner, search, secret, tokenId, tokenFor };
};

/** How many statements have read the words of conversations since MongoDB started. */
const readsOfSearch = async (): Promise<number> => {
  const stats = stack.service.mongo.collection('search').aggregate([{ $collStats: { latencyStats: {} } }]);
  const [row] = await stats.toArray();
  return Number(row?.['latencyStats'].reads.ops);
};

type Inbox = Awaited<ReturnType<typeof aSearchedInbox>>;

const PROGRAMS: [string, (inbox: Inbox) => Promise<string>][] = [
  ['a program', ({ secret }) => Promise.resolve(secret)],
  [
    'as many programs of one owner',
    async ({ tokenFor }) => (await tokenFor((await anAssistant(stack)).assistantId)).secret,
  ],
];

test.each(sized({ everyday: PROGRAMS.slice(0, 1), long: PROGRAMS }))(
  'forty searches of %s leave visitors their connections, and a person is soon served',
  async (_of, tokenOf) => {
    const inbox = await aSearchedInbox();
    const { owner, search } = inbox;
    const tokens = await Promise.all(Array.from({ length: SEARCHES }, () => tokenOf(inbox)));
    const neighbour = await anAssistant(stack);
    const stopWatching = watchPool(stack.service.mongo);
    let answered = 0;
    const answeredBefore = { page: 0, search: 0 };
    const program = tokens.map(async (token) => {
      const { status } = await search(COMMON, { token });
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
  },
);

test('searches whose callers left are not made', async () => {
  const { search } = await aSearchedInbox();
  const before = await readsOfSearch();
  await search();
  const ofOne = (await readsOfSearch()) - before;
  const leaving = new AbortController();
  const left = Array.from({ length: SEARCHES }, () => search(COMMON, { signal: leaving.signal }).catch(() => null));
  await Promise.race(left);

  leaving.abort();
  await Promise.all(left);
  expect((await search()).status).toBe(200); // made after all others of this caller

  expect((await readsOfSearch()) - before).toBeLessThan((ofOne * SEARCHES) / 2);
  expect(stack.logs.filter(({ msg }) => msg === 'request failed')).toEqual([]);
});

/** Rows of usage, of which the kernel's buffers hold only a part. */
const DAYS = 90;
const KEYS = sized({ everyday: 250, long: 1_000 });

test('files of usage that are not read hold nobody up', async () => {
  const { assistantId } = await anAssistant(stack);
  const keyIds = Array.from({ length: KEYS }, () => randomUUID());
  const days = Array.from({ length: DAYS }, (_, nth) => new Date(Date.UTC(2026, 0, 1 + nth)));
  const counts = Object.fromEntries(USAGE_COUNTERS.map((name) => [name, Number.MAX_SAFE_INTEGER]));
  const rows = days.flatMap((day) => keyIds.map((keyId) => ({ _id: randomUUID() as never, keyId, day })));
  await stack.service.mongo.collection('usage').insertMany(rows.map((row) => ({ ...row, assistantId, ...counts })));
  const path = `/operator/v1/assistants/${assistantId}/usage.csv?from=2026-01-01&to=2026-03-31`;
  const download = async () => {
    const { cookie } = await anOperator(stack);
    const asked = get(`${stack.url}${path}`, { headers: { Cookie: cookie() ?? '' } });
    onTestFinished(() => void asked.destroy());
    const [answer] = (await once(asked, 'response')) as [IncomingMessage];
    expect(answer.statusCode).toBe(200);
  };
  await Promise.all(Array.from({ length: 4 }, download));

  const { status } = await (await anOperator(stack)).get(`/inbox?${COMMON}`);

  expect(status).toBe(200);
});

test('a token has a rate limit, and other tokens have their own', async () => {
  const [one, other] = [await aSearchedInbox(1), await aSearchedInbox(1)];
  const agents = ({ secret, assistantId }: typeof one) =>
    request(`${stack.url}/operator/v1/assistants/${assistantId}/agents`, { bearer: secret });
  // Every day, most requests are only counted.
  const counted = sized({ everyday: 560, long: 0 });
  const limiter = limiterOf(stack);
  await Promise.all(Array.from({ length: counted }, () => limiter.forToken(one.tokenId)));

  const statuses: number[] = [];
  for (let sent = counted; sent < 620; sent += 20) {
    statuses.push(...(await Promise.all(Array.from({ length: 20 }, async () => (await agents(one)).status))));
  }
  const refused = await agents(one);

  expect(statuses.filter((status) => status === 200)).toHaveLength(600 - counted);
  expect(refused.status).toBe(429);
  expect(Number(refused.headers.get('Retry-After'))).toBeGreaterThan(0);
  expect((await agents(other)).status).toBe(200);
});
