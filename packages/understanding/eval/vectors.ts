import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { EmbeddedKind } from '../src/embedder/backend.ts';
import type { Embedder } from '../src/embedder/embedder.ts';
import type { IndexedEntry } from '../src/retrieval/knowledge-index.ts';
import { comparedTexts, measureSimilarity, type SemanticSearch, type VectorEntry } from '../src/similarity.ts';

/** Opens the model that is measured, and names the folder where its vectors are kept for the next run. */
export type EvaluationModel = { open: () => Promise<Embedder>; folder: string };

const readKept = (file: string): Map<string, Float32Array> => {
  const known = new Map<string, Float32Array>();
  if (!existsSync(file)) return known;
  for (const line of readFileSync(file, 'utf8').split('\n').filter(Boolean)) {
    const [key = '', vector = ''] = line.split(' ');
    known.set(key, new Float32Array(Uint8Array.from(Buffer.from(vector, 'base64')).buffer));
  }
  return known;
};

const written = (vector: Float32Array): string =>
  Buffer.from(vector.buffer, vector.byteOffset, vector.byteLength).toString('base64');

export type TextVectors = {
  model: string;
  of: (kind: EmbeddedKind, text: string) => Promise<Float32Array>;
  vectorEntries: (knowledge: IndexedEntry[]) => Promise<VectorEntry[]>;
  semanticSearchOf: (entries: VectorEntry[]) => SemanticSearch;
  /** Saves new vectors for the next run. */
  close: () => Promise<void>;
};

/**
 * Opens the vectors of a model. They are kept in its folder, so that only the first run waits for the model. If there is
 * no model, `none` says why.
 */
export const openTextVectors = async ({ open, folder }: EvaluationModel): Promise<TextVectors | { none: string }> => {
  const embedder = await open();
  const model = embedder.model();
  if (model === null) {
    await embedder.close();
    return { none: embedder.status().detail };
  }
  const file = join(folder, `${model.replaceAll(/[^\w.@-]/g, '-')}.txt`);
  const known = readKept(file);
  let made = 0;

  const of = async (kind: EmbeddedKind, text: string): Promise<Float32Array> => {
    const key = createHash('sha256').update(`${kind}\n${text}`).digest('base64url').slice(0, 22);
    const kept = known.get(key);
    if (kept) return kept;
    const [vector] = (await embedder.embed([text], kind, { holder: 'eval', priority: 'background' })) ?? [];
    if (!vector) throw new Error(`no vector: ${embedder.status().detail}`);
    known.set(key, vector);
    made += 1;
    return vector;
  };

  return {
    model,
    of,
    vectorEntries: async (knowledge) => {
      const entries: VectorEntry[] = [];
      for (const entry of knowledge) {
        const texts = comparedTexts(entry);
        const rows: number[] = [];
        for (const { text } of texts) rows.push(...(await of('passage', text)));
        const kinds = texts.map(({ kind }) => kind);
        entries.push({ entryId: entry.entryId, hash: '', kinds, vectors: Float32Array.from(rows) });
      }
      return entries;
    },
    semanticSearchOf: (entries) => async (text, keep, options) =>
      measureSimilarity(entries, await of('query', text), keep, options),
    close: async () => {
      await embedder.close();
      if (made === 0) return;
      mkdirSync(folder, { recursive: true });
      writeFileSync(
        `${file}.${process.pid}`,
        [...known].map(([key, vector]) => `${key} ${written(vector)}\n`).join(''),
      );
      renameSync(`${file}.${process.pid}`, file); // atomic, because several runs may write at the same time
    },
  };
};
