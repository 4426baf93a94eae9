import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { embedByLetters, type EmbeddingsService, openEmbeddingsService } from '../kit/provider.ts';
import { eventually } from '../support/eventually.ts';
import { anEmbedder, cosineOf } from '../kit/semantic.ts';
import { atPace } from '../support/pace.ts';
import { watchLoop } from '../support/loop.ts';
import { longTest } from '../support/size.ts';

let service: EmbeddingsService;
beforeEach(async () => {
  service = await openEmbeddingsService();
  onTestFinished(() => service.close());
});

const chosen = async (env: Record<string, string>) => {
  const embedder = await anEmbedder(env);
  onTestFinished(() => embedder.close());
  return embedder;
};
const opened = (env: Record<string, string> = {}) =>
  chosen({
    EMBEDDINGS_URL: service.baseUrl,
    EMBEDDINGS_MODEL: 'embed-small',
    EMBEDDINGS_KEY: 'sk-of-the-service',
    ...env,
  });

test('SEMANTIC=off starts nothing, says so in one line, and gives no vector', async () => {
  const embedder = await chosen({ SEMANTIC: 'off', SEMANTIC_DIR: '/anywhere' });

  expect(await embedder.embed(['hello'], 'query', { holder: 'a' })).toBeNull();
  expect(embedder.model()).toBeNull();
  expect(embedder.status()).toEqual({ available: false, detail: 'off (SEMANTIC=off)' });
  expect(embedder.log().trim().split('\n')).toHaveLength(1);
  expect(embedder.log()).toContain('off (SEMANTIC=off)');
});

test('a model folder that is not set or has no model is logged, and the start succeeds', async () => {
  const unnamed = await chosen({});
  const empty = await chosen({ SEMANTIC_DIR: '/nowhere/at-all' });

  expect(unnamed.status()).toEqual({ available: false, detail: 'not installed (SEMANTIC_DIR is not set)' });
  expect(empty.status().available).toBe(false);
  expect(empty.status().detail).toContain('cannot be read (ENOENT)');
  expect(await empty.embed(['hello'], 'query', { holder: 'a' })).toBeNull();
  expect(empty.model()).toBeNull();
});

test('sends requests of the protocol, and orders the vectors by their index', async () => {
  const embedder = await opened();

  const texts = ['aaaa', 'bbbb', 'cccc'];
  const vectors = (await embedder.embed(texts, 'passage', { holder: 'a', priority: 'background' }))!;
  const [alone] = (await embedder.embed(['bbbb'], 'query', { holder: 'a' }))!;

  const [, many] = service.asked;
  expect(many).toMatchObject({
    path: '/v1/embeddings',
    authorization: 'Bearer sk-of-the-service',
    body: { model: 'embed-small', encoding_format: 'float' },
  });
  expect(
    service.asked
      .slice(1)
      .flatMap(({ body }) => body.input)
      .toSorted(),
  ).toEqual(['aaaa', 'bbbb', 'bbbb', 'cccc']);
  expect(vectors.map((vector) => cosineOf(vector, vector))).toEqual(texts.map(() => expect.closeTo(1, 5)));
  expect(vectors[1]).toEqual(alone);
  expect(vectors[0]).not.toEqual(alone);
  expect(embedder.model()).toMatch(/^embed-small@127\.0\.0\.1:\d+\/8$/);
  expect(embedder.log()).not.toContain('sk-of-the-service');
});

test('many passages are sent in requests of limited size', async () => {
  const embedder = await opened();

  const vectors = await embedder.embed(
    Array.from({ length: 100 }, (_, at) => `passage ${at}`),
    'passage',
    { holder: 'a', priority: 'background' },
  );

  expect(vectors).toHaveLength(100);
  expect(Math.max(...service.asked.map(({ body }) => body.input.length))).toBeLessThanOrEqual(8);
});

test.each([
  ['fails', ({ response }) => response.writeHead(500).end('secret inner words')],
  ['does not speak JSON', ({ response }) => response.writeHead(200).end('<html>')],
  ['speaks another JSON', ({ response }) => response.writeHead(200).end('{"vectors":[]}')],
  ['gives too few', ({ response }) => response.writeHead(200).end('{"data":[]}')],
  [
    'gives no direction',
    ({ response }) => response.writeHead(200).end('{"data":[{"index":0,"embedding":[0,0,0,0,0,0,0,0]}]}'),
  ],
  ['changes the length', ({ response }) => response.writeHead(200).end('{"data":[{"index":0,"embedding":[1,2]}]}')],
  ['hangs up', ({ response }) => response.destroy()],
] satisfies [string, Parameters<EmbeddingsService['behave']>[0]][])(
  'a service that %s costs the vector and nothing else; it is used again once it works',
  async (_what, behaviour) => {
    const embedder = await opened();
    service.behave(behaviour);

    const failed = [];
    for (let count = 0; count < 4; count += 1)
      failed.push(await embedder.embed([`question ${count}`], 'query', { holder: 'a' }));
    const status = embedder.status();
    service.behave(embedByLetters);
    await eventually(async () => expect(await embedder.embed(['again'], 'query', { holder: 'a' })).not.toBeNull());

    expect(failed).toEqual([null, null, null, null]);
    expect(status.detail).not.toContain('secret inner words');
    expect(embedder.log().match(/search is available/g)?.length).toBe(2);
  },
);

const MB_2 = 1_990_000;
const filled = (text: string, before = '', after = ''): string =>
  `${before}${text.repeat(Math.floor((MB_2 - before.length - after.length) / text.length))}${after}`;
const MANY_KEYS = Array.from({ length: 110_000 }, (_, nth) => `{"k${nth}":1}`).join(',');
const MANY_NUMBERS = '{"data":[{"index":0,"embedding":[';

const LARGE: [name: string, text: string][] = [
  ['a million numbers', filled('0,', MANY_NUMBERS, '0]}]}')],
  ['a million wrong numbers', filled('"",', MANY_NUMBERS, '0]}]}')],
  ['as many wrong vectors as it may have', `{"data":[${'0,'.repeat(65_000)}0]}`],
  ['many names', `{"data":[${MANY_KEYS}]}`],
  ['deep lists', filled('[')],
];

for (const [name, text] of LARGE) {
  longTest(`an answer with ${name} holds up no other work`, async () => {
    const embedder = await opened();
    const answer = Buffer.from(text);
    service.behave(({ response }) => response.writeHead(200).end(answer));
    await embedder.embed(['a first one'], 'query', { holder: 'a' });

    const stop = watchLoop();
    const vectors = await embedder.embed(['hello'], 'query', { holder: 'a' });
    const step = stop();

    expect(vectors).toBeNull();
    expect(step.ms, step.name).toBeLessThan(atPace(15));
  });
}

const BUSY = 32; // four requests of eight texts each are in flight

/** A service whose requests are answered one by one, the oldest first. */
const answeredOneByOne = () => {
  const held: (() => void)[] = [];
  service.behave(async (wire, asked) => {
    await new Promise<void>((resolve) => held.push(resolve));
    await embedByLetters(wire, asked);
  });
  return {
    inFlight: (requests: number) => eventually(() => expect(held).toHaveLength(requests)),
    answerNext: () => held.shift()?.(),
  };
};

const textsOf = (count: number, of: string): string[] => Array.from({ length: count }, (_, at) => `${of} ${at}`);

test('a question of one assistant goes before those of assistants that ask much', async () => {
  const embedder = await opened();
  const { inFlight, answerNext } = answeredOneByOne();
  const before = service.asked.length;
  const floods = ['a', 'b', 'c'].map((holder) => embedder.embed(textsOf(40, holder), 'query', { holder }));
  await inFlight(4);

  const neighbour = embedder.embed(['of a neighbour'], 'query', { holder: 'neighbour' });
  answerNext();
  await eventually(() => expect(service.asked.length).toBe(before + 5));

  expect(service.asked.at(-1)?.body.input).toContain('of a neighbour');
  service.behave(embedByLetters);
  for (let nth = 0; nth < 4; nth += 1) {
    await inFlight(4 - nth);
    answerNext();
  }
  expect(await neighbour).toHaveLength(1);
  await Promise.all(floods);
});

test('one assistant cannot fill the queue, nor make others wait for its place in it', async () => {
  const embedder = await opened();
  const { inFlight, answerNext } = answeredOneByOne();
  const ask = (text: string, holder: string) => embedder.embed([text], 'query', { holder });
  const flood = [...textsOf(BUSY, 'in flight'), ...textsOf(700, 'waiting')].map((text) => ask(text, 'flood'));
  await inFlight(4);

  const [own, other] = [ask('waiting 60', 'neighbour'), ask('another', 'neighbour')];
  service.behave(embedByLetters);
  answerNext();

  expect([await own, await other]).toEqual([[expect.anything()], [expect.anything()]]);
  for (let nth = 0; nth < 3; nth += 1) answerNext();
  const answers = await Promise.all(flood);
  expect(answers.filter((vectors) => vectors === null).length).toBeGreaterThan(100);
});

test('the background gets every fourth request while questions wait', async () => {
  const embedder = await opened();
  const { inFlight, answerNext } = answeredOneByOne();
  const before = service.asked.length;
  const questions = Promise.all(
    textsOf(90, 'question').map((text, at) => embedder.embed([text], 'query', { holder: `${at}` })),
  );
  await inFlight(4);
  const background = embedder.embed(textsOf(8, 'passage'), 'passage', { holder: 'b', priority: 'background' });

  for (let nth = 0; nth < 8; nth += 1) {
    await inFlight(4);
    answerNext();
  }
  await inFlight(4);

  const kinds = service.asked.slice(before).map(({ body }) => body.input[0]?.split(' ')[0]);
  expect(kinds.slice(4, 8)).toContain('passage');
  service.behave(embedByLetters);
  for (let nth = 0; nth < 4; nth += 1) answerNext();
  expect(await background).toHaveLength(8);
  await questions;
});

test('a text that the service refuses fails no other text, and its beginning is used', async () => {
  const embedder = await opened();
  service.behave((wire, asked) => {
    const { response } = wire;
    if (asked.body.input.includes('forbidden')) return response.writeHead(422).end('{}');
    if (asked.body.input.some(({ length }) => length > 700)) return response.writeHead(400).end('{}');
    return embedByLetters(wire, asked);
  });
  const long = 'a very long text '.repeat(100);
  const embed = (text: string, holder: string) => embedder.embed([text], 'passage', { holder, priority: 'background' });

  for (let time = 0; time < 4; time += 1) {
    const texts = ['short', `${long}${time}`, 'forbidden', 'brief'];
    const [short, cut, forbidden, brief] = await Promise.all(texts.map((text) => embed(text, text)));
    expect([short, cut, brief]).toEqual([[expect.anything()], [expect.anything()], [expect.anything()]]);
    expect(forbidden).toBeNull();
  }

  expect(embedder.log().match(/search is available/g)?.length).toBe(1);
});

test('after a text was refused, its assistant’s texts share no request with those of others for a while', async () => {
  const embedder = await opened();
  service.behave((wire, asked) => {
    if (asked.body.input.includes('forbidden')) return wire.response.writeHead(422).end('{}');
    return embedByLetters(wire, asked);
  });
  const background = { priority: 'background' as const };
  const ask = (texts: string[], holder: string) => embedder.embed(texts, 'passage', { holder, ...background });
  expect(await ask(['forbidden'], 'poisoned')).toBeNull();
  const before = service.asked.length;

  // The first requests take all connections, so that the other texts wait for each other.
  const made = await Promise.all([
    ...Array.from({ length: 3 }, (_, nth) => ask(textsOf(8, `first ${nth}`), `first ${nth}`)),
    ask(['forbidden', ...textsOf(3, 'own')], 'poisoned'),
    ask(textsOf(4, 'another'), 'one'),
    ask(textsOf(4, 'further'), 'other'),
  ]);

  expect(made.map((vectors) => vectors !== null)).toEqual([true, true, true, false, true, true]);
  const inputs = service.asked.slice(before).map(({ body }) => body.input);
  const ofPoisoned = inputs.filter((input) => input.some((text) => /^(forbidden|own)/.test(text)));
  expect(ofPoisoned.flat().filter((text) => /^(another|further)/.test(text))).toEqual([]);
  expect(inputs).toContainEqual(expect.arrayContaining(['another 0', 'further 0']));
});

test('another model behind the same address has another name, and no vector of the old one is used', async () => {
  const embedder = await opened();
  const before = embedder.model();
  await embedder.embed(['hello'], 'query', { holder: 'a' });
  service.behave(({ response }, { body }) =>
    response.end(JSON.stringify({ data: body.input.map((_, index) => ({ index, embedding: [1, 2] })) })),
  );

  await embedder.embed(['what shows that it has changed'], 'query', { holder: 'a' });
  await eventually(async () =>
    expect((await embedder.embed(['hello'], 'query', { holder: 'a' }))?.[0]).toHaveLength(2),
  );

  expect(embedder.model()).not.toBe(before);
});

test('a service that does not answer delays a turn for two seconds at most', async () => {
  const embedder = await opened();
  service.behave(() => undefined);
  const since = performance.now();

  const vectors = await embedder.embed(['hello'], 'query', { holder: 'a' });

  expect(vectors).toBeNull();
  expect(performance.now() - since).toBeLessThan(atPace(4_000));
});

test('a service that is unavailable at the start is logged and does not delay the start', async () => {
  const reserved = createServer();
  await new Promise<void>((resolve) => reserved.listen(0, '127.0.0.1', resolve));
  const { port } = reserved.address() as AddressInfo;
  await new Promise((resolve) => reserved.close(resolve));

  const embedder = await opened({ EMBEDDINGS_URL: `http://127.0.0.1:${port}/v1` });

  expect(embedder.status()).toEqual({ available: false, detail: 'the embeddings service could not be reached' });
  expect(embedder.model()).toBeNull();
  expect(await embedder.embed(['hello'], 'query', { holder: 'a' })).toBeNull();
});

test('a private address is refused like that of a provider, and nothing is sent there', async () => {
  const embedder = await opened({ WEBHOOK_ALLOW_PRIVATE: 'false' });

  expect(embedder.status().available).toBe(false);
  expect(embedder.status().detail).toContain('EMBEDDINGS_URL is not allowed');
  expect(service.asked).toEqual([]);
});

test('an address without a model stops the start, and so does a model besides', async () => {
  await expect(anEmbedder({ EMBEDDINGS_URL: service.baseUrl })).rejects.toThrow(
    'EMBEDDINGS_URL and EMBEDDINGS_MODEL go together',
  );
  await expect(
    anEmbedder({ EMBEDDINGS_URL: service.baseUrl, EMBEDDINGS_MODEL: 'embed-small', SEMANTIC_MODEL: '/models/better' }),
  ).rejects.toThrow('SEMANTIC_MODEL and EMBEDDINGS_URL exclude each other');
});
