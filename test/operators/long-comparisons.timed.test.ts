import { expect, test } from 'vitest';
import type { Assistant } from '../../src/assistants/assistant.ts';
import type { KnowledgeEntry } from '../../src/assistants/knowledge/entry.ts';
import { createFindConflicts, rankKnowledge } from '../../src/assistants/knowledge/search.ts';
import { anEntry } from '../support/builders.ts';
import { watchLoop, workedMs } from '../support/loop.ts';
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

const anEntryOf = (nth: number, entry: { variants?: string[]; answer?: string }): KnowledgeEntry => ({
  ...anEntry({ question: `${nth}`, answer: `${nth}`, ...entry }),
  entryId: `${nth}`,
});
async function* read(entries: KnowledgeEntry[]): AsyncGenerator<KnowledgeEntry[]> {
  yield entries;
}

const comparisonOf = async (entries: KnowledgeEntry[]): Promise<number> => {
  const assistant = { assistantId: 'a', version: 1 } as Assistant;
  const begun = workedMs();
  const inTurn = <Value>(find: () => Promise<Value>) => find();
  await createFindConflicts()(assistant, () => read(entries), { inTurn, signal: new AbortController().signal });
  return workedMs() - begun;
};

const manyQuestions = (count: number): KnowledgeEntry[] =>
  Array.from({ length: count }, (_, nth) =>
    anEntryOf(nth, { variants: Array.from({ length: VARIANTS }, (__, at) => questionOf(nth * VARIANTS + at)) }),
  );

/** 72,000 characters when its ligatures are taken apart. */
const longAnswers = (): KnowledgeEntry[] =>
  Array.from({ length: 40 }, (_, nth) => anEntryOf(nth, { answer: `${'\ufdfa'.repeat(3_990)}${nth}` }));

test('a comparison of many questions with shared words ends soon, because others wait for it', async () => {
  const few = await comparisonOf(manyQuestions(FEW));
  const many = await comparisonOf(manyQuestions(MANY));

  // All pairs of 100 entries would take 7 times as long as those of 40. Compared with each other, because machines differ.
  expect(many / few).toBeLessThan(4.5);
});

test('a search for thousands of words holds up others no longer than one for a few', async () => {
  // No text has one of these words, so each is looked for in each text.
  const words = Array.from({ length: 2_666 }, (_, nth) => `ل${String.fromCodePoint(0xac00 + nth)}`);
  const stepOf = async (question: string): Promise<number> => {
    const stop = watchLoop();
    await rankKnowledge(read(longAnswers()), question, 5);
    return stop().ms;
  };

  const few = await stepOf(words.slice(0, 50).join(' '));
  const many = await stepOf(words.join(' '));

  expect(many / few).toBeLessThan(4);
});
