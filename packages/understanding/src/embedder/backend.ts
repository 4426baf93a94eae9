import type { ModelCalibration } from '../calibration.ts';

export type EmbeddedKind = 'query' | 'passage';
export type Priority = 'turn' | 'background';
export type ModelStatus = { available: boolean; detail: string };

/**
 * What happened to a text to embed. `made`, `cached`, `joined` and `shared` have a vector. The other results have no
 * vector: the turn would have waited too long, the queue was full, the model was too slow for the turn, the model
 * failed, or there is no model.
 */
export type CountEmbedding = (
  kind: EmbeddedKind,
  result: 'made' | 'cached' | 'joined' | 'shared' | 'busy' | 'full' | 'late' | 'failed' | 'unavailable',
  count?: number,
) => void;

/**
 * Vectors of questions that any process made lately, with the vectors of their tokens if they were asked for. `key`
 * names the model, the kind and the text. Neither call throws, and `find` answers within some milliseconds, because
 * making a vector again is quick.
 */
export type SharedVectors = {
  find: (key: string) => Promise<Embedded | null>;
  keep: (key: string, made: Embedded) => void;
};

/** Limits for requests to a model, and for the length of texts. */
export type Limits = {
  texts: number;
  concurrency: number;
  /**
   * A longer text is split into pieces of this size, so that a turn never waits for the embedding of a whole page.
   * `pieces` is the maximum number of pieces per text.
   */
  pieceBytes: number;
  pieces: Record<EmbeddedKind, number>;
  /** How long the model may take for a text of a turn, after the text has waited in line. */
  answerMs: number;
};

/** What a model gives for a text. `tokens` has the vectors of its tokens if they were asked for. */
export type Embedded = { vector: Float32Array; tokens?: Int8Array | undefined };

/** An opened model. `ended` resolves with the reason when it stops working. */
export type OpenModel = {
  /** Name and version of the model. Stored vectors of another model are replaced. */
  model: string;
  dimensions: number;
  /** A text that the model refuses gives null, and no other text is affected. */
  embed: (texts: string[], kind: EmbeddedKind) => Promise<(Float32Array | null)[]>;
  /** The kind of the vectors of a text's tokens. Only the local model makes them. */
  withTokens?: { kind: string; embed: (text: string, kind: EmbeddedKind) => Promise<Embedded> };
  /** What fits the decision to the model. Undefined: it was fitted to the local model. */
  calibration?: ModelCalibration | undefined;
  ended: Promise<string>;
  end: (reason: string) => void;
};

export type ModelBackend = {
  limits: Limits;
  /** Throws a `ModelError` if the model cannot be opened, or when the signal aborts. */
  open: (signal: AbortSignal) => Promise<OpenModel>;
};

/** Tells the model process that the folder is one that an operator has chosen. */
export const CHOSEN = 'chosen';

/** A failure whose message may be logged and shown: the message contains no address, key or visitor text. */
export class ModelError extends Error {
  override name = 'SourceError';
}

/** The model refused the texts, for example because one is too long. */
export class TextsRefused extends ModelError {}

/** Scales a vector to length 1, so that a dot product equals the cosine. Throws if all values are zero. */
export const normalised = (vector: Float32Array): Float32Array => {
  const length = Math.hypot(...vector);
  if (!Number.isFinite(length) || length < 1e-6) throw new ModelError('the model gave a vector without a direction');
  return vector.map((value) => value / length);
};

/** The weighted mean of the vectors of one text's pieces, scaled to length 1. */
export const mean = (vectors: Float32Array[], weights: number[]): Float32Array => {
  const [first] = vectors;
  if (first === undefined) throw new ModelError('there are no vectors');
  if (vectors.length === 1) return first;
  const sum = new Float32Array(first.length);
  vectors.forEach((vector, index) => {
    const weight = weights[index] ?? 0;
    vector.forEach((value, at) => {
      sum[at] = (sum[at] ?? 0) + value * weight;
    });
  });
  return normalised(sum);
};
