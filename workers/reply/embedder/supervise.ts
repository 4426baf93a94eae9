import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from '../../../src/platform/logger.ts';
import { type Source, SourceError, type SourceKind, type Status, type TextKind } from './backend.ts';
import { normalised } from './vector.ts';

const FIRST_REST_MS = 200;
const LONGEST_REST_MS = 60_000;
/** One that worked for so long has earned a quick new start. */
const STEADY_MS = 30_000;

const reasonOf = (cause: unknown): string =>
  cause instanceof SourceError ? cause.message : `an error of our own: ${(cause as Error).name}`;

/** Opens a model, and opens it again with growing pauses whenever it ended. Between that, the answer is null. */
export const supervise = (kind: SourceKind, logger: Logger) => {
  let source: Source | null = null;
  let why = 'starting';
  let lastTold = '';
  const closing = new AbortController();
  const first = Promise.withResolvers<void>();

  const tell = (available: boolean, detail: string): void => {
    if (detail === lastTold) return; // a model that stays away is said once, not at each try
    lastTold = detail;
    if (available) logger.info({ model: detail }, 'semantic search is available');
    else logger.warn({ reason: detail }, 'semantic search is not available: lexical answers stand');
  };

  /** One life of the model, and the reason of its end. */
  const live = async (): Promise<string> => {
    try {
      const opened = await kind.open(closing.signal);
      source = opened;
      tell(true, opened.model);
      first.resolve();
      return await opened.ended;
    } catch (cause) {
      return reasonOf(cause);
    } finally {
      source = null;
    }
  };

  const keepAlive = async (): Promise<void> => {
    let restMs = FIRST_REST_MS;
    while (!closing.signal.aborted) {
      const since = performance.now();
      why = await live();
      if (closing.signal.aborted) return;
      tell(false, why);
      first.resolve();
      restMs = performance.now() - since > STEADY_MS ? FIRST_REST_MS : Math.min(restMs * 2, LONGEST_REST_MS);
      await sleep(restMs / 2, undefined, { signal: closing.signal }).catch(() => undefined);
    }
  };
  const life = keepAlive();

  const checked = (vectors: Float32Array[], count: number, dimensions: number): Float32Array[] => {
    if (vectors.length !== count) throw new SourceError('the model gave another number of vectors than texts');
    if (vectors.some(({ length }) => length !== dimensions)) {
      throw new SourceError('the model changed the length of its vectors');
    }
    return vectors.map(normalised);
  };

  return {
    limits: kind.limits,
    /** Settled once the first try has ended, either way. */
    tried: first.promise,
    model: (): string | null => source?.model ?? null,
    status: (): Status => ({ available: source !== null, detail: source?.model ?? why }),

    embed: async (texts: string[], textKind: TextKind): Promise<Float32Array[] | null> => {
      const used = source;
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
      why = 'closed';
      closing.abort();
      source?.end('closed');
      await life;
      first.resolve();
    },
  };
};

export type Supervised = ReturnType<typeof supervise>;
