/**
 * The language of a text by its grams, which are its sequences of one to five characters: as `detectAll` of tinyld/heavy
 * 1.3.4 says it, to the digit. The library makes objects of all its 127,000 grams when it is loaded, which takes 0.4 s
 * and 100 MB. Here they stay the text of the library's file, and the grams of a message are searched in it.
 */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

/** How many grams that were searched a table remembers. Most messages have few others. */
const MAX_KNOWN = 20_000;

const QUOTE = '"'.charCodeAt(0);
const COLON = ':'.charCodeAt(0);

/** The entries of the library's file, `gram:value` in the order of grams. What JavaScript needs quotes for has them. */
class GramTable<Value> {
  readonly #text: string;
  readonly #read: (value: string) => Value;
  /** Where entries begin, so that a search makes no strings: a message of rare letters has 1,500 new grams. */
  readonly #starts: Uint32Array;
  readonly #known = new Map<string, Value | null>();

  constructor(text: string, read: (value: string) => Value) {
    this.#text = text;
    this.#read = read;
    const starts = [0];
    for (let comma = text.indexOf(','); comma !== -1; comma = text.indexOf(',', comma + 1)) starts.push(comma + 1);
    this.#starts = Uint32Array.from(starts);
  }

  find(gram: string): Value | null {
    const known = this.#known.get(gram);
    if (known !== undefined) return known;
    const found = this.#search(gram);
    if (this.#known.size >= MAX_KNOWN) this.#known.clear();
    this.#known.set(gram, found);
    return found;
  }

  #search(gram: string): Value | null {
    let [low, high] = [0, this.#starts.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      const order = this.#compare(gram, this.#starts[middle] as number);
      if (order === 0) return this.#valueOf(middle);
      if (order > 0) low = middle + 1;
      else high = middle;
    }
    return null;
  }

  /** Negative if the gram is before that of the entry at `start`, and positive if it is after it. */
  #compare(gram: string, start: number): number {
    const text = this.#text;
    const from = text.charCodeAt(start) === QUOTE ? start + 1 : start;
    for (let at = 0; ; at += 1) {
      const code = text.charCodeAt(from + at);
      const isEnd = code === COLON || code === QUOTE;
      if (at === gram.length) return isEnd ? 0 : -1;
      if (isEnd) return 1;
      if (gram.charCodeAt(at) !== code) return gram.charCodeAt(at) - code;
    }
  }

  #valueOf(entry: number): Value {
    const start = this.#starts[entry] as number;
    const next = this.#starts[entry + 1];
    const value = this.#text.slice(this.#text.indexOf(':', start) + 1, next === undefined ? undefined : next - 1);
    return this.#read(value.replaceAll('"', ''));
  }
}

/** A language by its number, and how much a gram speaks for it. */
type Weight = { number: number; weight: number };

type Tables = {
  /** The codes of languages by their numbers, which begin with 1. */
  languages: readonly string[];
  /** Grams of one language alone. */
  uniques: GramTable<string>;
  /** Grams of several languages. */
  multiples: GramTable<readonly Weight[]>;
};

const DIGITS = 36;

const readWeights = (value: string): Weight[] =>
  (value.match(/..../g) ?? []).map((four) => ({
    number: Number.parseInt(four.slice(0, 2), DIGITS),
    weight: Number.parseInt(four.slice(2), DIGITS),
  }));

const readTables = (): Tables => {
  const file = readFileSync(createRequire(import.meta.url).resolve('tinyld/heavy'), 'utf8');
  const [head = '', rest = ''] = file.split('multiples:{', 2);
  const [multiples = '', others = ''] = rest.split('},uniques:{', 2);
  const [uniques = ''] = others.split('}}', 1);
  const languages = ['', ...[...head.matchAll(/\{code:"(\w+)"/g)].map(([, code = '']) => code)];
  return {
    languages,
    uniques: new GramTable(uniques, (number) => languages[Number.parseInt(number, DIGITS)] ?? ''),
    multiples: new GramTable(multiples, readWeights),
  };
};

let tables: Tables | undefined;
/** The tables, for the first text. Most processes detect no language. */
const gramTables = (): Tables => (tables ??= readTables());

const GRAM_LENGTHS = [1, 2, 3, 4, 5];
const MAX_PIECES = 7;
/** How many languages of a word count. */
const MAX_LANGUAGES = 8;

/** What is between pieces. The group makes it a piece too, as in the library. */
const MARKS = /([,，、。!¿?！？":;()「」{}„“«»”"“<>⋯《》*]|[.[\]\\])+/;
const PUNCTUATION = /[,.。，、#%&/\\+*¡!¿?[\]！？;:…„“«»”"“_–—~]/g;

const clean = (text: string): string =>
  text
    .toLowerCase()
    .replaceAll('’', "'")
    .replace(PUNCTUATION, ' ')
    .replace(/[0-9\uff10-\uff19]/g, '')
    .replace(/\s\s+/g, ' ')
    .trim();

const withoutAccents = (text: string): string => text.normalize('NFD').replace(/[\u0300-\u036f]/g, '');

function* gramsOf(text: string): Generator<string> {
  for (const length of GRAM_LENGTHS) {
    const around = ' '.repeat(length - 1);
    const padded = around + text + around;
    for (let at = 0; at + length <= padded.length; at += 1) {
      const gram = padded.slice(at, at + length);
      if (!gram.includes('  ') && gram.trim() !== '') yield gram;
    }
  }
}

/** The language of the first gram that only one of these languages has. */
const findUnique = (piece: string, only: readonly string[]): string | undefined => {
  const { uniques } = gramTables();
  for (const gram of gramsOf(piece)) {
    const language = uniques.find(gram);
    if (language !== null && only.includes(language)) return language;
  }
  return undefined;
};

const rounded = (value: number): number => Math.round(value * 10_000) / 10_000;

/** How well a word fits these languages, by their numbers: 1 for the likeliest. */
const weighWord = (word: string, numbers: readonly number[]): [number: number, fit: number][] => {
  const { languages, multiples } = gramTables();
  const sums = new Float64Array(languages.length);
  const hasAccents = withoutAccents(word) !== word;
  for (const gram of gramsOf(word)) {
    const plain = hasAccents ? withoutAccents(gram) : gram;
    for (const { number, weight } of multiples.find(plain) ?? [])
      sums[number] = (sums[number] ?? 0) + (weight * plain.length) / 4;
  }
  const likeliest = numbers
    .map((number): [number, number] => [number, sums[number] ?? 0])
    .sort(([, one], [, other]) => other - one)
    .slice(0, MAX_LANGUAGES);
  const highest = likeliest[0]?.[1] || 1;
  return likeliest.map(([number, sum]) => [number, 1 - rounded((highest - sum) / highest)]);
};

/** How well a text fits these languages, the likeliest first. */
export const detectAll = (text: string, only: readonly string[]): { language: string; accuracy: number }[] => {
  const { languages } = gramTables();
  const numbers = [...languages.keys()].filter((number) => only.includes(languages[number] ?? ''));
  const pieces = text.split(MARKS).map(clean).filter(Boolean);
  const longest = pieces.sort((one, other) => other.length - one.length).slice(0, MAX_PIECES);
  let length = 0;
  const sums = new Map<string, number>();
  const add = (language: string, value: number): void => void sums.set(language, (sums.get(language) ?? 0) + value);
  for (const piece of longest) {
    const unique = findUnique(piece, only);
    if (unique !== undefined) {
      add(unique, piece.length);
      length += piece.length;
      continue;
    }
    for (const word of piece.split(/ +/)) {
      for (const [number, fit] of weighWord(word, numbers)) add(languages[number] ?? '', fit);
      length += word.length;
    }
  }
  return [...sums]
    .filter(([, sum]) => sum > 0)
    .sort(([, one], [, other]) => other - one)
    .map(([language, sum]) => ({ language, accuracy: sum / length }));
};
