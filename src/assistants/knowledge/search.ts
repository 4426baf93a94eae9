import { createHash } from 'node:crypto';
import { stopwords as dutch } from '@orama/stopwords/dutch';
import { stopwords as english } from '@orama/stopwords/english';
import { stopwords as french } from '@orama/stopwords/french';
import { stopwords as german } from '@orama/stopwords/german';
import { stopwords as italian } from '@orama/stopwords/italian';
import { stopwords as portuguese } from '@orama/stopwords/portuguese';
import { stopwords as spanish } from '@orama/stopwords/spanish';
import { LRUCache } from 'lru-cache';
import { segmentWords } from '@parley/understanding/text';
import { inSlot, type Within } from '../../platform/http/request-slots.ts';
import { createSlices, type Slices } from '../../platform/process/slices.ts';
import { createPacedSlots } from '../../platform/process/paced-slots.ts';
import { oneEach } from '../../platform/process/slots.ts';
import type { Assistant } from '../assistant.ts';
import type { KnowledgeEntry } from './entry.ts';

// This search is for operators who maintain the knowledge. Visitors' questions are answered by the engine, which is far
// more precise.

const segmenter = new Intl.Segmenter(undefined, { granularity: 'word' });

const ASCII = /^[\0-\x7f]*$/;

/**
 * Removes case, accents and other combining marks. Marks are removed before normalizing, because normalizing a long run
 * of marks takes quadratic time. They are removed again afterwards, because normalizing splits `é` into a letter and a
 * mark.
 */
const fold = (text: string): string =>
  ASCII.test(text)
    ? text.toLowerCase()
    : text.replaceAll(/\p{M}/gu, '').normalize('NFKD').replaceAll(/\p{M}/gu, '').toLowerCase();

/** Matches scripts without spaces between words. Splitting their texts into words needs a dictionary, which is slow. */
const UNSPACED =
  /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]/u;

const wordsOf = (text: string): string[] => {
  const folded = fold(text);
  if (!UNSPACED.test(folded)) return folded.match(/[\p{L}\p{N}]+/gu) ?? [];
  return segmentWords(segmenter, folded);
};

/** How much of a question is looked for, because each word is looked for in each text. */
const RANKED_CHARS = 1_000;
const RANKED_WORDS = 50;

/** The words that an entry does not contain. A word also matches inside a longer word. */
const missingIn = async (
  { question, variants, answer, tags }: KnowledgeEntry,
  wanted: string[],
  slices: Slices,
): Promise<string[]> => {
  let missing = wanted;
  for (const text of [question, ...variants, answer, ...tags]) {
    if (missing.length === 0) break;
    if (slices.isOver()) await slices.next();
    const folded = fold(text);
    missing = missing.filter((word) => !folded.includes(word));
  }
  return missing;
};

/**
 * Entries that contain every word of the search. A word also matches inside a longer word. Case and accents are
 * ignored. Other work of the process runs in between.
 */
export const searchKnowledge = async (entries: KnowledgeEntry[], search: string): Promise<KnowledgeEntry[]> => {
  const slices = createSlices();
  const wanted = fold(search).split(/\s+/).filter(Boolean);
  const found: KnowledgeEntry[] = [];
  for (const entry of entries) if ((await missingIn(entry, wanted, slices)).length === 0) found.push(entry);
  return found;
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

/** What a comparison keeps of an entry. */
type Compared = Pick<KnowledgeEntry, 'entryId' | 'language'> & {
  /** The words of the answer, hashed, so that answers that differ only in punctuation count as equal. */
  answer: string;
};
/** A question or a variant, with the hashes of its words in ascending order. The words would take much memory. */
type Phrasing = { entry: Compared; text: string; words: Float64Array };

/** A 52-bit hash: two different words of an assistant practically never share one. */
const hashOf = (word: string): number => {
  let [high, low] = [0x811c9dc5, 0x1000193];
  for (let at = 0; at < word.length; at += 1) {
    const code = word.charCodeAt(at);
    high = Math.imul(high ^ code, 0x01000193);
    low = Math.imul(low ^ code, 0x5bd1e995) ^ (low >>> 15);
  }
  return (high >>> 12) * 2 ** 32 + (low >>> 0);
};

const phrasingOf = (entry: Compared, text: string): Phrasing => {
  const stops = STOPS_OF.get(entry.language?.split('-')[0] ?? 'en') ?? new Set();
  const all = wordsOf(text);
  const kept = all.filter((word) => QUESTION_WORDS.has(word) || !stops.has(word));
  const hashes = new Set((kept.length > 0 ? kept : all).map(hashOf));
  return { entry, text, words: Float64Array.from(hashes).toSorted() };
};

const likeness = (a: Float64Array, b: Float64Array): number => {
  let [shared, i, j] = [0, 0, 0];
  while (i < a.length && j < b.length) {
    const [one, other] = [a[i] ?? 0, b[j] ?? 0];
    if (one === other) shared += 1;
    if (one <= other) i += 1;
    if (other <= one) j += 1;
  }
  return shared / (a.length + b.length - shared);
};

/**
 * The entries that have most words of a question, at most `most`, the best first. Words that say little in any language
 * count only if the question has no others. Other work of the process runs in between.
 */
export const rankKnowledge = async (
  batches: AsyncIterable<KnowledgeEntry[]>,
  question: string,
  most: number,
): Promise<KnowledgeEntry[]> => {
  const slices = createSlices();
  const all = [...new Set(wordsOf(question.slice(0, RANKED_CHARS)))].slice(0, RANKED_WORDS);
  const telling = all.filter((word) => ![...STOPS_OF.values()].some((stops) => stops.has(word)));
  const wanted = telling.length > 0 ? telling : all;
  const best: { entry: KnowledgeEntry; found: number }[] = [];
  const look = async (entry: KnowledgeEntry): Promise<void> => {
    const found = wanted.length - (await missingIn(entry, wanted, slices)).length;
    if (found === 0 || (best.length === most && found <= (best.at(-1)?.found ?? 0))) return;
    // Of entries with as many words, the first one stays first.
    const place = best.findIndex((one) => one.found < found);
    best.splice(place === -1 ? best.length : place, 0, { entry, found });
    if (best.length > most) best.pop();
  };
  for await (const entries of batches) for (const entry of entries) await look(entry);
  return best.map(({ entry }) => entry);
};

const mayShareLanguage = (a: Compared, b: Compared): boolean =>
  a.language === null || b.language === null || a.language.split('-')[0] === b.language.split('-')[0];

type KnowledgeConflict = {
  entryIds: [string, string];
  questions: [string, string];
  /** The number of words that both phrasings have, divided by the number that at least one has: 0.8 to 1. */
  likeness: number;
};

/**
 * A phrasing is compared with at most this many earlier phrasings for each of its rare words. This limits the time for
 * a knowledge base full of copies.
 */
const PHRASINGS_PER_WORD = 50;
/** Phrasings beyond this number of characters are not compared. So a comparison takes at most some 100 MB. */
const COMPARED_CHARS = 4_000_000;
/**
 * The maximum number of words, in all pairs together, that a comparison looks at: some seconds. Further pairs are
 * skipped.
 */
const COMPARED_WORDS = 250_000_000;
/** How many comparisons are made at once, and which are slow. */
const COMPARISONS = { total: 2, slowMs: 1_000, hangsMs: 4_000 };
/** A comparison that did not begin in this time is refused. */
const COMPARED_WITHIN_MS = 30_000;
/** How many assistants' conflicts are cached: up to 250 kB each. */
const CACHED_ASSISTANTS = 100;

type Entries = AsyncIterable<KnowledgeEntry[]>;

const readPhrasings = async (batches: Entries, slices: Slices): Promise<Phrasing[]> => {
  const phrasings: Phrasing[] = [];
  let chars = 0;
  for await (const batch of batches) {
    for (const { entryId, language, question, variants, answer } of batch) {
      if (slices.isOver()) await slices.next();
      const words = wordsOf(answer).join(' ');
      const entry = { entryId, language, answer: createHash('sha256').update(words).digest('base64') };
      for (const text of [question, ...variants]) {
        if (slices.isOver()) await slices.next();
        chars += text.length;
        if (chars > COMPARED_CHARS) return phrasings;
        phrasings.push(phrasingOf(entry, text));
      }
    }
  }
  return phrasings;
};

const conflictsIn = async (batches: Entries, signal: AbortSignal): Promise<KnowledgeConflict[]> => {
  const slices = createSlices();
  const rest = async (): Promise<void> => {
    signal.throwIfAborted();
    await slices.next();
  };
  const phrasings = await readPhrasings(batches, slices);
  const uses = new Map<number, number>();
  for (const { words } of phrasings) {
    if (slices.isOver()) await rest();
    for (const word of words) uses.set(word, (uses.get(word) ?? 0) + 1);
  }
  const rarest = ({ words }: Phrasing): number[] =>
    [...words]
      .toSorted((a, b) => (uses.get(a) ?? 0) - (uses.get(b) ?? 0) || a - b)
      .slice(0, words.length - Math.ceil(SIMILARITY_MIN * words.length) + 1);

  const phrasingsByWord = new Map<number, Phrasing[]>();
  const found = new Map<string, KnowledgeConflict>();
  let compared = 0;
  for (const one of phrasings) {
    if (slices.isOver()) await rest();
    const keys = rarest(one);
    for (const other of new Set(keys.flatMap((word) => phrasingsByWord.get(word) ?? []))) {
      if (slices.isOver()) await rest();
      const [a, b] = [other.entry, one.entry];
      if (a === b || !mayShareLanguage(a, b) || a.answer === b.answer) continue;
      const id = `${a.entryId} ${b.entryId}`;
      compared += one.words.length + other.words.length;
      const similarity = likeness(one.words, other.words);
      if (similarity < SIMILARITY_MIN || similarity <= (found.get(id)?.likeness ?? 0)) continue;
      found.set(id, { entryIds: [a.entryId, b.entryId], questions: [other.text, one.text], likeness: similarity });
    }
    if (found.size >= CONFLICTS_MAX || compared > COMPARED_WORDS) break;
    for (const word of keys) {
      const known = phrasingsByWord.get(word) ?? [];
      if (known.length === 0) phrasingsByWord.set(word, known);
      if (known.length < PHRASINGS_PER_WORD) known.push(one);
    }
  }
  return [...found.values()].toSorted((a, b) => b.likeness - a.likeness).slice(0, CONFLICTS_MAX);
};

/** Reads in the turn of the costly reads. */
type InTurn = <Value>(read: () => Promise<Value>, within: Within) => Promise<Value>;

/**
 * Finds entries with similar questions but different answers. The search compares words, not meanings: the folded words
 * of each question and variant, without stop words. Two phrasings are similar if they share at least 80 % of these
 * words. Two similar phrasings always share a word that is among the rarest words of both, so only pairs with such a
 * word are compared. A process makes two comparisons at a time, because of its memory; assistants take turns, and all
 * that are slow share one. Those that wait have no slot of the costly reads (`inTurn`). The result is cached for each
 * version of an assistant.
 */
export const createFindConflicts = () => {
  const known = new LRUCache<string, { version: number; conflicts: KnowledgeConflict[] }>({ max: CACHED_ASSISTANTS });
  const slots = createPacedSlots({ ...COMPARISONS, shareOf: oneEach });
  return async (
    { assistantId, version }: Assistant,
    readEntries: () => Entries,
    { tenant, inTurn, signal }: { tenant?: string; inTurn: InTurn; signal: AbortSignal },
  ): Promise<KnowledgeConflict[]> => {
    const find = async (): Promise<KnowledgeConflict[]> => {
      const last = known.get(assistantId);
      if (last?.version === version) return last.conflicts;
      const conflicts = await slots.watch(assistantId, conflictsIn(readEntries(), signal));
      known.set(assistantId, { version, conflicts });
      return conflicts;
    };
    return inTurn(find, (read) => inSlot(slots, assistantId, read, { tenant, signal, waitMs: COMPARED_WITHIN_MS }));
  };
};
