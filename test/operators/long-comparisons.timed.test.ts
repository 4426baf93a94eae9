import { expect, test } from 'vitest';
import type { Assistant } from '../../src/assistants/assistant.ts';
import type { KnowledgeEntry } from '../../src/assistants/knowledge/entry.ts';
import { createFindConflicts } from '../../src/assistants/knowledge/search.ts';
import { anEntry } from '../support/builders.ts';
import { workedMs } from '../support/loop.ts';
import { sized } from '../support/size.ts';

/** So few entries are compared wholly. */
const FEW = 40;
const MANY = sized({ everyday: 100, long: 160 });
const VARIANTS = 50;
const WORDS = Array.from({ length: 2_500 }, (_, nth) => (nth + 1_296).toString(36));

/** A question of 125 words. Each word is in hundreds of other questions, and no two questions are alike. */
const questionOf = (nth: number): string =>
  Array.from({ length: 125 }, (_, at) => WORDS[(nth * 7_919 + at * (nth % 997) + at * at) % WORDS.length])
    .join(' ')
    .slice(0, 499);

const comparisonOf = async (count: number): Promise<number> => {
  const entries = Array.from({ length: count }, (_, nth): KnowledgeEntry => {
    const variants = Array.from({ length: VARIANTS }, (__, at) => questionOf(nth * VARIANTS + at));
    return { ...anEntry({ question: `${nth}`, variants, answer: `${nth}` }), entryId: `${nth}` };
  });
  async function* read(): AsyncGenerator<KnowledgeEntry[]> {
    yield entries;
  }
  const assistant = { assistantId: 'a', version: 1 } as Assistant;
  const begun = workedMs();
  const inTurn = <Value>(find: () => Promise<Value>) => find();
  await createFindConflicts()(assistant, read, { inTurn, signal: new AbortController().signal });
  return workedMs() - begun;
};

test('a comparison of many questions with shared words ends soon, because others wait for it', async () => {
  const few = await comparisonOf(FEW);
  const many = await comparisonOf(MANY);

  // All pairs of 100 entries would take 7 times as long as those of 40. Compared with each other, because machines differ.
  expect(many / few).toBeLessThan(4.5);
});
