import { expect, test } from 'vitest';
import { shareLoop } from '../src/understanding.ts';
import { PassageIndex, PassageIndexUpdate } from '../src/retrieval/passage-index.ts';
import { inOneStep } from '../src/embedder/token-vectors.ts';

/** How often a search lets others have their turn. It does so after each term of a word that it looks for. */
let turns = 0;
shareLoop(() => {
  const isOver = (): boolean => {
    turns += 1;
    return false;
  };
  return { isOver, next: async () => undefined };
});

test('a misspelt word is looked for as few of the terms that are near it, and is still found', async () => {
  const base = 'misspeltword';
  const letters = Array.from({ length: 300 }, (_, nth) => String.fromCodePoint(0x1401 + nth));
  const near = letters.flatMap((letter) =>
    Array.from({ length: 10 }, (_, at) => base.slice(0, at + 1) + letter + base.slice(at + 2)),
  );
  const update = new PassageIndexUpdate(null, { model: null });
  for (const [nth, word] of near.entries())
    update.add({ passageId: `${nth}`, language: 'en', title: 'Words', path: [], text: `${word} here`, vector: null });
  const index: PassageIndex = inOneStep(update.finish());
  turns = 0;

  const { hits } = await index.search(base, 'en', null);

  expect(hits.length).toBeGreaterThan(0);
  expect(turns).toBeLessThan(200);
});

test('a word that is like very many terms leaves another misspelt word its part', async () => {
  const update = new PassageIndexUpdate(null, { model: null });
  const aPassage = (passageId: string, text: string) => ({
    passageId,
    language: 'en',
    title: '',
    path: [],
    text,
    vector: null,
  });
  for (let nth = 0; nth < 700; nth += 1) {
    const codes = Array.from({ length: 100 }, (_, at) => `sku${100_000 + 100 * nth + at}`);
    update.add(aPassage(`codes ${nth}`, codes.join(' ')));
  }
  update.add(aPassage('zebras', 'Our zebras are fed at noon.'));
  const index = inOneStep(update.finish());

  const { hits } = await index.search('zebbra sku999999', 'en', null);

  expect(hits.map(({ passageId }) => passageId)).toContain('zebras');
});
