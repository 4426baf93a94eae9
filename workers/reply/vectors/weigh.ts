import { setImmediate } from 'node:timers/promises';
import { dot, ENTRIES_A_LOOK, type KnownEntry } from './scan.ts';

/** How near an entry is: by the nearest of its questions, and by its answer (null where that has no vector). */
export type Near = { entryId: string; asked: number; answer: number | null };
/** Cosines over all entries. A model's cosines lie close together, and elsewhere for each question: only this tells what one is worth. */
export type Spread = { count: number; mean: number; deviation: number };
export type Weighed = { entries: Near[]; asked: Spread; answer: Spread };

export type WeighOptions = { keptOnly?: boolean };

const NEAREST = 8;
/** Others go on after so long: a turn that needs no model takes less than this. */
const SLICE_MS = 0.5;

const createSpread = () => {
  let count = 0;
  let sum = 0;
  let squares = 0;
  return {
    add: (value: number): void => {
      count += 1;
      sum += value;
      squares += value * value;
    },
    result: (): Spread => {
      const mean = count === 0 ? 0 : sum / count;
      return { count, mean, deviation: Math.sqrt(Math.max(0, count === 0 ? 0 : squares / count - mean * mean)) };
    },
  };
};

const sumOf = ({ asked, answer }: Near): number => asked + (answer ?? asked);

/** All entries measured against a question: the nearest of them, those of `keep`, and how all of them lie. Or `keep` alone. */
export const weigh = async (
  entries: readonly KnownEntry[],
  query: Float32Array,
  keep: ReadonlySet<string>,
  { keptOnly = false }: WeighOptions = {},
): Promise<Weighed> => {
  const [allAsked, allAnswers] = [createSpread(), createSpread()];
  const nearest: Near[] = [];
  const kept: Near[] = [];
  let sliceEnds = performance.now() + SLICE_MS;
  for (const [nth, { entryId, kinds, vectors }] of entries.entries()) {
    if (nth % ENTRIES_A_LOOK === ENTRIES_A_LOOK - 1 && performance.now() > sliceEnds) {
      await setImmediate();
      sliceEnds = performance.now() + SLICE_MS;
    }
    if (keptOnly && !keep.has(entryId)) continue;
    if (vectors.length !== kinds.length * query.length) continue; // made by something else
    let asked = Number.NEGATIVE_INFINITY;
    let answer: number | null = null;
    for (let row = 0; row < kinds.length; row += 1) {
      const cosine = dot(query, vectors, row * query.length);
      if (kinds[row] === 'answer') answer = cosine;
      else if (cosine > asked) asked = cosine;
    }
    if (asked === Number.NEGATIVE_INFINITY) continue;
    allAsked.add(asked);
    if (answer !== null) allAnswers.add(answer);
    const near: Near = { entryId, asked, answer };
    if (keep.has(entryId)) kept.push(near);
    else {
      const last = nearest.at(-1);
      if (last && nearest.length === NEAREST && sumOf(near) <= sumOf(last)) continue;
      const before = nearest.findIndex((other) => sumOf(other) < sumOf(near));
      nearest.splice(before === -1 ? nearest.length : before, 0, near);
      if (nearest.length > NEAREST) nearest.pop();
    }
  }
  return { entries: [...kept, ...nearest], asked: allAsked.result(), answer: allAnswers.result() };
};
