import { LRUCache } from 'lru-cache';
import type { Assistant } from '../../../src/assistants/assistant.ts';
import { parseTextKey, type TextKind } from '../../../src/assistants/knowledge-texts.ts';
import type { EntryVectors, VectorStore } from '../../../src/assistants/knowledge-vectors.ts';
import type { Logger } from '../../../src/platform/logger.ts';
import { type VectorEntry, scan, type VectorHit } from './scan.ts';
import { measureSimilarity, type Similarities, type SimilarityOptions } from './similarity.ts';

const MAX_BYTES = 100_000_000;
/** Estimated memory of an entry without its vectors. */
const ENTRY_BYTES = 400;
/** The order in which vectors are dropped, by kind, if an assistant exceeds the memory limit. */
const DROP_ORDER: TextKind[] = ['answer', 'variant', 'question'];

type AssistantVersion = { assistantId: string; version: number; revision: number };
type CachedVectors = AssistantVersion & {
  model: string;
  entries: Map<string, VectorEntry>;
  list: VectorEntry[];
  dropped: Set<TextKind>;
};

/** The vectors of an assistant's entries, at one version of the assistant. */
export type AssistantVectors = {
  model: string;
  find: (query: Float32Array, limit: number) => Promise<VectorHit[]>;
  measureSimilarity: (
    query: Float32Array,
    include: ReadonlySet<string>,
    options?: SimilarityOptions,
  ) => Promise<Similarities>;
};

const bytesOf = ({ vectors }: VectorEntry): number => vectors.byteLength + ENTRY_BYTES;

const withoutKinds = ({ vectors, kinds, ...entry }: VectorEntry, dropped: Set<TextKind>): VectorEntry => {
  const length = vectors.length / kinds.length;
  const rows = kinds.flatMap((kind, row) => (dropped.has(kind) ? [] : [row]));
  if (rows.length === kinds.length) return { ...entry, kinds, vectors };
  const kept = new Float32Array(rows.length * length);
  for (const [nth, row] of rows.entries()) kept.set(vectors.subarray(row * length, (row + 1) * length), nth * length);
  return { ...entry, kinds: rows.map((row) => kinds[row] as TextKind), vectors: kept };
};

const toVectorEntry = ({ entryId, hash, texts, vectors }: EntryVectors): VectorEntry => ({
  entryId,
  hash,
  kinds: texts.map((name) => parseTextKey(name).kind),
  vectors,
});

/**
 * Caches vectors, at most `maxBytes` in all. If the assistant's version or revision has increased, the stored hashes
 * are compared and only changed entries are read.
 */
export const createVectorReader = (
  vectors: VectorStore,
  { logger, maxBytes = MAX_BYTES }: { logger: Logger; maxBytes?: number },
) => {
  const memory = new LRUCache<string, CachedVectors>({ maxSize: maxBytes + ENTRY_BYTES });
  const reading = new Map<string, Promise<CachedVectors>>();

  const read = async (known: AssistantVersion, model: string): Promise<CachedVectors> => {
    const { assistantId } = known;
    const last = memory.get(assistantId);
    const before = last?.model === model ? last : null;
    const entries = new Map<string, VectorEntry>();
    const changed: string[] = [];
    let bytes = 0;
    for await (const { entryId, hash } of vectors.list(assistantId, { model })) {
      const same = before?.entries.get(entryId);
      if (same?.hash !== hash) changed.push(entryId);
      else {
        entries.set(entryId, same);
        bytes += bytesOf(same);
      }
    }
    const dropped = new Set(before?.dropped);
    for await (const row of vectors.read(changed)) {
      if (row.model !== model) continue;
      const entry = withoutKinds(toVectorEntry(row), dropped);
      entries.set(entry.entryId, entry);
      bytes += bytesOf(entry);
      while (bytes > maxBytes && dropped.size < DROP_ORDER.length) {
        dropped.add(DROP_ORDER[dropped.size] as TextKind);
        bytes = 0;
        for (const [entryId, one] of entries) {
          const less = withoutKinds(one, dropped);
          entries.set(entryId, less);
          bytes += bytesOf(less);
        }
        logger.warn({ assistantId, without: [...dropped] }, 'knowledge has too many vectors to hold them all');
      }
    }
    const held: CachedVectors = { ...known, model, entries, dropped, list: [...entries.values()] };
    memory.set(assistantId, held, { size: Math.min(maxBytes, bytes) + ENTRY_BYTES });
    return held;
  };

  /** Runs one read per assistant at a time. Other callers wait for the running read and check its result. */
  const readCurrent = async (known: AssistantVersion, model: string): Promise<CachedVectors> => {
    for (;;) {
      const held = memory.get(known.assistantId);
      if (held?.model === model && held.version >= known.version && held.revision >= known.revision) return held;
      const running = reading.get(known.assistantId);
      if (running) {
        await running;
        continue;
      }
      const started = read(known, model).finally(() => reading.delete(known.assistantId));
      reading.set(known.assistantId, started);
      return started;
    }
  };

  /**
   * Returns null if the assistant has no vectors. Vectors are returned as soon as some are stored, before the remaining
   * ones are made.
   */
  return async ({
    assistantId,
    version,
    semantic,
  }: Pick<Assistant, 'assistantId' | 'version' | 'semantic'>): Promise<AssistantVectors | null> => {
    const { model, revision = 0 } = semantic ?? {};
    if (model === undefined) return null;
    const { list } = await readCurrent({ assistantId, version, revision }, model);
    if (list.length === 0) return null;
    return {
      model,
      find: (query, limit) => scan(list, query, limit),
      measureSimilarity: (query, include, options) => measureSimilarity(list, query, include, options),
    };
  };
};

export type VectorsOf = ReturnType<typeof createVectorReader>;
