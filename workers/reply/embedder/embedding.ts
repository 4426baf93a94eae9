import { LRUCache } from 'lru-cache';
import type { CountEmbedding } from '../../../src/service-metrics.ts';
import type { Priority, TextKind } from './backend.ts';
import { piecesOf, readable } from './pieces.ts';
import { createTextQueue } from './queue.ts';
import type { SupervisedModel } from './supervised-model.ts';
import { mean } from './vector.ts';

const QUEUE_CAPACITY = { turn: 64, background: 256 };
/** How long a turn waits for a vector. */
const TURN_MS = 2_000;
/** Number of cached vectors of questions, 3 MB with the local model. Different visitors often ask the same question. */
const CACHE_SIZE = 2_000;

type Options = { model: SupervisedModel; count: CountEmbedding };

/** Embeds texts. Vectors of turns are cached, and the same text is never embedded twice at the same time. */
export const createEmbedding = ({ model, count }: Options) => {
  const { limits } = model;
  const cached = new LRUCache<string, Float32Array>({ max: CACHE_SIZE });
  const inFlight = new Map<string, Promise<Float32Array | null>>();
  const queue = createTextQueue({ run: model.embed, limits, capacity: QUEUE_CAPACITY, turnMs: TURN_MS });

  const ask = async (pieces: string[], kind: TextKind, priority: Priority): Promise<Float32Array | null> => {
    const answers = await Promise.all(pieces.map((piece) => queue.add(piece, kind, priority)));
    const refusal = answers.find((answer) => typeof answer === 'string');
    count(kind, refusal ?? 'made');
    if (refusal !== undefined) return null;
    const vectors = answers.filter((answer) => typeof answer !== 'string');
    return mean(
      vectors,
      pieces.map(({ length }) => length),
    );
  };

  const embedOne = (text: string, kind: TextKind, priority: Priority): Promise<Float32Array | null> => {
    const key = `${model.model()} ${kind} ${text}`;
    const known = cached.get(key);
    if (known) {
      count(kind, 'cached');
      return Promise.resolve(known);
    }
    const flightKey = `${priority} ${key}`; // a turn does not join a request of low priority
    const asked = inFlight.get(flightKey);
    if (asked) {
      count(kind, 'joined');
      return asked;
    }
    const pieces = piecesOf(text, { bytes: limits.pieceBytes, most: limits.pieces[kind] });
    if (!queue.hasCapacity(priority, pieces.length)) {
      count(kind, 'full');
      return Promise.resolve(null);
    }
    const asking = ask(pieces, kind, priority)
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

  return async (texts: string[], kind: TextKind, priority: Priority): Promise<Float32Array[] | null> => {
    if (!model.status().available) {
      count(kind, 'unavailable', texts.length);
      return null;
    }
    const read = texts.map(readable);
    if (priority === 'turn') return allOrNull(await Promise.all(read.map((text) => embedOne(text, kind, priority))));
    // The texts are queued a few at a time, so that ten thousand entries do not fill the queue.
    const step = limits.texts * limits.concurrency;
    const vectors: Float32Array[] = [];
    for (let at = 0; at < read.length; at += step) {
      const some = allOrNull(
        await Promise.all(read.slice(at, at + step).map((text) => embedOne(text, kind, priority))),
      );
      if (!some) return null;
      vectors.push(...some);
    }
    return vectors;
  };
};
