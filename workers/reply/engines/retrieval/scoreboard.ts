/** Sums by number, cleared by looking only at what was touched: a common word touches thousands of wordings a turn. */
export class Scoreboard {
  readonly #sums: Float64Array;
  /** Value of the term now being counted, and which term that was. */
  readonly #latest: Float64Array;
  readonly #round: Uint32Array;
  #current = 0;
  touched: number[] = [];

  constructor(size: number) {
    this.#sums = new Float64Array(size);
    this.#latest = new Float64Array(size);
    this.#round = new Uint32Array(size);
  }

  /** The next term: of several ways it is found in one place, the best counts. */
  nextTerm(): void {
    this.#current += 1;
  }

  count(place: number, value: number): void {
    const isFirst = this.#round[place] !== this.#current;
    const before = isFirst ? 0 : (this.#latest[place] ?? 0);
    if (value <= before) return;
    const sum = this.#sums[place] ?? 0;
    if (sum === 0) this.touched.push(place);
    this.#sums[place] = sum + value - before;
    this.#latest[place] = value;
    this.#round[place] = this.#current;
  }

  of(place: number): number {
    return this.#sums[place] ?? 0;
  }

  clear(): void {
    for (const place of this.touched) this.#sums[place] = 0;
    this.touched = [];
  }
}
