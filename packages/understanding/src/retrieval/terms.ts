import { stemmer as arabic } from '@orama/stemmers/arabic';
import { stemmer as armenian } from '@orama/stemmers/armenian';
import { stemmer as bulgarian } from '@orama/stemmers/bulgarian';
import { stemmer as danish } from '@orama/stemmers/danish';
import { stemmer as dutch } from '@orama/stemmers/dutch';
import { stemmer as english } from '@orama/stemmers/english';
import { stemmer as finnish } from '@orama/stemmers/finnish';
import { stemmer as french } from '@orama/stemmers/french';
import { stemmer as german } from '@orama/stemmers/german';
import { stemmer as greek } from '@orama/stemmers/greek';
import { stemmer as hungarian } from '@orama/stemmers/hungarian';
import { stemmer as indian } from '@orama/stemmers/indian';
import { stemmer as indonesian } from '@orama/stemmers/indonesian';
import { stemmer as italian } from '@orama/stemmers/italian';
import { stemmer as lithuanian } from '@orama/stemmers/lithuanian';
import { stemmer as norwegian } from '@orama/stemmers/norwegian';
import { stemmer as portuguese } from '@orama/stemmers/portuguese';
import { stemmer as romanian } from '@orama/stemmers/romanian';
import { stemmer as russian } from '@orama/stemmers/russian';
import { stemmer as serbian } from '@orama/stemmers/serbian';
import { stemmer as spanish } from '@orama/stemmers/spanish';
import { stemmer as swedish } from '@orama/stemmers/swedish';
import { stemmer as tamil } from '@orama/stemmers/tamil';
import { stemmer as turkish } from '@orama/stemmers/turkish';
import { stemmer as ukrainian } from '@orama/stemmers/ukrainian';
import { stopwords as arabicStops } from '@orama/stopwords/arabic';
import { stopwords as armenianStops } from '@orama/stopwords/armenian';
import { stopwords as bulgarianStops } from '@orama/stopwords/bulgarian';
import { stopwords as danishStops } from '@orama/stopwords/danish';
import { stopwords as dutchStops } from '@orama/stopwords/dutch';
import { stopwords as englishStops } from '@orama/stopwords/english';
import { stopwords as finnishStops } from '@orama/stopwords/finnish';
import { stopwords as frenchStops } from '@orama/stopwords/french';
import { stopwords as germanStops } from '@orama/stopwords/german';
import { stopwords as greekStops } from '@orama/stopwords/greek';
import { stopwords as hungarianStops } from '@orama/stopwords/hungarian';
import { stopwords as indianStops } from '@orama/stopwords/indian';
import { stopwords as indonesianStops } from '@orama/stopwords/indonesian';
import { stopwords as italianStops } from '@orama/stopwords/italian';
import { stopwords as lithuanianStops } from '@orama/stopwords/lithuanian';
import { stopwords as norwegianStops } from '@orama/stopwords/norwegian';
import { stopwords as portugueseStops } from '@orama/stopwords/portuguese';
import { stopwords as romanianStops } from '@orama/stopwords/romanian';
import { stopwords as russianStops } from '@orama/stopwords/russian';
import { stopwords as serbianStops } from '@orama/stopwords/serbian';
import { stopwords as spanishStops } from '@orama/stopwords/spanish';
import { stopwords as swedishStops } from '@orama/stopwords/swedish';
import { stopwords as tamilStops } from '@orama/stopwords/tamil';
import { stopwords as turkishStops } from '@orama/stopwords/turkish';
import { stopwords as ukrainianStops } from '@orama/stopwords/ukrainian';
import { fold, LEXICON, plainBeginning, UNSPACED, words } from '../fold.ts';
import { CONCEPTS, conceptOf, conceptWeight, phraseConcept } from './concepts.ts';

import fillerWords from './fillers.json' with { type: 'json' };

/**
 * Additional stop words for questions, by language. General lists lack them, because they have a meaning in other
 * texts. Words are folded. A word that belongs to a concept is never one of these stop words.
 */
const FILLERS: Readonly<Record<string, string>> = fillerWords;

type Stemming = { stem: (word: string) => string; stopWords: ReadonlySet<string> };

/**
 * The package's Bulgarian stemmer assigns letters to its argument, which a string does not allow. So it gets an array
 * of letters.
 */
const bulgarianStem = (word: string): string => {
  const letters = Object.assign([...word], {
    substring: (start: number, end: number): string => letters.slice(start, end).join(''),
  });
  return bulgarian(letters as unknown as string);
};

const PACKAGED: Readonly<Record<string, readonly [(word: string) => string, readonly string[]]>> = {
  ar: [arabic, arabicStops],
  hy: [armenian, armenianStops],
  bg: [bulgarianStem, bulgarianStops],
  da: [danish, danishStops],
  nl: [dutch, dutchStops],
  en: [english, englishStops],
  fi: [finnish, finnishStops],
  fr: [french, frenchStops],
  de: [german, germanStops],
  el: [greek, greekStops],
  hu: [hungarian, hungarianStops],
  hi: [indian, indianStops],
  id: [indonesian, indonesianStops],
  it: [italian, italianStops],
  lt: [lithuanian, lithuanianStops],
  no: [norwegian, norwegianStops],
  pt: [portuguese, portugueseStops],
  ro: [romanian, romanianStops],
  ru: [russian, russianStops],
  sr: [serbian, serbianStops],
  es: [spanish, spanishStops],
  sv: [swedish, swedishStops],
  ta: [tamil, tamilStops],
  tr: [turkish, turkishStops],
  uk: [ukrainian, ukrainianStops],
  ms: [indonesian, indonesianStops],
  hr: [serbian, serbianStops],
};

/** The stem for languages without a stemmer: the beginning of a long word, since most endings are short. */
const clip = (word: string): string => (word.length > 6 ? word.slice(0, Math.max(5, word.length - 3)) : word);
const NO_STEMS = new Set(['zh', 'ja', 'th', 'ko', 'lo', 'km', 'my', 'vi']);
const whole = (word: string): string => word;

const chatWords = (language: string): string[] =>
  (Object.hasOwn(LEXICON, language) ? (LEXICON[language]?.common ?? '') : '').split('|');

const fillers = (language: string): string[] =>
  (Object.hasOwn(FILLERS, language) ? (FILLERS[language] ?? '') : '').split(' ');

/**
 * Languages with their own tables. All other tags share one cache entry, so that visitors cannot fill the cache with
 * invented tags.
 */
const KNOWN = new Set([...Object.keys(PACKAGED), ...Object.keys(LEXICON), ...Object.keys(FILLERS), ...NO_STEMS]);
const UNKNOWN = 'und';
const ready = new Map<string, Stemming>();

/** The base language whose words are read, or `und` for all others: so there are few, however many are named. */
export const wordsLanguageOf = (tag: string): string => (KNOWN.has(tag) ? tag : UNKNOWN);

/** Stemmer and stop words of a base language, created on first use. */
export const stemmingOf = (tag: string): Stemming => {
  const language = wordsLanguageOf(tag);
  const known = ready.get(language);
  if (known) return known;
  const [stem, stops] = Object.hasOwn(PACKAGED, language) ? (PACKAGED[language] ?? []) : [];
  const made: Stemming = {
    stem: stem ?? (NO_STEMS.has(language) ? whole : clip),
    stopWords: new Set([...(stops ?? []), ...chatWords(language), ...fillers(language)].map(fold)),
  };
  ready.set(language, made);
  return made;
};

/** A term of a text: the stem of a word or phrase, and its concept if the concept is known. */
export type Term = {
  stem: string;
  /** The folded word, as written. */
  word: string;
  concept: string | null;
  /** How often the text has it. */
  times: number;
};

/** How much of a text is read, and whether phrases are searched in it, which then are one term. */
export type Reading = { length: number; words: number; terms: number; phrases: boolean };
/** The terms of known words of one language, for reading many texts without phrases. */
export type KnownWords = Map<string, Omit<Term, 'times'> & { isStop: boolean }>;
/** Longer messages are cut, so that no visitor can make a turn expensive. */
const MESSAGE: Reading = { length: 1000, words: 100, terms: 32, phrases: true };
/** Longer words are cut, because stemming and fuzzy search take quadratic time. */
const LONGEST_WORD = 64;
const LONGEST_PHRASE = 4;
const HANGUL = /\p{Script=Hangul}/u;

const segmenters = new Map<string, Intl.Segmenter>();
const segmenterFor = (language: string): Intl.Segmenter => {
  const known = segmenters.get(language);
  if (known) return known;
  const made = new Intl.Segmenter(language, { granularity: 'word' });
  segmenters.set(language, made);
  return made;
};

/**
 * Languages that need a dictionary to separate words. Each has its own segmenter; all other tags share one, so that the
 * cache stays small.
 */
const SEGMENTED = new Set(['zh', 'ja', 'th', 'lo', 'km', 'my']);

/**
 * Splits a Korean word into pairs of syllables. They match better than whole words, because Korean particles are
 * attached to words.
 */
const syllablePairs = (word: string): string[] =>
  word.length < 3 ? [word] : Array.from({ length: word.length - 1 }, (_, at) => word.slice(at, at + 2));

const splitWords = (text: string, language: string): string[] => {
  if (UNSPACED.test(text)) {
    const parts: string[] = [];
    const segmenter = segmenterFor(SEGMENTED.has(language) ? language : 'zh');
    for (const { segment, isWordLike } of segmenter.segment(text)) if (isWordLike) parts.push(segment);
    return parts;
  }
  return HANGUL.test(text)
    ? words(text).flatMap((word) => (HANGUL.test(word) ? syllablePairs(word) : [word]))
    : words(text);
};

const writtenIn = (text: string, language: string, most: Reading): string[] => {
  const plain = plainBeginning(text, most.length).toLowerCase().replaceAll('’', "'");
  return splitWords(plain.slice(0, most.length), language)
    .slice(0, most.words)
    .map((word) => word.slice(0, LONGEST_WORD));
};

/** A word or a phrase, before it is stemmed. `written` is null for a phrase, which is not stemmed. */
type Piece = { written: string | null; word: string; concept: string | null };

/** The last text, because a message is read once for each language of the knowledge. Its pieces are by segmenter. */
let latest = { text: '', most: MESSAGE, pieces: new Map<string, Piece[]>() };

/** The words and phrases of a text. */
const piecesOf = (text: string, language: string, most: Reading): Piece[] => {
  if (latest.text !== text || latest.most !== most) latest = { text, most, pieces: new Map() };
  const segmenter = SEGMENTED.has(language) ? language : '';
  const known = latest.pieces.get(segmenter);
  if (known) return known;
  const written = writtenIn(text, language, most);
  const folded = written.map(fold);
  const pieces: Piece[] = [];
  for (let at = 0; at < written.length; at += 1) {
    let wordCount = 1;
    let concept: string | null = null;
    for (let length = Math.min(LONGEST_PHRASE, written.length - at); length > 1 && concept === null; length -= 1) {
      concept = phraseConcept(folded.slice(at, at + length).join(' '));
      if (concept) wordCount = length;
    }
    const word = folded.slice(at, at + wordCount).join(' ');
    pieces.push({
      written: wordCount > 1 ? null : (written[at] ?? word),
      word,
      concept: concept ?? conceptOf(word),
    });
    at += wordCount - 1;
  }
  latest.pieces.set(segmenter, pieces);
  return pieces;
};

/** How many words the first 200 characters of a text have, also in a script without spaces. */
export const countWords = (text: string, language: string): number => splitWords(text.slice(0, 200), language).length;

/**
 * The terms of a text, stemmed for `language`. Stop words of `language` and of the visitor's language are left out,
 * unless the text has only stop words.
 */
export const readTerms = (
  text: string,
  language: string,
  visitorLanguage: string = language,
  most: Reading = MESSAGE,
  known: KnownWords | null = null,
): Term[] => {
  const { stem, stopWords } = stemmingOf(language);
  const spokenStops = stemmingOf(visitorLanguage).stopWords;
  const terms = new Map<string, Term>();
  const stops = new Map<string, Term>();
  const keep = (table: Map<string, Term>, term: Term): void => {
    const before = table.get(term.stem);
    if (before) before.times += 1;
    else table.set(term.stem, term);
  };
  const isStop = (word: string, concept: string | null): boolean =>
    concept === null && (stopWords.has(word) || spokenStops.has(word));
  if (!most.phrases) {
    for (const one of writtenIn(text, language, most)) {
      if (terms.size >= most.terms) break;
      let term = known?.get(one);
      if (!term) {
        const word = fold(one);
        const concept = conceptOf(word);
        term = { stem: fold(stem(one)), word, concept, isStop: isStop(word, concept) };
        known?.set(one, term);
      }
      keep(term.isStop ? stops : terms, { stem: term.stem, word: term.word, concept: term.concept, times: 1 });
    }
    return [...(terms.size > 0 ? terms : stops).values()];
  }
  for (const { written, word, concept } of piecesOf(text, language, most)) {
    if (terms.size >= most.terms) break;
    const cut = written === null ? null : stem(written);
    // Most stemmers leave the words of other scripts as they are, and folding takes longer than stemming.
    const term = { stem: cut === null || cut === written ? word : fold(cut), word, concept, times: 1 };
    keep(isStop(word, concept) ? stops : terms, term);
  }
  return [...(terms.size > 0 ? terms : stops).values()];
};

/**
 * A place of a key has the number of a text and 8 bits: how often the text has the key, up to 63, and two that the caller
 * gives a meaning.
 */
export const PLACE = { bits: 8, times: 0x3f, first: 0x40, second: 0x80 };

/** Where numbered texts have keys: stems, and concepts after `§`. It never changes. */
export type WordIndex = {
  /** The number of a key. Its places begin at its number in `starts` and end where the next one's begin. */
  terms: ReadonlyMap<string, number>;
  starts: Uint32Array;
  places: Uint32Array;
};

const NONE = new Uint32Array();

/** Estimated memory of a key and of a place, measured with `--expose-gc`. */
const BYTES = { term: 90, place: 4 };

export const bytesOfWords = (terms: number, places: number): number => terms * BYTES.term + places * BYTES.place;

/** The places of a key. */
export const placesOf = ({ terms, starts, places }: WordIndex, key: string): Uint32Array => {
  const term = terms.get(key);
  return term === undefined ? NONE : places.subarray(starts[term], starts[term + 1]);
};

/** How much it says that a text has a key. */
export const inverseDocumentFrequency = (containing: number, all: number): number =>
  Math.log(1 + (all - containing + 0.5) / (containing + 0.5));

const CONCEPT = '§';
export const conceptKey = (concept: string): string => `${CONCEPT}${concept}`;
export const isConceptKey = (key: string): boolean => key.startsWith(CONCEPT);
/** The share of a key's weight that counts. */
export const shareOfKey = (key: string): number => conceptWeight(isConceptKey(key) ? key.slice(1) : null);

/** A copy that does not keep the text that it was cut from in memory. */
const detached = (word: string): string => Buffer.from(word).toString();

/** Reads the keys of texts, one text after the other. */
export class WordReader {
  readonly #places = new Map<string, number[]>();
  #count = 0;

  get bytes(): number {
    return bytesOfWords(this.#places.size, this.#count);
  }

  note(key: string, text: number, bits: number): void {
    const places = this.#places.get(key);
    const place = (text << PLACE.bits) >>> 0;
    // A list begins with one place, because most lists stay that short, and `push` to an empty list makes 17 places.
    if (places === undefined) this.#places.set(detached(key), [place + bits]);
    else {
      const last = places[places.length - 1] as number;
      if (last >>> PLACE.bits === text) {
        const times = Math.min(PLACE.times, (last & PLACE.times) + (bits & PLACE.times));
        places[places.length - 1] = ((last & ~PLACE.times) | (bits & ~PLACE.times) | times) >>> 0;
        return;
      }
      places.push(place + bits);
    }
    this.#count += 1;
  }

  *finish(): Generator<void, WordIndex> {
    const terms = new Map<string, number>();
    const starts = new Uint32Array(this.#places.size + 1);
    const places = new Uint32Array(this.#count);
    let at = 0;
    for (const [term, own] of this.#places) {
      starts[terms.size] = at;
      terms.set(term, terms.size);
      places.set(own, at);
      at += own.length;
      if (terms.size % 64 === 0) yield;
    }
    starts[terms.size] = at;
    return { terms, starts, places };
  }
}

const PROBE = 'The Café’s opening hours: 9–17, e-mail a_b@example.com, don’t wait!';
/** A stemmer is known by the longest of its stop words: they show the most of it, and few of them take little time. */
const PROBED_WORDS = 5;
const longest = (words: readonly string[]): string[] =>
  words.toSorted((one, other) => other.length - one.length).slice(0, PROBED_WORDS);

/** Everything that decides which terms a text has. The code is represented by the terms of some sample texts. */
export const describeReading = (): string =>
  JSON.stringify([
    process.versions['icu'],
    CONCEPTS,
    LEXICON,
    FILLERS,
    ...Object.values(PACKAGED).map(([stem, stops]) => [stops, longest(stops).map((word) => stem(word))]),
    readTerms(PROBE, 'en'),
  ]);
