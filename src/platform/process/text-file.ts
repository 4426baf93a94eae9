/** Letters beyond ASCII are at most this share of a text that is written in Latin letters. */
const MOST_ACCENTED = 0.4;
/**
 * What letters of other encodings become: signs and capitals inside words, as in "ci¹gu" and "fŸr". Between letters may
 * also be a space or a hyphen that word processors write: one that does not break, or shows only at the end of a line.
 */
const UNREADABLE = /\p{L}(?![’‘´·–—…«»®™×\u00a0\u00ad])[^\p{ASCII}\p{L}]\p{L}|\p{Ll}(?!\p{ASCII})\p{Lu}\p{Ll}/u;
/** Excel's CSV in Central Europe and in Turkey, read as that of Western Europe. */
const POLISH = /\p{L}[¹³¿¾]\p{Ll}/u;
const isCentral = (western: string): boolean =>
  POLISH.test(western) || (/[šž]/u.test(western) && /[ìøùèòïæð]/u.test(western));
const isTurkish = (western: string): boolean => /[ýþð]/iu.test(western) && !/[áéíóúæ]/iu.test(western);
const encodingOf = (western: string): string =>
  isCentral(western) ? 'windows-1250' : isTurkish(western) ? 'windows-1254' : 'windows-1252';

const MARKS: [mark: number[], encoding: string][] = [
  [[0xff, 0xfe], 'utf-16le'],
  [[0xfe, 0xff], 'utf-16be'],
];

/**
 * The text of a file that a person made: UTF-8, UTF-16 (Excel's "Unicode text"), or Windows-1252, 1250 and 1254 (Excel's
 * CSV in Europe). Throws an error that says what to do if it is in none of these. A browser runs this too.
 */
export const decodeText = (bytes: Uint8Array): string => {
  const marked = MARKS.find(([mark]) => mark.every((byte, at) => bytes[at] === byte));
  if (marked) return new TextDecoder(marked[1]).decode(bytes);
  const [first, second, third, fourth] = bytes;
  if (first && second === 0 && third && fourth === 0) return new TextDecoder('utf-16le').decode(bytes);
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    const text = new TextDecoder(encodingOf(new TextDecoder('windows-1252').decode(bytes))).decode(bytes);
    const letters = text.match(/\p{L}/gu)?.length ?? 0;
    const accented = text.match(/[^\p{ASCII}\P{L}]/gu)?.length ?? 0;
    // Other encodings of one byte, such as those of Cyrillic, would become accented letters and control characters.
    if (/(?![\t\n\f\r])\p{Cc}/u.test(text) || UNREADABLE.test(text) || accented > letters * MOST_ACCENTED)
      throw new Error('its letters cannot be read: save it as UTF-8');
    return text;
  }
};
