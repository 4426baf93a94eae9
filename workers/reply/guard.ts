import { withoutPiledMarks } from '../../src/language/fold.ts';
import { type GuardFinding, LEAKS, OVERRIDES, ROLE_TOKENS } from './guard-patterns.ts';
import { createScanner } from './guard-scan.ts';

/** A longer message is inspected only at both ends: this many characters at each end. */
const INSPECTED_ENDS = 4_000;

const INVISIBLE = /[\p{Default_Ignorable_Code_Point}\p{Cf}]/gu;

/** Letters of other scripts that look like Latin ones. */
const LOOK_ALIKES = new Map(
  [
    'аaеeоoрpсcуyхxіiјjѕsԁdԛqѡwһhӏlкkмmтtнhвbгr', // Cyrillic letters, each followed by the Latin letter it looks like
    'αaεeοoρpυuχxιiκkνvτtηnβbγyωw', // Greek
    'ıiɑaɡgɩiʟlᴀaʀrᴛtɪiɴn0o1l3e4a5s7t@a$s',
  ].flatMap((pairs) => (pairs.match(/../gu) ?? []).map((pair): [string, string] => [...pair] as [string, string])),
);

const LOOKS_ALIKE = new RegExp(`[${[...LOOK_ALIKES.keys()].join('')}]`, 'gu');
/** Matches plain ASCII text, which needs only lower-casing. */
const PLAIN = /^[\t\n\r -~]*$/;

const endsOf = (text: string): string =>
  text.length <= 2 * INSPECTED_ENDS ? text : `${text.slice(0, INSPECTED_ENDS)} ${text.slice(-INSPECTED_ENDS)}`;

/**
 * Normalises a text that is not plain ASCII. NFKC can expand one character to eighteen, so the text is shortened again
 * afterwards.
 */
const folded = (text: string): string =>
  endsOf(withoutPiledMarks(text).normalize('NFKC'))
    .replace(INVISIBLE, '')
    .toLowerCase()
    .normalize('NFD')
    .replace(/(?<=\p{Script=Latin})\p{M}+/gu, '')
    .normalize('NFC');

/**
 * Removes differences of case, accents and invisible characters (NFKC). White space and punctuation become one space.
 */
const plain = (text: string): string =>
  (PLAIN.test(text) ? text.toLowerCase() : folded(text)).replace(/[^\p{L}\p{M}\p{N}<>|[\]/_@$:]+/gu, ' ').trim();

const asLatin = (text: string): string => text.replace(LOOKS_ALIKE, (letter) => LOOK_ALIKES.get(letter) as string);

const scan = createScanner([...OVERRIDES, ...LEAKS]);

const find = (text: string): GuardFinding | null => {
  if (ROLE_TOKENS.some((pattern) => pattern.test(text))) return 'role_token';
  const found = scan(text);
  if (found === null) return null;
  return found < OVERRIDES.length ? 'override' : 'leak';
};

const BY_SEVERITY: readonly (GuardFinding | null)[] = ['role_token', 'override', 'leak', null];

/**
 * The most severe finding, or null. The message is inspected twice: as written, and with look-alike letters replaced.
 */
export const inspectMessage = (message: string): GuardFinding | null => {
  const read = plain(endsOf(message));
  const looks = asLatin(read);
  const found = looks === read ? [find(read)] : [find(read), find(looks)];
  return BY_SEVERITY.find((finding) => found.includes(finding)) ?? null;
};
