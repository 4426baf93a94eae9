import type { ServerResponse } from 'node:http';
import { afterAll, expect, test } from 'vitest';
import { aPage, aSentence, openWebsite, type SitePage, type Website } from '../kit/website.ts';
import { eventually } from '../support/eventually.ts';
import { aReader, QUICK } from '../support/source-reading.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({
  replyWorkers: 0,
  deliveryWorkers: 0,
  sourcesWorkers: 1,
  timing: { ...QUICK, sourceFetchMs: 60_000 },
});
const LANES = 4;
const PATHS = Array.from({ length: LANES }, (_, nth) => `/${nth}`);
const opened: Website[] = [];

const aSite = async (page: SitePage): Promise<Website> => {
  const start = aPage('Start', aSentence('the start'), PATHS);
  const site = await openWebsite({ '/': start, ...Object.fromEntries(PATHS.map((path) => [path, page])) });
  opened.push(site);
  return site;
};

afterAll(async () => {
  await Promise.all(opened.map((site) => site.close()));
});

test('the large pages of four assistants wait before they are in memory, and those of a fifth one are read', async () => {
  const body = Buffer.alloc(9_500_000, 'x ');
  let ended = 0;
  /** Comes nearly whole, or is refused by then, and never ends. */
  const flood = (_request: unknown, response: ServerResponse): void => {
    response.writeHead(200, { 'Content-Type': 'text/plain' }).write(body, () => (ended += 1));
    const timer = setInterval(() => response.write('x'), 100);
    response.on('close', () => clearInterval(timer));
  };
  const large = `<script>${' '.repeat(3_000_000)}</script>`;
  const good = await aSite((request, response) => {
    const page = aPage('Good', aSentence(`good things at ${request.url}`)).replace('</body>', `${large}</body>`);
    response.writeHead(200, { 'Content-Type': 'text/html' }).end(page);
  });
  const [other, ...hostile] = await Promise.all(Array.from({ length: 5 }, () => aReader(stack)));
  const before = process.memoryUsage().arrayBuffers;
  let most = 0;
  const timer = setInterval(() => {
    most = Math.max(most, process.memoryUsage().arrayBuffers - before);
  }, 10);

  for (const [nth, reader] of hostile.entries())
    for (const site of [await aSite(flood), ...(nth < 3 ? [await aSite(flood)] : [])])
      await reader.addSite(`${site.url}/`);
  await eventually(() => expect(ended).toBeGreaterThanOrEqual(7 * LANES));
  const { sourceId } = (await other?.addSite(`${good.url}/`)) ?? { sourceId: '' };
  const read = await other?.ended(sourceId);
  clearInterval(timer);

  expect(read).toMatchObject({ state: 'ready', error: null, counts: { read: 1 + LANES } });
  expect(most).toBeLessThan(150_000_000);
});
