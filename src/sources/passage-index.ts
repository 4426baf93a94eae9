import {
  type Embedder,
  passageEngine,
  type PassageIndex,
  PassageIndexUpdate,
  type PassageSearch,
  type Priority,
} from '@parley/understanding';
import { baseLanguage } from '@parley/understanding/text';
import type { Assistant } from '../assistants/assistant.ts';
import type { SourceEdits } from '../assistants/drafts/draft-reads.ts';
import { WORTH } from '../assistants/knowledge/store.ts';
import { withDeadline } from '../platform/process/deadline.ts';
import type { Logger } from '../platform/process/logger.ts';
import { createPacedSlots } from '../platform/process/paced-slots.ts';
import { createSlices } from '../platform/process/slices.ts';
import { oneEach } from '../platform/process/slots.ts';
import type { PassageScope, PassageStore, ReadPassage } from './passages.ts';
import { createLru, createSharedMemory, type SharedMemory } from '../platform/process/lru.ts';

/** The maximum memory of an assistant's index of passages, in bytes. */
const MAX_BYTES = 80_000_000;
/**
 * An assistant whose index made room while it was in use answers without passages for `REFUSED_MS`. At most
 * `REFUSED_MAX` such assistants are remembered.
 */
const REFUSED_MAX = 10_000;
const REFUSED_MS = 60_000;
/**
 * How long a turn waits for the first index of its assistant, and an evaluation for that of a draft. `next`: how long a
 * turn waits if passages of its index are gone.
 */
const WAIT_MS = { first: 5_000, next: 1_000 };
/**
 * Indexes of at most so many passages are small, middle and large. A read that takes longer than `slowMs` was not one of
 * a stored index: it made the index from many passages, which takes thirty times as long.
 */
const SMALL = 2_000;
const MIDDLE = 10_000;
const SIZES = [
  { most: SMALL, slowMs: 250 },
  { most: MIDDLE, slowMs: 750 },
  { most: Number.POSITIVE_INFINITY, slowMs: 2_000 },
];
/** How many reads of each size run at once. Those of slow assistants have one of these places. */
const READS_AT_ONCE = 2;
/** How long a turn waits for the vector of its question. */
const EMBED_MS: Record<Priority, number> = { turn: 2_000, background: 20_000 };
/** While sources are read, the index is made again and again. It takes at most a fifth of the time. */
const REST_SHARE = 4;

/** How many new passages one update adds to the index, and their bytes. Their words take much memory until it is finished. */
const ROUND = 2_000;
const ROUND_BYTES = 10_000_000;
/** How often a list of passages is read at most, if its version is replaced meanwhile. */
const TRIES_MAX = 3;

/**
 * The kind that a stored index must have to be used. `language`: the language of passages without one. Its region makes
 * no other index, so a change from `en-GB` to `en-AU` must not cost a new one.
 */
export const kindOfIndex = (language: string): string => `${passageEngine()}/${baseLanguage(language)}`;

type BuildOptions = {
  passages: Pick<PassageStore, 'listVisible' | 'readEmbedded' | 'readStored'>;
  scope: PassageScope;
  /** The model of the vectors. Vectors by another model are ignored. */
  model: string | null;
  language: string;
  maxBytes?: number;
};

/**
 * `isStored`: nothing differs from the index before, or from the stored one. `leftOut`: how many passages do not fit.
 */
type BuiltIndex = { index: PassageIndex; isStored: boolean; leftOut: number };

/**
 * Makes an index of the visible passages from the index before, or from the stored one: the ids are compared, and only
 * new passages are read. Other work runs every few milliseconds.
 */
export const buildPassageIndex = async (options: BuildOptions, before: PassageIndex | null): Promise<BuiltIndex> => {
  const { passages, scope, ...given } = options;
  const made = { maxBytes: MAX_BYTES, ...given };
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
      const isOver = Math.floor(read / ROUND) < Math.floor((read + some.length) / ROUND);
      if (isOver || update.unfinishedBytes > ROUND_BYTES)
        update = new PassageIndexUpdate(await finish(update.finish()), made);
      read += some.length;
      for (const { model: madeBy, vector, ...passage } of some) {
        if (!update.add({ ...passage, vector: madeBy === model ? vector : null })) leftOut += 1;
        await goOn();
      }
    }
    // A newer version has replaced some listed passages, so this index would have only a part of the older version.
    if (read < added.length && tries < TRIES_MAX) return updateFrom(last, tries + 1);
    const isStored = removed.size + embedded.length + added.length === 0;
    return { index: await finish(update.finish()), isStored, leftOut };
  };

  return updateFrom(before ?? (await readStored()), 1);
};

/** `draft`: the changes of sources of the draft that answers. */
type Owner = Pick<Assistant, 'assistantId' | 'languages' | 'passages'> & { draft?: SourceEdits };
type AskedBy = { priority?: Priority; version?: number | undefined };

/** The passages of an assistant for one turn. */
export type TurnPassages = {
  search: PassageSearch<ReadPassage>;
  /**
   * True if passages that the turn wanted to read are gone, because a newer version has replaced them. An answer from the
   * rest may be incomplete.
   */
  isOutdated: () => boolean;
};

/** How a turn gets to its passages. */
export type PassageAccess = {
  /** Returns the present index. If there is a newer version, its index is begun. */
  current: () => TurnPassages | null;
  /** Waits for an index, or for a newer one than `before`. Null if there is none in time. */
  open: (before?: TurnPassages) => Promise<TurnPassages | null>;
};

export type Passages = {
  /** Undefined if the assistant has no passages. `version`: the live version that answers. */
  of: (assistant: Owner, by?: AskedBy) => PassageAccess | undefined;
  /**
   * True if these sources are read, and the index has them. Waits for an index that is being read. `findOwner` reads the
   * owner as it is then.
   */
  prepare: (sourceIds: string[], findOwner: () => Promise<Owner>) => Promise<boolean>;
  /** True if a turn would have to wait for an index. */
  isLongWait: (assistant: Owner) => boolean;
};

type CachedIndex = { index: PassageIndex; version: number; restUntil: number };

type Options = {
  /** For reads of turns. */
  store: Pick<PassageStore, 'readPassages' | 'readTokens'>;
  /** For reads of a whole index, which turns must not wait for. */
  background: Pick<PassageStore, 'areRead' | 'listVisible' | 'readEmbedded' | 'readStored'>;
  embedder: Pick<Embedder, 'embedQuestion' | 'model' | 'calibration' | 'isConfigured' | 'firstTry'>;
  /** Tells the owner how many passages have no room. */
  reportLeftOut: (assistantId: string, leftOut: number) => Promise<void>;
  logger: Logger;
  /** Where indexes are held. */
  memory?: SharedMemory;
  /** Drafts make room for what is live. */
  isForDrafts?: boolean;
  maxBytes?: number;
  now?: () => number;
};

/**
 * Keeps an index of the visible passages for each assistant, of at most `maxBytes`. When the version of an
 * assistant's passages has risen, the ids are compared and only new passages are read. Meanwhile turns use the previous
 * index, so they see one version or the other, and never a mixture.
 */
export const createPassages = (options: Options): Passages => {
  const {
    store,
    background,
    embedder,
    reportLeftOut,
    logger,
    memory = createSharedMemory(),
    isForDrafts = false,
    maxBytes = MAX_BYTES,
    now = () => performance.now(),
  } = options;
  const reading = new Map<string, Promise<void>>();
  /** Assistants whose turns wait for the next index, because passages of the present one are gone. */
  const outdated = new Set<string>();
  const refused = createLru<true>({ most: REFUSED_MAX, ttl: REFUSED_MS });
  /** Few reads of each size at a time: a read needs as much memory as its result. None waits for a larger one. */
  const reads = SIZES.map(({ most, slowMs }) => ({
    most,
    slots: createPacedSlots({
      total: READS_AT_ONCE,
      slowMs,
      hangsMs: 4 * slowMs,
      shareOf: oneEach,
      leastTimeFirst: true,
    }),
  }));

  const indexes = memory.openCache<CachedIndex>({
    ...(isForDrafts ? WORTH.draft : WORTH.passages),
    onPushedOut: (assistantId) => {
      refused.set(assistantId, true);
      logger.warn({ assistantId }, 'passages made room for other assistants');
    },
  });

  /** Makes the next index. While no model is available, it keeps the vectors of the previous model. */
  const build = async (
    { assistantId, languages, passages, draft }: Owner,
    before: PassageIndex | null,
  ): Promise<PassageIndex> => {
    const [language = 'en'] = languages;
    const model = embedder.model() ?? before?.model ?? null;
    const scope = { assistantId, ...(draft && { draft }) };
    const made = { passages: background, scope, model, language, maxBytes };
    const { index, leftOut } = await buildPassageIndex(made, before);
    if (leftOut > 0) logger.warn({ assistantId, leftOut }, 'there are too many passages to index them all');
    if (!isForDrafts && leftOut !== (passages?.leftOut ?? 0))
      await reportLeftOut(assistantId, leftOut).catch(() => undefined);
    return index;
  };

  const read = async (owner: Owner, version: number): Promise<void> => {
    const { assistantId, passages } = owner;
    // A first index waits for a model that is still being opened. That is not slow work of this assistant.
    if (!indexes.has(assistantId)) await embedder.firstTry();
    const slots = reads.find(({ most }) => (passages?.count ?? 0) <= most)?.slots;
    const slot = await slots?.acquire(assistantId);
    if (!slots || !slot) return;
    try {
      const startedAt = now();
      const before = indexes.get(assistantId);
      const index = await slots.watch(assistantId, build(owner, before?.index ?? null));
      const endedAt = now();
      const restUntil = before ? endedAt + REST_SHARE * (endedAt - startedAt) : 0;
      indexes.set(assistantId, { index, version, restUntil }, { bytes: index.bytes });
    } finally {
      slot.release();
    }
  };

  const isCurrent = ({ index, version }: CachedIndex, wanted: number): boolean =>
    version >= wanted && [null, index.model].includes(embedder.model());

  /** Starts to read what has changed, unless a read is already running. */
  const refresh = (owner: Owner): void => {
    const { assistantId } = owner;
    const held = indexes.get(assistantId);
    const { version = 0 } = owner.passages ?? {};
    if (reading.has(assistantId) || refused.has(assistantId)) return;
    if (held && (isCurrent(held, version) || held.restUntil > now())) return;
    const started = read(owner, version)
      .catch((cause: unknown) => logger.warn({ err: cause, assistantId }, 'passages could not be read'))
      .finally(() => {
        reading.delete(assistantId);
        outdated.delete(assistantId);
      });
    reading.set(assistantId, started);
  };

  /** Waits for a running read, and no longer than this. */
  const waitForRead = async (assistantId: string, ms: number): Promise<void> => {
    const running = reading.get(assistantId);
    if (running) await withDeadline(running, ms).catch(() => undefined);
  };

  const searchIn = (index: PassageIndex, owner: Owner, { priority = 'turn', version }: AskedBy): TurnPassages => {
    const { assistantId: holder, draft } = owner;
    let since: number | undefined;
    let isOutdated = false;
    const embed: TurnPassages['search']['embed'] = async (question) => {
      if (index.model === null || embedder.model() !== index.model) return null;
      const asked = { holder, priority, since };
      since ??= performance.now();
      const made = await withDeadline(embedder.embedQuestion(question, asked), EMBED_MS[priority]).catch(() => null);
      return embedder.model() === index.model ? made : null; // the model may have changed during the call
    };
    const readTexts: TurnPassages['search']['read'] = async (passageIds, tokenKind) => {
      const [{ passages, gone }, tokens] = await Promise.all([
        store.readPassages(passageIds, { version, draft }),
        tokenKind === null ? new Map<string, Int8Array>() : store.readTokens(passageIds, tokenKind),
      ]);
      isOutdated ||= gone > 0;
      return passages.map((passage) => ({ passage, tokens: tokens.get(passage.passageId) ?? null }));
    };
    const withoutPassages = (cause: unknown): [] => {
      logger.warn({ err: cause, assistantId: holder }, 'passages could not be read: entries answer alone');
      return [];
    };
    const search: TurnPassages['search'] = {
      index,
      isModelChosen: embedder.isConfigured,
      calibration: embedder.calibration,
      embed,
      read: (ids, kind) => readTexts(ids, kind).catch(withoutPassages),
    };
    return { search, isOutdated: () => isOutdated };
  };

  const access = (owner: Owner, by: AskedBy): PassageAccess => {
    const { assistantId } = owner;
    const newerThan = (before?: TurnPassages): TurnPassages | null => {
      const held = indexes.get(assistantId);
      if (!held || held.index === before?.search.index) return null;
      return searchIn(held.index, owner, by);
    };
    return {
      current: () => {
        refresh(owner);
        return newerThan();
      },
      open: async (before) => {
        const held = indexes.get(assistantId);
        if (before && held?.index === before.search.index) Object.assign(held, { version: -1, restUntil: 0 });
        refresh(owner);
        const found = newerThan(before);
        if (found || !reading.has(assistantId)) return found;
        if (before) outdated.add(assistantId);
        await waitForRead(assistantId, before ? WAIT_MS.next : WAIT_MS.first);
        return newerThan(before);
      },
    };
  };

  const hasPassages = ({ passages }: Owner): boolean => (passages?.count ?? 0) > 0;

  return {
    of: (assistant, by = {}) => (hasPassages(assistant) ? access(assistant, by) : undefined),
    prepare: async (sourceIds, findOwner) => {
      if (!(await background.areRead(sourceIds))) return false;
      const owner = await findOwner();
      const { assistantId, passages } = owner;
      refresh(owner);
      // By the next turn of this evaluation, an index that nobody has used may have left again.
      await waitForRead(assistantId, WAIT_MS.first);
      const held = indexes.get(assistantId);
      return held !== undefined && isCurrent(held, passages?.version ?? 0);
    },
    isLongWait: (assistant) => {
      const { assistantId } = assistant;
      const isMissing = !indexes.has(assistantId) || outdated.has(assistantId);
      return hasPassages(assistant) && isMissing && !refused.has(assistantId);
    },
  };
};
