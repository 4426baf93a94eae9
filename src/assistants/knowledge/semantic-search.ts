import {
  calibrated,
  type Embedder,
  emptyRows,
  measureSimilarity,
  type Priority,
  quantised,
  rowOf,
  rowsOf,
  setRow,
  type SemanticSearch,
  type Similarities,
  type VectorEntry,
} from '@parley/understanding';
import type { TextKind } from '@parley/understanding/text';
import { LRUCache } from 'lru-cache';
import type { Assistant } from '../assistant.ts';
import type { DraftKnowledge } from '../drafts/draft-reads.ts';
import { type KnowledgeText, parseTextKey, textsHash, textsOf } from './entry.ts';
import { WORTH } from './store.ts';
import type { EntryVectors, VectorStore } from './vectors.ts';
import { withDeadline } from '../../platform/process/deadline.ts';
import type { Logger } from '../../platform/process/logger.ts';
import { createLru, createSharedMemory, type SharedMemory } from '../../platform/process/lru.ts';
import { createSlices } from '../../platform/process/slices.ts';
import { createPacedSlots } from '../../platform/process/paced-slots.ts';
import { workInSlot } from '../../platform/process/slots.ts';

/** The maximum memory of an assistant's vectors, in bytes. */
const MAX_BYTES = 50_000_000;
/**
 * An assistant whose vectors made room while they were in use does without some kinds for this time. At most `LESS_MAX`
 * such assistants are remembered.
 */
const RETRY_MS = 10 * 60_000;
const LESS_MAX = 10_000;
/**
 * How many assistants' vectors are read at the same time. Few, because a read needs as much memory as its result, and
 * changes what others hold. Those that take longer have one of these places.
 */
const READS_AT_ONCE = 2;
const READS = { total: READS_AT_ONCE, slowMs: 250, hangsMs: 1_000 };
/** Estimated memory of an entry without its vectors. */
const ENTRY_BYTES = 600;
/** The order in which kinds of vectors are dropped if they exceed the memory. Without any, only words decide. */
const DROP_ORDER: TextKind[] = ['answer', 'variant', 'question'];

type AssistantVersion = { assistantId: string; version: number; revision: number };
type CachedVectors = AssistantVersion & {
  model: string;
  entries: Map<string, VectorEntry>;
  list: VectorEntry[];
  bytes: number;
  dropped: Set<TextKind>;
  /** Until when some kinds are left out for other assistants. */
  lessUntil: number;
};

/** The vectors of an assistant's entries, at one version of the assistant. */
type AssistantVectors = { model: string; entries: readonly VectorEntry[] };

const bytesOf = ({ rows: { values, inverses } }: VectorEntry): number =>
  values.byteLength + inverses.byteLength + ENTRY_BYTES;

const withoutKinds = ({ rows, kinds, ...entry }: VectorEntry, dropped: Set<TextKind>): VectorEntry => {
  const left = kinds.flatMap((kind, row) => (dropped.has(kind) ? [] : [row]));
  const kept = emptyRows(left.length, rows.dimensions);
  for (const [nth, row] of left.entries()) setRow(kept, nth, rowOf(rows, row));
  return { ...entry, kinds: left.map((row) => kinds[row] as TextKind), rows: kept };
};

const toVectorEntry = ({ entryId, hash, texts, vectors }: EntryVectors): VectorEntry => ({
  entryId,
  hash,
  kinds: texts.map((name) => parseTextKey(name).kind),
  rows: rowsOf(vectors, texts.length),
});

type Options = {
  logger: Logger;
  /** Where vectors are held. */
  memory?: SharedMemory;
  maxBytes?: number;
  now?: () => number;
  /** Called after a first read, and when they change: the kinds of vectors that exceed `maxBytes`. */
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
 * Caches vectors, at most `maxBytes` of an assistant. If the assistant's version or revision has increased, the stored
 * hashes are compared and only changed entries are read. Vectors that make room while they are in use are read again
 * without those of answers, the next time also without those of variants, then of questions. So assistants do not go on
 * pushing each other out, which would make every turn read the same vectors again.
 */
export const createVectorReader = (
  vectors: VectorStore,
  {
    logger,
    memory = createSharedMemory(),
    maxBytes = MAX_BYTES,
    now = () => performance.now(),
    onRead = () => undefined,
  }: Options,
): VectorsOf => {
  /** How many kinds assistants do without, and until when. */
  const less = createLru<{ kinds: number; until: number }>({ most: LESS_MAX });
  const cached = memory.openCache<CachedVectors>({
    ...WORTH.vectors,
    onPushedOut: (assistantId, { dropped }) => {
      const kinds = Math.min(dropped.size + 1, DROP_ORDER.length);
      less.set(assistantId, { kinds, until: now() + RETRY_MS });
      logger.warn({ assistantId, without: DROP_ORDER.slice(0, kinds) }, 'vectors made room for other assistants');
    },
  });
  const reading = new Map<string, Promise<CachedVectors>>();
  const reads = createPacedSlots({
    ...READS,
    leastTimeFirst: true,
    shareOf:
      (total) =>
      ({ inUse }) =>
        inUse < total,
  });

  const isCurrent = (held: CachedVectors, { version, revision }: AssistantVersion, model: string): boolean =>
    held.model === model && held.version >= version && held.revision >= revision;

  const isLessOver = ({ lessUntil }: CachedVectors): boolean => lessUntil > 0 && lessUntil <= now();

  /** Drops the next kind of vectors. */
  const drop = async (held: CachedVectors): Promise<void> => {
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
    logger.warn({ assistantId, without: [...dropped] }, 'knowledge has too many vectors to hold them all');
  };

  const read = async (known: AssistantVersion, model: string): Promise<CachedVectors> => {
    const { assistantId } = known;
    const last = cached.get(assistantId);
    const { kinds = 0, until: lessUntil = 0 } = less.get(assistantId) ?? {};
    const left = lessUntil > now() ? DROP_ORDER.slice(0, kinds) : [];
    const before = last?.model === model && !isLessOver(last) ? last : null;
    const held: CachedVectors = {
      ...known,
      model,
      entries: new Map(),
      list: [],
      bytes: 0,
      dropped: new Set(before?.dropped ?? left),
      lessUntil: left.length > 0 ? lessUntil : 0,
    };
    const changed: string[] = [];
    const slices = createSlices();
    for await (const { entryId, hash } of vectors.list(assistantId, { model })) {
      if (slices.isOver()) await slices.next();
      const same = before?.entries.get(entryId);
      if (same?.hash !== hash) changed.push(entryId);
      else {
        held.entries.set(entryId, same);
        held.bytes += bytesOf(same);
      }
    }
    for await (const row of vectors.read(changed)) {
      if (slices.isOver()) await slices.next();
      if (row.model !== model) continue;
      const entry = withoutKinds(toVectorEntry(row), held.dropped);
      held.entries.set(entry.entryId, entry);
      held.bytes += bytesOf(entry);
      while (held.bytes > maxBytes && held.dropped.size < DROP_ORDER.length) await drop(held);
    }
    held.list = [...held.entries.values()];
    cached.set(assistantId, held, held);
    if (held.lessUntil === 0 && before?.dropped.size !== held.dropped.size) onRead(assistantId, [...held.dropped]);
    return held;
  };

  const readInTurn = (known: AssistantVersion, model: string): Promise<CachedVectors> =>
    workInSlot(reads, known.assistantId, () => reads.watch(known.assistantId, read(known, model)));

  const startRead = (known: AssistantVersion, model: string): Promise<CachedVectors> => {
    const started = readInTurn(known, model).finally(() => reading.delete(known.assistantId));
    reading.set(known.assistantId, started);
    return started;
  };

  /** Runs one read per assistant at a time. Other callers wait for the running read and check its result. */
  const readCurrent = async (known: AssistantVersion, model: string): Promise<CachedVectors> => {
    for (;;) {
      const held = cached.get(known.assistantId);
      const running = reading.get(known.assistantId);
      if (held && isCurrent(held, known, model)) {
        if (isLessOver(held) && !running) startRead(known, model).catch(() => undefined); // these serve meanwhile
        return held;
      }
      if (!running) return startRead(known, model);
      const read = await running;
      if (isCurrent(read, known, model)) return read; // there may have been no room to keep it
    }
  };

  return async ({ assistantId, version, semantic }) => {
    const { model, revision = 0 } = semantic ?? {};
    if (model === undefined) return null;
    const { list, dropped } = await readCurrent({ assistantId, version, revision }, model);
    if (list.length === 0 || dropped.has('question')) return null;
    return { model, entries: list };
  };
};

/**
 * The semantic search of one turn of an assistant. Undefined if the settings choose no model, or if the assistant has no
 * vectors of this model. While the model is not there, the search finds nothing.
 */
export type SemanticSearchOf = (
  assistant: Pick<Assistant, 'assistantId' | 'version' | 'semantic'>,
  priority?: Priority,
) => SemanticSearch | undefined;

/**
 * How long a turn waits for the search. The first search also reads all vectors, which may take longer. That read
 * continues after this time, so that the next turn can use its result.
 */
const MAX_MS: Record<Priority, number> = { turn: 2_000, background: 20_000 };

export const createSemanticSearch = (embedder: Embedder, vectorsOf: VectorsOf, logger: Logger): SemanticSearchOf => {
  const measure = async (
    assistant: Parameters<SemanticSearchOf>[0],
    { since, priority }: { since: number | undefined; priority: Priority | undefined },
    [text, include, options]: Parameters<SemanticSearch>,
  ): Promise<Similarities | null> => {
    const asked = { holder: assistant.assistantId, since, ...(priority && { priority }) };
    const embedding = embedder.embed([text], 'query', asked);
    // The vectors are not read for a model that is not there.
    if (embedder.model() === null && !(await embedding)) return null;
    const [vectors, embedded] = await Promise.all([vectorsOf(assistant), embedding]);
    const [query] = embedded ?? [];
    // The model may have changed during the call.
    if (!query || !vectors || vectors.model !== embedder.model()) return null;
    return calibrated(await measureSimilarity(vectors.entries, query, include, options), embedder.calibration());
  };

  return (assistant, priority) => {
    const stored = assistant.semantic?.model;
    if (stored === undefined || !embedder.isConfigured || (embedder.model() ?? stored) !== stored) return undefined;
    let startedAt: number | undefined;
    return (...query) => {
      const since = startedAt;
      startedAt ??= performance.now();
      return withDeadline(
        measure(assistant, { since, priority }, query).catch((cause: unknown) => {
          logger.warn(
            { err: cause, assistantId: assistant.assistantId },
            'vectors could not be read: words decide alone',
          );
          return null;
        }),
        MAX_MS[priority ?? 'turn'],
      ).catch(() => null);
    };
  };
};

/** Texts of a draft that are compared by meaning. Entries beyond them are found by their words. */
const DRAFT_TEXTS_MAX = 2_000;
const TEXTS_PER_CALL = 8;
/** How long one call makes vectors, so that an evaluation keeps its lease and others have their turn. */
const PREPARED_FOR_MS = 3_000;
/**
 * A worker holds the vectors of at most `DRAFTS_HELD` drafts, for `TEXTS_HELD_FOR_MS` after their last use. Those of a
 * full draft take 1.5 MB and minutes to make. So there are places for many, whose turns end soon.
 */
const DRAFTS_HELD = 32;
const TEXTS_HELD_FOR_MS = 10 * 60_000;
/**
 * Vectors that are still being made keep their place for this time after the last call. Otherwise drafts would push each
 * other out, and none would be ready. A round of all drafts takes less.
 */
const PLACE_KEPT_FOR_MS = 180_000;

type EntryOfDraft = { entryId: string; texts: KnowledgeText[] };
type Plan = {
  /** The entries that the draft adds or changes. */
  edited: EntryOfDraft[];
  /** The ids of the entries that the draft does not change. */
  unchanged: Set<string>;
  /** The vectors of `edited`, once they are made. */
  own: { model: string; entries: VectorEntry[] } | null;
};
/** `made`: texts that got a vector since the place was taken, or since a draft was ready. */
type HeldTexts = { model: string; byHash: Map<string, Int8Array>; made: number; keptUntil: number };
/** `hashes`: of the texts that the draft has now. */
type Wanted = { assistantId: string; model: string; plan: Plan; hashes: Map<string, unknown> };

/**
 * The vectors of a draft: those of live entries that it does not change, and its own, made by the worker that compares.
 */
export type DraftVectors = {
  /**
   * Makes vectors that are missing. False if there are more to make, or if those of other drafts must be made first.
   */
  prepare: (draft: DraftKnowledge) => Promise<boolean>;
  vectorsOf: (draft: DraftKnowledge) => VectorsOf;
};

type Dependencies = {
  vectors: Pick<VectorStore, 'read'>;
  vectorsOf: VectorsOf;
  embedder: Embedder;
  now?: () => number;
};

const planOf = async ({ entries, edited }: DraftKnowledge): Promise<Plan> => {
  const plan: Plan = { edited: [], unchanged: new Set(), own: null };
  const slices = createSlices();
  let count = 0;
  for (const entry of entries) {
    const { entryId } = entry;
    if (!edited.has(entryId)) plan.unchanged.add(entryId);
    else if (count < DRAFT_TEXTS_MAX) {
      const texts = textsOf(entry);
      count += texts.length;
      plan.edited.push({ entryId, texts });
    }
    if (slices.isOver()) await slices.next();
  }
  return plan;
};

const vectorEntryOf = (model: string, { entryId, texts }: EntryOfDraft, { byHash }: HeldTexts): VectorEntry[] => {
  const kept = texts.filter(({ hash }) => byHash.has(hash));
  const vectors = kept.map(({ hash }) => byHash.get(hash) ?? new Int8Array());
  const [first] = vectors;
  if (!first) return [];
  const rows = emptyRows(kept.length, first.length);
  for (const [nth, vector] of vectors.entries()) setRow(rows, nth, vector);
  return [{ entryId, hash: textsHash(model, kept), kinds: kept.map(({ kind }) => kind), rows }];
};

export const createDraftVectors = ({
  vectors,
  vectorsOf,
  embedder,
  now = () => performance.now(),
}: Dependencies): DraftVectors => {
  const plans = new WeakMap<DraftKnowledge, Plan>();
  /** By assistant, so that after a further change of a draft, only the changed texts need vectors. */
  const places = new LRUCache<string, HeldTexts>({
    max: DRAFTS_HELD,
    ttl: TEXTS_HELD_FOR_MS,
    ttlAutopurge: true,
    updateAgeOnGet: true,
  });

  /**
   * The known vectors of a draft's texts. They are held already, or stored for the live entries: an edited entry keeps
   * most of its texts. Null if there is no place for them yet.
   */
  const textsHeld = async ({ assistantId, model, plan, hashes }: Wanted): Promise<HeldTexts | null> => {
    const known = places.get(assistantId);
    if (known?.model === model) return known;
    if (!known && places.size === places.max) {
      const [free] = [...places].findLast(([, { keptUntil }]) => keptUntil < now()) ?? [];
      if (free === undefined) return null;
      places.delete(free);
    }
    const texts: HeldTexts = { model, byHash: new Map(), made: 0, keptUntil: 0 };
    const slices = createSlices();
    for await (const row of vectors.read(plan.edited.map(({ entryId }) => entryId))) {
      if (slices.isOver()) await slices.next();
      if (row.model !== model) continue;
      const length = row.vectors.length / row.texts.length;
      for (const [nth, name] of row.texts.entries()) {
        const { hash } = parseTextKey(name);
        const vector = row.vectors.subarray(nth * length, (nth + 1) * length);
        if (hashes.has(hash)) texts.byHash.set(hash, quantised(vector));
      }
    }
    places.set(assistantId, texts);
    return texts;
  };

  return {
    prepare: async (draft) => {
      const model = embedder.model();
      const plan = plans.get(draft) ?? (await planOf(draft));
      plans.set(draft, plan);
      if (model === null || plan.own?.model === model) return true;
      const { assistantId } = draft;
      const wanted = new Map(plan.edited.flatMap((one) => one.texts.map(({ hash, text }) => [hash, text])));
      const texts = await textsHeld({ assistantId, model, plan, hashes: wanted });
      if (!texts) return false;
      // A draft that changes all the time would never be ready, and others would wait for its place.
      texts.keptUntil = texts.made <= wanted.size ? now() + PLACE_KEPT_FOR_MS : 0;
      for (const hash of texts.byHash.keys()) if (!wanted.has(hash)) texts.byHash.delete(hash);
      const missing = [...wanted].filter(([hash]) => !texts.byHash.has(hash));
      const until = now() + PREPARED_FOR_MS;
      for (let from = 0; from < missing.length; from += TEXTS_PER_CALL) {
        if (now() > until) return false;
        const some = missing.slice(from, from + TEXTS_PER_CALL);
        const asked = { priority: 'background', holder: assistantId } as const;
        const made = await embedder.embed(
          some.map(([, text]) => text),
          'passage',
          asked,
        );
        if (made === null) break; // without the model, words decide
        for (const [nth, [hash]] of some.entries()) texts.byHash.set(hash, quantised(made[nth] ?? new Float32Array()));
        texts.made += some.length;
      }
      const slices = createSlices();
      const entries: VectorEntry[] = [];
      for (const one of plan.edited) {
        entries.push(...vectorEntryOf(model, one, texts));
        if (slices.isOver()) await slices.next();
      }
      plan.own = { model, entries };
      Object.assign(texts, { made: 0, keptUntil: 0 });
      return true;
    },

    vectorsOf: (draft) => async (assistant) => {
      const { own, unchanged } = plans.get(draft) ?? (await planOf(draft));
      const live = await vectorsOf(assistant);
      const model = live?.model ?? own?.model;
      if (model === undefined || (own && own.model !== model)) return null;
      const kept = (live?.entries ?? []).filter(({ entryId }) => unchanged.has(entryId));
      const list = [...kept, ...(own?.entries ?? [])];
      return list.length === 0 ? null : { model, entries: list };
    },
  };
};
