import { beforeAll, expect, test } from 'vitest';
import { newToken } from '../../src/platform/process/ids.ts';
import { request } from '../support/builders.ts';
import { watchLoop } from '../support/loop.ts';
import { atPace } from '../support/pace.ts';
import { aReader } from '../support/source-reading.ts';
import { sized } from '../support/size.ts';
import { addPages } from '../support/sources.ts';
import { useStack } from '../support/stack.ts';

// Pages that have as many links, and as many texts of other pages, as there can be: a site of copies of one long page.

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });
const PAGES = sized({ everyday: 40, long: 200 });
const LONGEST_MS = 40;
let reader: Awaited<ReturnType<typeof aReader>>;
let sourceId: string;

beforeAll(async () => {
  reader = await aReader(stack);
  const { assistantId } = reader;
  ({ sourceId } = await reader.addPage('http://127.0.0.1:9/'));
  const repeated = Array.from({ length: 10_000 }, (_, nth) => `${nth}`.padStart(24, 'h'));
  const large = { repeated, links: repeated.slice(0, 2_000), missed: 0 };
  for (let nth = 0; nth < PAGES; nth += 10) {
    const some = Array.from({ length: 10 }, (_, other) => ({ url: `http://a.example/${nth + other}`, ...large }));
    await addPages(stack, { assistantId, sourceId }, some);
  }
});

/** The longest step of the loop, and the most memory beside that before. */
const watched = async <Result>(work: () => Promise<Result>) => {
  const before = process.memoryUsage().rss;
  let most = before;
  const timer = setInterval(() => {
    most = Math.max(most, process.memoryUsage().rss);
  }, 5);
  const stop = watchLoop();
  const result = await work();
  const step = stop();
  clearInterval(timer);
  return { result, step, grown: most - before };
};

test('are listed without them', async () => {
  const { assistantId } = reader;
  const rights = { scope: 'read' as const, assistantIds: [assistantId], createdBy: null };
  const bearer = (await stack.service.tokens.createToken({ name: 'a program', ...rights })).secret;
  const url = `${stack.url}/operator/v1/assistants/${assistantId}/sources/${sourceId}/pages`;
  await request(`${url}?limit=1`, { bearer });

  const { result, step } = await watched(() => request<{ pages: object[] }>(url, { bearer }));

  expect([result.status, result.body.pages.length]).toEqual([200, Math.min(100, PAGES)]);
  expect(step.ms, step.name).toBeLessThan(atPace(LONGEST_MS));
});

test('are compared at the end of a run in little memory, and read again if a text has left', async () => {
  const runs = stack.service.sourceRuns;
  const claimed = await runs.claim(sourceId, newToken());
  if (!claimed) throw new Error('the source is not due');
  const begun = await runs.start(claimed.lease);
  if (!begun) throw new Error('the source is read already');

  const { result, step, grown } = await watched(async () => {
    await runs.closePages(claimed.lease);
    const lacking = await runs.findLacking({ sourceId, run: begun.run });
    await runs.reopenPages(claimed.lease, lacking);
    return lacking.length;
  });

  expect(result).toBe(PAGES);
  expect(await runs.listOpen({ sourceId, run: begun.run }, 2 * PAGES)).toHaveLength(PAGES);
  expect(step.ms, step.name).toBeLessThan(atPace(LONGEST_MS));
  expect(grown).toBeLessThan(100_000_000);
});
