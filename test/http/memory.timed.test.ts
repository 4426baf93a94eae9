import { once } from 'node:events';
import { connect } from 'node:net';
import { brotliCompressSync, constants } from 'node:zlib';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { aLongConversation, anAssistant, aTurn, request, type TestAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { watchNeighbour } from '../support/neighbour.ts';
import { problemOf } from '../support/problem.ts';
import { type RealProcess, startRealProcess } from '../kit/processes.ts';
import { memoryMbOf } from '../kit/services.ts';
import { aScriptedEngine } from '../support/scripted-engine.ts';
import { longTest, sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

// The API is a real process, so that its memory is its own.

const stack = useStack({ engine: aScriptedEngine().engine, deliveryWorkers: 0 });
const MB = 1024 * 1024;
let api: RealProcess;
let neighbour: TestAssistant;

beforeAll(async () => {
  api = await startRealProcess('api', stack.env);
  neighbour = await anAssistant(stack);
});
afterAll(async () => api?.kill());

/** The most memory that the process has ever held, in MB. */
const peakOf = ({ pid }: RealProcess): number => memoryMbOf(pid, 'VmHWM');

const chat = () => request(`${api.url}/api/v1/chat`, { body: aTurn(), bearer: neighbour.apiKey });

/** Small compressed bodies with the largest window, of which each fills that window before its first byte comes out. */
const BOMB = brotliCompressSync(Buffer.alloc(128 * MB, ' '), {
  params: { [constants.BROTLI_PARAM_LGWIN]: 24, [constants.BROTLI_PARAM_QUALITY]: 5 },
});

/** Opens a connection for each request, so that they all arrive at once. Returns the statuses. */
const sendAll = (count: number, path: string, headers: Record<string, string>): Promise<string[]> =>
  Promise.all(
    Array.from({ length: count }, async () => {
      const socket = connect(Number(new URL(api.url).port), '127.0.0.1').on('error', () => undefined);
      onTestFinished(() => void socket.destroy());
      const lines = Object.entries({ Host: 'x', ...headers }).map(([name, value]) => `${name}: ${value}`);
      const head = [`POST ${path} HTTP/1.1`, ...lines, 'Content-Type: application/json', 'Content-Encoding: br'];
      socket.write(`${head.join('\r\n')}\r\nContent-Length: ${BOMB.length}\r\n\r\n`);
      socket.write(BOMB);
      const [first] = (await once(socket, 'data')) as [Buffer];
      return first.toString('latin1', 9, 12);
    }),
  );

const count = (all: string[], wanted: string): number => all.filter((one) => one === wanted).length;

type Sent = [string, string, (key: string) => Record<string, string>, { '413': number; '429': number }];
const withKey: Sent = [
  'with a key',
  '/api/v1/chat',
  (key) => ({ Authorization: `Bearer ${key}` }),
  { '413': 60, '429': 0 },
];
const withoutKey: Sent = ['without signing in', '/operator/v1/session', () => ({}), { '413': 120, '429': 30 }];

test.each(sized({ everyday: [withKey], long: [withoutKey, withKey] }))(
  'bodies that decompress to 128 MB, sent at once and %s, cost some windows',
  async (_who, path, headersOf, wanted) => {
    const { apiKey } = await anAssistant(stack, { knowledge: [] });
    await chat();
    const before = peakOf(api);

    let statuses: string[] = [];
    const watched = await watchNeighbour(chat, async () => {
      statuses = await sendAll(wanted['413'] + wanted['429'], path, headersOf(apiKey));
    });

    expect({ '413': count(statuses, '413'), '429': count(statuses, '429') }).toEqual(wanted);
    expect(watched.statuses).toEqual([200]);
    expect(peakOf(api) - before).toBeLessThan(150);
  },
);

test('long histories that one key asks for and does not read cost the memory of some pages', async () => {
  const assistant = await anAssistant(stack, { knowledge: [] });
  const path = `/api/v1/conversations/${await aLongConversation(stack, assistant, 48)}`;
  await chat();
  const before = peakOf(api);
  const head = `GET ${path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${assistant.apiKey}\r\n\r\n`;
  let answered = 0;

  const watched = await watchNeighbour(chat, async () => {
    for (let count = 0; count < 8; count += 1) {
      const socket = connect(Number(new URL(api.url).port), '127.0.0.1').on('error', () => undefined);
      onTestFinished(() => void socket.destroy());
      socket.once('data', () => {
        answered += 1;
        socket.pause();
      });
      socket.write(head.repeat(20));
    }
    await eventually(() => expect(answered).toBeGreaterThan(0));
  });
  const after = await request(`${api.url}${path}?limit=1`, { bearer: neighbour.apiKey });

  expect(watched.statuses).toEqual([200]);
  expect(problemOf(after)).toBe('404 not_found'); // answered, while the other key's answers wait for their reader
  expect(peakOf(api) - before).toBeLessThan(200);
});

test('a built file that a thousand callers ask for and do not read costs none of them a copy', async () => {
  const callers = 1_000;
  const page = await fetch(`${api.url}/operator/`, { headers: { Accept: 'text/html' } });
  const [path] = /\/operator\/assets\/index-[^"]+/.exec(await page.text()) ?? [];
  const head = `GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`;
  const before = memoryMbOf(api.pid);
  let answered = 0;

  for (let count = 0; count < callers; count += 1) {
    const socket = connect(Number(new URL(api.url).port), '127.0.0.1').on('error', () => undefined);
    onTestFinished(() => void socket.destroy());
    socket.once('data', (bytes) => {
      if (bytes.toString('latin1', 9, 12) === '200') answered += 1;
      socket.pause();
    });
    socket.write(head);
  }
  await eventually(() => expect(answered).toBe(callers));
  await chat();

  // A caller costs some 50 KiB, and a piece of 64 KiB would come on top of that.
  expect(memoryMbOf(api.pid) - before).toBeLessThan((callers * 72) / 1024);
});

longTest('a crowd of large imports by one token takes little memory, and others are answered meanwhile', async () => {
  const { secret: bearer } = await stack.service.tokens.createToken({
    name: 'imports',
    scope: 'manage',
    assistantIds: null,
    createdBy: null,
  });
  const { assistantId } = await stack.service.assistants.createAssistant({ name: 'Imports' });
  const text = `${' '.repeat(3.5 * MB)}[]`; // reading it takes no memory of its own
  const body = JSON.stringify({ format: 'json', text, dryRun: true });
  const before = peakOf(api);

  const { statuses } = await watchNeighbour(chat, () =>
    Promise.all(
      Array.from({ length: 100 }, () =>
        request(`${api.url}/operator/v1/assistants/${assistantId}/knowledge-import`, { body, bearer }).then(
          ({ status }) => expect([200, 422, 503]).toContain(status),
        ),
      ),
    ),
  );

  expect(statuses).toEqual([200]);
  expect(peakOf(api) - before).toBeLessThan(350);
});

longTest(
  'a file of two million values, which need more memory than the process has, is refused and ends nobody',
  async () => {
    const { secret: bearer } = await stack.service.tokens.createToken({
      name: 'imports',
      scope: 'manage',
      assistantIds: [neighbour.assistantId],
      createdBy: null,
    });
    const text = `question,answer,variants\na,b,"${'a|'.repeat(2 * MB - 100)}"`;
    const path = `/operator/v1/assistants/${neighbour.assistantId}/knowledge-import`;
    const before = peakOf(api);
    const sent = request(`${api.url}${path}`, { bearer, body: { format: 'csv', text, dryRun: true } });

    const { statuses } = await watchNeighbour(chat, () => sent);

    expect([200, 422]).toContain((await sent).status);
    expect(statuses).toEqual([200]);
    expect(peakOf(api) - before).toBeLessThan(150);
  },
);
