import { questionTexts, textsHash } from '../../../src/assistants/knowledge-texts.ts';
import type { VectorsInfo, VectorStore } from '../../../src/assistants/knowledge-vectors.ts';
import type { VectorProgress } from '../../../src/assistants/semantic-state.ts';

/** An entry whose vectors are to be made: with its answer, or first what it is asked by. */
export type WorkItem = { entryId: string; texts: number; withAnswer: boolean };

export type Plan = VectorProgress & {
  /** In the order of their urgency. */
  work: WorkItem[];
  /** Entries whose vectors are of other texts. */
  edited: Set<string>;
  /** Vectors whose entry is gone. */
  orphans: string[];
  /** Where the vector of a text (by its hash) is stored already, if not under its entry. */
  sources: Map<string, string>;
};

/**
 * What is there held against what the entries ask for now. An entry that was edited goes first, whole: somebody waits to
 * see it. Then what every entry is asked by, since that is what finds it, and the answers at last.
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

/** Neighbours of one kind, so many that the store is not asked for each alone, so few that each group is soon done. */
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
