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
import { fold } from '../../../../src/language/fold.ts';
import { LEXICON } from '../../../../src/language/lexicon.ts';
import fillerWords from './fillers.json' with { type: 'json' };

/**
 * Additional stop words for questions, by language. General lists lack them, because they have a meaning in other
 * texts. Words are folded. A word that belongs to a concept is never one of these stop words.
 */
const FILLERS: Readonly<Record<string, string>> = fillerWords;

type Stemming = { stem: (word: string) => string; stopWords: ReadonlySet<string> };

const PACKAGED: Readonly<Record<string, readonly [(word: string) => string, readonly string[]]>> = {
  ar: [arabic, arabicStops],
  hy: [armenian, armenianStops],
  bg: [bulgarian, bulgarianStops],
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

/** Stemmer and stop words of a base language, created on first use. */
export const stemmingOf = (tag: string): Stemming => {
  const language = KNOWN.has(tag) ? tag : UNKNOWN;
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
