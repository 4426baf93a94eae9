import { passageEngine, type PassageIndex, PassageIndexUpdate } from '@parley/understanding';
import { createSlices } from '../process/slices.ts';
import type { PassageScope, PassageStore } from './passages.ts';

/** So many new passages are put into the index at once: until then, their words take much memory. */
const ROUND = 2_000;
/** How often a list of passages is read again whose version was replaced meanwhile. */
const TRIES_MAX = 3;

/** What stored indexes must be of to be used. `language`: of passages without one. */
export const kindOfIndex = (language: string): string => `${passageEngine()}/${language}`;

type Options = {
  passages: Pick<PassageStore, 'listVisible' | 'readEmbedded' | 'readStored'>;
  scope: PassageScope;
  /** The model of the vectors. Those of another one do not count. */
  model: string | null;
  language: string;
  maxBytes?: number;
};

/** `isStored`: it is what was stored already. `leftOut`: passages for which it has no room. */
export type BuiltIndex = { index: PassageIndex; isStored: boolean; leftOut: number };

/**
 * Makes an index of the visible passages from the one before, or from what is stored of it: the ids are compared, and
 * only new passages are read. Other work has its turn every few milliseconds.
 */
export const buildPassageIndex = async (options: Options, before: PassageIndex | null): Promise<BuiltIndex> => {
  const { passages, scope, ...made } = options;
  const { model, language } = made;
  const slices = createSlices();
  const goOn = async (): Promise<void> => (slices.isOver() ? slices.next() : undefined);
  const finish = async <Result>(steps: Generator<void, Result>): Promise<Result> => {
    for (let step = steps.next(); ; step = steps.next()) {
      if (step.done) return step.value;
      await goOn();
    }
  };

  const readStored = async (): Promise<PassageIndex> => {
    const update = new PassageIndexUpdate(null, made);
    for await (const { bytes, model: madeBy } of passages.readStored(scope, kindOfIndex(language)))
      await finish(update.addStored(bytes, madeBy));
    return finish(update.finish());
  };

  const updateFrom = async (last: PassageIndex, tries: number): Promise<BuiltIndex> => {
    let update = new PassageIndexUpdate(last, made);
    const removed = new Set(last.passageIds());
    const added: string[] = [];
    const embedded: string[] = [];
    for await (const listed of passages.listVisible(scope)) {
      for (const { passageId, model: madeBy } of listed) {
        removed.delete(passageId);
        if (!last.has(passageId)) added.push(passageId);
        else if (madeBy === model && model !== null && !(last.model === model && last.hasVector(passageId)))
          embedded.push(passageId);
        await goOn();
      }
    }
    for (const passageId of removed) {
      update.remove(passageId);
      await goOn();
    }
    for await (const some of passages.readEmbedded(embedded)) {
      for (const { passageId, vector, model: madeBy } of some) {
        if (vector && madeBy === model) update.setVector(passageId, vector);
        await goOn();
      }
    }
    let [read, leftOut] = [0, 0];
    for await (const some of passages.readEmbedded(added)) {
      if (Math.floor(read / ROUND) < Math.floor((read + some.length) / ROUND))
        update = new PassageIndexUpdate(await finish(update.finish()), made);
      read += some.length;
      for (const { model: madeBy, vector, ...passage } of some) {
        if (!update.add({ ...passage, vector: madeBy === model ? vector : null })) leftOut += 1;
        await goOn();
      }
    }
    // A newer version has replaced what was listed, so this would be a part of the older one.
    if (read < added.length && tries < TRIES_MAX) return updateFrom(last, tries + 1);
    const isStored = removed.size + embedded.length + added.length === 0;
    return { index: await finish(update.finish()), isStored, leftOut };
  };

  return updateFrom(before ?? (await readStored()), 1);
};
