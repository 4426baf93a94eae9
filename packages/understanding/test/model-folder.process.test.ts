import { copyFile, mkdir, mkdtemp, rm, symlink, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { eventually } from '../../../test/support/eventually.ts';
import { aChosenModel, cosineOf, isLocalModelFor, modelFolder } from '../../../test/kit/semantic.ts';
import { loadUnseen } from '../eval/measure.ts';
import { type Embedder, localModel, openEmbedder } from '../src/embedder/embedder.ts';
import { openModelFolder } from '../src/embedder/model-folder.ts';

const log = { info: () => undefined, warn: () => undefined };

/** A folder without a graph that can run: what is wrong with its other files is found before. */
const aFolder = async (files: Record<string, unknown>): Promise<string> => {
  const folder = await mkdtemp(join(tmpdir(), 'parley-chosen-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  await Promise.all(['onnx', '1_Pooling'].map((name) => mkdir(join(folder, name))));
  const whole = {
    'onnx/model.onnx': 'no graph',
    'tokenizer.json': {
      normalizer: null,
      pre_tokenizer: { type: 'Whitespace' },
      post_processor: null,
      decoder: null,
      added_tokens: [],
      model: { type: 'WordPiece', unk_token: '[UNK]', vocab: { '[UNK]': 0, a: 1 } },
    },
    '1_Pooling/config.json': { pooling_mode: 'mean' },
    ...files,
  };
  for (const [name, content] of Object.entries(whole)) {
    if (content === null) continue;
    await writeFile(join(folder, name), typeof content === 'string' ? content : JSON.stringify(content));
  }
  return folder;
};

test.each([
  ['no graph', { 'onnx/model.onnx': null }, 'SEMANTIC_MODEL has no graph: none of onnx/model.onnx, model.onnx'],
  ['no tokenizer', { 'tokenizer.json': null }, 'tokenizer.json cannot be read (ENOENT)'],
  ['a tokenizer that is no JSON', { 'tokenizer.json': '{' }, 'tokenizer.json is not JSON'],
  ['a tokenizer without a model', { 'tokenizer.json': {} }, 'tokenizer.json has another shape'],
  ['an unknown tokenizer', { 'tokenizer.json': { model: { type: 'Runes' } } }, 'tokenizer.json cannot be used'],
  [
    'another pooling',
    { '1_Pooling/config.json': { pooling_mode_cls_token: false, pooling_mode_max_tokens: true } },
    '1_Pooling/config.json asks for another pooling than mean or cls: pooling_mode_max_tokens',
  ],
  [
    'two poolings',
    { '1_Pooling/config.json': { pooling_mode_cls_token: true, pooling_mode_mean_tokens: true } },
    'another pooling',
  ],
  [
    'a further layer',
    { 'modules.json': [{ type: 'sentence_transformers.models.Dense' }] },
    'modules.json has a step that is not supported: sentence_transformers.models.Dense',
  ],
  ['prompts of another kind', { 'config_sentence_transformers.json': { prompts: ['query: '] } }, 'has another shape'],
] satisfies [string, Record<string, unknown>, string][])(
  'a folder with %s is refused, and the reason names the file',
  async (_what, files, reason) => {
    await expect(openModelFolder(await aFolder(files))).rejects.toThrow(reason);
  },
);

test.each([
  ['tokenizer.json', 65_000_000],
  ['config.json', 1_000_001],
  ['onnx/model.onnx', 4_000_000_001],
])('%s is not read if it is larger than such files are', async (name, bytes) => {
  const folder = await aFolder({ 'config.json': {} });
  await truncate(join(folder, name), bytes);

  await expect(openModelFolder(folder)).rejects.toThrow(`${name} is too large: ${bytes} bytes`);
});

/** Stands for the file of the folder that a test copies. */
const COPIED = 'copied';

describe.runIf(isLocalModelFor)('the local model in the form of a chosen one', () => {
  let folder = '';
  let chosen: Embedder;
  let own: Embedder;
  const opened = async (...args: Parameters<typeof localModel>): Promise<Embedder> => {
    const embedder = await openEmbedder(localModel(...args), { log });
    await eventually(() => expect(embedder.status().detail).not.toBe('starting'));
    return embedder;
  };
  beforeAll(async () => {
    folder = await aChosenModel();
    [chosen, own] = await Promise.all([opened(folder, { chosen: 'fitted' }), opened(modelFolder())]);
  });
  afterAll(async () => {
    await Promise.all([chosen.close(), own.close()]);
    await rm(folder, { recursive: true, force: true });
  });

  /** The same graph, with the small tokenizer and what a test changes. */
  const aCopyOf = async (from: string, changed: Record<string, unknown> = {}): Promise<string> => {
    const copy = await aFolder({ 'onnx/model.onnx': null, ...changed });
    if (!('onnx/model.onnx' in changed)) await symlink(join(from, 'onnx/model.onnx'), join(copy, 'onnx/model.onnx'));
    return copy;
  };

  test('gives the same vectors within rounding, under a name of its own', async () => {
    const texts = loadUnseen()
      .slice(0, 40)
      .map(({ message }) => message);

    for (const kind of ['query', 'passage'] as const) {
      const [ours, theirs] = await Promise.all(
        [own, chosen].map((one) => one.embed(texts, kind, { holder: 'a', priority: 'background' })),
      );

      expect(theirs).toHaveLength(texts.length);
      for (const [nth, vector] of theirs!.entries()) expect(cosineOf(vector, ours![nth])).toBeGreaterThan(0.99999);
    }
    expect(chosen.model()).toMatch(/^multilingual-e5-small@[0-9a-f]{12}$/);
    expect(own.model()).toBe('multilingual-e5-small-int8@1');
    expect([chosen.calibration()?.model, own.calibration()]).toEqual([chosen.model(), null]);
  });

  test('gives vectors of tokens once a projection is beside it, and the same ones', async () => {
    const copy = await aCopyOf(folder, { 'tokenizer.json': null });
    for (const name of ['config.json', 'tokenizer.json', 'tokenizer_config.json', 'config_sentence_transformers.json'])
      await symlink(join(folder, name), join(copy, name));
    const projection = 'token-projection.bin';
    await copyFile(join(import.meta.dirname, '../src/embedder', projection), join(copy, projection));
    const embedder = await opened(copy, { chosen: 'unfitted' });
    onTestFinished(() => embedder.close());
    const ask = (one: Embedder) =>
      one.embedTokens(['can I bring my dog'], 'query', { holder: 'a', priority: 'background' });

    const [plain, ours, theirs] = await Promise.all([chosen, own, embedder].map(ask));

    expect(plain).toBeNull();
    expect(theirs?.[0]?.kind).toMatch(/^multilingual-e5-small@[0-9a-f]{12}\+tokens-[0-9a-f]{8}$/);
    expect(theirs?.[0]?.tokens).toHaveLength(ours?.[0]?.tokens.length ?? 0);
    const distance = theirs?.[0]?.tokens.map((value, at) => value - (ours?.[0]?.tokens[at] ?? 0)) ?? [];
    expect(Math.max(...distance.map(Math.abs))).toBeLessThanOrEqual(2);
  });

  test('other prompts, another pooling or another vocabulary make another model', async () => {
    const names = new Set([chosen.model()?.split('@')[1]]);
    const prompts = { prompts: { query: 'q: ', passage: 'p: ' } };
    for (const changed of [
      {},
      { 'config_sentence_transformers.json': prompts },
      { '1_Pooling/config.json': { pooling_mode: 'cls' } },
      { 'config_sentence_transformers.json': prompts, '1_Pooling/config.json': { pooling_mode: 'cls' } },
    ]) {
      const { model } = await openModelFolder(await aCopyOf(folder, changed));
      names.add(model.split('@')[1]);
    }

    expect(names.size).toBe(5);
  });

  test.each([
    [
      'other dimensions',
      { '1_Pooling/config.json': { pooling_mode: 'mean', word_embedding_dimension: 768 } },
      'the graph gives 384 dimensions, but 1_Pooling/config.json says 768',
    ],
    ['a graph that is none', { 'onnx/model.onnx': 'no graph' }, 'the model does not run here: '],
    ['no pooling', { '1_Pooling/config.json': null }, '1_Pooling/config.json is missing: nothing says how'],
    ['no weights of the decision', {}, 'parley.json is missing: run `npm run eval -- calibrate`'],
    [
      'weights for other files',
      { 'parley.json': COPIED, 'config_sentence_transformers.json': {} },
      'parley.json was fitted to other files',
    ],
    ['weights of another version', { 'parley.json': { model: 'a' } }, 'parley.json was written by another version'],
  ] satisfies [string, Record<string, unknown>, string][])(
    'with %s, the start says so and words alone decide',
    async (_what, changed, reason) => {
      const copy = await aCopyOf(folder, changed);
      if ('parley.json' in changed && changed['parley.json'] === COPIED)
        await copyFile(join(folder, 'parley.json'), join(copy, 'parley.json'));

      const embedder = await opened(copy, { chosen: 'fitted' });
      onTestFinished(() => embedder.close());

      expect(embedder.status()).toEqual({ available: false, detail: expect.stringContaining(reason) });
      expect(await embedder.embed(['hello'], 'query', { holder: 'a' })).toBeNull();
    },
  );
});
