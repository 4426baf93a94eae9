import type { ServerResponse } from 'node:http';
import { createServer, type Socket } from 'node:net';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { afterEach, expect, test, type TestContext } from 'vitest';
import { EXPIRED, KEY } from '../kit/certificates.ts';
import { eventually } from '../support/eventually.ts';
import { aReader, QUICK } from '../support/source-reading.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';
import { aPage, aSentence, openWebsite, type SitePage } from '../kit/website.ts';

const stack = useStack({
  replyWorkers: 0,
  deliveryWorkers: 0,
  sourcesWorkers: 1,
  // A bomb takes a second to decode on a busy machine.
  timing: { ...QUICK, sourceRequestEveryMs: 1, sourceSilentMs: 1_500, sourceFetchMs: 5_000 },
  env: { SOURCES_CONCURRENCY: '4' },
});

const opened: { close: () => Promise<unknown> }[] = [];
afterEach(async () => {
  await Promise.all(opened.splice(0).map((one) => one.close()));
});

const html = (response: ServerResponse, body: string): void => {
  response.writeHead(200, { 'Content-Type': 'text/html' }).end(body);
};
const GOOD = aPage('Good', aSentence('good things'));
/** A start page with one link. Its text is read; the link is hostile. */
const linked = (path: string, page: SitePage): Record<string, SitePage> => ({
  '/': aPage('Start', aSentence('the start'), [path]),
  [path]: page,
});
const drip = (response: ServerResponse, part: string, everyMs: number): void => {
  const timer = setInterval(() => response.write(part), everyMs);
  response.on('close', () => clearInterval(timer));
};

type Case = {
  name: string;
  pages: Record<string, SitePage>;
  /** The path of the source. */
  at?: string;
  kind?: 'page';
  /** Why the source fails. It is ready if omitted. */
  error?: string;
  /** The states of some pages. */
  expected?: Record<string, string>;
};

const CASES: Case[] = [
  {
    name: 'redirects without end',
    pages: { '*': (request, response) => response.writeHead(302, { Location: `${request.url}x` }).end() },
    error: 'too_many_redirects',
  },
  {
    name: 'a redirect to itself, which wants a cookie',
    pages: linked('/wall', (_request, response) =>
      response.writeHead(302, { Location: '/wall', 'Set-Cookie': 'seen=1' }).end(),
    ),
    expected: { '/': 'read', '/wall': 'skipped: redirect_loop' },
  },
  {
    name: 'a redirect that is no address',
    pages: linked('/odd', { status: 301, headers: { Location: 'http://[' } }),
    expected: { '/odd': 'skipped: redirect' },
  },
  {
    name: 'a redirect to another site',
    pages: linked('/away', { status: 301, headers: { Location: 'http://127.0.0.2:9/' } }),
    expected: { '/away': 'skipped: elsewhere' },
  },
  {
    name: 'a redirect to something that is no website',
    pages: linked('/file', { status: 301, headers: { Location: 'file:///etc/passwd' } }),
    expected: { '/file': 'skipped: not_a_url' },
  },
  {
    name: 'a calendar without end, by path',
    pages: {
      '*': (request, response) => {
        const month = Number(/^\/cal\/(\d+)$/.exec(request.url ?? '')?.[1] ?? 0);
        if (request.url?.endsWith('.txt') || request.url?.endsWith('.xml')) return response.writeHead(404).end();
        return html(response, aPage(`Month ${month}`, aSentence(`month ${month}`), [`/cal/${month + 1}`]));
      },
    },
    at: '/cal/',
    expected: { '/cal/12': 'read' },
  },
  {
    name: 'a calendar without end, by query',
    pages: {
      '*': (request, response) => {
        if (/\.(txt|xml)$/.test(request.url ?? '')) return response.writeHead(404).end();
        const n = Number(new URL(request.url ?? '', 'http://a').searchParams.get('m') ?? 0);
        const links = Array.from({ length: 30 }, (_, nth) => `/?m=${n * 31 + nth + 1}`);
        return html(response, aPage(`Month ${n}`, aSentence(`month ${n}`), links));
      },
    },
    expected: { '/': 'read', '/?m=1': 'read' },
  },
  {
    name: 'relative links that go deeper and deeper',
    pages: {
      '*': (request, response) => {
        if (/\.(txt|xml)$/.test(request.url ?? '')) return response.writeHead(404).end();
        return html(response, aPage('Deep', aSentence(`${request.url}`), ['deeper/again/']));
      },
    },
    expected: { '/': 'read' },
  },
  {
    name: 'headers that never come',
    pages: linked('/slow', () => undefined),
    expected: { '/': 'read', '/slow': 'failed: too_slow' },
  },
  {
    name: 'a body that comes a byte at a time',
    pages: linked('/drip', (_request, response) => {
      response.writeHead(200, { 'Content-Type': 'text/html' });
      drip(response, 'x', 50);
    }),
    expected: { '/drip': 'failed: too_slow' },
  },
  {
    name: 'a body that stops in the middle',
    pages: linked(
      '/half',
      (_request, response) => void response.writeHead(200, { 'Content-Type': 'text/html' }).write(GOOD.slice(0, 50)),
    ),
    expected: { '/half': 'failed: too_slow' },
  },
  {
    name: 'a body without end',
    pages: linked('/flood', (_request, response) => {
      response.writeHead(200, { 'Content-Type': 'text/html' });
      const part = 'y'.repeat(1_000_000);
      const write = (): void => {
        if (!response.destroyed) response.write(part, write);
      };
      write();
    }),
    expected: { '/flood': 'skipped: too_large' },
  },
  {
    name: 'interim responses without end',
    pages: linked('/wait', ({ socket }) => {
      const write = (): void => void (socket.destroyed || socket.write('HTTP/1.1 103 \r\n\r\n'.repeat(1_000), write));
      write();
    }),
    expected: { '/': 'read', '/wait': 'skipped: too_large' },
  },
  {
    name: 'a body in pieces of one byte',
    pages: linked('/pieces', ({ socket }) => {
      const pieces = [...GOOD.padEnd(5_000)].map((byte) => `1\r\n${byte}\r\n`).join('');
      socket.write(
        `HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n${pieces}0\r\n\r\n`,
      );
    }),
    expected: { '/': 'read', '/pieces': 'skipped: too_large' },
  },
  {
    name: 'a bomb in gzip',
    pages: linked('/bomb', { headers: { 'Content-Encoding': 'gzip' }, body: gzipSync(Buffer.alloc(50_000_000)) }),
    expected: { '/bomb': 'skipped: too_large' },
  },
  {
    name: 'a bomb in brotli',
    pages: linked('/bomb', {
      headers: { 'Content-Encoding': 'br' },
      body: brotliCompressSync(Buffer.alloc(50_000_000)),
    }),
    expected: { '/bomb': 'skipped: too_large' },
  },
  {
    name: 'a bomb inside a bomb',
    pages: linked('/bomb', {
      headers: { 'Content-Encoding': 'gzip, gzip' },
      body: gzipSync(gzipSync(Buffer.alloc(50_000_000))),
    }),
    expected: { '/bomb': 'skipped: too_large' },
  },
  {
    name: 'a bomb that is small between its two decoders',
    pages: linked('/bomb', {
      headers: { 'Content-Encoding': 'br, br' },
      body: brotliCompressSync(brotliCompressSync(Buffer.alloc(50_000_000))),
    }),
    expected: { '/bomb': 'skipped: too_large' },
  },
  {
    name: 'a compression that was not asked for, with a window as large as its server likes',
    pages: linked('/odd', { headers: { 'Content-Encoding': 'zstd, zstd' }, body: GOOD }),
    expected: { '/odd': 'failed: broken' },
  },
  {
    name: 'what is not compressed as it says',
    pages: linked('/odd', { headers: { 'Content-Encoding': 'gzip' }, body: GOOD }),
    expected: { '/odd': 'failed: broken' },
  },
  {
    name: 'a compression that nobody knows',
    pages: linked('/odd', { headers: { 'Content-Encoding': 'rot13' }, body: GOOD }),
    expected: { '/odd': 'failed: broken' },
  },
  {
    name: 'a compression that is named as what every object has',
    pages: linked('/odd', { headers: { 'Content-Encoding': '__proto__' }, body: GOOD }),
    expected: { '/odd': 'failed: broken' },
  },
  {
    name: 'pictures, archives and programs',
    pages: linked('/video', { headers: { 'Content-Type': 'video/mp4' }, body: Buffer.alloc(1_000) }),
    expected: { '/video': 'skipped: unsupported' },
  },
  {
    name: 'no type at all',
    pages: linked('/untyped', (_request, response) => response.writeHead(200).end(GOOD)),
    expected: { '/untyped': 'skipped: unsupported' },
  },
  {
    name: 'bytes that claim to be a page',
    pages: linked('/noise', { body: Buffer.from(Array.from({ length: 5_000 }, (_, nth) => (nth * 7_919) % 256)) }),
    expected: { '/': 'read' },
  },
  {
    name: 'robots.txt that forbids everything',
    pages: { '/robots.txt': 'User-agent: *\nDisallow: /\n', '/': GOOD },
    error: 'robots',
  },
  {
    name: 'robots.txt that forbids some',
    pages: {
      ...linked('/secret', GOOD),
      '/robots.txt': { headers: { 'Content-Type': 'text/plain' }, body: 'User-agent: ParleyBot\nDisallow: /sec*t$\n' },
    },
    expected: { '/secret': 'skipped: robots' },
  },
  {
    name: 'robots.txt that fails',
    pages: { '/robots.txt': { status: 500 }, '/': GOOD },
    error: 'robots_unavailable',
  },
  {
    name: 'robots.txt without end',
    pages: {
      '/': aPage('Start', aSentence('the start'), ['/forbidden']),
      '/robots.txt': (_request, response) => {
        response.writeHead(200, { 'Content-Type': 'text/plain' });
        response.write('User-agent: *\nDisallow: /forbidden\n');
        drip(response, 'Disallow: /x\n'.repeat(10_000), 5);
      },
      '/forbidden': GOOD,
    },
    expected: { '/': 'read', '/forbidden': 'skipped: robots' },
  },
  {
    name: 'sitemaps that name each other',
    pages: {
      '/': aPage('Start', aSentence('the start'), ['/linked']),
      '/linked': GOOD,
      '/sitemap.xml': {
        body: '<sitemapindex><sitemap><loc>/b.xml</loc></sitemap><sitemap><loc>/sitemap.xml</loc></sitemap></sitemapindex>',
      },
      '/b.xml': { body: '<sitemapindex><sitemap><loc>/sitemap.xml</loc></sitemap></sitemapindex>' },
    },
    expected: { '/linked': 'read' },
  },
  {
    name: 'a sitemap that is no XML',
    pages: {
      '/': GOOD,
      '/sitemap.xml': { body: `<urlset><!DOCTYPE lolz [<!ENTITY a "b">]><url><loc>${'&a;'.repeat(10_000)}` },
    },
    expected: { '/': 'read' },
  },
  {
    name: 'pages that name another page as the right one',
    pages: {
      '/': aPage('Start', aSentence('the start'), ['/a', '/b', '/elsewhere']),
      '/a': aPage('A', aSentence('a and b')).replace('<head>', '<head><link rel="canonical" href="/b">'),
      '/b': aPage('B', aSentence('b and a')),
      '/elsewhere': aPage('E', aSentence('elsewhere')).replace(
        '<head>',
        '<head><link rel="canonical" href="http://other.example/">',
      ),
    },
    expected: { '/a': 'skipped: canonical', '/b': 'read', '/elsewhere': 'skipped: canonical' },
  },
  {
    name: 'two pages that name each other as the right one',
    pages: {
      '/': aPage('Start', aSentence('the start'), ['/a']),
      '/a': aPage('A', aSentence('a')).replace('<head>', '<head><link rel="canonical" href="/b">'),
      '/b': aPage('B', aSentence('b')).replace('<head>', '<head><link rel="canonical" href="/a">'),
    },
    expected: { '/a': 'skipped: canonical', '/b': 'read' },
  },
  {
    name: 'noindex in the page and in the header',
    pages: {
      '/': aPage('Start', aSentence('the start'), ['/meta', '/header', '/other-bot']),
      '/meta': aPage('M', aSentence('meta'), ['/behind']).replace(
        '<head>',
        '<head><meta name="robots" content="noindex">',
      ),
      '/behind': GOOD,
      '/header': { headers: { 'X-Robots-Tag': 'noindex, nofollow' }, body: GOOD },
      '/other-bot': { headers: { 'X-Robots-Tag': 'otherbot: noindex' }, body: aPage('O', aSentence('other')) },
    },
    expected: { '/meta': 'skipped: noindex', '/behind': 'read', '/header': 'skipped: noindex', '/other-bot': 'read' },
  },
  {
    name: 'nofollow',
    pages: {
      '/': aPage('Start', aSentence('the start'), ['/hidden']).replace(
        '<head>',
        '<head><meta name="robots" content="nofollow">',
      ),
      '/hidden': GOOD,
    },
    expected: { '/': 'read' },
  },
  {
    name: '429 for ever',
    pages: linked('/busy', { status: 429, headers: { 'Retry-After': '999999' } }),
    expected: { '/busy': 'failed: busy' },
  },
  {
    name: '503 from the first page on',
    pages: { '/': { status: 503, headers: { 'Retry-After': '0' } } },
    error: 'busy',
  },
  {
    name: 'a connection that is cut',
    pages: linked('/cut', (_request, response) => response.destroy()),
    expected: { '/cut': 'failed: unreachable' },
  },
  {
    name: 'a length that is too long',
    pages: linked('/short', (_request, response) => {
      response.writeHead(200, { 'Content-Type': 'text/html', 'Content-Length': '5000' });
      response.write(GOOD);
      setTimeout(() => response.destroy(), 20);
    }),
    expected: { '/short': 'failed: unreachable' },
  },
  {
    name: 'a length of gigabytes',
    pages: linked('/huge', (_request, response) => {
      response.writeHead(200, { 'Content-Type': 'text/html', 'Content-Length': '5000000000' });
      response.write(GOOD);
    }),
    expected: { '/huge': 'skipped: too_large' },
  },
  {
    name: 'megabytes of headers',
    pages: linked('/headers', (_request, response) => {
      for (let nth = 0; nth < 100; nth += 1) response.setHeader(`X-${nth}`, 'z'.repeat(4_000));
      html(response, GOOD);
    }),
    expected: { '/headers': 'failed: broken' },
  },
  { name: 'a wall of 403', pages: { '/': { status: 403, body: 'no' } }, error: 'forbidden' },
  { name: 'a site that is gone', pages: {}, error: 'not_found' },
  { name: 'a page that is gone', pages: {}, kind: 'page', error: 'not_found' },
  {
    name: 'a page with a million links',
    pages: {
      '/': aPage(
        'Start',
        aSentence('the start'),
        Array.from({ length: 50_000 }, (_, nth) => `/q?x=${nth}`),
      ),
      '*': (_request, response) => response.writeHead(404).end(),
    },
    expected: { '/': 'read' },
  },
];

/** Every day, each fifth site has a neighbour who must not notice. */
const EVERY = sized({ everyday: 5, long: 1 });
const TRIED = CASES.map((one, nth) => ({ ...one, hasNeighbour: nth % EVERY === 0 }));

type Tried = (typeof TRIED)[number];
const waits = ({ expected = {} }: Tried): boolean =>
  Object.values(expected).some((state) => state.includes('too_slow'));

/** Reads a hostile site, and what it left of its neighbour. */
const read = async (tried: Tried, onTestFinished: TestContext['onTestFinished']) => {
  const { pages, at = '/', kind, hasNeighbour } = tried;
  const site = await openWebsite(pages);
  const neighbour = await openWebsite({
    '/': aPage('Neighbour', aSentence('neighbours'), ['/two']),
    '/two': aPage('Two', aSentence('two')),
  });
  onTestFinished(async () => void (await Promise.all([site.close(), neighbour.close()])));
  const [hostile, other] = [await aReader(stack), await aReader(stack)];
  const { sourceId } = await (kind === 'page' ? hostile.addPage(site.url + at) : hostile.addSite(site.url + at));
  const others = hasNeighbour ? [await other.addSite(`${neighbour.url}/`)] : [];

  const beside = await Promise.all(others.map((one) => other.ended(one.sourceId)));
  const { state, error } = await hostile.ended(sourceId);
  const found = await hostile.pagesOf(sourceId);
  const isBounded = Object.keys(found).length <= 2_000;
  return { state, error: error?.code ?? null, pages: found, isBounded, beside };
};
const endOf = ({ error, expected = {}, hasNeighbour }: Tried) => ({
  state: error === undefined ? 'ready' : 'failed',
  error: error ?? null,
  pages: expected,
  isBounded: true,
  beside: hasNeighbour ? [{ state: 'ready', error: null, counts: { read: 2 } }] : [],
});
// Those that wait for a limit wait beside each other.
test.concurrent.for(TRIED.filter(waits))('$name', async (tried, { expect, onTestFinished }) => {
  expect(await read(tried, onTestFinished)).toMatchObject(endOf(tried));
});
test.for(TRIED.filter((one) => !waits(one)))('$name', async (tried, { expect, onTestFinished }) => {
  expect(await read(tried, onTestFinished)).toMatchObject(endOf(tried));
});

test('a site that speaks no HTTP, and one whose certificate is wrong, say so', async () => {
  const sockets = new Set<Socket>();
  const noise = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined).end('SSH-2.0-OpenSSH_9.6\r\n');
  });
  noise.listen(0, '127.0.0.1');
  await once(noise, 'listening');
  const secure = await openWebsite({ '/': GOOD }, { tls: { key: KEY, cert: EXPIRED } });
  opened.push(secure, {
    close: async () => {
      for (const socket of sockets) socket.destroy();
      noise.close();
      await once(noise, 'close');
    },
  });
  const reader = await aReader(stack);
  const odd = await reader.addSite(`http://127.0.0.1:${(noise.address() as AddressInfo).port}/`);
  const expired = await reader.addSite(`${secure.url}/`);

  expect(await reader.ended(odd.sourceId)).toMatchObject({ state: 'failed', error: { code: 'broken' } });
  expect(await reader.ended(expired.sourceId)).toMatchObject({ state: 'failed', error: { code: 'tls' } });
});

test('a sitemap with more pages than a site may have fills the site, and says so', async () => {
  const site = await openWebsite({
    '/': GOOD,
    '/sitemap.xml': (request, response) => {
      response.writeHead(200, { 'Content-Type': 'application/xml' });
      const at = `http://${request.headers.host ?? ''}`;
      const urls = Array.from({ length: 60_000 }, (_, nth) => `<url><loc>${at}/p/${nth}</loc></url>`);
      response.end(`<urlset>${urls.join('')}</urlset>`);
    },
    '*': (_request, response) => response.writeHead(410).end(),
  });
  opened.push(site);
  const reader = await aReader(stack);
  const { sourceId } = await reader.addSite(`${site.url}/`);

  await eventually(async () => {
    const { error } = await reader.findSource(sourceId);
    expect(error?.code).toBe('too_many_pages');
    expect(Object.keys(await reader.pagesOf(sourceId)).length).toBe(2_000);
  });
  await reader.remove(sourceId);
  await eventually(async () => expect(new Set(Object.values(await reader.countLeft(sourceId)))).toEqual(new Set([0])));
});
