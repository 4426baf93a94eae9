import { ModelError } from './backend.ts';

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
