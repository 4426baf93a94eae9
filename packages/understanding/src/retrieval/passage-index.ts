import { baseLanguage } from '../fold.ts';
import { cosineTo, createBest, createDistribution, type Distribution } from '../similarity.ts';
import { createLoopShare } from '../embedder/token-vectors.ts';
import { conceptWeight } from './concepts.ts';
import {
  bytesOf,
  emptyVectors,
  IN_PATH,
  IN_TITLE,
  type IndexedPassage,
  makeSigns,
  merge,
  type IndexPart,
  PartReader,
  readStoredPart,
  setVectorAt,
  storedPart,
  type Words,
} from './passage-parts.ts';
import { type Reading, readTerms, conceptKey, inverseDocumentFrequency, PLACE, placesOf } from './terms.ts';

/** A word of a question. `keys`: the keys that it may mean, each with a weight. `share`: how much the word says. */
export type QuestionWord = { word: string; keys: Map<string, number>; share: number };

/** A passage that may have the answer. `words` is its score by words. A cosine is null if there is no vector. */
export type PassageHit = {
  passageId: string;
  language: string;
  /** BM25, divided by the weight of all words of the question. */
  words: number;
  /** The shares of the question, by weight, that the passage has and that its headings have. */
  coverage: number;
  headings: number;
  cosine: number | null;
  /** How far the cosine is above the mean of its language's passages. Texts in one language are near each other anyway. */
  nearness: number | null;
};

export type PassageHits = {
  hits: PassageHit[];
  /** The share of the question, by weight, that no passage has. */
  unknownShare: number;
  /** The cosines of a sample of all passages. */
  cosines: Distribution;
};

const QUESTION: Reading = { length: 1_000, words: 100, terms: 32, phrases: false };
const CONCEPT_WEIGHT = 0.7;
const TYPO_WEIGHT = 0.8;
const SHORTEST_FUZZY = 5;
const MOST_FUZZY = 3;
/** The most terms that are compared with the misspelt words of a question, in equal parts, and that each word may be. */
const NEAR_COMPARED = 60_000;
const NEAR_FOUND = 50;
const BM25 = { k: 1.2, b: 0.5, path: 1.5, title: 0.5 };
/**
 * The maximum number of places that a search by words reads, the rarest words first. Only the rarest word may exceed
 * it.
 */
const MAX_PLACES = 400_000;
/** How many passages each kind of search finds. */
const NEAREST = 30;
/**
 * In a part with sign bits, only the passages whose bits are most like the question's are compared by their vectors:
 * one in `oneIn`, but at least `least`.
 */
const COMPARED = { oneIn: 20, least: 400 };
const SAMPLE = 256;
/** A language's mean counts as if it had this many more average passages, so that a few passages say little. */
const LANGUAGE_PRIOR = 10;
/** After this time, other work has its turn. */
const SLICE_MS = 2;
/** How many languages an index tells apart. Passages in further languages count as being in the first. */
const MAX_LANGUAGES = 64;
const MOST_SPOKEN = 5;

/** Whether two words differ in at most one letter: one more, one less, or another one. */
const isNear = (one: string, other: string): boolean => {
  const [short, long] = one.length <= other.length ? [one, other] : [other, one];
  let start = 0;
  while (start < short.length && short[start] === long[start]) start += 1;
  let [left, right] = [short.length, long.length];
  while (left > start && short[left - 1] === long[right - 1]) {
    left -= 1;
    right -= 1;
  }
  if (left - start <= 1 && right - start <= 1) return true;
  // Two letters next to each other that changed places count as one mistake.
  return (
    left - start === 2 && right - start === 2 && short[start] === long[start + 1] && short[start + 1] === long[start]
  );
};

const bitsOf = (value: number): number => {
  let bits = value - ((value >>> 1) & 0x55555555);
  bits = (bits & 0x33333333) + ((bits >>> 2) & 0x33333333);
  return Math.imul((bits + (bits >>> 4)) & 0x0f0f0f0f, 0x01010101) >>> 24;
};

type Pause = () => Promise<void> | undefined;
/** Begins with a slice of its own: one read of a store may continue many searches in the same tick. */
const createPause = async (): Promise<Pause> => {
  const share = createLoopShare(SLICE_MS);
  await share.next();
  return () => (share.isOver() ? share.next() : undefined);
};

/** The cosines of some passages. `shifts`: how far the mean of each language is from the mean of all. */
type Sample = { cosines: Distribution; shifts: number[] };
const NO_SAMPLE: Sample = { cosines: { count: 0, mean: 0, deviation: 0 }, shifts: [] };

/** A question's vector, and what compares it. */
type Asked = { vector: Float32Array; cosineOf: ReturnType<typeof cosineTo> };

/** Where a passage is: its part, and its number in this part. */
type Address = { part: number; number: number };
/** By part: each passage's score by words, and the shares of the question that its text and its headings have. */
type Scores = { words: Float32Array; coverage: Float32Array; headings: Float32Array; latest: Uint8Array };

/** The passages of an assistant, to search by words and vectors. It never changes: an update gives another one. */
export class PassageIndex {
  /** How many passages it has. */
  readonly size: number;
  /** Estimated memory. */
  readonly bytes: number;
  /** The model of its vectors. */
  readonly model: string | null;
  readonly parts: readonly IndexPart[];
  readonly languages: readonly string[];
  readonly #averageLength: number;
  /** The languages that most passages have. Questions are read in these. */
  readonly #spoken: readonly string[];

  constructor(parts: readonly IndexPart[] = [], languages: readonly string[] = ['en'], model: string | null = null) {
    this.parts = parts;
    this.languages = languages;
    this.model = model;
    this.size = parts.reduce((sum, { left }) => sum + left, 0);
    this.bytes = parts.reduce((sum, part) => sum + bytesOf(part), 0);
    let [terms, passages] = [0, 0];
    const counts = languages.map(() => 0);
    for (const { words } of parts) {
      passages += words.lengths.length;
      for (const length of words.lengths) terms += length;
      for (const language of words.languages) counts[language] = (counts[language] as number) + 1;
    }
    this.#averageLength = Math.max(1, terms / Math.max(1, passages));
    this.#spoken = languages
      .map((language, nth) => ({ language, count: counts[nth] as number }))
      .toSorted((one, other) => other.count - one.count)
      .slice(0, MOST_SPOKEN)
      .map(({ language }) => language);
  }

  #find(passageId: string): Address | null {
    for (const [part, { words, removed }] of this.parts.entries()) {
      const number = words.numbers.get(passageId);
      if (number !== undefined && !removed?.[number]) return { part, number };
    }
    return null;
  }

  has(passageId: string): boolean {
    return this.#find(passageId) !== null;
  }

  hasVector(passageId: string): boolean {
    const found = this.#find(passageId);
    return found !== null && (this.parts[found.part]?.held.vectors?.inverses[found.number] ?? 0) !== 0;
  }

  *passageIds(): Generator<string> {
    for (const { words, removed } of this.parts) {
      for (const [number, passageId] of words.ids.entries()) if (!removed?.[number]) yield passageId;
    }
  }

  /** The parts as they are stored, each as pieces of bytes. `addStored` reads them again. */
  *stored(): Generator<Uint8Array[]> {
    for (const part of this.parts) yield storedPart(part, this.languages);
  }

  /** How many passages have a term. Removed passages that are still in a part count too. */
  #count(key: string): number {
    return this.parts.reduce((count, { words }) => count + placesOf(words, key).length, 0);
  }

  #weight(count: number): number {
    return inverseDocumentFrequency(count, Math.max(this.size, count));
  }

  /** The words of a question. A word may have another stem in each language that passages have. */
  #readQuestion(question: string, visitorLanguage: string): QuestionWord[] {
    const found = new Map<string, QuestionWord>();
    for (const language of this.#spoken) {
      for (const term of readTerms(question, language, visitorLanguage, QUESTION)) {
        const one = found.get(term.word) ?? { word: term.word, keys: new Map(), share: conceptWeight(term.concept) };
        one.keys.set(term.stem, 1);
        if (term.concept !== null) one.keys.set(conceptKey(term.concept), CONCEPT_WEIGHT);
        found.set(term.word, one);
      }
    }
    return [...found.values()];
  }

  /** Adds the terms that a misspelt word may be. */
  async #addNearTerms(words: QuestionWord[], pause: Pause): Promise<void> {
    const unknown = words
      .filter(
        ({ word, keys }) => word.length >= SHORTEST_FUZZY && [...keys.keys()].every((key) => this.#count(key) === 0),
      )
      .slice(0, MOST_FUZZY);
    const misspelt = unknown.map(({ keys }) => {
      const stems = [...keys.keys()].filter((key) => key.length >= SHORTEST_FUZZY - 1);
      return { keys, stems, most: keys.size + NEAR_FOUND, left: NEAR_COMPARED / unknown.length };
    });
    if (misspelt.length === 0) return;
    for (const { words: own } of this.parts) {
      let nth = 0;
      for (const term of own.terms.keys()) {
        nth += 1;
        if (nth % 2_048 === 0) await pause();
        for (const word of misspelt) {
          if (word.left <= 0 || word.keys.size >= word.most) continue;
          for (const stem of word.stems) {
            if (term.charCodeAt(0) !== stem.charCodeAt(0) || Math.abs(term.length - stem.length) > 1) continue;
            word.left -= 1;
            if (isNear(term, stem)) word.keys.set(term, TYPO_WEIGHT);
          }
        }
      }
    }
  }

  /** Scores all passages by words. */
  async #scoreWords(
    words: QuestionWord[],
    pause: Pause,
  ): Promise<{ scores: Scores[]; whole: number; unknown: number }> {
    const scores = this.parts.map(({ words: { ids } }): Scores => {
      const [byWords, coverage, headings] = [0, 0, 0].map(() => new Float32Array(ids.length));
      return {
        words: byWords as Float32Array,
        coverage: coverage as Float32Array,
        headings: headings as Float32Array,
        latest: new Uint8Array(ids.length),
      };
    });
    const weighed: { known: { key: string; weight: number }[]; count: number; weight: number }[] = [];
    for (const word of words) {
      const keys = [...word.keys].map(([key, weight]) => ({ key, weight, count: this.#count(key) }));
      const known = keys.filter(({ count }) => count > 0).toSorted((one, other) => other.weight - one.weight);
      const count = known.reduce((sum, one) => sum + one.count, 0);
      weighed.push({ known, count, weight: word.share * this.#weight(known[0]?.count ?? 0) });
      await pause();
    }
    weighed.sort((one, other) => one.count - other.count);
    let [whole, unknown, places] = [0, 0, 0];
    for (const [nth, { known, count, weight }] of weighed.entries()) {
      whole += weight;
      if (count === 0) unknown += weight;
      places += count;
      if (places > MAX_PLACES && nth > 0) continue;
      for (const { key, weight: share } of known) {
        for (const [part, { words: own }] of this.parts.entries()) {
          this.#scorePlaces(own, key, { scores: scores[part] as Scores, word: nth + 1, share, weight });
          await pause();
        }
      }
    }
    return { scores, whole, unknown };
  }

  #scorePlaces(
    own: Words,
    key: string,
    { scores, word, share, weight }: { scores: Scores; word: number; share: number; weight: number },
  ): void {
    const { words, coverage, headings, latest } = scores;
    const places = placesOf(own, key);
    for (let at = 0; at < places.length; at += 1) {
      const place = places[at] as number;
      const number = place >>> PLACE.bits;
      if (latest[number] === word) continue; // by a better key
      latest[number] = word;
      const inPath = (place & IN_PATH) !== 0 ? 1 : 0;
      const inTitle = (place & IN_TITLE) !== 0 ? 1 : 0;
      const times = (place & PLACE.times) + BM25.path * inPath + BM25.title * inTitle;
      const norm = BM25.k * (1 - BM25.b + (BM25.b * (own.lengths[number] as number)) / this.#averageLength);
      const score = share * weight;
      words[number] = (words[number] as number) + (score * times * (BM25.k + 1)) / (times + norm);
      coverage[number] = (coverage[number] as number) + score;
      if (inPath + inTitle > 0) headings[number] = (headings[number] as number) + score;
    }
  }

  /** The cosine of a passage's vector and a question's, or null. */
  #cosine({ vector, cosineOf }: Asked, { part, number }: Address): number | null {
    const vectors = this.parts[part]?.held.vectors;
    if (!vectors || vectors.inverses[number] === 0 || vectors.dimensions !== vector.length) return null;
    return cosineOf(vectors, number);
  }

  /**
   * The numbers of a part's passages whose signs are most like the question's. Null means all: the part has no signs.
   */
  async #likelyNumbers(vector: Float32Array, part: IndexPart, pause: Pause): Promise<Uint32Array | null> {
    const signs = part.held.vectors?.signs;
    if (!signs || signs.mean.length !== vector.length) return null;
    const wordCount = vector.length >>> 5;
    const asked = new Uint32Array(wordCount);
    for (let at = 0; at < vector.length; at += 1) {
      if ((vector[at] as number) > (signs.mean[at] as number))
        asked[at >>> 5] = ((asked[at >>> 5] as number) | (1 << (at & 31))) >>> 0;
    }
    const { bits } = signs;
    const passages = part.words.ids.length;
    const differences = new Uint16Array(passages);
    const histogram = new Uint32Array(vector.length + 1);
    for (let number = 0; number < passages; number += 1) {
      let difference = 0;
      const from = number * wordCount;
      for (let word = 0; word < wordCount; word += 1)
        difference += bitsOf((bits[from + word] as number) ^ (asked[word] as number));
      differences[number] = difference;
      histogram[difference] = (histogram[difference] as number) + 1;
      if (number % 1_024 === 1_023) await pause();
    }
    const wanted = Math.max(COMPARED.least, passages / COMPARED.oneIn);
    let [most, count] = [0, 0];
    while (most < vector.length && count < wanted) {
      count += histogram[most] as number;
      most += 1;
    }
    const likely = new Uint32Array(count);
    let into = 0;
    for (let number = 0; number < passages && into < count; number += 1) {
      if ((differences[number] as number) < most) {
        likely[into] = number;
        into += 1;
      }
    }
    return likely.subarray(0, into);
  }

  /** The cosines of a sample of all passages. */
  #sampleCosines(asked: Asked): Sample {
    const step = Math.max(1, Math.ceil(this.size / SAMPLE));
    const cosines = createDistribution();
    const byLanguage = this.languages.map(() => ({ count: 0, sum: 0 }));
    for (const [part, { words, held, removed }] of this.parts.entries()) {
      if (!held.vectors) continue;
      for (let number = 0; number < words.ids.length; number += step) {
        const cosine = removed?.[number] ? null : this.#cosine(asked, { part, number });
        if (cosine === null) continue;
        cosines.add(cosine);
        const own = byLanguage[words.languages[number] as number];
        if (!own) continue;
        own.count += 1;
        own.sum += cosine;
      }
    }
    const all = cosines.result();
    return {
      cosines: all,
      shifts: byLanguage.map((own) => (own.sum - own.count * all.mean) / (own.count + LANGUAGE_PRIOR)),
    };
  }

  /** The passages that are nearest to a question. */
  async #findNearest(asked: Asked, { shifts }: Sample, pause: Pause): Promise<Address[]> {
    const best = createBest<Address>(NEAREST);
    for (const [nth, part] of this.parts.entries()) {
      if (!part.held.vectors) continue;
      const { ids, languages } = part.words;
      const likely = await this.#likelyNumbers(asked.vector, part, pause);
      const compared = likely?.length ?? ids.length;
      for (let at = 0; at < compared; at += 1) {
        const address = { part: nth, number: likely ? (likely[at] as number) : at };
        if (at % 256 === 255) await pause();
        if (part.removed?.[address.number]) continue;
        const cosine = this.#cosine(asked, address);
        if (cosine === null) continue;
        const nearness = cosine - (shifts[languages[address.number] as number] ?? 0);
        if (nearness > best.least) best.add(address, nearness);
      }
    }
    return best.kept.map(({ one }) => one);
  }

  /**
   * Finds passages by words, and by the question's vector if there is one. Other work has its turn every two
   * milliseconds.
   */
  async search(question: string, visitorLanguage: string, vector: Float32Array | null): Promise<PassageHits> {
    const pause = await createPause();
    const words = this.#readQuestion(question, visitorLanguage);
    await this.#addNearTerms(words, pause);
    const { scores, whole, unknown } = await this.#scoreWords(words, pause);
    const byWords = createBest<Address>(NEAREST);
    for (const [part, { words: scored }] of scores.entries()) {
      const removed = this.parts[part]?.removed;
      for (let number = 0; number < scored.length; number += 1) {
        const score = scored[number] as number;
        if (score > 0 && score > byWords.least && !removed?.[number]) byWords.add({ part, number }, score);
      }
      await pause();
    }
    const asked = vector && { vector, cosineOf: cosineTo(vector) };
    const sample = asked ? this.#sampleCosines(asked) : NO_SAMPLE;
    const nearest = asked ? await this.#findNearest(asked, sample, pause) : [];
    const addresses = new Map<string, Address>();
    for (const address of [...byWords.kept.map(({ one }) => one), ...nearest])
      addresses.set(`${address.part} ${address.number}`, address);
    const hits = [...addresses.values()].map(({ part, number }): PassageHit => {
      const own = this.parts[part]?.words;
      const scored = scores[part];
      const cosine = asked ? this.#cosine(asked, { part, number }) : null;
      const language = own?.languages[number] ?? 0;
      const share = (values: Float32Array | undefined): number => (whole === 0 ? 0 : (values?.[number] ?? 0) / whole);
      return {
        passageId: own?.ids[number] ?? '',
        language: this.languages[language] ?? '',
        words: share(scored?.words),
        coverage: share(scored?.coverage),
        headings: share(scored?.headings),
        cosine,
        nearness: cosine === null ? null : cosine - sample.cosines.mean - (sample.shifts[language] ?? 0),
      };
    });
    return { hits, unknownShare: whole === 0 ? 1 : unknown / whole, cosines: sample.cosines };
  }
}

/**
 * `read`: how many passages are read into a new part. `most`: the maximum size of a merged part. Both bound the memory
 * of this work.
 */
const PART = { read: 2_048, most: 16_384 };
/**
 * How many steps of the work on parts are done with each passage: enough for it to end before the next part is full.
 */
const STEPS_AT_ONCE = 4;
/** A part is written again if more than this share of its passages was removed. */
const MOST_REMOVED = 0.3;

export type PassageIndexOptions = {
  /** The model of the vectors. Vectors of another model are dropped. */
  model: string | null;
  /** The language of passages without one: the assistant's first. Default: English. */
  language?: string;
  maxBytes?: number;
};

/**
 * Makes the next index from the previous one, and shares with it what did not change. Each call and each step of
 * `finish` is short. Searches use the previous index until the update is finished, so none sees an unfinished one. The
 * exception is `setVector`: searches use its vectors at once.
 */
export class PassageIndexUpdate {
  readonly #model: string | null;
  readonly #maxBytes: number;
  readonly #languages: string[];
  readonly #parts: IndexPart[];
  /** The parts whose list of removed passages is this update's own copy. The previous index keeps its list. */
  readonly #changed = new Set<IndexPart>();
  #reader = new PartReader();
  /** Full readers, and the work that makes parts of them, some steps with each further passage. */
  readonly #full: PartReader[] = [];
  #work: Generator<void> | null = null;

  constructor(
    before: PassageIndex | null,
    { model, language = 'en', maxBytes = Number.POSITIVE_INFINITY }: PassageIndexOptions,
  ) {
    this.#model = model;
    this.#maxBytes = maxBytes;
    this.#languages = [...(before?.languages ?? [baseLanguage(language)])];
    // The vectors of another model are of no use.
    this.#parts = (before?.parts ?? []).map((part) =>
      before?.model === model ? { ...part } : { ...part, held: { vectors: null } },
    );
  }

  /** The bytes of passages that were added and are in no part yet. Until they are, they need three times as much. */
  get unfinishedBytes(): number {
    return [...this.#full, this.#reader].reduce((sum, reader) => sum + reader.bytes, 0);
  }

  get #bytes(): number {
    return this.#parts.reduce((sum, part) => sum + bytesOf(part), this.unfinishedBytes);
  }

  #languageNumber(language: string): number {
    const known = this.#languages.indexOf(language);
    if (known !== -1) return known;
    if (this.#languages.length >= MAX_LANGUAGES) return 0;
    return this.#languages.push(language) - 1;
  }

  /**
   * Adds a passage. It replaces one of the previous index with the same id. False if it does not fit into `maxBytes`.
   */
  add(passage: IndexedPassage): boolean {
    const { passageId, language } = passage;
    if ([...this.#full, this.#reader].some((reader) => reader.has(passageId))) return true;
    if (this.#bytes > this.#maxBytes) return false;
    this.remove(passageId);
    const number = language === null ? 0 : this.#languageNumber(baseLanguage(language));
    this.#reader.add(passage, this.#languages[number] as string, number);
    if (this.#reader.size >= PART.read) {
      this.#full.push(this.#reader);
      this.#reader = new PartReader();
    }
    this.#work ??= this.#tidy();
    for (let step = 0; this.#work && step < STEPS_AT_ONCE; step += 1) if (this.#work.next().done) this.#work = null;
    return true;
  }

  /**
   * Adds a part that was stored by the same engine (`passageEngine`), without the passages that are there already. Its
   * vectors are kept if they are of the model of this index. True if it fits into `maxBytes`.
   */
  *addStored(bytes: Uint8Array<ArrayBuffer>, model: string | null): Generator<void, boolean> {
    if (this.#bytes + bytes.length > this.#maxBytes) return false;
    this.#settle();
    const isWanted = (passageId: string): boolean => !this.#parts.some(({ words }) => words.numbers.has(passageId));
    const languageNumber = (name: string): number => this.#languageNumber(name);
    const part = yield* readStoredPart(bytes, { isWanted, languageNumber });
    if (model !== this.#model) part.held.vectors = null;
    this.#changed.add(part);
    this.#parts.push(part);
    return true;
  }

  /** Finishes the work on parts at once, because they must not change while it runs. */
  #settle(): void {
    while (this.#work && !this.#work.next().done);
    this.#work = null;
  }

  /** Removes a passage of the previous index. This takes longer after the first `add`. */
  remove(passageId: string): void {
    const isIn = ({ words, removed }: IndexPart): boolean => {
      const number = words.numbers.get(passageId);
      return number !== undefined && !removed?.[number];
    };
    if (!this.#parts.some(isIn)) return;
    this.#settle();
    for (const part of this.#parts) {
      const number = part.words.numbers.get(passageId);
      if (number === undefined || part.removed?.[number]) continue;
      const own = this.#changed.has(part) ? part.removed : part.removed?.slice();
      part.removed = own ?? new Uint8Array(part.words.ids.length);
      this.#changed.add(part);
      part.removed[number] = 1;
      part.left -= 1;
      return;
    }
  }

  /** Sets the vector of a passage of the previous index. Searches of that index use it too. */
  setVector(passageId: string, vector: Int8Array): void {
    this.#settle();
    for (const { words, held, removed } of this.#parts) {
      const number = words.numbers.get(passageId);
      if (number === undefined || removed?.[number]) continue;
      held.vectors ??= emptyVectors(words.ids.length, vector.length);
      return setVectorAt(held.vectors, number, vector);
    }
  }

  /** Makes parts of full readers, and merges parts of about one size, so that there are never many parts. */
  *#tidy(): Generator<void> {
    const parts = this.#parts;
    for (;;) {
      const [reader] = this.#full;
      if (reader) {
        const part = yield* reader.finish();
        this.#full.shift();
        parts.push(part);
      }
      parts.sort((one, other) => other.left - one.left);
      const thin = parts.find(({ left, words }) => left < (1 - MOST_REMOVED) * words.ids.length);
      const isOneSize = (larger: IndexPart, smaller: IndexPart): boolean =>
        larger.left <= 2 * smaller.left && larger.left + smaller.left <= PART.most;
      // Any two that are next to each other in size, so that two small ones that do not fit together do not prevent
      // other merges.
      const nth = parts.findLastIndex((smaller, at) => at > 0 && isOneSize(parts[at - 1] as IndexPart, smaller));
      const merged = thin ? [thin] : nth > 0 ? parts.slice(nth - 1, nth + 1) : [];
      if (merged.length > 0) {
        const part = yield* merge(merged);
        for (const one of merged) parts.splice(parts.indexOf(one), 1);
        parts.push(part);
      } else if (!reader) return;
    }
  }

  /** Ends the update and returns the new index. */
  *finish(): Generator<void, PassageIndex> {
    if (this.#reader.size > 0) this.#full.push(this.#reader);
    this.#reader = new PartReader();
    if (this.#work) yield* this.#work;
    yield* this.#tidy();
    const parts = this.#parts.filter(({ left }) => left > 0);
    for (const { held } of parts) yield* makeSigns(held);
    return new PassageIndex(parts, this.#languages, this.#model);
  }
}
