/** Letters beyond ASCII are at most this share of a text that is written in Latin letters. */
const MOST_ACCENTED = 0.4;
const MARKS: [mark: number[], encoding: string][] = [
  [[0xff, 0xfe], 'utf-16le'],
  [[0xfe, 0xff], 'utf-16be'],
];

/**
 * The text of a file that a person made: UTF-8, UTF-16 with its mark (Excel's "Unicode text"), or Windows-1252 (Excel's
 * CSV in Western Europe). Throws an error that says what to do if it is in none of these. A browser runs this too.
 */
export const decodeText = (bytes: Uint8Array): string => {
  const marked = MARKS.find(([mark]) => mark.every((byte, at) => bytes[at] === byte));
  if (marked) return new TextDecoder(marked[1]).decode(bytes);
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    const text = new TextDecoder('windows-1252').decode(bytes);
    const letters = text.match(/\p{L}/gu)?.length ?? 0;
    const accented = text.match(/[^\p{ASCII}\P{L}]/gu)?.length ?? 0;
    // Other encodings of one byte, such as those of Cyrillic, would become accented letters and control characters.
    if (/(?![\t\n\f\r])\p{Cc}/u.test(text) || accented > letters * MOST_ACCENTED)
      throw new Error('its letters cannot be read: save it as UTF-8');
    return text;
  }
};
