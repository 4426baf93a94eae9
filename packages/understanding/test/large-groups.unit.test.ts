import { expect, test } from 'vitest';
import { workedMs } from '../../../test/support/loop.ts';
import { atPace } from '../../../test/support/pace.ts';
import {
  indexEntries,
  indexInSteps,
  type IndexedEntry,
  type KnowledgeIndex,
} from '../src/retrieval/knowledge-index.ts';
import { LEXICON } from '../src/fold.ts';
import { searchFollowUp, withoutUnknownWords } from '../src/retrieval/hybrid-search.ts';
import { candidatesOf, collectLexicalEvidence, searchGroup, searchLexical } from '../src/retrieval/search.ts';

const COMMON = Array.from(
  { length: 32 },
  (_, nth) => `commonword${String.fromCharCode(97 + (nth % 26), 97 + (nth >> 2))}`,
);
const ENTRIES = 10_000;
const rareWord = (nth: number): string =>
  `q${String(nth).replaceAll(/\d/g, (digit) => String.fromCharCode(107 + Number(digit)))}q`;

const group = (() => {
  const knowledge = Array.from({ length: ENTRIES }, (_, nth) => ({
    entryId: `e${nth}`,
    language: 'en',
    question: `${rareWord(nth)} ${COMMON.join(' ')}`,
    variants: [],
    answer: COMMON.join(' '),
    tags: [],
  }));
  return indexEntries({ knowledge, languages: ['en'] }).groups[0]!;
})();

const timeOf = (message: string): number => {
  const since = workedMs();
  searchGroup(message, group, 'en');
  return workedMs() - since;
};

test('a message whose words all entries have is searched in a short step', () => {
  const message = `${COMMON.join(' ')} please`;
  timeOf(message);

  const times = Array.from({ length: 5 }, () => timeOf(message));

  expect(Math.min(...times)).toBeLessThan(atPace(10));
});

test('a rare word among words that all entries have still finds its entry', () => {
  const { candidates } = searchGroup(`${COMMON.slice(0, 10).join(' ')} ${rareWord(77)} please`, group, 'en');

  expect(candidates[0]?.entry).toBe(77);
});

test('entries in thousands of invented languages are searched in a short step', () => {
  const letters = (nth: number): string => String.fromCharCode(97 + (nth % 20), 97 + ((nth / 20) % 20), 97 + nth / 400);
  const knowledge = Array.from({ length: 8_000 }, (_, nth) => ({
    entryId: `e${nth}`,
    language: letters(nth),
    question: `${rareWord(nth)} place`,
    variants: [],
    answer: 'Here.',
    tags: [],
  }));
  const index = indexEntries({ knowledge, languages: ['en'] });
  const timed = (): number => {
    const since = workedMs();
    searchLexical(`where is the ${rareWord(77)} place`, index, 'en', 1);
    return workedMs() - since;
  };
  timed();

  expect(index.groups.length).toBeLessThan(100);
  expect(Math.min(...Array.from({ length: 5 }, timed))).toBeLessThan(atPace(20));
  expect(searchLexical(`${rareWord(77)} place`, index, 'en', 1)[0]?.entry.entryId).toBe('e77');
});

const timeOfStep = async (work: () => unknown): Promise<number> => {
  const times: number[] = [];
  for (let run = 0; run < 3; run += 1) {
    const since = workedMs();
    await work();
    times.push(workedMs() - since);
  }
  return Math.min(...times);
};

/** Words of which each is nearly the same as every other. */
const alike = (nth: number): string => `zzzzzz${String.fromCharCode(0xa000 + (nth % 200), 0xa000 + nth / 200)}`;
const ALIKE = 30_000;
const MADE_UP = Array.from({ length: 32 }, (_, nth) => alike(ALIKE + 200 * nth + nth)).join(' ');

/** What the index has no room for is the variants of the first entry. */
const ofWordsAlike = (): KnowledgeIndex => {
  const knowledge = Array.from(
    { length: ALIKE / 30 },
    (_, text): IndexedEntry => ({
      entryId: `e${text}`,
      language: 'vi',
      question: Array.from({ length: 30 }, (_word, nth) => alike(text * 30 + nth)).join(' '),
      variants: text > 0 ? [] : Array.from({ length: 20 }, (_variant, nth) => MADE_UP.replaceAll('zzzz', `zzz${nth}`)),
      answer: 'Here.',
      tags: [],
    }),
  );
  const steps = indexInSteps({ knowledge, languages: ['vi'] }, 13_000_000);
  for (;;) {
    const step = steps.next();
    if (step.done) return step.value;
  }
};

test('words that are nearly all words of a large vocabulary are looked up in short steps', async () => {
  const index = ofWordsAlike();
  const question = { message: MADE_UP, visitorLanguage: 'vi', index };
  const afterTheFirst = async () => [
    { role: 'assistant', content: '', why: { kind: 'answer', hits: [{ entryId: 'e0' }] } },
  ];
  const nothing = { count: 0, mean: 0, deviation: 0 };
  const evidence = () => collectLexicalEvidence(MADE_UP, index, 'vi');
  const [candidate] = candidatesOf(question, evidence(), { entries: [], question: nothing, answer: nothing });

  expect(index.leftOut).toBeGreaterThanOrEqual(20);
  expect(await timeOfStep(() => searchLexical(MADE_UP, index, 'vi', 1))).toBeLessThan(atPace(40));
  expect(await timeOfStep(evidence)).toBeLessThan(atPace(40));
  expect(await timeOfStep(() => withoutUnknownWords(question, candidate!))).toBeLessThan(atPace(40));
  const followUp = () => searchFollowUp({ message: 'and qqq?', history: afterTheFirst }, index, 'vi');
  expect(await timeOfStep(followUp)).toBeLessThan(atPace(40));
});

test('a message of letters that become many is searched in short steps in all languages', async () => {
  const knowledge = [...Object.keys(LEXICON), 'hy', 'ta', 'lo', 'km', 'my', 'und'].map(
    (language): IndexedEntry => ({
      entryId: language,
      language,
      question: 'Where is the door?',
      variants: [],
      answer: 'Here.',
      tags: [],
    }),
  );
  const index = indexEntries({ knowledge, languages: ['en'] });

  expect(index.groups.length).toBeGreaterThan(45);
  for (const message of [
    'ﷺ'.repeat(1_000),
    'ﷺ and '.repeat(150),
    'where is this door '.repeat(50),
    '私の部屋は'.repeat(200),
  ]) {
    expect(await timeOfStep(() => searchLexical(message, index, 'en', 1))).toBeLessThan(atPace(32));
    expect(await timeOfStep(() => collectLexicalEvidence(message, index, 'en'))).toBeLessThan(atPace(32));
  }
});
