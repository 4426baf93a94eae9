import type { Embedder, PassageIndex, PassageSearch } from '@parley/understanding';
import { LRUCache } from 'lru-cache';
import type { Assistant } from '../../src/assistants/assistant.ts';
import { withDeadline } from '../../src/process/deadline.ts';
import type { Logger } from '../../src/process/logger.ts';
import { createSlots } from '../../src/process/slots.ts';
import { buildPassageIndex } from '../../src/sources/passage-index.ts';
import type { PassageStore, ReadPassage } from '../../src/sources/passages.ts';

/** The most memory of all indexes of passages. One assistant gets at most half. */
const MAX_BYTES = 160_000_000;
/** An index that no turn used for this time makes room for others. */
const IDLE_MS = 60_000;
/** So many assistants whose index made room while it was in use answer without passages, for this time. */
const REFUSED_MAX = 10_000;
const REFUSED_MS = 60_000;
/** How long a turn waits for the first index of its assistant, and for the next one if passages of its index are gone. */
const WAIT_MS = { first: 5_000, next: 1_000 };
/** How long a turn waits for the vector of its question. */
const EMBED_MS = 2_000;
/** While sources are read, the index is made again and again. It takes at most a fifth of the time. */
const REST_SHARE = 4;

type Owner = Pick<Assistant, 'assistantId' | 'languages' | 'passages'>;

/** The passages of an assistant for one turn. */
export type TurnPassages = {
  search: PassageSearch<ReadPassage>;
  /** True if the turn asked for passages that a newer version has replaced. Its answer would be made of half a version. */
  isOutdated: () => boolean;
};

/** How a turn gets to its passages. */
export type PassageAccess = {
  /** The index that is there now. If there is a newer version, its index is begun. */
  current: () => TurnPassages | null;
  /** Waits for an index, or for a newer one than `before`. Null if there is none in time. */
  open: (before?: TurnPassages) => Promise<TurnPassages | null>;
};

export type Passages = {
  /** Undefined if the assistant has no passages. */
  of: (assistant: Owner) => PassageAccess | undefined;
  /** True if a turn would have to wait for seconds. */
  isLongWait: (assistant: Owner) => boolean;
};

type Held = { index: PassageIndex; version: number; usedAt: number; restUntil: number };

type Options = {
  /** For reads of turns. */
  store: Pick<PassageStore, 'readPassages' | 'readTokens'>;
  /** For reads of a whole index, which turns must not wait for. */
  background: Pick<PassageStore, 'listVisible' | 'readEmbedded' | 'readStored'>;
  embedder: Pick<Embedder, 'embedQuestion' | 'model'>;
  /** Tells the owner how many passages have no room. */
  reportLeftOut: (assistantId: string, leftOut: number) => Promise<void>;
  logger: Logger;
  maxBytes?: number;
  now?: () => number;
};

/**
 * Keeps an index of the visible passages for each assistant, at most `maxBytes` in all. When the version of an
 * assistant's passages has risen, the ids are compared and only new passages are read. Meanwhile turns use the index
 * before, so they see either version whole.
 */
export const createPassages = (options: Options): Passages => {
  const {
    store,
    background,
    embedder,
    reportLeftOut,
    logger,
    maxBytes = MAX_BYTES,
    now = () => performance.now(),
  } = options;
  const memory = new Map<string, Held>();
  const reading = new Map<string, Promise<void>>();
  const refused = new LRUCache<string, true>({ max: REFUSED_MAX, ttl: REFUSED_MS });
  /** One read at a time: a read needs as much memory as its result. */
  const reads = createSlots(({ inUse }) => inUse === 0);

  const makeRoom = (): void => {
    const byUse = [...memory].toSorted(([, one], [, other]) => one.usedAt - other.usedAt);
    let bytes = byUse.reduce((sum, [, { index }]) => sum + index.bytes, 0);
    for (const [assistantId, { index, usedAt }] of byUse) {
      if (bytes <= maxBytes) return;
      memory.delete(assistantId);
      bytes -= index.bytes;
      if (now() - usedAt > IDLE_MS) continue;
      refused.set(assistantId, true);
      logger.warn({ assistantId }, 'passages made room for other assistants');
    }
  };

  /** Makes the next index. Without an available model, vectors of the model before stay. */
  const build = async (
    { assistantId, languages, passages }: Owner,
    before: PassageIndex | null,
  ): Promise<PassageIndex> => {
    const [language = 'en'] = languages;
    const model = embedder.model() ?? before?.model ?? null;
    const made = { passages: background, scope: { assistantId }, model, language, maxBytes: maxBytes / 2 };
    const { index, leftOut } = await buildPassageIndex(made, before);
    if (leftOut > 0) logger.warn({ assistantId, leftOut }, 'there are too many passages to index them all');
    if (leftOut !== (passages?.leftOut ?? 0)) await reportLeftOut(assistantId, leftOut).catch(() => undefined);
    return index;
  };

  const read = async (owner: Owner, version: number): Promise<void> => {
    const { assistantId } = owner;
    const slot = await reads.acquire(assistantId);
    if (!slot) return;
    try {
      const startedAt = now();
      const before = memory.get(assistantId);
      const index = await build(owner, before?.index ?? null);
      const endedAt = now();
      const restUntil = before ? endedAt + REST_SHARE * (endedAt - startedAt) : 0;
      memory.set(assistantId, { index, version, usedAt: before?.usedAt ?? endedAt, restUntil });
      makeRoom();
    } finally {
      slot.release();
    }
  };

  const isCurrent = ({ index, version }: Held, wanted: number): boolean =>
    version >= wanted && [null, index.model].includes(embedder.model());

  /** Starts to read what has changed, unless that is going on. */
  const refresh = (owner: Owner): void => {
    const { assistantId } = owner;
    const held = memory.get(assistantId);
    const { version = 0 } = owner.passages ?? {};
    if (reading.has(assistantId) || refused.has(assistantId)) return;
    if (held && (isCurrent(held, version) || held.restUntil > now())) return;
    const started = read(owner, version)
      .catch((cause: unknown) => logger.warn({ err: cause, assistantId }, 'passages could not be read'))
      .finally(() => reading.delete(assistantId));
    reading.set(assistantId, started);
  };

  const searchIn = (index: PassageIndex, holder: string): TurnPassages => {
    let since: number | undefined;
    let isOutdated = false;
    const embed: TurnPassages['search']['embed'] = async (question) => {
      if (index.model === null || embedder.model() !== index.model) return null;
      const asked = { holder, since };
      since ??= performance.now();
      const made = await withDeadline(embedder.embedQuestion(question, asked), EMBED_MS).catch(() => null);
      return embedder.model() === index.model ? made : null; // the model may have changed during the call
    };
    const readTexts: TurnPassages['search']['read'] = async (passageIds, tokenKind) => {
      const [{ passages, gone }, tokens] = await Promise.all([
        store.readPassages(passageIds),
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
      embed,
      read: (ids, kind) => readTexts(ids, kind).catch(withoutPassages),
    };
    return { search, isOutdated: () => isOutdated };
  };

  const access = (owner: Owner): PassageAccess => {
    const { assistantId } = owner;
    const newerThan = (before?: TurnPassages): TurnPassages | null => {
      const held = memory.get(assistantId);
      if (!held || held.index === before?.search.index) return null;
      held.usedAt = now();
      return searchIn(held.index, assistantId);
    };
    return {
      current: () => {
        refresh(owner);
        return newerThan();
      },
      open: async (before) => {
        const held = memory.get(assistantId);
        if (before && held?.index === before.search.index) Object.assign(held, { version: -1, restUntil: 0 });
        refresh(owner);
        const found = newerThan(before);
        const running = reading.get(assistantId);
        if (found || !running) return found;
        await withDeadline(running, before ? WAIT_MS.next : WAIT_MS.first).catch(() => undefined);
        return newerThan(before);
      },
    };
  };

  const hasPassages = ({ passages }: Owner): boolean => (passages?.count ?? 0) > 0;

  return {
    of: (assistant) => (hasPassages(assistant) ? access(assistant) : undefined),
    isLongWait: (assistant) =>
      hasPassages(assistant) && !memory.has(assistant.assistantId) && !refused.has(assistant.assistantId),
  };
};
