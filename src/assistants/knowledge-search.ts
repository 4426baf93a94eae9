import { setImmediate } from 'node:timers/promises';
import { stopwords as dutch } from '@orama/stopwords/dutch';
import { stopwords as english } from '@orama/stopwords/english';
import { stopwords as french } from '@orama/stopwords/french';
import { stopwords as german } from '@orama/stopwords/german';
import { stopwords as italian } from '@orama/stopwords/italian';
import { stopwords as portuguese } from '@orama/stopwords/portuguese';
import { stopwords as spanish } from '@orama/stopwords/spanish';
import { LRUCache } from 'lru-cache';
import type { Assistant } from './assistant.ts';
import type { KnowledgeEntry } from './knowledge-input.ts';

// This search is for operators who maintain the knowledge. Visitors' questions are answered by the engine, which is far
// more precise.

const segmenter = new Intl.Segmenter(undefined, { granularity: 'word' });

/**
 * Removes case, accents and other combining marks. Marks are removed before normalizing, because normalizing a long run
 * of marks takes quadratic time. They are removed again afterwards, because normalizing splits `é` into a letter and a
 * mark.
 */
const fold = (text: string): string =>
  text.replaceAll(/\p{M}/gu, '').normalize('NFKD').replaceAll(/\p{M}/gu, '').toLowerCase();

/** Matches scripts without spaces between words. Splitting their texts into words needs a dictionary, which is slow. */
const UNSPACED =
  /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]/u;

const wordsOf = (text: string): string[] => {
  const folded = fold(text);
  if (!UNSPACED.test(folded)) return folded.match(/[\p{L}\p{N}]+/gu) ?? [];
  return [...segmenter.segment(folded)].filter(({ isWordLike }) => isWordLike).map(({ segment }) => segment);
};

const textOf = ({ question, variants, answer, tags }: KnowledgeEntry): string =>
  fold([question, ...variants, answer, ...tags].join('\n'));

/**
 * Entries that contain every word of the search. A word also matches inside a longer word. Case and accents are
 * ignored.
 */
export const searchKnowledge = (entries: KnowledgeEntry[], search: string): KnowledgeEntry[] => {
  const wanted = fold(search).split(/\s+/).filter(Boolean);
  return entries.filter((entry) => {
    const text = textOf(entry);
    return wanted.every((word) => text.includes(word));
  });
};

const STOPS = Object.entries({
  en: english,
  de: german,
  fr: french,
  es: spanish,
  it: italian,
  pt: portuguese,
  nl: dutch,
});
const STOPS_OF = new Map(STOPS.map(([language, stops]) => [language, new Set(stops.flatMap(wordsOf))]));
/** Words that the comparison of questions keeps although they are stop words, because they distinguish questions. */
const QUESTION_WORDS = new Set(
  `who what when where why which how not no wer was wann wo wohin woher warum welche welcher wie wieviel nicht kein keine
  qui que quoi quand ou pourquoi comment combien quel quelle pas quien cuando donde como cuanto cual por chi quando dove
  perche come quanto quale non quem onde porque qual nao wie wat wanneer waar waarom welke hoe niet geen`.split(/\s+/),
);

/** The smallest share of common words at which two questions count as similar. */
const SIMILARITY_MIN = 0.8;
const CONFLICTS_MAX = 100;

type Phrasing = { entry: KnowledgeEntry; text: string; words: Set<string> };

const phrasingsOf = (entry: KnowledgeEntry): Phrasing[] => {
  const stops = STOPS_OF.get(entry.language?.split('-')[0] ?? 'en') ?? new Set();
  return [entry.question, ...entry.variants].map((text) => {
    const all = wordsOf(text);
    const kept = all.filter((word) => QUESTION_WORDS.has(word) || !stops.has(word));
    return { entry, text, words: new Set(kept.length > 0 ? kept : all) };
  });
};

const likeness = (a: Set<string>, b: Set<string>): number => {
  const shared = [...a].filter((word) => b.has(word)).length;
  return shared / (a.size + b.size - shared);
};

const mayShareLanguage = (a: KnowledgeEntry, b: KnowledgeEntry): boolean =>
  a.language === null || b.language === null || a.language.split('-')[0] === b.language.split('-')[0];

export type KnowledgeConflict = {
  entryIds: [string, string];
  questions: [string, string];
  /** The number of common words divided by the number of distinct words in both phrasings: 0.8 to 1. */
  likeness: number;
};

/**
 * A phrasing is compared with at most this many earlier phrasings for each of its rare words. This limits the time for
 * a knowledge base full of copies.
 */
const PHRASINGS_PER_WORD = 50;
const ENTRIES_AT_ONCE = 100;

const conflictsIn = async (entries: KnowledgeEntry[]): Promise<KnowledgeConflict[]> => {
  const phrasings: Phrasing[] = [];
  for (const [nth, entry] of entries.entries()) {
    if (nth % ENTRIES_AT_ONCE === 0) await setImmediate(); // lets other requests run
    phrasings.push(...phrasingsOf(entry));
  }
  const uses = new Map<string, number>();
  for (const { words } of phrasings) for (const word of words) uses.set(word, (uses.get(word) ?? 0) + 1);
  const rarest = ({ words }: Phrasing): string[] =>
    [...words]
      .toSorted((a, b) => (uses.get(a) ?? 0) - (uses.get(b) ?? 0) || (a < b ? -1 : 1))
      .slice(0, words.size - Math.ceil(SIMILARITY_MIN * words.size) + 1);

  const phrasingsByWord = new Map<string, Phrasing[]>();
  const found = new Map<string, KnowledgeConflict>();
  /**
   * The words of each answer, without punctuation, so that answers that differ only in punctuation count as equal. The
   * words of an answer are computed once, when they are first needed.
   */
  const answerWords = new Map<KnowledgeEntry, string>();
  const answerWordsOf = (entry: KnowledgeEntry): string => {
    const words = answerWords.get(entry) ?? wordsOf(entry.answer).join(' ');
    answerWords.set(entry, words);
    return words;
  };
  for (const [nth, one] of phrasings.entries()) {
    if (nth % ENTRIES_AT_ONCE === 0) await setImmediate();
    const keys = rarest(one);
    for (const other of new Set(keys.flatMap((word) => phrasingsByWord.get(word) ?? []))) {
      const [a, b] = [other.entry, one.entry];
      if (a === b || !mayShareLanguage(a, b)) continue;
      const id = `${a.entryId} ${b.entryId}`;
      const similarity = likeness(one.words, other.words);
      if (
        similarity < SIMILARITY_MIN ||
        similarity <= (found.get(id)?.likeness ?? 0) ||
        answerWordsOf(a) === answerWordsOf(b)
      )
        continue;
      found.set(id, { entryIds: [a.entryId, b.entryId], questions: [other.text, one.text], likeness: similarity });
    }
    if (found.size >= CONFLICTS_MAX) break;
    for (const word of keys) {
      const known = phrasingsByWord.get(word) ?? [];
      if (known.length === 0) phrasingsByWord.set(word, known);
      if (known.length < PHRASINGS_PER_WORD) known.push(one);
    }
  }
  return [...found.values()].toSorted((a, b) => b.likeness - a.likeness).slice(0, CONFLICTS_MAX);
};

/**
 * Finds entries with similar questions but different answers. The search compares words, not meanings: the folded words
 * of each question and variant, without stop words. Two phrasings are similar if they share at least 80 % of these
 * words. Two similar phrasings always share a word that is among the rarest words of both, so only pairs with such a
 * word are compared. The result is cached for each version of an assistant.
 */
export const createFindConflicts = () => {
  const known = new LRUCache<string, { version: number; conflicts: Promise<KnowledgeConflict[]> }>({ max: 100 });
  return ({ assistantId, version }: Assistant, entries: KnowledgeEntry[]): Promise<KnowledgeConflict[]> => {
    const last = known.get(assistantId);
    if (last?.version === version) return last.conflicts;
    const conflicts = conflictsIn(entries);
    known.set(assistantId, { version, conflicts });
    return conflicts;
  };
};
