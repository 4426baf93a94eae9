import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { eventually } from '../../../test/support/eventually.ts';
import { cosineOf, isLocalModelFor, modelFolder } from '../../../test/kit/semantic.ts';
import { longTest } from '../../../test/support/size.ts';
import { countRight, findCandidates, loadPassageQuestions, loadPassages } from '../eval/passages.ts';
import { type Embedder, localModel, openEmbedder } from '../src/embedder/embedder.ts';
import { rankByTokens, TOKEN_DIMENSIONS, type TokenVectors } from '../src/embedder/token-vectors.ts';

/** Token vectors without a meaning, of the largest texts that are ranked. */
const someTokens = (count: number, seed: number): TokenVectors => ({
  kind: 'a',
  tokens: Int8Array.from({ length: count * TOKEN_DIMENSIONS }, (_, at) => Math.sin(at * seed) * 127),
});

test('the largest question and passages are ranked in steps, so that the event loop goes on', async () => {
  const candidates = Array.from({ length: 40 }, (_, nth) => someTokens(600, nth + 2));
  let turns = 0;
  const ticking = setInterval(() => (turns += 1), 0);

  const ranked = await rankByTokens(someTokens(80, 1), candidates);

  clearInterval(ticking);
  expect(ranked).toHaveLength(30);
  expect(turns).toBeGreaterThan(5);
});

test('ranks the passage first that has the question in it, and none of another kind', async () => {
  const question = someTokens(5, 1);
  const passage = { ...someTokens(40, 3), id: 'has it' };
  passage.tokens.set(question.tokens, 10 * TOKEN_DIMENSIONS);
  const others = [
    { ...someTokens(40, 2), id: 'other' },
    { ...passage, kind: 'b', id: 'made by another model' },
    { kind: 'a', tokens: new Int8Array(), id: 'empty' },
  ];

  const ranked = await rankByTokens(question, [...others, passage]);

  expect(ranked.map(({ candidate }) => candidate.id)).toEqual(['has it', 'other']);
  expect(ranked[0]?.score).toBeCloseTo(1, 6);
  expect(await rankByTokens({ kind: 'a', tokens: new Int8Array() }, others)).toEqual([]);
});

describe.runIf(isLocalModelFor)('with the local model', () => {
  let embedder: Embedder;
  beforeAll(async () => {
    const log = { info: () => undefined, warn: () => undefined };
    embedder = await openEmbedder(localModel(modelFolder()), { log });
    await eventually(() => {
      if (embedder.model() === null) throw new Error(embedder.status().detail);
    });
  });
  afterAll(() => embedder.close());

  const embed = async (texts: string[], kind: 'query' | 'passage') => {
    const made = await embedder.embedTokens(texts, kind, { holder: 'a', priority: 'background' });
    if (!made) throw new Error('no token vectors');
    return made;
  };

  test('a text has its one vector and those of its tokens, without the marks of every text', async () => {
    const [first] = await embed(['opening hours'], 'query');
    const [vector] = (await embedder.embed(['opening hours'], 'query', { holder: 'a' })) ?? [];
    const [long, empty] = await embed(['a b c d '.repeat(250), ''], 'passage');

    expect(first?.kind).toBe('multilingual-e5-small-int8@1+tokens-1b24f23a');
    expect(first?.tokens).toBeInstanceOf(Int8Array);
    expect(first?.tokens).toHaveLength(2 * TOKEN_DIMENSIONS);
    expect(cosineOf(first?.vector, vector)).toBeCloseTo(1, 5);
    expect(long?.tokens).toHaveLength(512 * TOKEN_DIMENSIONS);
    expect(empty?.tokens.length).toBeLessThanOrEqual(TOKEN_DIMENSIONS);
  });

  test('a question asked with and without tokens has both, whatever came first', async () => {
    const ask = () => embedder.embedTokens(['where is the exit'], 'query', { holder: 'a' });
    const plain = () => embedder.embed(['where is the exit'], 'query', { holder: 'a' });

    const [vectors, tokens] = await Promise.all([plain(), ask()]);
    const again = await ask();

    expect(vectors?.[0]).toHaveLength(384);
    expect(tokens?.[0]?.tokens.length).toBeGreaterThan(0);
    expect(again).toEqual(tokens);
    expect((await plain())?.[0]).toEqual(tokens?.[0]?.vector);
  });

  longTest('passages are ranked better by their tokens than by one vector', async () => {
    const asked = loadPassageQuestions().filter(({ isAnswerable }) => isAnswerable);
    // Only those that answer a question, so that it takes seconds. `npm run eval -- passages` has all.
    const passages = loadPassages().filter((passage) => asked.some(({ isAnswer }) => isAnswer(passage)));
    const made = await embed(
      passages.map(({ text }) => text),
      'passage',
    );
    const known = passages.flatMap((passage, nth) => (made[nth] ? [{ ...made[nth], passage }] : []));
    const [pooled, stage] = [[], []] as [Parameters<typeof countRight>[0], Parameters<typeof countRight>[0]];
    for (const question of asked.filter(({ half }) => half === 'tune')) {
      const [one] = await embed([question.message], 'query');
      if (!one) continue;
      const candidates = findCandidates(one.vector, known);
      pooled.push({ question, ranked: candidates.map(({ passage }) => ({ passage, score: 0 })) });
      const ranked = await rankByTokens(one, candidates);
      stage.push({ question, ranked: ranked.map(({ candidate: { passage }, score }) => ({ passage, score })) });
    }
    expect(stage).toHaveLength(91);
    expect(countRight(stage, 1)).toBeGreaterThanOrEqual(countRight(pooled, 1) + 5);
    expect(countRight(stage, 3)).toBeGreaterThanOrEqual(countRight(pooled, 3) + 4);
  });
});
