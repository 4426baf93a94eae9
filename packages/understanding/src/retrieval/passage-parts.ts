import { createHash } from 'node:crypto';
import { emptyRows, rowOf, setRow, type VectorRows } from '../similarity.ts';
import {
  describeReading,
  type KnownWords,
  type Reading,
  readTerms,
  bytesOfWords,
  conceptKey,
  PLACE,
  type WordIndex,
  WordReader,
} from './terms.ts';

/** A part of a document, as it is quoted. */
export type Passage = {
  passageId: string;
  /** The title of its page. */
  title: string;
  /** The headings above it, the outermost first. */
  path: readonly string[];
  text: string;
  /** BCP 47 tag of the text. Null if it is not known. */
  language: string | null;
};

/** A passage with the vector of `passageText`, made by `quantised`. */
export type IndexedPassage = Passage & { vector: Int8Array | null };

/**
 * The maximum length of the headings in the embedded text. Longer ones would leave the model less of the text itself.
 */
const HEADING_CHARS = 160;

/** The title and the headings above a passage, each once, without the outer ones if they are too long. */
export const headingOf = ({ title, path }: Pick<Passage, 'title' | 'path'>): string => {
  const names = [...new Set([title, ...path].map((name) => name.slice(0, HEADING_CHARS).trim()).filter(Boolean))];
  while (names.length > 1 && names.join(': ').length > HEADING_CHARS) names.shift();
  return names.join(': ');
};

/** The text of a passage that is embedded: its headings say what it is about. */
export const passageText = (passage: Pick<Passage, 'title' | 'path' | 'text'>): string =>
  `${headingOf(passage)}\n${passage.text}`;

/** Passages are longer than messages, but bounded too. */
const PASSAGE: Reading = { length: 4_000, words: 800, terms: 300, phrases: false };
const HEADINGS: Reading = { length: 400, words: 60, terms: 40, phrases: false };

/** So many words are remembered, of all languages together: some MB. Many spellings may have one stem. */
const KNOWN_MAX = 20_000;

/** The bits of a place: whether the headings and the title have the term. */
export const IN_PATH = PLACE.first;
export const IN_TITLE = PLACE.second;

/** The words of some passages. It never changes. */
export type Words = WordIndex & {
  ids: readonly string[];
  numbers: ReadonlyMap<string, number>;
  /** The number of terms of each text, and the number of its language. */
  lengths: Uint16Array;
  languages: Uint8Array;
};

/** The signs of vectors after their mean is subtracted, for a quick first comparison. `made`: of how many vectors. */
type Signs = { mean: Float32Array; bits: Uint32Array; made: number };

/** The vectors of some passages. They come later than the words, one by one. */
export type Vectors = VectorRows & { count: number; signs: Signs | null };

/**
 * Passages that were added together, or whose parts were merged since. A removed passage remains in its part until the
 * part is written again. `removed` has a 1 for it, and each index has its own `removed`.
 */
export type IndexPart = { words: Words; held: { vectors: Vectors | null }; removed: Uint8Array | null; left: number };

/** Estimated memory of a passage without words and vector, measured with `--expose-gc`. */
const PASSAGE_BYTES = 190;
/** A part with at least `from` vectors keeps their sign bits, made again when it has `growth` times as many vectors. */
const SIGNS = { from: 1_024, growth: 2 };

export const bytesOf = ({ words, held: { vectors } }: IndexPart): number =>
  bytesOfWords(words.terms.size, words.places.length) +
  words.ids.length * PASSAGE_BYTES +
  (vectors ? vectors.values.byteLength + vectors.inverses.byteLength + (vectors.signs?.bits.byteLength ?? 0) : 0);

export const emptyVectors = (passages: number, dimensions: number): Vectors => ({
  ...emptyRows(passages, dimensions),
  count: 0,
  signs: null,
});

export const setVectorAt = (vectors: Vectors, number: number, vector: Int8Array): void => {
  if (vector.length !== vectors.dimensions) return;
  if (vectors.inverses[number] === 0) vectors.count += 1;
  setRow(vectors, number, vector);
  if (vectors.signs) setSigns(vectors, vectors.signs, number);
};

const setSigns = ({ dimensions, values, inverses }: Vectors, { mean, bits }: Omit<Signs, 'made'>, number: number) => {
  const inverse = inverses[number] as number;
  const from = number * dimensions;
  const wordCount = dimensions >>> 5;
  for (let word = 0; word < wordCount; word += 1) {
    let set = 0;
    for (let bit = 0; bit < 32; bit += 1) {
      const at = word * 32 + bit;
      if ((values[from + at] as number) * inverse > (mean[at] as number)) set |= 1 << bit;
    }
    bits[number * wordCount + word] = set >>> 0;
  }
};

/**
 * Makes the signs of a part's vectors, if there are enough vectors, and `SIGNS.growth` times as many as the last time.
 */
export function* makeSigns(held: IndexPart['held']): Generator<void> {
  const { vectors } = held;
  if (!vectors || vectors.count < SIGNS.from || vectors.dimensions % 32 !== 0) return;
  if (vectors.signs && vectors.count < SIGNS.growth * vectors.signs.made) return;
  const { dimensions, values, inverses } = vectors;
  const made = vectors.count;
  const mean = new Float32Array(dimensions);
  for (let number = 0; number < inverses.length; number += 1) {
    const inverse = inverses[number] as number;
    if (inverse === 0) continue;
    const share = inverse / made;
    for (let at = 0; at < dimensions; at += 1)
      mean[at] = (mean[at] as number) + (values[number * dimensions + at] as number) * share;
    if (number % 64 === 0) yield;
  }
  const signs: Signs = { mean, bits: new Uint32Array(inverses.length * (dimensions >>> 5)), made };
  for (let number = 0; number < inverses.length; number += 1) {
    if (inverses[number] !== 0) setSigns(vectors, signs, number);
    if (number % 64 === 0) yield;
  }
  vectors.signs = signs;
}

/** Reads passages into a part. */
export class PartReader {
  readonly #ids: string[] = [];
  readonly #numbers = new Map<string, number>();
  readonly #words = new WordReader();
  readonly #lengths: number[] = [];
  readonly #languages: number[] = [];
  readonly #vectors: (Int8Array | null)[] = [];
  /** What words are, by language. Kept as long as this reader, or until they are too many. */
  readonly #known = new Map<string, KnownWords>();

  get size(): number {
    return this.#ids.length;
  }

  get bytes(): number {
    const vectors = this.#vectors.length * (this.#vectors[0]?.length ?? 0);
    return this.#words.bytes + this.size * PASSAGE_BYTES + vectors;
  }

  has(passageId: string): boolean {
    return this.#numbers.has(passageId);
  }

  add({ passageId, title, path, text, vector }: IndexedPassage, language: string, languageNumber: number): void {
    const number = this.#ids.length;
    this.#ids.push(passageId);
    this.#numbers.set(passageId, number);
    this.#languages.push(languageNumber);
    this.#vectors.push(vector);
    let length = 0;
    const known: KnownWords = this.#known.get(language) ?? new Map();
    this.#known.set(language, known);
    const readField = (field: string, reading: Reading, flag: number): void => {
      if (field === '') return;
      for (const term of readTerms(field, language, language, reading, known)) {
        const bits = flag === 0 ? Math.min(PLACE.times, term.times) : flag;
        this.#words.note(term.stem, number, bits);
        if (term.concept !== null) this.#words.note(conceptKey(term.concept), number, bits);
        if (flag === 0) length += term.times;
      }
    };
    readField(text, PASSAGE, 0);
    readField(path.slice(-4).join('\n'), HEADINGS, IN_PATH);
    readField(title, HEADINGS, IN_TITLE);
    let remembered = 0;
    for (const { size } of this.#known.values()) remembered += size;
    if (remembered > KNOWN_MAX) this.#known.clear();
    this.#lengths.push(Math.min(0xffff, length));
  }

  *finish(): Generator<void, IndexPart> {
    const words: Words = {
      ids: this.#ids,
      numbers: this.#numbers,
      lengths: Uint16Array.from(this.#lengths),
      languages: Uint8Array.from(this.#languages),
      ...(yield* this.#words.finish()),
    };
    const dimensions = this.#vectors.find((vector) => vector !== null)?.length;
    const vectors = dimensions === undefined ? null : emptyVectors(this.size, dimensions);
    for (const [number, vector] of this.#vectors.entries()) {
      if (vectors && vector) setVectorAt(vectors, number, vector);
      if (number % 64 === 0) yield;
    }
    return { words, held: { vectors }, removed: null, left: this.size };
  }
}

/** Puts parts together, without the passages that were removed. */
export function* merge(parts: readonly IndexPart[]): Generator<void, IndexPart> {
  const size = parts.reduce((sum, { left }) => sum + left, 0);
  const ids: string[] = [];
  const numbers = new Map<string, number>();
  const lengths = new Uint16Array(size);
  const languages = new Uint8Array(size);
  const dimensions = parts.find(({ held }) => held.vectors)?.held.vectors?.dimensions;
  const vectors = dimensions === undefined ? null : emptyVectors(size, dimensions);
  /** The new number of each passage of each part, and -1 for those that were removed. */
  const renumbered: Int32Array[] = [];
  for (const { words, held, removed } of parts) {
    const renumber = new Int32Array(words.ids.length).fill(-1);
    renumbered.push(renumber);
    for (const [before, passageId] of words.ids.entries()) {
      if (before % 64 === 0) yield;
      if (removed?.[before]) continue;
      const number = ids.length;
      renumber[before] = number;
      ids.push(passageId);
      numbers.set(passageId, number);
      lengths[number] = words.lengths[before] as number;
      languages[number] = words.languages[before] as number;
      const own = held.vectors;
      if (vectors && own && own.inverses[before] !== 0) setVectorAt(vectors, number, rowOf(own, before));
    }
  }
  const terms = new Map<string, number>();
  const counts: number[] = [];
  for (const [nth, { words }] of parts.entries()) {
    const renumber = renumbered[nth] as Int32Array;
    for (const [term, own] of words.terms) {
      let count = 0;
      const end = words.starts[own + 1] as number;
      for (let at = words.starts[own] as number; at < end; at += 1) {
        if ((renumber[(words.places[at] as number) >>> PLACE.bits] as number) >= 0) count += 1;
      }
      if (own % 32 === 0) yield;
      if (count === 0) continue;
      const known = terms.get(term);
      if (known === undefined) {
        terms.set(term, terms.size);
        counts.push(count);
      } else counts[known] = (counts[known] as number) + count;
    }
  }
  const starts = new Uint32Array(counts.length + 1);
  for (const [term, count] of counts.entries()) starts[term + 1] = (starts[term] as number) + count;
  yield;
  const places = new Uint32Array(starts[counts.length] as number);
  const ends = starts.slice();
  for (const [nth, { words }] of parts.entries()) {
    const renumber = renumbered[nth] as Int32Array;
    for (const [term, own] of words.terms) {
      const known = terms.get(term);
      if (known === undefined) continue;
      let into = ends[known] as number;
      const end = words.starts[own + 1] as number;
      for (let at = words.starts[own] as number; at < end; at += 1) {
        const place = words.places[at] as number;
        const number = renumber[place >>> PLACE.bits] as number;
        if (number < 0) continue;
        places[into] = ((number << PLACE.bits) | (place & 0xff)) >>> 0;
        into += 1;
      }
      ends[known] = into;
      if (own % 32 === 0) yield;
    }
  }
  const words: Words = { ids, numbers, lengths, languages, terms, starts, places };
  return { words, held: { vectors }, removed: null, left: size };
}

/** Increment this when parts are made or stored differently and `describeReading` does not show it. */
const STORED_FORMAT = 1;
let engine: string | undefined;

/** Names what makes parts of passages. Stored parts of another engine are of no use. */
export const passageEngine = (): string => {
  engine ??= createHash('sha256')
    .update(JSON.stringify([STORED_FORMAT, PASSAGE, HEADINGS, PLACE, describeReading()]))
    .digest('base64url')
    .slice(0, 16);
  return engine;
};

/** The counts that tell where the arrays of a stored part begin. Each begins at a multiple of four. */
type StoredHeader = {
  passages: number;
  terms: number;
  places: number;
  /** Bytes of the ids and of the terms, one a line. */
  idBytes: number;
  termBytes: number;
  /** The names of languages. A passage has the position of its language in this list. */
  languages: readonly string[];
  vectors: { dimensions: number; count: number; made: number | null } | null;
};

const aligned = (bytes: number): number => (bytes + 3) & ~3;
const bytesIn = ({ buffer, byteOffset, byteLength }: ArrayBufferView): Uint8Array =>
  new Uint8Array(buffer as ArrayBuffer, byteOffset, byteLength);

/** A part as it is stored. Numbers have the byte order of the machine, which is the same on all that run this. */
export const storedPart = ({ words, held: { vectors } }: IndexPart, languages: readonly string[]): Uint8Array[] => {
  const [ids, terms] = [words.ids, [...words.terms.keys()]].map((all) => Buffer.from(all.join('\n'))) as [
    Buffer,
    Buffer,
  ];
  const signs = vectors?.signs ?? null;
  const header: StoredHeader = {
    passages: words.ids.length,
    terms: words.terms.size,
    places: words.places.length,
    idBytes: ids.length,
    termBytes: terms.length,
    languages,
    vectors: vectors && { dimensions: vectors.dimensions, count: vectors.count, made: signs?.made ?? null },
  };
  const described = Buffer.from(JSON.stringify(header));
  const sections: ArrayBufferView[] = [
    Uint32Array.of(described.length),
    described,
    ids,
    terms,
    words.lengths,
    words.languages,
    words.starts,
    words.places,
    ...(vectors ? [vectors.values, vectors.inverses] : []),
    ...(signs ? [signs.mean, signs.bits] : []),
  ];
  return sections.flatMap((section) => [
    bytesIn(section),
    new Uint8Array(aligned(section.byteLength) - section.byteLength),
  ]);
};

const LINES_BYTES = 8_192;

/** The lines of a text, some at a time. */
function* linesIn(text: Buffer): Generator<string[]> {
  for (let from = 0; from <= text.length; ) {
    const end = text.indexOf('\n', from + LINES_BYTES);
    const to = end === -1 ? text.length : end;
    yield text.toString('utf8', from, to).split('\n');
    from = to + 1;
  }
}

/**
 * Reads a stored part, whose arrays are views of `bytes`. Passages for which `isWanted` is false count as removed. A
 * passage's language is found by its name.
 */
export function* readStoredPart(
  bytes: Uint8Array<ArrayBuffer>,
  { isWanted, languageNumber }: { isWanted: (passageId: string) => boolean; languageNumber: (name: string) => number },
): Generator<void, IndexPart> {
  let at = bytes.byteOffset;
  const take = (length: number): [ArrayBuffer, number] => {
    const from = at;
    at += aligned(length);
    return [bytes.buffer, from];
  };
  const text = (length: number): Buffer => Buffer.from(...take(length), length);
  const [described = 0] = new Uint32Array(...take(4), 1);
  const header = JSON.parse(text(described).toString()) as StoredHeader;
  const { passages, places, vectors: stored } = header;
  const ids: string[] = [];
  for (const some of linesIn(text(header.idBytes))) {
    ids.push(...some);
    yield;
  }
  const names = text(header.termBytes);
  const lengths = new Uint16Array(...take(2 * passages), passages);
  const languages = new Uint8Array(...take(passages), passages);
  const own = header.languages.map(languageNumber);
  const numbers = new Map<string, number>();
  const removed = new Uint8Array(passages);
  let left = passages;
  for (const [number, passageId] of ids.entries()) {
    if (isWanted(passageId)) numbers.set(passageId, number);
    else {
      removed[number] = 1;
      left -= 1;
    }
    languages[number] = own[languages[number] as number] ?? 0;
    if (number % 1_024 === 0) yield;
  }
  const terms = new Map<string, number>();
  for (const some of linesIn(names)) {
    for (const name of some) terms.set(name, terms.size);
    yield;
  }
  const starts = new Uint32Array(...take(4 * (header.terms + 1)), header.terms + 1);
  const words: Words = {
    ids,
    numbers,
    lengths,
    languages,
    terms,
    starts,
    places: new Uint32Array(...take(4 * places), places),
  };
  if (!stored) return { words, held: { vectors: null }, removed, left };
  const { dimensions, count, made } = stored;
  const values = new Int8Array(...take(passages * dimensions), passages * dimensions);
  const inverses = new Float32Array(...take(4 * passages), passages);
  const bitCount = passages * (dimensions >>> 5);
  const signs: Signs | null =
    made === null
      ? null
      : {
          mean: new Float32Array(...take(4 * dimensions), dimensions),
          bits: new Uint32Array(...take(4 * bitCount), bitCount),
          made,
        };
  return { words, held: { vectors: { dimensions, values, inverses, count, signs } }, removed, left };
}
