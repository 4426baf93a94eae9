/**
 * Adds up scores by document number. `clear` resets only the numbers that were used, because most searches use only a
 * few of many.
 */
export class Accumulator {
  readonly #sums: Float64Array;
  /**
   * For each document, the best value added by the most recent term that matched it. A second array has the number of
   * that term.
   */
  readonly #latest: Float64Array;
  readonly #latestTerm: Uint32Array;
  #term = 0;
  touched: number[] = [];

  constructor(size: number) {
    this.#sums = new Float64Array(size);
    this.#latest = new Float64Array(size);
    this.#latestTerm = new Uint32Array(size);
  }

  /** Starts the next term. If one term matches a document in several ways, only the best match counts. */
  nextTerm(): void {
    this.#term += 1;
  }

  add(document: number, value: number): void {
    const isFirst = this.#latestTerm[document] !== this.#term;
    const before = isFirst ? 0 : (this.#latest[document] ?? 0);
    if (value <= before) return;
    const sum = this.#sums[document] ?? 0;
    if (sum === 0) this.touched.push(document);
    this.#sums[document] = sum + value - before;
    this.#latest[document] = value;
    this.#latestTerm[document] = this.#term;
  }

  get(document: number): number {
    return this.#sums[document] ?? 0;
  }

  clear(): void {
    for (const document of this.touched) this.#sums[document] = 0;
    this.touched = [];
  }
}
