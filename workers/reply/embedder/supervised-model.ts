import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from '../../../src/platform/logger.ts';
import { type ModelBackend, ModelError, type OpenModel, type Status, type TextKind } from './backend.ts';
import { normalised } from './vector.ts';

const FIRST_BACKOFF_MS = 200;
const MAX_BACKOFF_MS = 60_000;
/** A model that has worked for this long counts as stable, so the next restart waits only the shortest backoff. */
const STABLE_AFTER_MS = 30_000;

const reasonOf = (cause: unknown): string =>
  cause instanceof ModelError ? cause.message : `an internal error: ${(cause as Error).name}`;

/**
 * Keeps a model open: reopens the model with backoff whenever it ends. While no model is open, `embed` returns null.
 */
export const createSupervisedModel = (kind: ModelBackend, logger: Logger) => {
  let open: OpenModel | null = null;
  let reason = 'starting';
  let lastLogged = '';
  const closing = new AbortController();
  const firstTryEnded = Promise.withResolvers<void>();

  const logStatus = (available: boolean, detail: string): void => {
    if (detail === lastLogged) return; // the same reason is logged once, not at each try
    lastLogged = detail;
    if (available) logger.info({ model: detail }, 'semantic search is available');
    else logger.warn({ reason: detail }, 'semantic search is not available: lexical answers stand');
  };

  /** Opens the model and waits until the model ends. Resolves with the reason for the end. */
  const runOnce = async (): Promise<string> => {
    try {
      const opened = await kind.open(closing.signal);
      open = opened;
      logStatus(true, opened.model);
      firstTryEnded.resolve();
      return await opened.ended;
    } catch (cause) {
      return reasonOf(cause);
    } finally {
      open = null;
    }
  };

  const keepOpen = async (): Promise<void> => {
    let backoffMs = FIRST_BACKOFF_MS;
    while (!closing.signal.aborted) {
      const since = performance.now();
      reason = await runOnce();
      if (closing.signal.aborted) return;
      logStatus(false, reason);
      firstTryEnded.resolve();
      backoffMs =
        performance.now() - since > STABLE_AFTER_MS ? FIRST_BACKOFF_MS : Math.min(backoffMs * 2, MAX_BACKOFF_MS);
      await sleep(backoffMs / 2, undefined, { signal: closing.signal }).catch(() => undefined);
    }
  };
  const running = keepOpen();

  const checked = (vectors: (Float32Array | null)[], count: number, dimensions: number) => {
    if (vectors.length !== count) throw new ModelError('the model gave another number of vectors than texts');
    if (vectors.some((vector) => vector !== null && vector.length !== dimensions)) {
      throw new ModelError('the model changed the length of its vectors');
    }
    return vectors.map((vector) => vector && normalised(vector));
  };

  return {
    limits: kind.limits,
    /** Resolves when the first try has ended, with or without success. */
    firstTry: firstTryEnded.promise,
    model: (): string | null => open?.model ?? null,
    status: (): Status => ({ available: open !== null, detail: open?.model ?? reason }),

    embed: async (texts: string[], textKind: TextKind): Promise<(Float32Array | null)[] | null> => {
      const used = open;
      if (!used) return null;
      const vectors = await used.embed(texts, textKind).catch(() => null);
      if (!vectors) return null;
      try {
        return checked(vectors, texts.length, used.dimensions);
      } catch (cause) {
        used.end(reasonOf(cause));
        return null;
      }
    },

    close: async (): Promise<void> => {
      reason = 'closed';
      closing.abort();
      open?.end('closed');
      await running;
      firstTryEnded.resolve();
    },
  };
};

export type SupervisedModel = ReturnType<typeof createSupervisedModel>;
