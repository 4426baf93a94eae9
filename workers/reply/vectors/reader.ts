import {
  measureSimilarity,
  scan,
  type Similarities,
  type SimilarityOptions,
  type VectorEntry,
  type VectorHit,
} from '@parley/understanding';
import type { TextKind } from '@parley/understanding/text';
import type { Assistant } from '../../../src/assistants/assistant.ts';
import { parseTextKey } from '../../../src/assistants/knowledge-texts.ts';
import type { EntryVectors, VectorStore } from '../../../src/assistants/knowledge-vectors.ts';
import type { Logger } from '../../../src/process/logger.ts';
import { createSlices } from '../../../src/process/slices.ts';
import { createSlots } from '../../../src/process/slots.ts';

/** The most memory of all vectors. One assistant gets at most half. */
const MAX_BYTES = 100_000_000;
/** Vectors that no turn used for this time make room for others. */
const IDLE_MS = 60_000;
/** After this time, the vectors that an assistant dropped for others are read again, to see if there is room now. */
const RETRY_MS = 10 * 60_000;
/** Estimated memory of an entry without its vectors. */
const ENTRY_BYTES = 400;
/** The order in which kinds of vectors are dropped if they exceed the memory. Without any, only words decide. */
const DROP_ORDER: TextKind[] = ['answer', 'variant', 'question'];

type AssistantVersion = { assistantId: string; version: number; revision: number };
type CachedVectors = AssistantVersion & {
  model: string;
  entries: Map<string, VectorEntry>;
  list: VectorEntry[];
  bytes: number;
  dropped: Set<TextKind>;
  /** When vectors were dropped for other assistants. Null if none were. */
  madeRoomAt: number | null;
  usedAt: number;
};

/** The vectors of an assistant's entries, at one version of the assistant. */
type AssistantVectors = {
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

type Options = {
  logger: Logger;
  maxBytes?: number;
  now?: () => number;
  /** Called after a first read, and when they change: the kinds of vectors that exceed the assistant's half. */
  onRead?: (assistantId: string, dropped: TextKind[]) => void;
};

/**
 * Returns null if the assistant has no vectors. Vectors are returned as soon as some are stored, before the remaining
 * ones are made.
 */
export type VectorsOf = (
  assistant: Pick<Assistant, 'assistantId' | 'version' | 'semantic'>,
) => Promise<AssistantVectors | null>;

/**
 * Caches vectors, at most `maxBytes` in all. If the assistant's version or revision has increased, the stored hashes
 * are compared and only changed entries are read. When the memory is full, assistants without turns lose their vectors
 * first. Then the assistant with the most vectors drops those of its answers, then of its variants, then of its
 * questions. So assistants in use never push each other out, which would make every turn read the same vectors again.
 */
export const createVectorReader = (
  vectors: VectorStore,
  { logger, maxBytes = MAX_BYTES, now = () => performance.now(), onRead = () => undefined }: Options,
): VectorsOf => {
  const memory = new Map<string, CachedVectors>();
  const reading = new Map<string, Promise<CachedVectors>>();
  /** One read at a time: a read needs as much memory as its result, and changes what others hold. */
  const reads = createSlots(({ inUse }) => inUse === 0);

  /** Drops the next kind of vectors. */
  const drop = async (held: CachedVectors, reason: string): Promise<void> => {
    const { assistantId, dropped } = held;
    dropped.add(DROP_ORDER[dropped.size] as TextKind);
    const entries = new Map<string, VectorEntry>();
    const slices = createSlices();
    let bytes = 0;
    for (const [entryId, one] of held.entries) {
      const less = withoutKinds(one, dropped);
      entries.set(entryId, less);
      bytes += bytesOf(less);
      if (slices.isOver()) await slices.next();
    }
    Object.assign(held, { entries, bytes, list: [...entries.values()] });
    logger.warn({ assistantId, without: [...dropped] }, reason);
  };

  const makeRoom = async (): Promise<void> => {
    for (;;) {
      const all = [...memory.values()];
      if (all.reduce((sum, { bytes }) => sum + bytes, 0) <= maxBytes) return;
      const [idlest] = all.toSorted((one, other) => one.usedAt - other.usedAt);
      const largest = all
        .filter(({ dropped }) => dropped.size < DROP_ORDER.length)
        .toSorted((one, other) => other.bytes - one.bytes)[0];
      if (largest && idlest && now() - idlest.usedAt < IDLE_MS) {
        await drop(largest, 'vectors were dropped to make room for other assistants');
        largest.madeRoomAt = now();
      } else if (idlest) memory.delete(idlest.assistantId);
    }
  };

  const read = async (known: AssistantVersion, model: string): Promise<CachedVectors> => {
    const { assistantId } = known;
    const last = memory.get(assistantId);
    const mayGrow = last?.madeRoomAt != null && now() - last.madeRoomAt > RETRY_MS;
    const before = last?.model === model && !mayGrow ? last : null;
    const held: CachedVectors = {
      ...known,
      model,
      entries: new Map(),
      list: [],
      bytes: 0,
      dropped: new Set(before?.dropped),
      madeRoomAt: before?.madeRoomAt ?? null,
      usedAt: now(),
    };
    const changed: string[] = [];
    for await (const { entryId, hash } of vectors.list(assistantId, { model })) {
      const same = before?.entries.get(entryId);
      if (same?.hash !== hash) changed.push(entryId);
      else {
        held.entries.set(entryId, same);
        held.bytes += bytesOf(same);
      }
    }
    for await (const row of vectors.read(changed)) {
      if (row.model !== model) continue;
      const entry = withoutKinds(toVectorEntry(row), held.dropped);
      held.entries.set(entry.entryId, entry);
      held.bytes += bytesOf(entry);
      while (held.bytes > maxBytes / 2 && held.dropped.size < DROP_ORDER.length) {
        await drop(held, 'knowledge has too many vectors to hold them all');
      }
    }
    held.list = [...held.entries.values()];
    memory.set(assistantId, held);
    if (held.madeRoomAt === null && before?.dropped.size !== held.dropped.size) onRead(assistantId, [...held.dropped]);
    await makeRoom();
    return held;
  };

  const readInTurn = async (known: AssistantVersion, model: string): Promise<CachedVectors> => {
    const slot = await reads.acquire(known.assistantId);
    try {
      return await read(known, model);
    } finally {
      slot?.release();
    }
  };

  const startRead = (known: AssistantVersion, model: string): Promise<CachedVectors> => {
    const started = readInTurn(known, model).finally(() => reading.delete(known.assistantId));
    reading.set(known.assistantId, started);
    return started;
  };

  /** Runs one read per assistant at a time. Other callers wait for the running read and check its result. */
  const readCurrent = async (known: AssistantVersion, model: string): Promise<CachedVectors> => {
    for (;;) {
      const held = memory.get(known.assistantId);
      const running = reading.get(known.assistantId);
      if (held?.model === model && held.version >= known.version && held.revision >= known.revision) {
        held.usedAt = now();
        const isRetryDue = held.madeRoomAt !== null && now() - held.madeRoomAt > RETRY_MS;
        if (isRetryDue && !running) startRead(known, model).catch(() => undefined); // these vectors serve meanwhile
        return held;
      }
      if (!running) return startRead(known, model);
      await running;
    }
  };

  return async ({ assistantId, version, semantic }) => {
    const { model, revision = 0 } = semantic ?? {};
    if (model === undefined) return null;
    const { list, dropped } = await readCurrent({ assistantId, version, revision }, model);
    if (list.length === 0 || dropped.has('question')) return null;
    return {
      model,
      find: (query, limit) => scan(list, query, limit),
      measureSimilarity: (query, include, options) => measureSimilarity(list, query, include, options),
    };
  };
};
