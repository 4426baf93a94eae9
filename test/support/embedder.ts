import { setTimeout as sleep } from 'node:timers/promises';
import type { Embedder } from '@parley/understanding';

const DIMENSIONS = 384;

/** A vector of letter trigrams, hashed by FNV-1a: similar words get similar vectors. */
export const vectorOf = (text: string): Float32Array => {
  const vector = new Float32Array(DIMENSIONS);
  const normalised = ` ${text
    .toLowerCase()
    .replace(/[^\p{L}\p{N}]+/gu, ' ')
    .trim()} `;
  for (let at = 0; at + 3 <= normalised.length; at += 1) {
    let digest = 0x811c9dc5;
    for (const letter of normalised.slice(at, at + 3)) {
      digest = Math.imul(digest ^ (letter.codePointAt(0) ?? 0), 0x01000193);
    }
    const dimension = (digest >>> 0) % DIMENSIONS;
    vector[dimension] = (vector[dimension] ?? 0) + 1;
  }
  const length = Math.hypot(...vector) || 1;
  return vector.map((value) => value / length);
};

/** What reads passages sees of an embedder that has no model. */
export const NO_MODEL = {
  isConfigured: false,
  calibration: () => null,
  firstTry: async () => undefined,
  model: () => null,
  embedQuestion: async () => null,
};

type TestEmbedder = Embedder & {
  /** All embedded texts, in order. */
  texts: string[];
  /** Awaited before each call is answered. */
  gate: (texts: string[]) => Promise<void> | void;
  /** True for texts that get no vectors. */
  refuse: (texts: string[]) => boolean;
  /** Time per text in ms. */
  msEach: number;
  set: (state: { available?: boolean; model?: string }) => void;
};

/** A fake embedder in this process. The same text always has the same vector. */
export const anEmbedder = ({ model = 'trigrams-1', msEach = 0 }: { model?: string; msEach?: number } = {}) => {
  let named = model;
  let available = true;
  const embedder: TestEmbedder = {
    texts: [],
    msEach,
    gate: () => undefined,
    refuse: () => false,
    set: (state) => {
      named = state.model ?? named;
      available = state.available ?? available;
    },
    embed: async (texts) => {
      if (!available || embedder.refuse(texts)) return null;
      await embedder.gate(texts);
      if (embedder.msEach > 0) await sleep(embedder.msEach * texts.length);
      embedder.texts.push(...texts);
      return texts.map(vectorOf);
    },
    embedTokens: async () => null,
    embedQuestion: async (text, options) => {
      const [vector] = (await embedder.embed([text], 'query', options)) ?? [];
      return vector ? { vector, tokens: null } : null;
    },
    model: () => (available ? named : null),
    calibration: () => null,
    isConfigured: true,
    firstTry: async () => undefined,
    status: () => ({ available, detail: available ? `${named}, on this machine` : 'its file is damaged' }),
    close: async () => undefined,
  };
  return embedder;
};

/** One that also has vectors of tokens: one token for each word. */
export const anEmbedderOfTokens = (options: Parameters<typeof anEmbedder>[0] = {}): TestEmbedder => {
  const embedder = anEmbedder(options);
  embedder.embedTokens = async (texts, kind, more) => {
    const vectors = await embedder.embed(texts, kind, more);
    return (
      vectors &&
      vectors.map((vector, nth) => ({
        kind: `${embedder.model() ?? ''}+tokens`,
        vector,
        tokens: new Int8Array(96 * (texts[nth]?.split(' ').length ?? 1)).fill(1),
      }))
    );
  };
  return embedder;
};
