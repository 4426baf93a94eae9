/**
 * Text is counted in pieces of this length, because the tokenizer takes quadratic time per word. Each additional piece
 * raises the count by at most one token.
 */
const COUNTED_CHARS = 128;
const WORDS_REMEMBERED = 10_000;

/** The tokenizer is loaded on first use, because its tables are large and most installations never use it. */
const loadTokenizer = async () => {
  const { countTokens, setMergeCacheSize } = await import('gpt-tokenizer/encoding/o200k_base');
  setMergeCacheSize(WORDS_REMEMBERED);
  return countTokens;
};
let tokenizer: ReturnType<typeof loadTokenizer> | null = null;

/** Counts tokens, and stops when there are more than `atMost`. It yields between the pieces of a text. */
export type CountTokens = (text: string, atMost: number) => Generator<void, number>;

export const countTokensOf = async (): Promise<CountTokens> => {
  const countTokens = await (tokenizer ??= loadTokenizer());
  // Special tokens of the model are counted as ordinary text, because a visitor may type them.
  const options = { disallowedSpecial: new Set<string>() };
  return function* (text, atMost) {
    let count = 0;
    for (let at = 0; at < text.length && count <= atMost; at += COUNTED_CHARS) {
      count += countTokens(text.slice(at, at + COUNTED_CHARS), options);
      yield;
    }
    return count;
  };
};
