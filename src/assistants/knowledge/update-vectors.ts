import { setTimeout as sleep } from 'node:timers/promises';
import type { Embedder } from '@parley/understanding';
import {
  type Embedders,
  KnowledgeJob,
  REGISTER_EVERY_MS,
  type SemanticState,
  type VectorLease,
  type VectorProgress,
} from './semantic-state.ts';
import { inChunks, keepLease } from '../../platform/mongo/batches.ts';
import { type KnowledgeText, parseTextKey, questionTexts, textKeyOf, textsHash } from './entry.ts';
import { type EntryTexts, type EntryVectors, VECTORS_AT_ONCE, type VectorsInfo, type VectorStore } from './vectors.ts';
import { withDeadline } from '../../platform/process/deadline.ts';
import { newToken } from '../../platform/process/ids.ts';
import type { Lifecycle } from '../../platform/process/lifecycle.ts';
import type { Logger } from '../../platform/process/logger.ts';
import { createLru } from '../../platform/process/lru.ts';
import { createSlices, workFor } from '../../platform/process/slices.ts';
import { createSlots, oneEach, restAsLong, withRests, workInSlot } from '../../platform/process/slots.ts';
import { startSweeper } from '../../platform/process/sweeper.ts';
import type { Timing } from '../../platform/process/time-limits.ts';

/** An entry that needs new vectors: for its questions, and with `withAnswer` also for its answer. */
type WorkItem = { entryId: string; texts: number; withAnswer: boolean };

type Plan = VectorProgress & {
  /** The most urgent items are first. */
  work: WorkItem[];
  /** Ids of entries whose texts have changed since their vectors were stored. */
  edited: Set<string>;
  /** Ids of removed entries that still have stored vectors. */
  orphans: string[];
  /** Maps a text hash to the id of a removed entry that still has the vector of this text. */
  sources: Map<string, string>;
  /** Ids of entries whose answer got its vector before its turn, because it was known. */
  answered: Set<string>;
  /** False if the next plan has the rest of the work. */
  isWhole: boolean;
  /** The removed entry that was looked at last. */
  lookedAt: string | undefined;
};

/**
 * A plan looks for vectors of removed entries only until it has so many texts of entries without vectors. The next plan
 * has the others.
 */
const LOOKED_UP_MAX = 20_000;

/** Runs a part of an assistant's work that reads or changes whole documents of vectors. */
type InPlace = <Value>(assistantId: string, work: () => Promise<Value>) => Promise<Value>;

/**
 * How many such parts run at once. The assistants take turns, and a place stays taken for a rest as long as the part
 * took. Otherwise many vectors that are known, which need no time of the model, would take all the time of MongoDB.
 */
const PLACES = 2;

/** `areWanted`: true if an assistant waits for a place. */
const createPlaces = (): { inPlace: InPlace; areWanted: () => boolean } => {
  const places = withRests(createSlots(oneEach(PLACES)), restAsLong);
  let waiting = 0;
  return {
    inPlace: (assistantId, work) => {
      waiting += 1;
      return workInSlot(places, assistantId, () => {
        waiting -= 1;
        return work();
      });
    },
    areWanted: () => waiting > 0,
  };
};

type PlanDependencies = {
  vectors: VectorStore;
  inPlace: InPlace;
  /** True if the plan must end soon. The vectors of removed entries that it has not found are made again. */
  isOver: () => boolean;
  /** The removed entry that the plan before looked at last. This one begins after it, because that one may have ended. */
  after: string | undefined;
};

/**
 * Compares the stored vectors with the entries and orders the missing work. Edited entries go first, because their
 * author waits. The questions of all other entries go next, because a question is enough to find its entry. Answers go
 * last.
 */
const planWork = async (
  { vectors, inPlace, isOver, after }: PlanDependencies,
  assistantId: string,
  model: string,
): Promise<Plan> => {
  const slices = createSlices();
  const stored = new Map<string, VectorsInfo>();
  for await (const name of vectors.list(assistantId)) {
    if (slices.isOver()) await slices.next();
    stored.set(name.entryId, name);
  }

  const edited: WorkItem[] = [];
  const fresh: WorkItem[] = [];
  const unanswered: WorkItem[] = [];
  const wanted = new Set<string>();
  const want = (texts: KnowledgeText[]): void => {
    for (const { hash } of texts) wanted.add(hash);
  };
  /** How many entries of `fresh` have all their texts in `wanted`. */
  let lookedUp = 0;
  let [answers, total] = [0, 0];
  for await (const { entryId, texts } of vectors.readTexts(assistantId)) {
    if (slices.isOver()) await slices.next();
    total += 1;
    const name = stored.get(entryId);
    stored.delete(entryId);
    const known = name?.live === true && name.model === model ? name.hash : null;
    if (known === textsHash(model, texts)) answers += 1;
    else if (known === textsHash(model, questionTexts(texts))) unanswered.push({ entryId, texts: 1, withAnswer: true });
    else if (known !== null) {
      edited.push({ entryId, texts: texts.length, withAnswer: true });
      if (wanted.size < LOOKED_UP_MAX) want(texts);
    } else {
      fresh.push({ entryId, texts: questionTexts(texts).length, withAnswer: false });
      if (wanted.size >= LOOKED_UP_MAX) continue;
      want(texts);
      lookedUp = fresh.length;
    }
  }

  const orphans = [...stored.values()];
  const usable = orphans.filter((one) => one.model === model).map(({ entryId }) => entryId);
  const begin = after === undefined ? 0 : usable.indexOf(after) + 1;
  const sources = new Map<string, string>();
  let lookedAt = after;
  for (const some of inChunks([...usable.slice(begin), ...usable.slice(0, begin)], VECTORS_AT_ONCE)) {
    if (sources.size === wanted.size || isOver()) break;
    lookedAt = some.at(-1);
    // Only the read has the place: a slice of the loop waits behind the turns of the assistant.
    for (const { entryId, texts } of await inPlace(assistantId, () => vectors.readTextKeys(some))) {
      if (slices.isOver()) await slices.next();
      for (const name of texts) {
        const { hash } = parseTextKey(name);
        if (!wanted.has(hash) || sources.has(hash)) continue;
        sources.set(Buffer.from(hash).toString(), entryId); // a copy: a part would keep the whole
      }
    }
  }
  const isWhole = lookedUp === fresh.length || usable.length === 0;
  return {
    work: isWhole
      ? [...edited, ...fresh, ...unanswered, ...fresh.map(({ entryId }) => ({ entryId, texts: 1, withAnswer: true }))]
      : [...edited, ...fresh.slice(0, lookedUp)],
    isWhole,
    lookedAt,
    edited: new Set(edited.map(({ entryId }) => entryId)),
    orphans: orphans.map(({ entryId }) => entryId),
    sources,
    answered: new Set(),
    done: total - edited.length - fresh.length,
    answers,
    total,
  };
};

const TEXTS_PER_BATCH = 16;

/**
 * Splits the work into batches. A batch is large enough to save calls to the store, and small enough to end quickly.
 */
const batchesOf = function* (work: WorkItem[]): Generator<WorkItem[]> {
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

/** Texts per call of the embedder. The number is small, because a visitor's question may wait for one such call. */
const TEXTS_PER_CALL = 8;
/** How long a call is retried while the queue is full or the model restarts. */
const RETRY_FOR_MS = 2_000;
const RETRY_EVERY_MS = 200;

type EmbedEntriesDependencies = { vectors: VectorStore; embedder: Embedder; draining: AbortSignal; inPlace: InPlace };
type Task = { assistantId: string; model: string; plan: Plan; batch: WorkItem[]; isOver: () => boolean };

const joined = (rows: Float32Array[]): Float32Array => {
  const [first] = rows;
  const all = new Float32Array(rows.length * (first?.length ?? 0));
  for (const [nth, row] of rows.entries()) all.set(row, nth * row.length);
  return all;
};

/**
 * Creates and stores the vectors of a batch of entries. Returns false if the embedder is not available, and null if the
 * time is over: what was made is kept for the next pass, because one entry may have more texts than a pass has time for.
 */
const createEmbedEntries = ({ vectors, embedder, draining, inPlace }: EmbedEntriesDependencies) => {
  const kept = createLru<{ model: string; known: Map<string, Float32Array> }>({ most: MAX_STARTED });

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
   * Finds stored vectors of the same texts, so that these texts need not be embedded again. The vectors may belong to
   * these entries or to removed ones. The map is keyed by the hash of a text.
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

  return async (task: Task): Promise<boolean | null> => {
    const { assistantId, model, plan, batch, isOver } = task;
    const ids = batch.map(({ entryId }) => entryId);
    const entries: EntryTexts[] = [];
    for await (const entry of vectors.readTexts(assistantId, ids)) entries.push(entry);
    // Without vectors of removed entries, there are few documents to read.
    const find = () => findKnown(task, entries);
    const known = await (plan.sources.size > 0 ? inPlace(assistantId, find) : find());
    const before = kept.get(assistantId);
    if (before?.model === model) for (const [hash, vector] of before.known) known.set(hash, vector);

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
      if (start > 0 && isOver()) {
        kept.set(assistantId, { model, known });
        return null;
      }
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
    await inPlace(assistantId, () => vectors.save(assistantId, rows));
    for (const { entryId, texts } of chosen)
      if (!withAnswer && texts.some(({ kind }) => kind === 'answer')) plan.answered.add(entryId);
    kept.delete(assistantId);
    return true;
  };
};

/**
 * After this many failures in a row, the embedder counts as unavailable. A single failure is ignored, because one text
 * may be impossible to embed.
 */
const MAX_FAILURES_IN_A_ROW = 3;
/** The shortest time between two writes of the progress. */
const PROGRESS_EVERY_MS = 250;

/**
 * A sweep leaves an assistant with a text that the model refuses alone for so many sweeps, after each further pass twice
 * as long, up to an hour. Otherwise such assistants would come before others in every sweep. A change is tried at once, or
 * within this time if its job was lost.
 */
const SUSPENDED_SWEEPS = 5;
const SUSPENDED_MOST_MS = 3_600_000;
const SUSPENDED_MAX = 1_000;

type Dependencies = {
  vectors: VectorStore;
  semantic: SemanticState;
  embedder: Embedder;
  /** Returns the models of other running workers. */
  others: () => string[];
  draining: AbortSignal;
  /** True if a pass that began then must leave its place to another assistant, or if `areWanted`. */
  isOver: (since: number, areWanted?: boolean) => boolean;
  logger: Logger;
};

/**
 * How a pass ended: all vectors are stored, or all but those of refused texts, the assistant has changed, its time was
 * over, the lease was lost, or the work was postponed.
 */
type PassOutcome =
  | { kind: 'made' }
  | { kind: 'refused' }
  | { kind: 'changed' }
  | { kind: 'over' }
  | { kind: 'lost' }
  | { kind: 'postponed' };

/**
 * A plan reads all entries. Then its assistant rests for as long as the plan took, but at most this time. So an owner who
 * edits a large knowledge again and again leaves time to others.
 */
const RESTS_MOST_MS = 2_000;
const RESTING_MAX = 1_000;
/** How often a plan renews the lease. */
const RENEWED_EVERY_MS = 2_000;

/**
 * Brings the vectors of one assistant up to date, under a lease. Each pass creates the missing vectors of one version.
 * A change during a pass ends that pass early, so an edit never waits for the end of a long import.
 * A worker that lost its lease may have stored vectors of old texts, so it marks the assistant as stale.
 */
const createUpdateVectors = ({ vectors, semantic, embedder, others, draining, isOver, logger }: Dependencies) => {
  const { inPlace, areWanted } = createPlaces();
  const embedEntries = createEmbedEntries({ vectors, embedder, draining, inPlace });
  /** The time until which an assistant rests. */
  const rests = createLru<number>({ most: RESTING_MAX, ttl: RESTS_MOST_MS });
  /** The removed entry of each assistant that a plan looked at last. */
  const looked = createLru<string>({ most: RESTING_MAX });

  const rest = async (assistantId: string): Promise<void> => {
    const ms = (rests.get(assistantId) ?? 0) - performance.now();
    if (ms > 0) await sleep(Math.ceil(ms), undefined, { signal: draining }).catch(() => undefined);
  };

  const planAndRest = async (lease: VectorLease, model: string): Promise<Plan> => {
    const { assistantId } = lease;
    const startedAt = performance.now();
    const renewing = keepLease(() => semantic.renew(lease), {
      everyMs: RENEWED_EVERY_MS,
      until: draining,
    });
    const mustEnd = (): boolean => draining.aborted || isOver(startedAt, areWanted());
    try {
      const after = looked.get(assistantId);
      const plan = await planWork({ vectors, inPlace, isOver: mustEnd, after }, assistantId, model);
      if (plan.lookedAt !== undefined) looked.set(assistantId, plan.lookedAt);
      const endedAt = performance.now();
      rests.set(assistantId, endedAt + Math.min(endedAt - startedAt, RESTS_MOST_MS));
      return plan;
    } finally {
      renewing.stop();
    }
  };

  const pass = async (lease: VectorLease, model: string, version: number): Promise<PassOutcome> => {
    const { assistantId } = lease;
    const plan = await planAndRest(lease, model);
    const plannedAt = performance.now();
    const figures = { done: plan.done, answers: plan.answers, total: plan.total };
    let savedAt = performance.now();
    const saveProgress = async (): Promise<PassOutcome | null> => {
      savedAt = performance.now();
      const now = await semantic.reportProgress(lease, { ...figures, model, version });
      if (now === null) return { kind: 'lost' };
      return now === version ? null : { kind: 'changed' };
    };
    /** Removes the vectors that nobody needs any more. Returns an outcome if the pass must end before. */
    const removeOrphans = async (): Promise<PassOutcome | null> => {
      for (const [nth, some] of inChunks(plan.orphans, VECTORS_AT_ONCE).entries()) {
        if (draining.aborted) return { kind: 'postponed' };
        if (nth > 0 && isOver(plannedAt)) return { kind: 'over' };
        await inPlace(assistantId, () => vectors.remove(some));
        const ended = performance.now() - savedAt < PROGRESS_EVERY_MS ? null : await saveProgress();
        if (ended) return ended;
      }
      return null;
    };

    let outcome = await saveProgress();
    let failedInARow = 0;
    const refused = new Set<string>();
    const batches = [...batchesOf(plan.work)].toReversed();
    for (;;) {
      const batch = batches
        .pop()
        ?.filter(({ entryId, withAnswer }) => !refused.has(entryId) && !(withAnswer && plan.answered.has(entryId)));
      if (!batch) break;
      if (outcome) return outcome;
      if (batch.length === 0) continue;
      if (draining.aborted) return { kind: 'postponed' };
      if (figures.done + figures.answers > plan.done + plan.answers && isOver(plannedAt)) return { kind: 'over' };
      const embedding = embedEntries({ assistantId, model, plan, batch, isOver: () => isOver(plannedAt) });
      // If the call takes long, the progress of the previous calls is saved meanwhile.
      const inTime = await withDeadline(embedding, PROGRESS_EVERY_MS).then(
        () => true,
        () => false,
      );
      if (!inTime) outcome = await saveProgress();
      const isMade = await embedding;
      if (isMade === null) return { kind: 'over' };
      if (!isMade) {
        failedInARow += 1;
        if (failedInARow === MAX_FAILURES_IN_A_ROW || embedder.model() !== model) return { kind: 'postponed' };
        if (batch.length > 1) batches.push(...batch.map((one) => [one]));
        else for (const { entryId } of batch) refused.add(entryId);
        outcome = await saveProgress();
        continue;
      }
      failedInARow = 0;
      for (const { entryId, withAnswer } of batch) {
        if (!withAnswer || plan.edited.has(entryId)) figures.done += 1;
        if (withAnswer || plan.answered.has(entryId)) figures.answers += 1;
      }
      const searchable = figures.done === figures.total && !batch[0]?.withAnswer;
      if (searchable || performance.now() - savedAt >= PROGRESS_EVERY_MS) outcome = await saveProgress();
    }
    if (outcome) return outcome;
    if (!plan.isWhole) return { kind: 'over' };
    if (refused.size > 0) return { kind: 'refused' };
    outcome = await removeOrphans();
    if (outcome) return outcome;
    if (await semantic.complete(lease, { ...figures, version })) return { kind: 'made' };
    return (await saveProgress()) ?? { kind: 'changed' };
  };

  /** Makes one pass. Returns how it ended. Null if there was nothing to do. */
  const update = async (assistantId: string): Promise<PassOutcome['kind'] | null> => {
    const model = embedder.model();
    if (model === null) return null;
    const startedAt = performance.now();
    const lease = { assistantId, token: newToken() };
    const version = await semantic.acquire(lease, { model, others: others() });
    if (version === null) return null;
    try {
      const { kind } = await pass(lease, model, version);
      const isLeft = kind !== 'made' && kind !== 'lost';
      if (kind === 'lost') await semantic.markStale(assistantId);
      if (isLeft) await semantic.release(lease);
      const ms = Math.round(performance.now() - startedAt);
      logger[isLeft ? 'debug' : 'info']({ assistantId, model, ended: kind, ms }, 'knowledge vectors');
      return kind;
    } catch (cause) {
      // The sweep retries the update. If the store is unavailable, the lease expires by itself.
      await semantic.release(lease).catch(() => undefined);
      throw cause;
    }
  };

  return { rest, update };
};

/**
 * The maximum number of assistants that are updated at the same time. They share the embedder, so that a small edit
 * does not wait for a large import. One that has changed meanwhile, or that had its place for this time, continues after
 * those that wait.
 */
const MAX_RUNNING = 16;
const PASS_MS = 10_000;
/** The maximum number of assistants that are updated or wait for it. The sweep finds the others. */
const MAX_STARTED = 200;
const THOROUGH_EVERY_MS = 60_000;
/**
 * How long one sweep keeps starting updates for more assistants. The limit matters after an upgrade, when all
 * assistants are outdated.
 */
const SWEEP_FOR_MS = 3_000;

type UpdatesDependencies = {
  store: { vectors: VectorStore; semantic: SemanticState; embedders: Embedders };
  embedder: Embedder;
  timing: Timing;
  logger: Logger;
  lifecycle: Lifecycle;
  /** How long a pass lasts while others wait, in ms. */
  passMs?: number;
};

/**
 * Keeps the vectors of all assistants up to date. Jobs start updates, and a sweep finds assistants whose job was lost.
 * The updater also registers this worker's model for the other workers. Returns what processes a job of the queue.
 */
export const startVectorUpdates = async ({
  store,
  embedder,
  timing,
  logger,
  lifecycle,
  passMs = PASS_MS,
}: UpdatesDependencies): Promise<(data: unknown) => Promise<void>> => {
  const { vectors, semantic, embedders } = store;
  const worker = newToken();
  let others: string[] = [];
  let published = { text: '', at: Number.NEGATIVE_INFINITY };
  let thoroughAt = Number.NEGATIVE_INFINITY;

  const { rest, update } = createUpdateVectors({
    vectors,
    semantic,
    embedder,
    others: () => others,
    draining: lifecycle.draining,
    isOver: (since, areWanted = false) =>
      performance.now() - since >= passMs && (areWanted || running.size > slots.inUse),
    logger,
  });
  const suspended = createLru<{ until: number; times: number }>({ most: SUSPENDED_MAX });
  const listSuspended = (): string[] =>
    [...suspended].flatMap(([assistantId, { until }]) => (until > performance.now() ? [assistantId] : []));
  const suspend = (assistantId: string): void => {
    const { times } = suspended.get(assistantId) ?? { times: 0 };
    const ms = Math.min(SUSPENDED_SWEEPS * timing.sweepEveryMs * 2 ** times, SUSPENDED_MOST_MS);
    suspended.set(assistantId, { until: performance.now() + ms, times: times + 1 });
  };
  const slots = createSlots(oneEach(MAX_RUNNING));
  const updateInTurns = async (assistantId: string): Promise<void> => {
    for (let goesOn = true; goesOn && !lifecycle.draining.aborted; ) {
      await rest(assistantId);
      const slot = await slots.acquire(assistantId);
      if (!slot) return;
      try {
        const outcome = await update(assistantId);
        if (outcome === 'refused') suspend(assistantId);
        if (outcome === 'made') suspended.delete(assistantId);
        goesOn = (outcome === 'changed' || outcome === 'over') && running.size < MAX_STARTED;
      } finally {
        slot.release();
      }
    }
  };
  const running = new Map<string, Promise<void>>();
  const start = (assistantId: string): void => {
    if (running.has(assistantId) || running.size >= MAX_STARTED || lifecycle.draining.aborted) return;
    const ended = workFor(assistantId, () => updateInTurns(assistantId))
      .catch((cause: unknown) => logger.warn({ err: cause, assistantId }, 'knowledge vectors were not made'))
      .finally(() => running.delete(assistantId));
    running.set(assistantId, ended);
  };

  const publishOffer = async (): Promise<void> => {
    const { available, detail } = embedder.status();
    const offered = { model: embedder.model(), available, detail };
    const text = JSON.stringify(offered);
    if (text !== published.text || performance.now() - published.at > REGISTER_EVERY_MS) {
      await embedders.register(worker, offered);
      published = { text, at: performance.now() };
    }
    const live = await embedders.listRunning();
    others = live.flatMap((one) =>
      one.available && one.model !== null && one.model !== offered.model ? [one.model] : [],
    );
  };

  const sweep = async (): Promise<void> => {
    await publishOffer();
    const until = performance.now() + SWEEP_FOR_MS;
    const thorough = performance.now() - thoroughAt > THOROUGH_EVERY_MS;
    if (thorough) thoroughAt = performance.now();
    for (;;) {
      const model = embedder.model();
      const limit = MAX_STARTED - running.size;
      if (model === null || limit === 0 || performance.now() > until || lifecycle.draining.aborted) return;
      const except = [...listSuspended(), ...running.keys()];
      const found = await semantic.findOutdated({ model, others }, { thorough, limit, except });
      for (const assistantId of found) start(assistantId);
      if (found.length < limit) return;
      const left = Math.max(0, until - performance.now());
      await withDeadline(Promise.race(running.values()), left, { signal: lifecycle.draining }).catch(
        () => undefined, // no time left, or told to stop
      );
    }
  };

  await publishOffer();
  // A registration expires by itself, so an unavailable MongoDB must not fail the stop.
  lifecycle.add('embedder offered', worker, (id) => embedders.unregister(id).catch(() => undefined));
  lifecycle.add('knowledge vectors', running, (all) => {
    slots.close();
    return Promise.all(all.values());
  });
  const sweeper = startSweeper('knowledge vectors', sweep, { everyMs: timing.sweepEveryMs, logger });
  lifecycle.add('knowledge sweep', sweeper, (one) => one.stop());
  return async (data) => start(KnowledgeJob.parse(data).assistantId);
};
