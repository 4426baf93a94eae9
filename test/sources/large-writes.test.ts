import { setImmediate as afterThis } from 'node:timers';
import { openReader } from '@parley/reading';
import { afterEach, expect, test } from 'vitest';
import { openGuardedAgent } from '../../src/platform/http/address-guard.ts';
import { newToken } from '../../src/platform/process/ids.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { TIMING } from '../../src/platform/process/time-limits.ts';
import { createFetcher, createHosts, createRooms } from '../../src/sources/fetch.ts';
import { createReadSource } from '../../src/sources/read-source.ts';
import { openReaders } from '../../src/sources/reading.ts';
import type { SourceRuns } from '../../src/sources/runs.ts';
import { NO_COUNTS, type StoredSource } from '../../src/sources/source.ts';
import { aPage, aSentence, openWebsite } from '../kit/website.ts';
import { eventually } from '../support/eventually.ts';
import { aReader, QUICK } from '../support/source-reading.ts';
import { addPages, setSource } from '../support/sources.ts';
import { useStack } from '../support/stack.ts';

// Writes of many passages wait for one another in a process, but for one step only.

const CLOSED = 160;
const CLOSED_AT_ONCE = 16;
const PASSAGES = 1_100;
/** Nobody renews the leases of this test. */
const LASTING = { sourceLeaseMs: 600_000 };
const timing = { ...TIMING, ...QUICK, ...LASTING, sourceFetchMs: 60_000 };
const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0, timing: LASTING });
const opened: { close: () => Promise<unknown> }[] = [];
afterEach(async () => {
  await Promise.all(opened.splice(0).map((one) => one.close()));
});

const open = <One extends { close: () => Promise<unknown> }>(one: One): One => {
  opened.push(one);
  return one;
};

/** A source that is read anew, and the number of its pages that its run has not found. */
const aSource = async (body: string) => {
  const { url } = open(await openWebsite({ '/': body }));
  const reader = await aReader(stack);
  const { sourceId } = await reader.addPage(`${url}/`);
  // The clock of MongoDB may be some milliseconds ahead.
  const claim = () =>
    eventually(async () => {
      const claimed = await stack.service.sourceRuns.claim(sourceId, newToken());
      if (!claimed) throw new Error('the source is not due');
      return claimed;
    });
  const countLeft = () => stack.service.mongo.collection('sourcePages').countDocuments({ sourceId, run: 0 });
  return { ...reader, sourceId, claim, countLeft };
};

/** A source of many passages, of whose pages only one is still there. */
const aSourceThatDrops = async () => {
  const source = await aSource(aPage('Start', aSentence('the start')));
  await setSource(stack, source, { counts: { ...NO_COUNTS, passages: PASSAGES } });
  const pages = Array.from({ length: CLOSED }, (_, nth) => ({ url: `https://example.com/${nth}`, run: 0 }));
  await addPages(stack, source, pages);
  return source;
};

/** Reads sources as a worker does. `runs`: what is done beside some steps. */
const aReadSource = (runs: Partial<SourceRuns>) => {
  const agent = openGuardedAgent({ allowPrivate: true, connections: 4 });
  open({ close: () => agent.destroy() });
  const hosts = createHosts(stack.service.redis, stack.env['REDIS_PREFIX'] ?? '', timing);
  const readSource = createReadSource({
    runs: { ...stack.service.sourceRuns, ...runs },
    fetcher: createFetcher({ dispatcher: agent, hosts, allowPrivate: true, timing }),
    openRoom: createRooms(),
    read: open(openReaders(openReader)).read,
    follow: async () => undefined,
    timing,
    countPage: () => undefined,
    logger: createLogger({ name: 'test', level: 'silent' }),
  });
  return (claimed: Parameters<typeof readSource>[0], signal = new AbortController().signal) =>
    readSource(claimed, { signal, shouldYield: () => false, othersWait: () => false });
};

/** Holds the next write of a source by its worker in its place, until the result is called. */
const holdWrite = async (sourceId: string): Promise<() => Promise<void>> => {
  const session = await stack.service.mongo.startSession();
  session.startTransaction();
  // A write in a transaction does not wait for another one. It is repeated, after a write that does.
  const sources = stack.service.mongo.collection<StoredSource>('sources');
  await sources.updateOne({ _id: sourceId }, { $inc: { reopened: 1 } }, { session });
  return async () => {
    await session.abortTransaction();
    await session.endSession();
  };
};

test('a large page of one assistant is stored after one step of another one that closes many pages', async () => {
  const { sourceRuns: runs } = stack.service;
  const closing = await aSourceThatDrops();
  const sections = Array.from({ length: PASSAGES }, (_, nth) => `<h2>The ${nth}</h2><p>${aSentence(`${nth}`)}</p>`);
  const large = await aSource(aPage('Large', aSentence('all')).replace('</main>', `${sections.join('')}</main>`));
  const beganToClose = Promise.withResolvers<() => Promise<void>>();
  const released: Promise<void>[] = [];
  let left: number | null = null;
  const readSource = aReadSource({
    countRead: async (sourceId) => {
      const count = await runs.countRead(sourceId);
      // The next write of this run closes pages.
      if (sourceId === closing.sourceId) beganToClose.resolve(await holdWrite(sourceId));
      return count;
    },
    changesMany: async (ended) => {
      const isLarge = await runs.changesMany(ended);
      if (ended.sourceId !== large.sourceId) return isLarge;
      const release = await beganToClose.promise;
      // By then the large page waits for its turn.
      afterThis(() => void released.push(release()));
      return isLarge;
    },
    endPage: async (lease, ...page) => {
      const isStored = await runs.endPage(lease, ...page);
      if (lease.sourceId === large.sourceId) left = await closing.countLeft();
      return isStored;
    },
  });

  const first = readSource(await closing.claim());
  await beganToClose.promise;
  await readSource(await large.claim());
  await first;
  await Promise.all(released);

  expect(released).toHaveLength(1);
  expect((await large.findSource(large.sourceId)).counts.passages).toBeGreaterThan(PASSAGES);
  expect(left).toBeGreaterThan(CLOSED - 4 * CLOSED_AT_ONCE);
  expect(await closing.countLeft()).toBe(0);
});

test('a run that must stop closes no more pages, and the next worker closes the others', async () => {
  const { sourceRuns: runs } = stack.service;
  const source = await aSourceThatDrops();
  const stopped = new AbortController();
  const cut = aReadSource({
    closePages: (lease, steps) => {
      afterThis(() => stopped.abort(new Error('the worker stops')));
      return runs.closePages(lease, steps);
    },
  });
  const goOn = aReadSource({});

  await cut(await source.claim(), stopped.signal);
  const left = await source.countLeft();
  const { state, run } = await source.findSource(source.sourceId);
  expect({ left, state, run }).toEqual({ left: CLOSED - CLOSED_AT_ONCE, state: 'running', run: 1 });
  await goOn(await source.claim());

  expect(await source.findSource(source.sourceId)).toMatchObject({
    state: 'ready',
    run: 1,
    counts: { read: 1, failed: CLOSED },
  });
});
