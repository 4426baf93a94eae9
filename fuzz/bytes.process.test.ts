import { once } from 'node:events';
import { existsSync, readFileSync, rmSync } from 'node:fs';
import { type AddressInfo, connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openReader, type ReadInput } from '@parley/reading';
import { Agent } from 'undici';
import { expect, onTestFinished, test } from 'vitest';
import { createRandom, type Random } from '../test/kit/random.ts';
import { aDocx, aFile, aPage, aParagraph, aPdf } from '../packages/reading/test/files.ts';
import { anAssistant, aTurn, request } from '../test/support/builders.ts';
import { eventually } from '../test/support/eventually.ts';
import { workedMs } from '../test/support/loop.ts';
import { startRealProcess } from '../test/kit/processes.ts';
import { memoryMbOf } from '../test/kit/services.ts';
import { useStack } from '../test/support/stack.ts';
import { createSender } from '../src/events/sending/send.ts';
import { completeInTime, ProviderError } from '../src/replies/engines/openai/completion.ts';
import { parseRobots, parseSitemap } from '../src/sources/site-rules.ts';
import { often, record, seed } from '../test/kit/fuzz-part.ts';

// Bytes of strangers, from almost right to very wrong. Times are processor time, so that other programs do not count.

const STALL_MS = 100;
/** In a short form, the code is still being compiled. */
const GROWTH_MB = often({ short: 150, whole: 30 });
const stack = useStack({ deliveryWorkers: 0 });

const pick = <Value>({ below }: Random, all: readonly Value[]): Value => all[below(all.length)] as Value;

/** Flips, cuts, repeats and inserts, one to five times. */
const damage = (random: Random, whole: Buffer, tokens: readonly string[]): Buffer => {
  let bytes = Buffer.from(whole);
  for (let left = 1 + random.below(5); left > 0; left -= 1) {
    const [at, size] = [random.below(bytes.length + 1), 1 + random.below(40)];
    const [head, tail] = [bytes.subarray(0, at), bytes.subarray(at)];
    const change = random.below(6);
    if (change === 0 && at < bytes.length) bytes[at] = random.below(256);
    else if (change === 1) bytes = Buffer.concat([head, tail.subarray(size)]);
    else if (change === 2) bytes = Buffer.concat([head, tail.subarray(0, size), tail]);
    else if (change === 3) bytes = Buffer.from(head);
    else bytes = Buffer.concat([head, Buffer.from(pick(random, tokens)), tail]);
  }
  return bytes;
};

/** The longest that the loop of this process was held, and by how much its memory grew in the second half. */
const watched = async (count: number, atOnce: number, give: (nth: number) => Promise<unknown>) => {
  let [stallMs, worked, half] = [0, workedMs(), 0];
  const look = setInterval(() => {
    const now = workedMs();
    [stallMs, worked] = [Math.max(stallMs, now - worked), now];
  }, 1);
  for (let from = 0; from < count; from += atOnce) {
    await Promise.all(Array.from({ length: Math.min(atOnce, count - from) }, (_, nth) => give(from + nth)));
    if (half === 0 && from >= count / 2) half = process.memoryUsage().rss;
  }
  clearInterval(look);
  return { stallMs: Math.round(stallMs), grownMb: Math.round((process.memoryUsage().rss - half) / 2 ** 20) };
};

const TEXT_TOKENS = [
  '\r\n',
  '\n',
  '\0',
  '*',
  '$',
  '%',
  '%2',
  '#',
  ':',
  '<loc>',
  '</url>',
  '<![CDATA[',
  '&#x110000;',
  '&amp',
  'Disallow: /',
  'Allow: *',
  'User-agent: *',
  'Sitemap: ',
  '\ufeff',
  '😀',
  'data: ',
  'data: [DONE]\n\n',
  '{"choices":[',
  '"content":"x"',
  'event: x\n',
  'id: 1\n',
  'retry: 9\n',
];
const ROBOTS =
  'User-agent: *\nDisallow: /private/*$\nAllow: /private/open\nCrawl-delay: 2\nSitemap: https://a.example/sitemap.xml\n';
const SITEMAP = `<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">${'<url><loc>https://a.example/b</loc></url>'.repeat(5)}</urlset>`;

test('robots.txt and sitemaps of any bytes are read as far as they go', async () => {
  const random = createRandom(seed);
  const count = often({ short: 300, whole: 40_000 });
  let decided = 0;
  const figures = await watched(count, 1, async (nth) => {
    const text = damage(random, Buffer.from(nth % 2 ? ROBOTS : SITEMAP), TEXT_TOKENS).toString('latin1');
    if (nth % 2) decided += Number(typeof (await (await parseRobots(text)).allows('/private/a?b=%41')) === 'boolean');
    else decided += Number((await parseSitemap(text, 3)).pages.length <= 3);
  });

  expect(decided).toBe(count);
  expect(figures.stallMs).toBeLessThan(STALL_MS);
  record('bytes-sites', { inputs: count, ...figures });
});

/** A server whose answers are these bytes. */
const openAnswering = async (answerOf: () => Buffer) => {
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.once('data', () => socket.end(answerOf()));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
};
const HTTP_TOKENS = [
  '\r\n',
  '\n',
  '\r',
  '\r\n\r\n',
  ' ',
  '\t',
  '\0',
  'HTTP/1.1 ',
  'Transfer-Encoding: chunked\r\n',
  'Transfer-Encoding: gzip, chunked\r\n',
  'Content-Length: 5\r\n',
  'Content-Length: 0\r\n',
  'Connection: close\r\n',
  'Content-Encoding: gzip\r\n',
  '0\r\n\r\n',
  '5\r\nhello\r\n',
  'ffffffffffffffff\r\n',
  ';a=b',
  'Expect: 100-continue\r\n',
  'Upgrade: h2c\r\n',
  'X-A: b\r\n'.repeat(50),
  'GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n',
];
const chunk = (json: object): string => `data: ${JSON.stringify(json)}\n\n`;
const STREAM = `${chunk({ choices: [{ delta: { content: 'Hello' } }] })}${chunk({ choices: [{ delta: {}, finish_reason: 'stop' }], usage: { prompt_tokens: 1, completion_tokens: 2 } })}data: [DONE]\n\n`;
const COMPLETION = `HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n${STREAM.length.toString(16)}\r\n${STREAM}\r\n0\r\n\r\n`;

test('a provider may stream any bytes: they are a reply or a failure of the provider', async () => {
  const random = createRandom(seed);
  const count = often({ short: 100, whole: 15_000 });
  const url = await openAnswering(() => damage(random, Buffer.from(COMPLETION), [...TEXT_TOKENS, ...HTTP_TOKENS]));
  const dispatcher = new Agent({ pipelining: 1 });
  onTestFinished(() => dispatcher.destroy());
  const stop = new AbortController().signal;
  let [replies, failures] = [0, 0];
  const figures = await watched(count, 10, async () => {
    const again = { onText: () => undefined, mayRepeat: async () => true };
    const call = { assistantId: 'a', url, headers: {}, body: '{}', dispatcher, ...again };
    const ended = await completeInTime(call, { timeoutMs: 5_000, stop }).catch((cause: unknown) => cause);
    if (ended instanceof ProviderError) failures += 1;
    else replies += Number(!(ended instanceof Error));
  });

  expect(replies + failures).toBe(count);
  expect(replies).toBeGreaterThan(count / 50);
  expect(figures.stallMs).toBeLessThan(STALL_MS);
  record('bytes-providers', { inputs: count, replies, ...figures });
});

test('a receiver may answer any bytes: the delivery has an outcome', async () => {
  const random = createRandom(seed);
  const count = often({ short: 100, whole: 15_000 });
  const good = 'HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello';
  const url = await openAnswering(() => damage(random, Buffer.from(good), HTTP_TOKENS));
  const sender = createSender({ userAgent: 'Test', allowPrivate: true, perEndpointConnections: 4, deadlineMs: 5_000 });
  onTestFinished(() => sender.close());
  const outcomes: Record<string, number> = {};
  const figures = await watched(count, 10, async (nth) => {
    const sent = { endpointId: `e${nth % 10}`, url, body: Buffer.from('{}'), headers: {} };
    const { outcome } = await sender.send(sent);
    outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
  });

  expect(Object.values(outcomes).reduce((sum, one) => sum + one, 0)).toBe(count);
  expect(figures.stallMs).toBeLessThan(STALL_MS);
  record('bytes-receivers', { inputs: count, ...outcomes, ...figures });
});

const DOCUMENTS: ReadInput[] = [
  aFile(aPdf([[{ text: 'One good line of text.', y: 700 }]]), { name: 'a.pdf' }),
  aFile(aDocx(aParagraph('One good line of text.')), { name: 'a.docx' }),
  aPage('<html><head><title>A</title></head><body><main><h1>B</h1><p>One good line of text.</p></main></body></html>'),
  aFile('# Title\n\nOne good line of text.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n', { name: 'a.md' }),
];
const DOCUMENT_TOKENS = [
  'endobj',
  'stream\n',
  '<< /Length 99999999 >>',
  '/Filter /FlateDecode',
  '1 0 R',
  'PK\u0003\u0004',
  'PK\u0001\u0002',
  '\xff\xff\xff\xff',
  '<table>',
  '<p>'.repeat(200),
  '<!--',
  '<script>',
  '&#x110000;',
  '<w:p>',
  '<!DOCTYPE a [<!ENTITY b "c">]>',
  '\n> > > > ',
  '[](',
  '```',
];

test('documents of any bytes are read or refused, and the process that reads them stays', async () => {
  const random = createRandom(seed);
  const count = often({ short: 16, whole: 8_000 });
  const reader = openReader();
  onTestFinished(() => reader.close());
  const ends: Record<string, number> = {};
  const figures = await watched(count, 1, async (nth) => {
    const whole = DOCUMENTS[nth % DOCUMENTS.length] as ReadInput;
    const bytes = damage(random, Buffer.from(whole.bytes), DOCUMENT_TOKENS);
    const read = await reader.read({ ...whole, bytes });
    const end = 'failed' in read ? read.failed : 'read';
    ends[end] = (ends[end] ?? 0) + 1;
  });

  // Nothing so small may take the time or the memory of a large one. It may say that it is large.
  expect(Object.keys(ends).filter((end) => ['too_slow', 'too_much_memory'].includes(end))).toEqual([]);
  expect(figures.stallMs).toBeLessThan(STALL_MS);
  record('bytes-documents', { inputs: count, ...ends, ...figures });
});

/** Two readers of the same bytes may find other requests in them. */
const AMBIGUOUS: [name: string, headers: string, body: string][] = [
  ['two lengths', 'Content-Length: 2\r\nContent-Length: 40', '{}'],
  ['two lengths in one', 'Content-Length: 2, 40', '{}'],
  ['a length beside chunks', 'Content-Length: 2\r\nTransfer-Encoding: chunked', '0\r\n\r\n'],
  ['chunks beside a length', 'Transfer-Encoding: chunked\r\nContent-Length: 2', '0\r\n\r\n'],
  ['chunks twice', 'Transfer-Encoding: chunked, chunked', '0\r\n\r\n'],
  ['chunks that are not last', 'Transfer-Encoding: chunked, identity', '0\r\n\r\n'],
  ['an unknown coding', 'Transfer-Encoding: xchunked', '0\r\n\r\n'],
  ['identity', 'Transfer-Encoding: identity\r\nContent-Length: 2', '{}'],
  ['a space before the colon', 'Transfer-Encoding : chunked', '0\r\n\r\n'],
  ['a tab before the colon', 'Transfer-Encoding\t: chunked', '0\r\n\r\n'],
  ['a folded header', 'X-A: b\r\n Transfer-Encoding: chunked\r\nContent-Length : 2', '{}'],
  ['a vertical tab', 'Transfer-Encoding: \u000bchunked', '0\r\n\r\n'],
  ['NUL in a value', 'Transfer-Encoding: chunked\0', '0\r\n\r\n'],
  ['a carriage return alone', 'X-A: b\rTransfer-Encoding: chunked\r\nContent-Length: x', '{}'],
  ['a length with a sign', 'Content-Length: +2', '{}'],
  ['a length in hex', 'Content-Length: 0x2', '{}'],
  ['a length beyond numbers', 'Content-Length: 18446744073709551618', '{}'],
  ['an empty length', 'Content-Length: ', '{}'],
  ['a chunk size with a sign', 'Transfer-Encoding: chunked', '+2\r\n{}\r\n0\r\n\r\n'],
  ['a chunk size with 0x', 'Transfer-Encoding: chunked', '0x2\r\n{}\r\n0\r\n\r\n'],
  ['a chunk size beyond numbers', 'Transfer-Encoding: chunked', '10000000000000002\r\n{}\r\n0\r\n\r\n'],
  ['a chunk without its end', 'Transfer-Encoding: chunked', '2\r\n{}0\r\n\r\n'],
  ['a chunk extension with a line feed', 'Transfer-Encoding: chunked', '2;\nab\r\n{}\r\n0\r\n\r\n'],
  ['a chunk that ends with a line feed', 'Transfer-Encoding: chunked', '2\n{}\n0\n\n'],
];

/** The statuses that a connection gets for these bytes until the server has closed it. */
const statusesOf = async (url: string, bytes: Buffer): Promise<number[]> => {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  const received: Buffer[] = [];
  socket.on('error', () => undefined).on('data', (some: Buffer) => received.push(some));
  socket.end(bytes);
  await once(socket, 'close');
  return [
    ...Buffer.concat(received)
      .toString('latin1')
      .matchAll(/HTTP\/1\.1 (\d{3}) /g),
  ].map(([, status]) => Number(status));
};
const SMUGGLED = 'GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n';

test('a request whose end is not certain is refused, and what follows it is not read', async () => {
  const { apiKey } = await anAssistant(stack);
  const head = `POST /api/v1/chat HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${apiKey}\r\nContent-Type: application/json\r\n`;
  const told: Record<string, number[]> = {};
  for (const [name, headers, body] of AMBIGUOUS)
    told[name] = await statusesOf(stack.url, Buffer.from(`${head}${headers}\r\n\r\n${body}${SMUGGLED}`));

  expect(told).toEqual(Object.fromEntries(AMBIGUOUS.map(([name]) => [name, [400]])));
});

test('an API process answers any bytes in time, with documented statuses, and stays', async () => {
  const loopFile = join(tmpdir(), `parley-loop-${process.pid}.json`);
  const { apiKey } = await anAssistant(stack, { knowledge: [] });
  const api = await startRealProcess(
    'api',
    { ...stack.env, WATCH_LOOP: loopFile },
    {
      // What is not collected yet would look like a leak.
      nodeArgs: ['--max-old-space-size=128', '--import', './test/support/watch-loop.ts'],
    },
  );
  onTestFinished(() => api.kill());
  const json = JSON.stringify(aTurn());
  const head = `POST /api/v1/chat HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${apiKey}\r\nContent-Type: application/json\r\n`;
  const good = [
    `${head}Content-Length: ${json.length}\r\n\r\n${json}`,
    `${head}Transfer-Encoding: chunked\r\n\r\n${json.length.toString(16)};a=b\r\n${json}\r\n0\r\nX-T: u\r\n\r\n`,
    `GET /api/v1/conversations?limit=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${apiKey}\r\n\r\n${SMUGGLED}`,
    `OPTIONS /api/v1/web/x/settings HTTP/1.1\r\nHost: x\r\nOrigin: https://a.example\r\n\r\n`,
  ].map((text) => Buffer.from(text));
  await Promise.all(Array.from({ length: often({ short: 40, whole: 200 }) }, () => request(`${api.url}/healthz`))); // its code is compiled
  const rssMb = (): number => memoryMbOf(api.pid);
  const random = createRandom(seed);
  const count = often({ short: 240, whole: 30_000 });
  const statuses: Record<number, number> = {};
  const send = (inputs: number): Promise<unknown> =>
    watched(inputs, 20, async (nth) => {
      const bytes = damage(random, good[nth % good.length] as Buffer, HTTP_TOKENS);
      for (const status of await statusesOf(api.url, bytes)) statuses[status] = (statuses[status] ?? 0) + 1;
    });
  await send(count / 4);
  const before = rssMb();
  await send(count / 2);
  const grownMb = Math.round(rssMb() - before);
  api.child.kill('SIGUSR2'); // what watches the loop needs memory, so it begins here
  await send(count / 4);
  api.child.kill('SIGUSR2');
  await eventually(() => expect(existsSync(loopFile)).toBe(true));
  const longest = await eventually(() => JSON.parse(readFileSync(loopFile, 'utf8')) as { ms: number; name: string });
  rmSync(loopFile);

  expect(Object.keys(statuses).filter((status) => Number(status) >= 500)).toEqual([]);
  expect(statuses[400]).toBeGreaterThan(count / 10);
  expect(longest).toSatisfy(({ ms }: { ms: number }) => ms < STALL_MS);
  expect(grownMb).toBeLessThan(GROWTH_MB);
  expect((await request(`${api.url}/healthz`)).status).toBe(200);
  record('bytes-http', { inputs: count, stallMs: Math.round(longest.ms), grownMb });
});
