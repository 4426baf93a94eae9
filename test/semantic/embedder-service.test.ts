import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { embedByLetters, type EmbeddingsService, openEmbeddingsService } from '../support/provider.ts';
import { eventually } from '../support/eventually.ts';
import { anEmbedder, cosineOf } from '../support/semantic.ts';

let service: EmbeddingsService;
beforeEach(async () => {
  service = await openEmbeddingsService();
  onTestFinished(() => service.close());
});

const opened = async (env: Record<string, string> = {}) => {
  const embedder = await anEmbedder({
    EMBEDDINGS_URL: service.baseUrl,
    EMBEDDINGS_MODEL: 'embed-small',
    EMBEDDINGS_KEY: 'sk-of-the-service',
    ...env,
  });
  onTestFinished(() => embedder.close());
  return embedder;
};

test('sends requests of the protocol, and orders the vectors by their index', async () => {
  const embedder = await opened();

  const texts = ['aaaa', 'bbbb', 'cccc'];
  const vectors = (await embedder.embed(texts, 'passage', { priority: 'background' }))!;
  const [alone] = (await embedder.embed(['bbbb'], 'query'))!;

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
    { priority: 'background' },
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
    for (let count = 0; count < 4; count += 1) failed.push(await embedder.embed([`question ${count}`], 'query'));
    const status = embedder.status();
    service.behave(embedByLetters);
    await eventually(async () => expect(await embedder.embed(['again'], 'query')).not.toBeNull());

    expect(failed).toEqual([null, null, null, null]);
    expect(status.detail).not.toContain('secret inner words');
    expect(embedder.log().match(/search is available/g)?.length).toBe(2);
  },
);

test('another model behind the same address has another name, and no vector of the old one is used', async () => {
  const embedder = await opened();
  const before = embedder.model();
  await embedder.embed(['hello'], 'query');
  service.behave(({ response }, { body }) =>
    response.end(JSON.stringify({ data: body.input.map((_, index) => ({ index, embedding: [1, 2] })) })),
  );

  await embedder.embed(['what shows that it has changed'], 'query');
  await eventually(async () => expect((await embedder.embed(['hello'], 'query'))?.[0]).toHaveLength(2));

  expect(embedder.model()).not.toBe(before);
});

test('a service that does not answer delays a turn for two seconds at most', async () => {
  const embedder = await opened();
  service.behave(() => undefined);
  const since = performance.now();

  const vectors = await embedder.embed(['hello'], 'query');

  expect(vectors).toBeNull();
  expect(performance.now() - since).toBeLessThan(4_000);
});

test('a service that is unavailable at the start is logged and does not delay the start', async () => {
  const reserved = createServer();
  await new Promise<void>((resolve) => reserved.listen(0, '127.0.0.1', resolve));
  const { port } = reserved.address() as AddressInfo;
  await new Promise((resolve) => reserved.close(resolve));

  const embedder = await opened({ EMBEDDINGS_URL: `http://127.0.0.1:${port}/v1` });

  expect(embedder.status()).toEqual({ available: false, detail: 'the embeddings service could not be reached' });
  expect(embedder.model()).toBeNull();
  expect(await embedder.embed(['hello'], 'query')).toBeNull();
});

test('a private address is refused like that of a provider, and nothing is sent there', async () => {
  const embedder = await opened({ WEBHOOK_ALLOW_PRIVATE: 'false' });

  expect(embedder.status().available).toBe(false);
  expect(embedder.status().detail).toContain('EMBEDDINGS_URL is not allowed');
  expect(service.asked).toEqual([]);
});

test('an address without a model stops the start', async () => {
  await expect(anEmbedder({ EMBEDDINGS_URL: service.baseUrl })).rejects.toThrow(
    'EMBEDDINGS_URL and EMBEDDINGS_MODEL go together',
  );
});
