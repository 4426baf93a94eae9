import type { VectorStore } from '../../../src/assistants/knowledge-vectors.ts';
import type { VectorLease, SemanticState } from '../../../src/assistants/semantic-state.ts';
import { withDeadline } from '../../../src/platform/deadline.ts';
import { newToken } from '../../../src/platform/ids.ts';
import type { Logger } from '../../../src/platform/logger.ts';
import type { Embedder } from '../embedder/embedder.ts';
import { createMakeVectors } from './make.ts';
import { groupsOf, planWork } from './plan.ts';

/** One text may be what the embedder cannot take; after so many tries in a row it is the embedder. */
const FAILED_IN_A_ROW = 3;
/** How far it is, is written no more often than this. */
const TELL_EVERY_MS = 250;

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
type Passed = { kind: 'made' } | { kind: 'changed'; version: number } | { kind: 'lost' } | { kind: 'put down' };

/**
 * Brings the vectors of one assistant up to its knowledge, under a lease. Each pass makes what is missing for one version;
 * a change in between begins the next, so that an edit never waits for the end of an import. A worker that was stopped for
 * so long that another took over may have stored vectors of old texts: it asks for all of it to be looked over.
 */
export const createRun = ({ vectors, semantic, embedder, others, draining, logger }: Dependencies) => {
  const makeVectors = createMakeVectors({ vectors, embedder, draining });

  const pass = async (hold: VectorLease, model: string, version: number): Promise<Passed> => {
    const { assistantId } = hold;
    const plan = await planWork(vectors, assistantId, model);
    const figures = { done: plan.done, answers: plan.answers, total: plan.total };
    let toldAt = performance.now();
    const tell = async (): Promise<Passed | null> => {
      toldAt = performance.now();
      const now = await semantic.reportProgress(hold, { ...figures, model, version });
      if (now === null) return { kind: 'lost' };
      return now === version ? null : { kind: 'changed', version: now };
    };

    let passed = await tell();
    let failedInARow = 0;
    const refused = new Set<string>();
    const groups = [...groupsOf(plan.work)].toReversed();
    for (;;) {
      const group = groups.pop()?.filter(({ entryId }) => !refused.has(entryId));
      if (!group) break;
      if (passed) return passed;
      if (draining.aborted) return { kind: 'put down' };
      const making = makeVectors({ assistantId, model, plan, group });
      // A call that takes long must not hide what those before it made.
      const inTime = await withDeadline(making, TELL_EVERY_MS).then(
        () => true,
        () => false,
      );
      if (!inTime) passed = await tell();
      if (!(await making)) {
        failedInARow += 1;
        if (failedInARow === FAILED_IN_A_ROW || embedder.model() !== model) return { kind: 'put down' };
        if (group.length > 1) groups.push(...group.map((one) => [one]));
        else for (const { entryId } of group) refused.add(entryId);
        passed = await tell();
        continue;
      }
      failedInARow = 0;
      for (const { entryId, whole } of group) {
        if (!whole || plan.edited.has(entryId)) figures.done += 1;
        if (whole) figures.answers += 1;
      }
      const askable = figures.done === figures.total && !group[0]?.whole;
      if (askable || performance.now() - toldAt >= TELL_EVERY_MS) passed = await tell();
    }
    if (passed) return passed;
    if (refused.size > 0) return { kind: 'put down' };
    await vectors.remove(plan.orphans);
    if (await semantic.complete(hold, { ...figures, version })) return { kind: 'made' };
    return (await tell()) ?? { kind: 'changed', version };
  };

  return async (assistantId: string): Promise<void> => {
    const model = embedder.model();
    if (model === null) return;
    const hold = { assistantId, token: newToken() };
    const startedAt = performance.now();
    let version = await semantic.acquire(hold, { model, others: others() });
    if (version === null) return;
    try {
      for (;;) {
        const passed = await pass(hold, model, version);
        if (passed.kind === 'changed') {
          version = passed.version;
          continue;
        }
        if (passed.kind === 'lost') await semantic.markStale(assistantId);
        if (passed.kind === 'put down') await semantic.release(hold);
        const ms = Math.round(performance.now() - startedAt);
        const line = { assistantId, model, ended: passed.kind, ms };
        logger[passed.kind === 'put down' ? 'debug' : 'info'](line, 'knowledge vectors');
        return;
      }
    } catch (cause) {
      // Another try is the sweep's; where the store is away, the hold ends by itself.
      await semantic.release(hold).catch(() => undefined);
      throw cause;
    }
  };
};
