/** Two questions with at least this cosine have the same meaning. */
const COSINE_MIN = 0.89;
/** Without vectors, two questions are the same if they share this part of their words. */
const WORDS_MIN = 0.6;

export type Likened = { words: Set<string>; vector: Float32Array | null };

const cosine = (one: Float32Array, other: Float32Array): number => {
  let sum = 0;
  for (let at = 0; at < one.length; at += 1) sum += (one[at] ?? 0) * (other[at] ?? 0);
  return sum;
};

const shared = (one: Set<string>, other: Set<string>): number => {
  const both = [...one].filter((word) => other.has(word)).length;
  return both === 0 ? 0 : both / (one.size + other.size - both);
};

/**
 * How alike two questions are, from 0 to 1, or 0 if they are different questions. Vectors of length 1 decide if both
 * questions have one.
 */
export const likenessOf = (one: Likened, other: Likened): number => {
  const words = shared(one.words, other.words);
  if (words === 1) return 1;
  if (one.vector?.length !== undefined && one.vector.length === other.vector?.length) {
    const likeness = cosine(one.vector, other.vector);
    return likeness >= COSINE_MIN ? likeness : 0;
  }
  return words >= WORDS_MIN ? words : 0;
};
