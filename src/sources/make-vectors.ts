import { type Embedder, passageEngine, passageText, quantised } from '@parley/understanding';
import { newToken } from '../platform/process/ids.ts';
import type { Logger } from '../platform/process/logger.ts';
import { createLru } from '../platform/process/lru.ts';
import type { Timing } from '../platform/process/time-limits.ts';
import { buildPassageIndex, kindOfIndex } from './passage-index.ts';
import { INDEX_PIECE_BYTES, type PassageStore } from './passages.ts';
import { RunLost } from './lease-sessions.ts';
import type { MadeVectors, PassageToEmbed, PassageVectors, VectorsKind } from './passage-vectors.ts';
import type { SourceRuns } from './runs.ts';

/** How many texts are embedded in one step. Between two steps, the progress is stored and the lease renewed. */
const PASSAGES_AT_ONCE = 16;
/** After this time another source has its turn. A text of one script takes several times as long as one of another. */
const TURN_MS = 2_000;
const PROBE = 'Opening hours';
/**
 * A passage whose text is refused so often, while others are not, gets no vector by this model: words find it. At most
 * `TRIED_MAX` such passages are remembered.
 */
const TRIES_MAX = 3;
const TRIED_MAX = 10_000;

type VectorsOptions = {
  vectors: PassageVectors;
  runs: Pick<SourceRuns, 'announce'>;
  embedder: Embedder;
  /** The models of other workers, which must not be replaced while an update is rolled out. */
  listOthers: (model: string) => Promise<string[]>;
  timing: Timing;
  draining: AbortSignal;
  logger: Logger;
  /** How long a source has its turn, in ms. */
  turnMs?: number;
};

/** Makes the vectors of passages in the background: by turns those of a short source and of the next assistant. */
export const createMakeVectors = (options: VectorsOptions) => {
  const { vectors, runs, embedder, listOthers, timing, draining, logger, turnMs = TURN_MS } = options;
  let kind: VectorsKind | null = null;
  const tries = createLru<number>({ most: TRIED_MAX });

  /** The vectors that this worker makes. Null while the model is not available. */
  const findKind = async (): Promise<VectorsKind | null> => {
    const model = embedder.model();
    if (model === null) return null;
    if (kind?.model === model) return kind;
    const options = { holder: 'sources', priority: 'background' as const };
    const [made] = (await embedder.embedTokens([PROBE], 'passage', options)) ?? [];
    // A model without vectors of tokens gives null, and so does one that is busy or gone.
    if (!made && (await embedder.embed([PROBE], 'passage', options)) === null) return null;
    kind = { model, kind: made?.kind ?? null, made: made?.kind ?? model };
    return kind;
  };

  const embed = async (assistantId: string, some: PassageToEmbed[], { kind: tokenKind }: VectorsKind) => {
    const texts = some.map(passageText);
    const options = { holder: assistantId, priority: 'background' as const };
    const rows = (nth: number, vector: Float32Array, tokens: Int8Array | null): MadeVectors => ({
      passageId: some[nth]?.passageId ?? '',
      vector: new Uint8Array(quantised(vector).buffer),
      tokens: tokens && new Uint8Array(tokens.buffer, tokens.byteOffset, tokens.byteLength),
    });
    if (tokenKind === null) {
      const vectors = await embedder.embed(texts, 'passage', options);
      return vectors && vectors.map((vector, nth) => rows(nth, vector, null));
    }
    const made = await embedder.embedTokens(texts, 'passage', options);
    if (made?.some((one) => one.kind !== tokenKind)) return null;
    return made && made.map(({ vector, tokens }, nth) => rows(nth, vector, tokens));
  };

  /**
   * One refused text fails a whole step, so its texts are then tried one by one. Null if the model is not available: it
   * does not embed a harmless text either.
   */
  const embedEach = async (assistantId: string, some: PassageToEmbed[], wanted: VectorsKind) => {
    const together = await embed(assistantId, some, wanted);
    if (together) return together;
    const made: MadeVectors[] = [];
    for (const one of some) {
      const [row] = (some.length > 1 ? await embed(assistantId, [one], wanted) : null) ?? [];
      if (row) made.push(row);
      else if (await embed(assistantId, [{ passageId: '', title: PROBE, path: [], text: '' }], wanted)) {
        const { passageId } = one;
        const tried = (tries.get(passageId) ?? 0) + 1;
        tries.set(passageId, tried);
        if (tried < TRIES_MAX) continue;
        logger.warn({ passageId, assistantId }, 'a passage gets no vector: the model refuses its text');
        made.push({ passageId, vector: null, tokens: null });
      } else return null;
    }
    return made;
  };

  /** Makes vectors of one source for a while. False if no source lacks vectors, or the model is not available. */
  const makeSome = async (wanted: VectorsKind, others: string[]): Promise<boolean> => {
    const token = newToken();
    const claimed = await vectors.claimVectors(token, wanted, others);
    if (!claimed) return false;
    const { sourceId, assistantId } = claimed;
    let isWhole = false;
    const begunAt = performance.now();
    let announcedAt = begunAt;
    try {
      for (
        let isFirst = true;
        (isFirst || performance.now() - begunAt < turnMs) && !draining.aborted;
        isFirst = false
      ) {
        const some = await vectors.listWithoutVectors(sourceId, wanted.made, PASSAGES_AT_ONCE);
        if (some.length === 0) {
          // A worker that was killed may have stored the last vectors and not their count.
          isWhole = await vectors.reportVectors(sourceId, token, wanted.made);
          break;
        }
        const rows = await embedEach(assistantId, some, wanted);
        if (!rows || embedder.model() !== wanted.model) return false;
        await vectors.saveVectors(sourceId, token, wanted, rows);
        if (!(await vectors.reportVectors(sourceId, token, wanted.made))) return true;
        if (performance.now() - announcedAt < timing.sourceAnnouncedEveryMs) continue;
        announcedAt = performance.now();
        await runs.announce(assistantId);
      }
      // Announced before the end is stored, so that a killed worker leaves nothing unannounced.
      await runs.announce(assistantId);
      if (isWhole) logger.info({ sourceId, assistantId, model: wanted.model }, 'a source has its vectors');
    } finally {
      // If MongoDB is unavailable, the lease expires by itself.
      await vectors.endVectors(sourceId, token, isWhole ? wanted : null).catch(() => undefined);
    }
    return true;
  };

  return async (): Promise<void> => {
    const wanted = await findKind();
    if (!wanted) return;
    const others = await listOthers(wanted.model);
    while (!draining.aborted && (await makeSome(wanted, others)));
  };
};

type IndexOptions = {
  vectors: PassageVectors;
  passages: PassageStore;
  embedder: Pick<Embedder, 'model'>;
  /** The language of passages without one. */
  languageOf: (assistantId: string) => Promise<string>;
  timing: Pick<Timing, 'sourceRenewMs'>;
  draining: AbortSignal;
  /** The maximum memory of an index. What does not fit is not stored. By default, that of an assistant's index. */
  maxBytes?: number;
};

/** Cuts the bytes of a part into pieces of one size. The last piece may be shorter. */
function* piecesOf(sections: Uint8Array[]): Generator<Buffer> {
  const whole = Buffer.concat(sections);
  for (let from = 0; from < whole.length; from += INDEX_PIECE_BYTES)
    yield whole.subarray(from, from + INDEX_PIECE_BYTES);
}

/**
 * Stores the index of sources that have changed, so that a reply worker that starts need not make it: reading it takes a
 * thirtieth of the time.
 */
export const createStoreIndexes = ({
  vectors,
  passages,
  embedder,
  languageOf,
  timing,
  draining,
  maxBytes,
}: IndexOptions): (() => Promise<void>) => {
  // Found at the start, because it holds the loop the first time.
  const engine = passageEngine();

  /** False if no source needs an index. */
  const storeOne = async (): Promise<boolean> => {
    const claim = await vectors.claimIndex(newToken(), engine);
    if (!claim) return false;
    let [made, isStored]: [string | null, boolean] = [null, false];
    // A large index takes longer than a lease lasts. A lost one is noticed by the next write of a piece.
    const renewing = setInterval(() => void vectors.renewIndex(claim).catch(() => undefined), timing.sourceRenewMs);
    try {
      const { assistantId, sourceId } = claim;
      const language = await languageOf(assistantId);
      const model = embedder.model() ?? claim.model;
      const options = { model, language, ...(maxBytes !== undefined && { maxBytes }) };
      const built = await buildPassageIndex({ passages, scope: { assistantId, sourceId }, ...options }, null);
      if (!built.isStored) {
        let part = 0;
        for (const sections of built.index.stored()) {
          const size = sections.reduce((sum, { length }) => sum + length, 0);
          let piece = 0;
          for (const bytes of piecesOf(sections)) {
            await vectors.saveIndexPiece(claim, { part, piece, size, kind: kindOfIndex(language), model, bytes });
            piece += 1;
          }
          part += 1;
        }
      }
      [made, isStored] = [engine, !built.isStored];
    } catch (cause) {
      if (!(cause instanceof RunLost)) throw cause;
    } finally {
      clearInterval(renewing);
      // If MongoDB is unavailable, the lease expires by itself.
      await vectors.endIndex(claim, made, isStored).catch(() => undefined);
    }
    return true;
  };

  return async (): Promise<void> => {
    while (!draining.aborted && (await storeOne()));
  };
};
