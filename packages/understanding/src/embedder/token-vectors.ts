import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate as nextTick } from 'node:timers/promises';

/** Divides a long computation: `if (share.isOver()) await share.next();` between two of its steps. */
export type LoopShare = { isOver: () => boolean; next: () => Promise<void> };

const alone = (ms: number): LoopShare => {
  let ends = performance.now() + ms;
  return {
    isOver: () => performance.now() >= ends,
    next: async () => {
      await nextTick();
      ends = performance.now() + ms;
    },
  };
};

let create = alone;

/**
 * Lets the computations of this package take turns with the other long work of the process. Otherwise each of many at
 * once would have a slice in every round of the event loop. Call it once, when the process starts.
 */
export const shareLoop = (others: (ms: number) => LoopShare): void => {
  create = others;
};

/** Create one for each computation. The first slice begins now and takes `ms`. */
export const createLoopShare = (ms: number): LoopShare => create(ms);

/** Runs a computation that yields between its steps. Others have their turn before a step for which no time is left. */
export const inTurns = async <Result>(steps: Generator<void, Result>, share: LoopShare): Promise<Result> => {
  for (;;) {
    if (share.isOver()) await share.next();
    const step = steps.next();
    if (step.done) return step.value;
  }
};

/** The same without a turn of others. */
export const inOneStep = <Result>(steps: Generator<void, Result>): Result => {
  for (;;) {
    const step = steps.next();
    if (step.done) return step.value;
  }
};

/**
 * The vectors of a text's tokens rank long texts better than its one vector: of a long text, one vector is a mean of
 * everything it says. They are made smaller by a fitted projection, because a passage has hundreds of them. A caller
 * stores the token vectors of its passages, finds candidates by their one vector, and ranks these again by their
 * tokens.
 */

/** The size of a token's vector, and so its bytes. With 64 or 48, fewer right passages come first. */
export const TOKEN_DIMENSIONS = 96;
/** How many tokens of a text have vectors. Those of a passage take at most 49,152 bytes. */
const MAX_TOKENS = { query: 64, passage: 512 };
const MAX_CANDIDATES = 30;
/** How long ranking may hold the event loop before others have their turn. */
const SLICE_MS = 4;
export const PROJECTION_NAME = 'token-projection.bin';
/** The projection of the local model. */
export const LOCAL_PROJECTION = join(import.meta.dirname, PROJECTION_NAME);

/** `kind` names the model and the projection. Vectors of different kinds cannot be compared. */
export type TokenVectors = { kind: string; tokens: Int8Array };

/** The kind of the token vectors of a model: another projection makes another kind. */
export const tokenKindOf = (model: string, projection = LOCAL_PROJECTION): string => {
  const hash = createHash('sha256').update(readFileSync(projection)).digest('hex');
  return `${model}+tokens-${hash.slice(0, 8)}`;
};

/**
 * For each dimension of the result: the float to subtract, the float to scale by, and the weights in 8 bits. `states`: the
 * length of the model's own vectors of tokens.
 */
const readProjection = (path: string, states: number) => {
  const file = new Uint8Array(readFileSync(path)).buffer;
  if (file.byteLength !== TOKEN_DIMENSIONS * (8 + states)) throw new Error('the projection has another size');
  return {
    offsets: new Float32Array(file, 0, TOKEN_DIMENSIONS),
    scales: new Float32Array(file, 4 * TOKEN_DIMENSIONS, TOKEN_DIMENSIONS),
    weights: new Int8Array(file, 8 * TOKEN_DIMENSIONS),
  };
};

/**
 * The content of a projection's file. `directions`: its rows, of length 1. `mean`: what is subtracted before
 * projecting.
 */
export const writtenProjection = (directions: Float64Array, mean: Float64Array): Buffer => {
  const states = mean.length;
  const offsets = new Float32Array(TOKEN_DIMENSIONS);
  const scales = new Float32Array(TOKEN_DIMENSIONS);
  const weights = new Int8Array(TOKEN_DIMENSIONS * states);
  for (let row = 0; row < TOKEN_DIMENSIONS; row += 1) {
    const direction = directions.subarray(row * states, (row + 1) * states);
    const scale = direction.reduce((most, value) => Math.max(most, Math.abs(value)), 0) / 127;
    scales[row] = scale;
    direction.forEach((value, at) => {
      const weight = Math.round(value / scale);
      weights[row * states + at] = weight;
      offsets[row] = (offsets[row] as number) + weight * scale * (mean[at] as number);
    });
  }
  return Buffer.concat([Buffer.from(offsets.buffer), Buffer.from(scales.buffer), Buffer.from(weights.buffer)]);
};

/**
 * Makes token vectors of the last layer's states. `from` and `to` leave out the tokens that every text has: the marks of
 * its beginning and end, and its prefix.
 */
export const createProjection = (length: number, path = LOCAL_PROJECTION) => {
  const { offsets, scales, weights } = readProjection(path, length);
  const directions = Float32Array.from(weights, (weight, at) => weight * (scales[Math.floor(at / length)] as number));
  const projected = new Float32Array(TOKEN_DIMENSIONS);
  return (states: Float32Array, from: number, to: number): Int8Array<ArrayBuffer> => {
    const tokens = new Int8Array(Math.max(0, to - from) * TOKEN_DIMENSIONS);
    for (let nth = 0; nth < to - from; nth += 1) {
      const state = states.subarray((from + nth) * length, (from + nth + 1) * length);
      let squares = 0;
      for (const value of state) squares += value * value;
      const norm = Math.sqrt(squares);
      let largest = 1e-9;
      for (let row = 0; row < TOKEN_DIMENSIONS; row += 1) {
        let sum = 0;
        const start = row * length;
        for (let at = 0; at < length; at += 1) sum += (state[at] as number) * (directions[start + at] as number);
        const value = sum / norm - (offsets[row] as number);
        projected[row] = value;
        largest = Math.max(largest, Math.abs(value));
      }
      // Each vector is scaled to use all 8 bits, because cosines do not depend on its length.
      for (let row = 0; row < TOKEN_DIMENSIONS; row += 1) {
        tokens[nth * TOKEN_DIMENSIONS + row] = Math.round(((projected[row] as number) / largest) * 127);
      }
    }
    return tokens;
  };
};

/** The token vectors of a text that was embedded in pieces. */
export const joinTokens = (pieces: Int8Array[], kind: 'query' | 'passage'): Int8Array => {
  const joined = new Int8Array(pieces.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const piece of pieces) {
    joined.set(piece, at);
    at += piece.length;
  }
  return joined.slice(0, MAX_TOKENS[kind] * TOKEN_DIMENSIONS);
};

/** One divided by the length of each vector, so that a cosine costs only two multiplications more than a product. */
const inverseLengths = (tokens: Int8Array): Float64Array =>
  Float64Array.from({ length: tokens.length / TOKEN_DIMENSIONS }, (_, nth) => {
    let sum = 0;
    for (let at = nth * TOKEN_DIMENSIONS; at < (nth + 1) * TOKEN_DIMENSIONS; at += 1)
      sum += (tokens[at] as number) ** 2;
    return sum === 0 ? 0 : 1 / Math.sqrt(sum);
  });

/**
 * Writes the cosines of a question's token to the tokens of a passage, not yet divided by the length of the question's
 * token.
 */
const productsOf = (token: Int8Array, passage: Int8Array, inverses: Float64Array, into: Float32Array): number => {
  let best = Number.NEGATIVE_INFINITY;
  for (let nth = 0, from = 0; nth < inverses.length; nth += 1, from += TOKEN_DIMENSIONS) {
    let product = 0;
    for (let at = 0; at < TOKEN_DIMENSIONS; at += 1) {
      product += Math.imul(token[at] as number, passage[from + at] as number);
    }
    const value = product * (inverses[nth] as number);
    into[nth] = value;
    if (value > best) best = value;
  }
  return best;
};

const tokenOf = (tokens: Int8Array, nth: number): Int8Array =>
  tokens.subarray(nth * TOKEN_DIMENSIONS, (nth + 1) * TOKEN_DIMENSIONS);

/**
 * The cosines between the tokens of a question and those of a passage: a row for each token of the question. It is done
 * in one step of about a millisecond.
 */
export const tokenCosines = (question: Int8Array, passage: Int8Array): Float32Array[] => {
  const asked = joinTokens([question], 'query');
  const read = joinTokens([passage], 'passage');
  const [ownInverses, inverses] = [inverseLengths(asked), inverseLengths(read)];
  return Array.from(ownInverses, (inverse, nth) => {
    const row = new Float32Array(inverses.length);
    productsOf(tokenOf(asked, nth), read, inverses, row);
    return row.map((value) => value * inverse);
  });
};

/** A candidate by its tokens. `best` has the best cosine of each token of the question, and `score` is their mean. */
export type TokenRank<Candidate> = { candidate: Candidate; score: number; best: Float64Array };

/**
 * Ranks passages that were found by other means, at most 30. The score is the mean over the question's tokens of the best
 * cosine to a token of the passage. Passages without tokens, or with vectors of another kind than the question's, are
 * left out. The event loop is held for a few milliseconds at a time.
 */
export const rankByTokens = async <Candidate extends TokenVectors>(
  question: TokenVectors,
  candidates: readonly Candidate[],
): Promise<TokenRank<Candidate>[]> => {
  const asked = joinTokens([question.tokens], 'query');
  const ownInverses = inverseLengths(asked);
  const ranked: TokenRank<Candidate>[] = [];
  const share = createLoopShare(SLICE_MS);
  await share.next();
  for (const candidate of candidates.slice(0, MAX_CANDIDATES)) {
    if (candidate.kind !== question.kind || candidate.tokens.length === 0 || asked.length === 0) continue;
    const passage = joinTokens([candidate.tokens], 'passage');
    const inverses = inverseLengths(passage);
    const row = new Float32Array(inverses.length);
    if (share.isOver()) await share.next();
    const best = new Float64Array(ownInverses.length);
    for (let nth = 0; nth < ownInverses.length; nth += 1) {
      best[nth] = productsOf(tokenOf(asked, nth), passage, inverses, row) * (ownInverses[nth] as number);
      if (share.isOver()) await share.next();
    }
    ranked.push({ candidate, score: best.reduce((sum, one) => sum + one, 0) / best.length, best });
  }
  return ranked.toSorted((one, other) => other.score - one.score);
};
