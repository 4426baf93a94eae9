import { conceptWeight } from './concepts.ts';

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
/** The share of a key's weight that counts. */
export const shareOfKey = (key: string): number => conceptWeight(key.startsWith(CONCEPT) ? key.slice(1) : null);

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
