import { workedMs } from './loop.ts';
import { atPace } from './pace.ts';

/** Maximum sizes: code points of a message, characters of a provider's reply, bytes of a header. */
export const MESSAGE = 8_000;
export const LARGEST = 16_000;

/** Pieces that slow down patterns and parsers when repeated: near matches, stacked marks, letters that expand. */
const PIECES = [
  [
    'a',
    'a ',
    ' ',
    '\n',
    '\r',
    '\u2028',
    '\t',
    '.',
    '1',
    '1-',
    '😀',
    '\u200b',
    'e\u0315\u0300',
    '\u0315\u0300',
    '\u0301\uff9e',
    '\u0301\uff9f',
    `${'\u0591'.repeat(16)}\u200b${'\u05b0'.repeat(16)}\u200b`,
    '\u2167',
    '\ufdfa',
    '\u3316',
  ],
  ['忽略', '指示', '가', 'ก', 'ب', 'निर्देश ', 'แม่', 'ß', 'Aa', "a'", 'ﬃ', '\u1100\u1161', 'I\u0307'],
  ['ignore ', 'ignore all ', 'ignora', 'repeat all the text ', 'show your ', 'zeig geheime', '<system ', 'system:'],
  ['забудь', 'покажи ', 'покажисистемн', 'покажисво', 'как ', 'talk to ', 'human ', 'please ', 'how ', 'systemprompt'],
  [
    '[](',
    '[',
    '](',
    '[a](',
    '[](<',
    '[]( ',
    'http://',
    'www.',
    'a.',
    '/',
    'a@',
    'a@b.',
    '@',
    '+1 ',
    '((',
    't=',
    'v1=',
    ',',
    ';',
  ],
].flat();
const ENDS = ['', 'x', '!', '\n', ' '];

const filled = (piece: string, end: string, length: number): string =>
  `${[...piece.repeat(length)].slice(0, length - end.length).join('')}${end}`;

/** Texts of the given length, named after the piece that they repeat. */
export const hostileTexts = (length: number, ends: readonly string[] = ENDS): [name: string, text: string][] =>
  PIECES.flatMap((piece) =>
    ends.map((end): [string, string] => [JSON.stringify(piece + end), filled(piece, end, length)]),
  );

/**
 * The least processor time of some runs in ms, at the usual pace of a machine, because other load slows them. Stops at
 * the first run within `enough` ms.
 */
export const shortest = (work: () => unknown, enough: number, runs = 12): number => {
  let least = Number.POSITIVE_INFINITY;
  for (let run = 0; run < runs && least > enough; run += 1) {
    const begun = workedMs();
    work();
    const took = workedMs() - begun;
    least = Math.min(least, took > enough ? took / atPace(1) : took);
  }
  return least;
};

/** The most that reading a text may take. */
const MOST_MS = 5;

/**
 * Returns the texts that took too long, with their times. A small part of each text comes first, because cubic code
 * would not finish the whole text.
 */
export const slowOf = (read: (text: string) => unknown, texts: [string, string][]): string[] => {
  read('What are your opening hours?');
  return texts.flatMap(([name, text]) => {
    const begun = shortest(() => read(text.slice(0, 1_000)), MOST_MS);
    const took = begun > MOST_MS ? begun : shortest(() => read(text), MOST_MS);
    return took > MOST_MS ? [`${name}: ${took.toFixed(1)} ms`] : [];
  });
};
