import { setTimeout as sleep } from 'node:timers/promises';
import { textsHash, textKeyOf, parseTextKey } from '../../../src/assistants/knowledge-texts.ts';
import type { EntryTexts, EntryVectors, VectorStore } from '../../../src/assistants/knowledge-vectors.ts';
import type { Embedder } from '../embedder/embedder.ts';
import type { Plan, WorkItem } from './plan.ts';

/** Texts per call of the embedder. The number is small, because a visitor's question may wait for one such call. */
const TEXTS_PER_CALL = 8;
/** How long a call is retried while the queue is full or the model restarts. */
const RETRY_FOR_MS = 2_000;
const RETRY_EVERY_MS = 200;

type Dependencies = { vectors: VectorStore; embedder: Embedder; draining: AbortSignal };
type Task = { assistantId: string; model: string; plan: Plan; batch: WorkItem[] };

const joined = (rows: Float32Array[]): Float32Array => {
  const [first] = rows;
  const all = new Float32Array(rows.length * (first?.length ?? 0));
  for (const [nth, row] of rows.entries()) all.set(row, nth * row.length);
  return all;
};

/** Creates and stores the vectors of a batch of entries. Returns false if the embedder is not available. */
export const createEmbedEntries = ({ vectors, embedder, draining }: Dependencies) => {
  /** Resolves with the result of the work, or with null as soon as the process drains. */
  const untilDraining = <Value>(work: Promise<Value>): Promise<Value | null> =>
    new Promise((resolve, reject) => {
      const stop = (): void => resolve(null);
      draining.addEventListener('abort', stop, { once: true });
      work.then(resolve, reject).finally(() => draining.removeEventListener('abort', stop));
    });

  const embed = async (texts: string[], assistantId: string): Promise<Float32Array[] | null> => {
    const options = { priority: 'background', holder: assistantId } as const;
    const until = performance.now() + RETRY_FOR_MS;
    for (;;) {
      const made = await untilDraining(embedder.embed(texts, 'passage', options));
      if (made !== null || draining.aborted || performance.now() > until) return made;
      await sleep(RETRY_EVERY_MS, undefined, { signal: draining }).catch(() => undefined);
    }
  };

  /**
   * Finds stored vectors of the same texts, so that they need not be embedded again. They belong to these entries or to
   * removed ones. Keys are text hashes.
   */
  const findKnown = async ({ plan, batch, model }: Task, entries: EntryTexts[]): Promise<Map<string, Float32Array>> => {
    const hashes = entries.flatMap(({ texts }) => texts.map(({ hash }) => hash));
    const candidates = [...batch.map(({ entryId }) => entryId), ...hashes.map((hash) => plan.sources.get(hash) ?? '')];
    const wanted = new Set(hashes);
    const known = new Map<string, Float32Array>();
    for await (const row of vectors.read([...new Set(candidates)].filter((place) => place !== ''))) {
      if (row.model !== model) continue;
      const length = row.vectors.length / row.texts.length;
      for (const [nth, name] of row.texts.entries()) {
        const { hash } = parseTextKey(name);
        if (wanted.has(hash)) known.set(hash, row.vectors.slice(nth * length, (nth + 1) * length));
      }
    }
    return known;
  };

  return async (task: Task): Promise<boolean> => {
    const { assistantId, model, batch } = task;
    const ids = batch.map(({ entryId }) => entryId);
    const entries: EntryTexts[] = [];
    for await (const entry of vectors.readTexts(assistantId, ids)) entries.push(entry);
    const known = await findKnown(task, entries);

    const withAnswer = batch[0]?.withAnswer === true;
    const chosen = entries.map(({ entryId, texts }) => ({
      entryId,
      texts: texts.filter(({ kind, hash }) => withAnswer || kind !== 'answer' || known.has(hash)),
    }));
    const missing = new Map(
      chosen.flatMap(({ texts }) => texts.filter(({ hash }) => !known.has(hash)).map(({ hash, text }) => [hash, text])),
    );
    const hashes = [...missing.keys()];
    for (let start = 0; start < hashes.length; start += TEXTS_PER_CALL) {
      const some = hashes.slice(start, start + TEXTS_PER_CALL);
      const made = await embed(
        some.map((hash) => missing.get(hash) ?? ''),
        assistantId,
      );
      if (made === null) return false;
      if (made.length !== some.length) throw new Error(`${some.length} texts were given ${made.length} vectors`);
      for (const [nth, vector] of made.entries()) known.set(some[nth] ?? '', vector);
    }
    // The model may have changed during the calls.
    if (embedder.model() !== model) return false;

    const rows = chosen.map(({ entryId, texts }): EntryVectors => {
      const found = texts.map(({ hash }) => known.get(hash) ?? new Float32Array());
      return { entryId, model, hash: textsHash(model, texts), texts: texts.map(textKeyOf), vectors: joined(found) };
    });
    await vectors.save(assistantId, rows);
    return true;
  };
};

export type EmbedEntries = ReturnType<typeof createEmbedEntries>;
