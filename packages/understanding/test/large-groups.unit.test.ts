import { expect, test } from 'vitest';
import { longestStep, workedMs } from '../../../test/support/loop.ts';
import { atPace } from '../../../test/support/pace.ts';
import { createLoopShare, inOneStep } from '../src/embedder/token-vectors.ts';
import {
  indexEntries,
  indexInSteps,
  type IndexedEntry,
  type KnowledgeIndex,
} from '../src/retrieval/knowledge-index.ts';
import { LEXICON } from '../src/fold.ts';
import { searchFollowUp, withoutUnknownWords } from '../src/retrieval/hybrid-search.ts';
import { candidatesOf, collectLexicalEvidence, searchGroup, searchLexical } from '../src/retrieval/search.ts';
import { decideReply, decidesByWords, type Inquiry } from '../src/understanding.ts';

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
  inOneStep(searchGroup(message, group, 'en'));
  return workedMs() - since;
};

test('a message whose words all entries have is searched in a short step', () => {
  const message = `${COMMON.join(' ')} please`;
  timeOf(message);

  const times = Array.from({ length: 5 }, () => timeOf(message));

  expect(Math.min(...times)).toBeLessThan(atPace(10));
});

test('a misspelt word that may be any of many words of all texts is searched in a short step', () => {
  const near = Array.from({ length: 32 }, (_, nth) => `abcdef${String.fromCharCode(97 + nth / 6, 105 + (nth % 6))}`);
  const knowledge = Array.from({ length: 400 }, (_, nth) => ({
    entryId: `e${nth}`,
    language: 'vi',
    question: rareWord(nth),
    variants: Array.from({ length: 50 }, (_one, at) => `${rareWord(100 * nth + at)} ${near.join(' ')}`),
    answer: 'Here.',
    tags: [],
  }));
  const own = indexEntries({ knowledge, languages: ['vi'] }).groups[0]!;
  const timed = (): number => {
    const since = workedMs();
    inOneStep(searchGroup('abcdefzz', own, 'vi'));
    return workedMs() - since;
  };
  timed();

  expect(inOneStep(searchGroup('abcdefzz', own, 'vi')).candidates.length).toBeGreaterThan(0);
  expect(Math.min(...Array.from({ length: 5 }, timed))).toBeLessThan(atPace(4));
});

test('a rare word among words that all entries have still finds its entry', () => {
  const { candidates } = inOneStep(searchGroup(`${COMMON.slice(0, 10).join(' ')} ${rareWord(77)} please`, group, 'en'));

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
    inOneStep(searchLexical(`where is the ${rareWord(77)} place`, index, 'en', 1));
    return workedMs() - since;
  };
  timed();

  expect(index.groups.length).toBeLessThan(100);
  expect(Math.min(...Array.from({ length: 5 }, timed))).toBeLessThan(atPace(20));
  expect(inOneStep(searchLexical(`${rareWord(77)} place`, index, 'en', 1))[0]?.entry.entryId).toBe('e77');
});

const NOTHING = { count: 0, mean: 0, deviation: 0 };
const inquiryOf = (message: string, index: KnowledgeIndex, language: string): Inquiry => ({
  message,
  language,
  index,
  answering: 'balanced',
  threshold: null,
  history: async () => [],
  semanticSearch: async () => ({ entries: [], question: NOTHING, answer: NOTHING }),
});

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
  return inOneStep(indexInSteps({ knowledge, languages: ['vi'] }, 13_000_000));
};

test('words that are nearly all words of a large vocabulary are looked up in short steps', async () => {
  const index = ofWordsAlike();
  const question = { message: MADE_UP, visitorLanguage: 'vi', index };
  const afterTheFirst = async () => [
    { role: 'assistant', content: '', why: { kind: 'answer', hits: [{ entryId: 'e0' }] } },
  ];
  const evidence = inOneStep(collectLexicalEvidence(MADE_UP, index, 'vi'));
  const [candidate] = candidatesOf(question, evidence, { entries: [], question: NOTHING, answer: NOTHING });
  const withoutUnknown = async () => inOneStep(withoutUnknownWords(question, candidate!));
  const asked = { ...question, message: 'and qqq?' };

  expect(index.leftOut).toBeGreaterThanOrEqual(20);
  expect(await longestStep(() => decideReply(inquiryOf(MADE_UP, index, 'vi')))).toBeLessThan(atPace(10));
  expect(await longestStep(withoutUnknown)).toBeLessThan(atPace(40));
  expect(await longestStep(() => searchFollowUp(asked, afterTheFirst, createLoopShare(2)))).toBeLessThan(atPace(10));
});

const spelt = (letters: string, length: number): string =>
  Array.from({ length: 1_000 }, (_, at) => (at % (length + 1) === length ? ' ' : letters[(at * at) % letters.length]))
    .join('')
    .trim();

test.each([
  ['of letters that become many', 'ﷺ and '.repeat(150)],
  ['of letters with accents', spelt('äöüßéèêñçåøæőűłžśğışțàáâãąęćńżźůřěď', 30)],
  ['of long words', spelt('abcdefghijklmnopqrstuvwxyz', 30)],
  ['of words that a dictionary separates', 'ห้องของฉันอยู่ที่ไหนเมื่อไหร่ร้านเปิด'.repeat(27)],
  ['of words that are known', 'where is this door '.repeat(50)],
])('a message %s is decided in short steps with an entry in each language', async (_, message) => {
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
  const inquiry = inquiryOf(message, index, 'en');

  expect(index.groups.length).toBeGreaterThan(45);
  expect(await longestStep(() => decideReply(inquiry))).toBeLessThan(atPace(10));
  expect(await longestStep(() => decideReply({ ...inquiry, semanticSearch: undefined }))).toBeLessThan(atPace(10));
  expect(await longestStep(async () => inOneStep(decidesByWords(inquiry)))).toBeLessThan(atPace(20));
});
