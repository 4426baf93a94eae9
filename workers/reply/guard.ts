import { type GuardFinding, guardPatterns } from './guard-patterns.ts';

/** Long messages are looked at from both ends; nothing between them is long enough to matter. */
const LOOKED_AT = 4_000;

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

const ofOneKind = (text: string): string =>
  text
    .normalize('NFKC')
    .replace(INVISIBLE, '')
    .toLowerCase()
    .normalize('NFD')
    .replace(/(?<=\p{Script=Latin})\p{M}+/gu, '')
    .normalize('NFC');

/** NFKC, case, accents and what cannot be seen folded away; white space and punctuation between words are one space. */
const plain = (text: string): string =>
  (PLAIN.test(text) ? text.toLowerCase() : ofOneKind(text)).replace(/[^\p{L}\p{M}\p{N}<>|[\]/_@$:]+/gu, ' ').trim();

const asLatin = (text: string): string => text.replace(LOOKS_ALIKE, (letter) => LOOK_ALIKES.get(letter) as string);

/** The first thing found, or null. Looks at the message as it reads, and as it looks. */
export const inspectMessage = (message: string): GuardFinding | null => {
  const ends =
    message.length <= 2 * LOOKED_AT ? message : `${message.slice(0, LOOKED_AT)} ${message.slice(-LOOKED_AT)}`;
  const read = plain(ends);
  const looks = asLatin(read);
  for (const [finding, patterns] of guardPatterns) {
    if (patterns.some((pattern) => pattern.test(read) || (looks !== read && pattern.test(looks)))) return finding;
  }
  return null;
};
