import { LRUCache } from 'lru-cache';
import type { CountEmbedding } from '../../../src/service-metrics.ts';
import type { TextKind } from './backend.ts';
import { piecesOf, readable } from './pieces.ts';
import { createTextQueue, type TextRequest } from './queue.ts';
import type { SupervisedModel } from './supervised-model.ts';
import { mean } from './vector.ts';

/** A single assistant may use half of it. */
const QUEUE_CAPACITY = { turn: 128, background: 512 };
/** How long a turn waits for a vector. */
const TURN_MS = 2_000;
/** Cached vectors of questions: about 4,000 with the local model. Different visitors often ask the same question. */
const CACHED_BYTES = 8_000_000;
/** Estimated memory of a cached vector without its values and its text. */
const CACHED_OVERHEAD_BYTES = 250;

type Options = { model: SupervisedModel; count: CountEmbedding };

export type EmbedOptions = Pick<TextRequest, 'priority' | 'holder'>;

/** Embeds texts. Vectors of turns are cached, and the same text is never embedded twice at the same time. */
export const createEmbedding = ({ model, count }: Options) => {
  const { limits } = model;
  const cached = new LRUCache<string, Float32Array>({
    maxSize: CACHED_BYTES,
    sizeCalculation: ({ byteLength }, { length }) => byteLength + 2 * length + CACHED_OVERHEAD_BYTES,
  });
  const inFlight = new Map<string, Promise<Float32Array | null>>();
  const queue = createTextQueue({ run: model.embed, limits, capacity: QUEUE_CAPACITY, turnMs: TURN_MS });

  const ask = async (pieces: string[], kind: TextKind, options: EmbedOptions): Promise<Float32Array | null> => {
    const answers = await Promise.all(pieces.map((text) => queue.add({ text, kind, ...options })));
    const refusal = answers.find((answer) => typeof answer === 'string');
    count(kind, refusal ?? 'made');
    if (refusal !== undefined) return null;
    const vectors = answers.filter((answer) => typeof answer !== 'string');
    return mean(
      vectors,
      pieces.map(({ length }) => length),
    );
  };

  const embedOne = (text: string, kind: TextKind, options: EmbedOptions): Promise<Float32Array | null> => {
    const { priority, holder } = options;
    const key = `${model.model()} ${kind} ${text}`;
    const known = cached.get(key);
    if (known) {
      count(kind, 'cached');
      return Promise.resolve(known);
    }
    // A turn joins neither a request of low priority nor one of another assistant, which may wait longer.
    const flightKey = `${priority} ${holder} ${key}`;
    const asked = inFlight.get(flightKey);
    if (asked) {
      count(kind, 'joined');
      return asked;
    }
    const pieces = piecesOf(text, { bytes: limits.pieceBytes, most: limits.pieces[kind] });
    if (!queue.hasCapacity(pieces.length, options)) {
      count(kind, 'full');
      return Promise.resolve(null);
    }
    const asking = ask(pieces, kind, options)
      .then((vector) => {
        if (vector && priority === 'turn') cached.set(key, vector);
        return vector;
      })
      .finally(() => inFlight.delete(flightKey));
    inFlight.set(flightKey, asking);
    return asking;
  };

  const allOrNull = (vectors: (Float32Array | null)[]): Float32Array[] | null =>
    vectors.every((vector) => vector !== null) ? vectors : null;

  return async (texts: string[], kind: TextKind, options: EmbedOptions): Promise<Float32Array[] | null> => {
    if (!model.status().available) {
      count(kind, 'unavailable', texts.length);
      return null;
    }
    const read = texts.map(readable);
    if (options.priority === 'turn')
      return allOrNull(await Promise.all(read.map((text) => embedOne(text, kind, options))));
    // The texts are queued a few at a time, so that ten thousand entries do not fill the queue.
    const step = limits.texts * limits.concurrency;
    const vectors: Float32Array[] = [];
    for (let at = 0; at < read.length; at += step) {
      const some = allOrNull(await Promise.all(read.slice(at, at + step).map((text) => embedOne(text, kind, options))));
      if (!some) return null;
      vectors.push(...some);
    }
    return vectors;
  };
};
