import { setImmediate } from 'node:timers/promises';
import type { TextKind } from '../../../src/assistants/knowledge-texts.ts';

/** An entry's vectors in memory, concatenated. `kinds` lists the kind of each vector. */
export type VectorEntry = { entryId: string; hash: string; kinds: TextKind[]; vectors: Float32Array };

export type VectorHit = { entryId: string; kind: TextKind; cosine: number };

/** The scan yields to other turns after this time. */
const SLICE_MS = 2;
export const ENTRIES_PER_TIME_CHECK = 32;

/**
 * The dot product, which equals the cosine because all vectors have length 1. Four independent sums are faster than one
 * sum, because each addition to a sum waits for the previous one.
 */
export const dotProduct = (query: Float32Array, rows: Float32Array, start: number): number => {
  const length = query.length;
  let a = 0;
  let b = 0;
  let c = 0;
  let d = 0;
  for (let at = 0; at < length; at += 4) {
    a += (query[at] as number) * (rows[start + at] as number);
    b += (query[at + 1] as number) * (rows[start + at + 1] as number);
    c += (query[at + 2] as number) * (rows[start + at + 2] as number);
    d += (query[at + 3] as number) * (rows[start + at + 3] as number);
  }
  return a + b + c + d;
};

/** The `limit` most similar entries, the best first. For each entry, only its most similar text counts. */
export const scan = async (
  entries: readonly VectorEntry[],
  query: Float32Array,
  limit: number,
): Promise<VectorHit[]> => {
  const best: VectorHit[] = [];
  let least = Number.NEGATIVE_INFINITY;
  let sliceEnds = performance.now() + SLICE_MS;
  for (let nth = 0; nth < entries.length; nth += 1) {
    if (nth % ENTRIES_PER_TIME_CHECK === ENTRIES_PER_TIME_CHECK - 1 && performance.now() > sliceEnds) {
      await setImmediate();
      sliceEnds = performance.now() + SLICE_MS;
    }
    const { entryId, kinds, vectors } = entries[nth] as VectorEntry;
    if (vectors.length !== kinds.length * query.length) continue; // made by another model
    let nearest = 0;
    let cosine = Number.NEGATIVE_INFINITY;
    for (let row = 0; row < kinds.length; row += 1) {
      const one = dotProduct(query, vectors, row * query.length);
      if (one > cosine) {
        nearest = row;
        cosine = one;
      }
    }
    if (cosine <= least) continue;
    const kind = kinds[nearest] as TextKind;
    const before = best.findIndex((hit) => hit.cosine < cosine);
    best.splice(before === -1 ? best.length : before, 0, { entryId, kind, cosine });
    if (best.length > limit) best.pop();
    if (best.length === limit) least = best.at(-1)?.cosine ?? least;
  }
  return best;
};
