import type { VectorStore } from '../../../src/assistants/knowledge-vectors.ts';
import type { SemanticState, VectorLease } from '../../../src/assistants/semantic-state.ts';
import { withDeadline } from '../../../src/platform/deadline.ts';
import { newToken } from '../../../src/platform/ids.ts';
import type { Logger } from '../../../src/platform/logger.ts';
import type { Embedder } from '../embedder/embedder.ts';
import { createEmbedEntries } from './embed-entries.ts';
import { batchesOf, planWork } from './plan.ts';

/**
 * After this many failures in a row, the embedder counts as unavailable. A single failure is ignored, because one text
 * may be impossible to embed.
 */
const MAX_FAILURES_IN_A_ROW = 3;
/** The shortest time between two writes of the progress. */
const PROGRESS_EVERY_MS = 250;

type Dependencies = {
  vectors: VectorStore;
  semantic: SemanticState;
  embedder: Embedder;
  /** Returns the models of other running workers. */
  others: () => string[];
  draining: AbortSignal;
  logger: Logger;
};

/**
 * How a pass ended: all vectors are stored, the assistant has changed, the lease was lost, or the work was postponed.
 */
type PassOutcome = { kind: 'made' } | { kind: 'changed'; version: number } | { kind: 'lost' } | { kind: 'postponed' };

/**
 * Brings the vectors of one assistant up to date, under a lease. Each pass creates the missing vectors of one version.
 * A change during a pass ends that pass early and starts the next, so an edit never waits for the end of a long import.
 * A worker that lost its lease may have stored vectors of old texts, so it marks the assistant as stale.
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
      if (draining.aborted) return { kind: 'postponed' };
      const embedding = embedEntries({ assistantId, model, plan, batch });
      // If the call takes long, the progress of the previous calls is saved meanwhile.
      const inTime = await withDeadline(embedding, PROGRESS_EVERY_MS).then(
        () => true,
        () => false,
      );
      if (!inTime) outcome = await saveProgress();
      if (!(await embedding)) {
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
        if (withAnswer) figures.answers += 1;
      }
      const searchable = figures.done === figures.total && !batch[0]?.withAnswer;
      if (searchable || performance.now() - savedAt >= PROGRESS_EVERY_MS) outcome = await saveProgress();
    }
    if (outcome) return outcome;
    if (refused.size > 0) return { kind: 'postponed' };
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
        if (outcome.kind === 'postponed') await semantic.release(lease);
        const ms = Math.round(performance.now() - startedAt);
        const line = { assistantId, model, ended: outcome.kind, ms };
        logger[outcome.kind === 'postponed' ? 'debug' : 'info'](line, 'knowledge vectors');
        return;
      }
    } catch (cause) {
      // The sweep retries the update. If the store is unavailable, the lease expires by itself.
      await semantic.release(lease).catch(() => undefined);
      throw cause;
    }
  };
};
