import { withoutPiledMarks } from '../../src/language/fold.ts';
import { type GuardFinding, LEAKS, OVERRIDES, ROLE_TOKENS } from './guard-patterns.ts';
import { createScanner } from './guard-scan.ts';

/** Long messages are looked at from both ends; nothing between them is long enough to matter. */
const INSPECTED_ENDS = 4_000;

const INVISIBLE = /[\p{Default_Ignorable_Code_Point}\p{Cf}]/gu;

/** Letters of other scripts that look like Latin ones. */
const LOOK_ALIKES = new Map(
  [
    'аaеeоoрpсcуyхxіiјjѕsԁdԛqѡwһhӏlкkмmтtнhвbгr', // Cyrillic, each before what it looks like
    'αaεeοoρpυuχxιiκkνvτtηnβbγyωw', // Greek
    'ıiɑaɡgɩiʟlᴀaʀrᴛtɪiɴn0o1l3e4a5s7t@a$s',
  ].flatMap((pairs) => (pairs.match(/../gu) ?? []).map((pair): [string, string] => [...pair] as [string, string])),
);

const LOOKS_ALIKE = new RegExp(`[${[...LOOK_ALIKES.keys()].join('')}]`, 'gu');
/** Nothing in it to fold but case. */
const PLAIN = /^[\t\n\r -~]*$/;

const endsOf = (text: string): string =>
  text.length <= 2 * INSPECTED_ENDS ? text : `${text.slice(0, INSPECTED_ENDS)} ${text.slice(-INSPECTED_ENDS)}`;

/** Cut once more: one character may stand for eighteen. */
const folded = (text: string): string =>
  endsOf(withoutPiledMarks(text).normalize('NFKC'))
    .replace(INVISIBLE, '')
    .toLowerCase()
    .normalize('NFD')
    .replace(/(?<=\p{Script=Latin})\p{M}+/gu, '')
    .normalize('NFC');

/** NFKC, case, accents and what cannot be seen folded away; white space and punctuation between words are one space. */
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

const GRAVEST: readonly (GuardFinding | null)[] = ['role_token', 'override', 'leak', null];

/** The gravest thing found, or null. Looks at the message as it reads, and as it looks. */
export const inspectMessage = (message: string): GuardFinding | null => {
  const read = plain(endsOf(message));
  const looks = asLatin(read);
  const found = looks === read ? [find(read)] : [find(read), find(looks)];
  return GRAVEST.find((finding) => found.includes(finding)) ?? null;
};
