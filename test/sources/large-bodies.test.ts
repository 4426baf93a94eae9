import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { afterAll, expect, test } from 'vitest';
import { aPage, aSentence, openWebsite, type SitePage, type Website } from '../kit/website.ts';
import { eventually } from '../support/eventually.ts';
import { aReader, QUICK } from '../support/source-reading.ts';
import { useStack } from '../support/stack.ts';
import { collect } from '../support/heap.ts';

const stack = useStack({
  replyWorkers: 0,
  deliveryWorkers: 0,
  sourcesWorkers: 1,
  timing: { ...QUICK, sourceFetchMs: 60_000 },
});
const LANES = 4;
const PATHS = Array.from({ length: LANES }, (_, nth) => `/${nth}`);
const opened: Website[] = [];

/** How much memory outside of the heap large pages may take. */
const MOST_BYTES = 150_000_000;

/** The most memory outside of the heap that was in use until `stop`. */
const watchMemory = () => {
  const before = process.memoryUsage().arrayBuffers;
  let most = 0;
  const taken = (): number => process.memoryUsage().arrayBuffers - before;
  const timer = setInterval(() => {
    // Twice, because what one collection finds is freed while other code runs, and at the latest before the next one.
    if (taken() > MOST_BYTES) for (let nth = 0; nth < 2; nth += 1) collect();
    most = Math.max(most, taken());
  }, 10);
  return {
    stop: (): number => {
      clearInterval(timer);
      return most;
    },
  };
};

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
  const memory = watchMemory();

  for (const [nth, reader] of hostile.entries())
    for (const site of [await aSite(flood), ...(nth < 3 ? [await aSite(flood)] : [])])
      await reader.addSite(`${site.url}/`);
  await eventually(() => expect(ended).toBeGreaterThanOrEqual(7 * LANES));
  const { sourceId } = (await other?.addSite(`${good.url}/`)) ?? { sourceId: '' };
  const read = await other?.ended(sourceId);

  expect(read).toMatchObject({ state: 'ready', error: null, counts: { read: 1 + LANES } });
  expect(memory.stop()).toBeLessThan(MOST_BYTES);
});

/** Shorter than a page may take. */
const KEPT_MS = 15_000;

test('a page in small chunks with long extensions takes only the memory of its bytes', async () => {
  const text = 'A sentence of thirty-two letters\n';
  const chunk = Buffer.from(`${text.length.toString(16)};${'x'.repeat(60_000)}\r\n${text}\r\n`);
  const isKept = Promise.withResolvers<boolean>();
  const site = await openWebsite({
    '/': async (_request, { socket }) => {
      if (!socket) return;
      collect();
      const before = process.memoryUsage().arrayBuffers;
      socket.write('HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n');
      for (let nth = 0; nth < 1_000; nth += 1) if (!socket.write(chunk)) await once(socket, 'drain');
      const look = (): void => {
        collect();
        expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(20_000_000);
      };
      // What was read but a moment ago may still be in use.
      isKept.resolve(
        eventually(look, KEPT_MS).then(
          () => false,
          () => true,
        ),
      );
      await isKept.promise;
      socket.end('0\r\n\r\n');
    },
  });
  opened.push(site);
  const reader = await aReader(stack);

  const { sourceId } = await reader.addSite(`${site.url}/`);
  const read = await reader.ended(sourceId);

  expect(read).toMatchObject({ state: 'ready', error: null, counts: { read: 1 } });
  expect(await isKept.promise).toBe(false);
});
