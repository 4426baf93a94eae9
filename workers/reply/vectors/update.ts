import type { VectorStore } from '../../../src/assistants/knowledge-vectors.ts';
import type { VectorLease, SemanticState } from '../../../src/assistants/semantic-state.ts';
import { withDeadline } from '../../../src/platform/deadline.ts';
import { newToken } from '../../../src/platform/ids.ts';
import type { Logger } from '../../../src/platform/logger.ts';
import type { Embedder } from '../embedder/embedder.ts';
import { createEmbedEntries } from './embed-entries.ts';
import { batchesOf, planWork } from './plan.ts';

/** One text may be what the embedder cannot take; after so many tries in a row it is the embedder. */
const MAX_FAILURES_IN_A_ROW = 3;
/** How far it is, is written no more often than this. */
const PROGRESS_EVERY_MS = 250;

type Dependencies = {
  vectors: VectorStore;
  semantic: SemanticState;
  embedder: Embedder;
  /** Models that other running workers offer. */
  others: () => string[];
  draining: AbortSignal;
  logger: Logger;
};

/** What came of one pass: all is made, the assistant was changed meanwhile, or the hold ended before. */
type PassOutcome = { kind: 'made' } | { kind: 'changed'; version: number } | { kind: 'lost' } | { kind: 'put down' };

/**
 * Brings the vectors of one assistant up to its knowledge, under a lease. Each pass makes what is missing for one version;
 * a change in between begins the next, so that an edit never waits for the end of an import. A worker that was stopped for
 * so long that another took over may have stored vectors of old texts: it asks for all of it to be looked over.
 */
export const createUpdateVectors = ({ vectors, semantic, embedder, others, draining, logger }: Dependencies) => {
  const embedEntries = createEmbedEntries({ vectors, embedder, draining });

  const pass = async (lease: VectorLease, model: string, version: number): Promise<PassOutcome> => {
    const { assistantId } = lease;
    const plan = await planWork(vectors, assistantId, model);
    const figures = { done: plan.done, answers: plan.answers, total: plan.total };
    let savedAt = performance.now();
    const saveProgress = async (): Promise<PassOutcome | null> => {
      savedAt = performance.now();
      const now = await semantic.reportProgress(lease, { ...figures, model, version });
      if (now === null) return { kind: 'lost' };
      return now === version ? null : { kind: 'changed', version: now };
    };

    let outcome = await saveProgress();
    let failedInARow = 0;
    const refused = new Set<string>();
    const batches = [...batchesOf(plan.work)].toReversed();
    for (;;) {
      const batch = batches.pop()?.filter(({ entryId }) => !refused.has(entryId));
      if (!batch) break;
      if (outcome) return outcome;
      if (draining.aborted) return { kind: 'put down' };
      const embedding = embedEntries({ assistantId, model, plan, batch });
      // A call that takes long must not hide what those before it made.
      const inTime = await withDeadline(embedding, PROGRESS_EVERY_MS).then(
        () => true,
        () => false,
      );
      if (!inTime) outcome = await saveProgress();
      if (!(await embedding)) {
        failedInARow += 1;
        if (failedInARow === MAX_FAILURES_IN_A_ROW || embedder.model() !== model) return { kind: 'put down' };
        if (batch.length > 1) batches.push(...batch.map((one) => [one]));
        else for (const { entryId } of batch) refused.add(entryId);
        outcome = await saveProgress();
        continue;
      }
      failedInARow = 0;
      for (const { entryId, withAnswer } of batch) {
        if (!withAnswer || plan.edited.has(entryId)) figures.done += 1;
        if (withAnswer) figures.answers += 1;
      }
      const searchable = figures.done === figures.total && !batch[0]?.withAnswer;
      if (searchable || performance.now() - savedAt >= PROGRESS_EVERY_MS) outcome = await saveProgress();
    }
    if (outcome) return outcome;
    if (refused.size > 0) return { kind: 'put down' };
    await vectors.remove(plan.orphans);
    if (await semantic.complete(lease, { ...figures, version })) return { kind: 'made' };
    return (await saveProgress()) ?? { kind: 'changed', version };
  };

  return async (assistantId: string): Promise<void> => {
    const model = embedder.model();
    if (model === null) return;
    const lease = { assistantId, token: newToken() };
    const startedAt = performance.now();
    let version = await semantic.acquire(lease, { model, others: others() });
    if (version === null) return;
    try {
      for (;;) {
        const outcome = await pass(lease, model, version);
        if (outcome.kind === 'changed') {
          version = outcome.version;
          continue;
        }
        if (outcome.kind === 'lost') await semantic.markStale(assistantId);
        if (outcome.kind === 'put down') await semantic.release(lease);
        const ms = Math.round(performance.now() - startedAt);
        const line = { assistantId, model, ended: outcome.kind, ms };
        logger[outcome.kind === 'put down' ? 'debug' : 'info'](line, 'knowledge vectors');
        return;
      }
    } catch (cause) {
      // Another try is the sweep's; where the store is away, the hold ends by itself.
      await semantic.release(lease).catch(() => undefined);
      throw cause;
    }
  };
};
