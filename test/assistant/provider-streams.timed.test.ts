import { randomUUID } from 'node:crypto';
import { type AddressInfo, createServer } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { anAssistant, anEntry } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { type Step, watchLoop, workedMs } from '../support/loop.ts';
import { atPace } from '../support/pace.ts';
import { longTest, sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ deliveryWorkers: 0 });
/** Not more than may be in flight. */
const STREAMS = sized({ everyday: 4, long: 10 });
const QUESTION = 'What are your opening hours?';
const HEAD = 'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n';
const END = 'data: {"choices":[{"delta":{"content":"ok"}}]}\n\ndata: [DONE]\n\n';

/** An assistant whose provider answers with these bytes, or with a flood of them, once so many requests are there. */
const setUp = async (
  bytes: string,
  { floods = false, together = 1, historyTokens = 2_000, waiting = [] as (() => void)[] } = {},
) => {
  const answer = Buffer.from(bytes);
  const server = createServer((socket) => {
    const flood = (): void => {
      while (!socket.destroyed && socket.write(answer));
      if (!socket.destroyed) socket.once('drain', () => setImmediate(flood));
    };
    socket.on('error', () => undefined);
    socket.once('data', () => {
      waiting.push(() => (floods ? flood() : socket.end(answer)));
      if (waiting.length >= together) for (const send of waiting.splice(0)) send();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const assistant = await anAssistant(stack, { knowledge: [anEntry({})] });
  const provider = { kind: 'openai' as const, baseUrl: `http://127.0.0.1:${port}/v1`, model: 'm' };
  const change = (settings: { historyTokens: number }) =>
    stack.service.assistants.setEngine(assistant.assistantId, { ...provider, ...settings });
  await change({ historyTokens });
  return {
    change,
    beStrict: () => stack.service.assistants.updateAssistant(assistant.assistantId, { strict: true }),
    ask: async ({ session_id, message }: { session_id?: string; message?: string } = {}) => {
      const { status, body } = await assistant.chat({
        session_id: session_id ?? randomUUID(),
        message: message ?? QUESTION,
      });
      expect(status).toBe(200);
      const { conversationId } = body;
      return eventually(() => {
        const line = stack.logs.find((one) => one.msg === 'turn ended' && one.conversationId === conversationId);
        return (line as { why: { fallBack?: { because: string } } }).why.fallBack?.because ?? 'none';
      });
    },
  };
};

/** The longest step of the loop, in the best run: a long step comes each time, and a long garbage collection does not. */
const longestStep = async (work: () => Promise<unknown>, runs = sized({ everyday: 2, long: 3 })): Promise<Step> => {
  let best: Step = { ms: Number.POSITIVE_INFINITY, name: '' };
  for (let nth = 0; nth < runs; nth += 1) {
    const stop = watchLoop();
    await work();
    const step = stop();
    if (step.ms < best.ms) best = step;
  }
  return best;
};

test.each([
  ['more events than a reply has letters', 'data: {}\n\n'.repeat(25_000)],
  ['an event that is larger than any reply', `data: {"choices":[${'{},'.repeat(60_000)}{}]}\n\n`],
  ['a line that does not end', `data: ${'x'.repeat(200_000)}`],
])('a stream with %s is given up', async (_, events) => {
  const { ask } = await setUp(HEAD + events + END);

  expect(await ask()).toBe('too_large');
});

test('a provider that sends interim responses without end is given up before its time is over', async () => {
  const { ask } = await setUp('HTTP/1.1 103 Early Hints\r\n\r\n'.repeat(2_000), { floods: true });

  expect(await ask()).toBe('connection');
});

test.each([
  ['a response', HEAD.replace('\r\n\r\n', `\r\n${'a:\r\n'.repeat(16_000)}\r\n`)],
  ['an interim response', `HTTP/1.1 103 Early Hints\r\n${'a:\r\n'.repeat(16_000)}\r\n${HEAD}`],
])('%s of a provider with thousands of short header lines is given up', async (_, head) => {
  const { ask } = await setUp(head + END);

  expect(await ask()).toBe('connection');
});

test('a response with as many header lines as servers send is read', async () => {
  const { ask } = await setUp(HEAD.replace('\r\n\r\n', `\r\n${'x-one: of many\r\n'.repeat(200)}\r\n`) + END);

  expect(await ask()).toBe('none');
});

test('long streams of one assistant that come at once are read in small parts', async () => {
  const events = 'data: {"choices":[{"delta":{"content":"a."}}]}\n\n'.repeat(7_900);
  const { ask } = await setUp(HEAD + events + END, { together: STREAMS });
  const askAll = () => Promise.all(Array.from({ length: STREAMS }, () => ask()));
  await askAll(); // The first one also loads the tokenizer.
  let ended: unknown[] = [];

  const { ms, name } = await longestStep(async () => {
    ended = await askAll();
  });

  expect(ms, name).toBeLessThan(atPace(25));
  expect(ended).toEqual(Array.from({ length: STREAMS }, () => 'none'));
});

longTest('long streams of many assistants that come at once are read a few parts at a time', async () => {
  const events = 'data: {"choices":[{"delta":{"content":"a."}}]}\n\n'.repeat(3_000);
  const [together, waiting] = [40, []];
  const each = () => setUp(HEAD + events + END, { together, waiting });
  const all = await Promise.all(Array.from({ length: together }, each));
  const askAll = () => Promise.all(all.map(({ ask }) => ask()));
  await askAll();

  // Each step of another turn waits for one turn of the loop, so these must be short: not only the longest one.
  const turns: number[] = [];
  let isOver = false;
  const count = (last: number): void => {
    const now = workedMs();
    turns.push(now - last);
    if (!isOver) setImmediate(count, now);
  };
  count(workedMs());
  await askAll();
  isOver = true;
  const sum = (all: number[]) => all.reduce((one, other) => one + other, 0);
  const long = atPace(6);
  // It was three quarters.
  expect(sum(turns.filter((ms) => ms > long)) / sum(turns)).toBeLessThan(0.55);
});

test('a history and a reply full of addresses, names and numbers are counted and compared in small parts', async () => {
  const words = Array.from({ length: 1_000 }, (_, nth) => `n${nth}@shop.example Name${nth} ${nth} `).join('');
  const said = `data: ${JSON.stringify({ choices: [{ delta: { content: words.slice(0, 15_500) } }] })}\n\n`;
  const { ask, change, beStrict } = await setUp(HEAD + said + END, { historyTokens: 0 });
  const session_id = randomUUID();
  // Random letters take longest to count. The tokenizer remembers words, so each message has others.
  const letters = () => Array.from({ length: 7_900 }, () => 'etaoinsr'[Math.floor(Math.random() * 8)]).join('');
  for (let nth = 0; nth < sized({ everyday: 12, long: 20 }); nth += 1) await ask({ session_id, message: letters() });
  await change({ historyTokens: 100_000 });
  await beStrict();
  await ask(); // The first question also loads the tables of languages.

  const { ms, name } = await longestStep(async () => expect(await ask({ session_id })).toBe('none'), 1);

  // It took 190 ms in one step.
  expect(ms, name).toBeLessThan(atPace(50));
});
