import { questionTexts, textsHash } from '../../../src/assistants/knowledge-texts.ts';
import type { VectorStore, VectorsInfo } from '../../../src/assistants/knowledge-vectors.ts';
import type { VectorProgress } from '../../../src/assistants/semantic-state.ts';

/** An entry that needs new vectors: for its questions, and with `withAnswer` also for its answer. */
export type WorkItem = { entryId: string; texts: number; withAnswer: boolean };

export type Plan = VectorProgress & {
  /** The most urgent items are first. */
  work: WorkItem[];
  /** Ids of entries whose texts have changed since their vectors were stored. */
  edited: Set<string>;
  /** Ids of removed entries that still have stored vectors. */
  orphans: string[];
  /** Maps a text hash to the id of a removed entry that still has the vector of this text. */
  sources: Map<string, string>;
};

/**
 * Compares the stored vectors with the entries and orders the missing work. Edited entries go first, because their
 * author waits. The questions of all other entries go next, because a question is enough to find its entry. Answers go
 * last.
 */
export const planWork = async (vectors: VectorStore, assistantId: string, model: string): Promise<Plan> => {
  const stored = new Map<string, VectorsInfo>();
  for await (const name of vectors.list(assistantId)) stored.set(name.entryId, name);

  const edited: WorkItem[] = [];
  const fresh: WorkItem[] = [];
  const unanswered: WorkItem[] = [];
  let [answers, total] = [0, 0];
  for await (const { entryId, texts } of vectors.readTexts(assistantId)) {
    total += 1;
    const name = stored.get(entryId);
    stored.delete(entryId);
    const known = name?.live === true && name.model === model ? name.hash : null;
    if (known === textsHash(model, texts)) answers += 1;
    else if (known === textsHash(model, questionTexts(texts))) unanswered.push({ entryId, texts: 1, withAnswer: true });
    else if (known !== null) edited.push({ entryId, texts: texts.length, withAnswer: true });
    else fresh.push({ entryId, texts: questionTexts(texts).length, withAnswer: false });
  }

  const orphans = [...stored.values()];
  const sources = new Map<string, string>();
  if (fresh.length + edited.length > 0) {
    const usable = orphans.filter((one) => one.model === model).map(({ entryId }) => entryId);
    for await (const { entryId, texts } of vectors.readTextKeys(usable)) {
      for (const name of texts) sources.set(name.slice(name.indexOf(' ') + 1), entryId);
    }
  }
  return {
    work: [
      ...edited,
      ...fresh,
      ...unanswered,
      ...fresh.map(({ entryId }) => ({ entryId, texts: 1, withAnswer: true })),
    ],
    edited: new Set(edited.map(({ entryId }) => entryId)),
    orphans: orphans.map(({ entryId }) => entryId),
    sources,
    done: total - edited.length - fresh.length,
    answers,
    total,
  };
};

const TEXTS_PER_BATCH = 16;

/**
 * Splits the work into batches. A batch is large enough to save calls to the store, and small enough to end quickly.
 */
export const batchesOf = function* (work: WorkItem[]): Generator<WorkItem[]> {
  let batch: WorkItem[] = [];
  let texts = 0;
  for (const one of work) {
    if (batch.length > 0 && (texts + one.texts > TEXTS_PER_BATCH || batch[0]?.withAnswer !== one.withAnswer)) {
      yield batch;
      [batch, texts] = [[], 0];
    }
    batch.push(one);
    texts += one.texts;
  }
  if (batch.length > 0) yield batch;
};
