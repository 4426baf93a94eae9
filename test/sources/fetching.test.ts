import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { promisify } from 'node:util';
import { openReader } from '@parley/reading';
import { MockAgent, request } from 'undici';
import { afterEach, expect, test } from 'vitest';
import { TIMING } from '../../src/platform/process/time-limits.ts';
import { openGuardedAgent } from '../../src/platform/http/address-guard.ts';
import { newToken } from '../../src/platform/process/ids.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { createFetcher, createHosts, createRooms, type FetchOptions } from '../../src/sources/fetch.ts';
import { createReadSource } from '../../src/sources/read-source.ts';
import { openReaders } from '../../src/sources/reading.ts';
import { eventually } from '../support/eventually.ts';
import { useStack } from '../support/stack.ts';
import { aPage, aSentence, openWebsite } from '../kit/website.ts';
import { aReader, QUICK } from '../support/source-reading.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });
const opened: { close: () => Promise<unknown> }[] = [];
afterEach(async () => {
  await Promise.all(opened.splice(0).map((one) => one.close()));
});

const timing = { ...TIMING, ...QUICK, sourceSilentMs: 400, sourceFetchMs: 1_000 };
const OPTIONS: FetchOptions = {
  assistantId: 'one',
  maxBytes: 1_000,
  accept: 'text/html',
  everyMs: () => 1,
  signal: new AbortController().signal,
};
const aFetcher = (dispatcher: Parameters<typeof createFetcher>[0]['dispatcher'], every = timing) => {
  const hosts = createHosts(stack.service.redis, stack.env['REDIS_PREFIX'] ?? '', every);
  return createFetcher({ dispatcher, hosts, allowPrivate: false, timing: every });
};

test.each(['http://127.0.0.1/', 'http://169.254.169.254/latest/meta-data', 'http://[::1]/', 'http://10.0.0.8:8080/'])(
  'a public page that leads to %s is not followed',
  async (target) => {
    const agent = new MockAgent();
    opened.push(agent);
    agent.disableNetConnect();
    const site = agent.get('https://shop.example');
    site.intercept({ path: '/' }).reply(302, '', { headers: { location: '/moved' } });
    site.intercept({ path: '/moved' }).reply(307, '', { headers: { location: target } });

    const answer = await aFetcher(agent)('https://shop.example/', OPTIONS);

    expect(answer).toMatchObject({ kind: 'refused', error: { code: 'private_address' } });
  },
);

test('a public name with a private address is not asked', async () => {
  const secret = await openWebsite({ '/': 'secret' });
  const agent = openGuardedAgent({ allowPrivate: false, connections: 1, resolver: async () => ['127.0.0.1'] });
  opened.push(secret, { close: () => agent.destroy() });
  const { port } = new URL(secret.url);

  const answer = await aFetcher(agent)(`http://rebind.example:${port}/`, OPTIONS);

  expect(answer).toMatchObject({ kind: 'refused', error: { code: 'private_address' } });
  expect(secret.asked).toEqual([]);
});

test('a site does not decide how long connections to it stay open', async () => {
  const server = createServer((_req, res) => void res.setHeader('Keep-Alive', 'timeout=600').end());
  const port = await new Promise<number>((resolve) =>
    server.listen(0, '127.0.0.1', () => resolve((server.address() as AddressInfo).port)),
  );
  const agent = openGuardedAgent({ allowPrivate: true, connections: 1 });
  opened.push({ close: () => agent.destroy() }, { close: async () => server.close() });
  server.keepAliveTimeout = 0;
  const connections = promisify(server.getConnections.bind(server));

  await request(`http://127.0.0.1:${port}/`, { dispatcher: agent }).then(({ body }) => body.dump());

  expect(await connections()).toBe(1);
  await eventually(async () => expect(await connections()).toBe(0), 30_000);
});

test('requests to a host wait for each other, whichever process sends them, and a pause is kept', async () => {
  const slow = { ...timing, sourceRequestEveryMs: 100 };
  const [one, other] = [0, 1].map(() => createHosts(stack.service.redis, stack.env['REDIS_PREFIX'] ?? '', slow));
  const { signal } = new AbortController();
  const send = async (hosts = one): Promise<void> =>
    expect(await hosts?.waitFor('a.example', { assistantId: 'one', everyMs: 100, signal })).toBe(true);

  const startedAt = performance.now();
  await Promise.all([send(), send(other), send(), send(other)]);
  const begunAt = performance.now();
  await one?.leaveAlone('a.example', { assistantId: 'one', forMs: 300 });
  await send(other);
  await one?.leaveAlone('b.example', { assistantId: 'one', forMs: 10_000_000 });

  expect(begunAt - startedAt).toBeGreaterThan(280);
  expect(performance.now() - begunAt).toBeGreaterThan(280);
  expect(await other?.waitFor('b.example', { assistantId: 'one', everyMs: 100, signal })).toBe(false);
  expect(await other?.waitFor('b.example', { assistantId: 'another', everyMs: 100, signal })).toBe(true);
});

test('an assistant with many requests to a host leaves every other turn to another assistant', async () => {
  const hosts = createHosts(stack.service.redis, stack.env['REDIS_PREFIX'] ?? '', timing);
  const { signal } = new AbortController();
  const sent: string[] = [];
  const send = async (assistantId: string): Promise<void> => {
    await hosts.waitFor('shared.example', { assistantId, everyMs: 50, signal });
    sent.push(assistantId);
  };

  await Promise.all([...Array.from({ length: 12 }, () => send('busy')), send('another'), send('another')]);

  expect(sent.slice(0, 5).filter((one) => one === 'another')).toHaveLength(2);
});

test('while other sources wait, a long wait for a host ends at once, also one that has begun', async () => {
  const hosts = createHosts(stack.service.redis, stack.env['REDIS_PREFIX'] ?? '', {
    ...timing,
    sourceRestMs: 20,
    sourceBackoffMaxMs: 60_000,
  });
  const { signal } = new AbortController();
  let others = false;
  const options = { assistantId: 'patient', everyMs: 1, signal, othersWait: () => others };
  await hosts.leaveAlone('busy.example', { assistantId: 'patient', forMs: 60_000 });

  const begun = hosts.waitFor('busy.example', options);
  others = true;

  expect(await begun).toBe(false);
  expect(await hosts.waitFor('busy.example', options)).toBe(false);
});

test('a place at a host that would be given up is not taken, and one that was taken is used', async () => {
  const hosts = createHosts(stack.service.redis, stack.env['REDIS_PREFIX'] ?? '', {
    ...timing,
    sourceRestMs: 150,
    sourceBackoffMaxMs: 60_000,
  });
  const { signal } = new AbortController();
  const wait = (assistantId: string, othersWait: () => boolean) =>
    hosts.waitFor('crowded.example', { assistantId, everyMs: 100, signal, othersWait });
  /** Others come once the run has looked. */
  const begin = (assistantId: string) => {
    let looks = 0;
    return wait(assistantId, () => (looks += 1) > 1);
  };

  expect(await Promise.all(['a', 'b', 'c', 'd', 'e'].map(begin))).toEqual([true, true, true, true, true]);

  const late = await Promise.all(Array.from({ length: 50 }, (_, nth) => wait(`late ${nth}`, () => true)));
  const askedAt = performance.now();
  expect(late).toContain(true);
  expect(await wait('neighbour', () => false)).toBe(true);
  expect(performance.now() - askedAt).toBeLessThan(2_000); // 50 places last five seconds
});

test('while other sources wait, a host that wants long pauses is still asked for one page after the other', async () => {
  const hosts = createHosts(stack.service.redis, stack.env['REDIS_PREFIX'] ?? '', { ...timing, sourceRestMs: 20 });
  const options = { assistantId: 'one', everyMs: 50, signal: OPTIONS.signal, othersWait: () => true };

  const mayAsk = [];
  for (let nth = 0; nth < 3; nth += 1) mayAsk.push(await hosts.waitFor('slow.example', options));

  expect(mayAsk).toEqual([true, true, true]);
});

test('a page is read once what the one before says is stored', async () => {
  const links = ['/a', '/b', '/c', '/d'];
  const pages = Object.fromEntries(links.map((path) => [path, aPage(path, aSentence(path))]));
  const site = await openWebsite({ '/': aPage('Start', aSentence('the start'), links), ...pages });
  const agent = openGuardedAgent({ allowPrivate: true, connections: 4 });
  const readers = openReaders(openReader);
  opened.push(site, readers, { close: () => agent.destroy() });
  const { sourceRuns: runs, mongo, redis } = stack.service;
  const { sourceId } = await (await aReader(stack)).addSite(`${site.url}/`);
  const claimed = await runs.claim(sourceId, newToken());
  const hosts = createHosts(redis, stack.env['REDIS_PREFIX'] ?? '', timing);
  const storedBefore: number[] = [];
  const readSource = createReadSource({
    runs,
    fetcher: createFetcher({ dispatcher: agent, hosts, allowPrivate: true, timing }),
    openRoom: createRooms(),
    read: async (...given) => {
      storedBefore.push(await mongo.collection('sourcePages').countDocuments({ sourceId, state: 'read' }));
      return readers.read(...given);
    },
    follow: async () => undefined,
    timing,
    countPage: () => undefined,
    logger: createLogger({ name: 'test', level: 'silent' }),
  });
  if (!claimed) throw new Error('the source is not due');

  await readSource(claimed, { signal: OPTIONS.signal, shouldYield: () => false, othersWait: () => false });

  expect(storedBefore).toEqual([0, 1, 2, 3, 4]);
});

test('a site is asked for two pages a second at most, and Crawl-delay slows it further', async () => {
  const links = ['/a', '/b', '/c'];
  const pages = Object.fromEntries(links.map((path) => [path, aPage(path, aSentence(path))]));
  const site = await openWebsite({ '/': aPage('Start', aSentence('the start'), links), ...pages });
  const patient = await openWebsite({
    '/': aPage('Start', aSentence('the start')),
    '/robots.txt': { headers: { 'Content-Type': 'text/plain' }, body: 'User-agent: *\nCrawl-delay: 1' },
  });
  opened.push(site, patient);
  const worker = await stack.startSourcesWorker();
  opened.push(worker);
  const reader = await aReader(stack);

  const [first, second] = [await reader.addSite(`${site.url}/`), await reader.addSite(`${patient.url}/`)];
  await Promise.all([reader.ended(first.sourceId), reader.ended(second.sourceId)]);

  // A request may arrive late, so that the pause after it is shorter.
  const { askedAt } = site;
  const [, before = 0, after = 0] = patient.askedAt;
  expect(askedAt).toHaveLength(6);
  expect(((askedAt.at(-1) ?? 0) - (askedAt[0] ?? 0)) / 5).toBeGreaterThan(400);
  expect(after - before).toBeGreaterThan(750);
});
