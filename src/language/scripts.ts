/** Scripts that almost always mean one language in chats. */
const OWNED: readonly (readonly [RegExp, string])[] = [
  [/\p{Script=Hangul}/gu, 'ko'],
  [/\p{Script=Thai}/gu, 'th'],
  [/\p{Script=Greek}/gu, 'el'],
  [/\p{Script=Hebrew}/gu, 'he'],
  [/\p{Script=Bengali}/gu, 'bn'],
  [/\p{Script=Tamil}/gu, 'ta'],
  [/\p{Script=Telugu}/gu, 'te'],
  [/\p{Script=Gujarati}/gu, 'gu'],
  [/\p{Script=Gurmukhi}/gu, 'pa'],
  [/\p{Script=Kannada}/gu, 'kn'],
  [/\p{Script=Malayalam}/gu, 'ml'],
  [/\p{Script=Sinhala}/gu, 'si'],
  [/\p{Script=Georgian}/gu, 'ka'],
  [/\p{Script=Armenian}/gu, 'hy'],
  [/\p{Script=Lao}/gu, 'lo'],
  [/\p{Script=Khmer}/gu, 'km'],
  [/\p{Script=Myanmar}/gu, 'my'],
  [/\p{Script=Ethiopic}/gu, 'am'],
];

const HAN = /\p{Script=Han}/gu;
const KANA = /[\p{Script=Hiragana}\p{Script=Katakana}]/gu;

/**
 * Scripts that several languages share. `letters` lists letters that only one of these languages uses. The first
 * language is the default.
 */
const SHARED: readonly {
  script: RegExp;
  languages: readonly string[];
  letters: readonly (readonly [RegExp, string])[];
}[] = [
  {
    script: HAN,
    languages: ['zh', 'ja'],
    letters: [
      [/[営価駅払円気働込畑]/u, 'ja'],
      [/[这吗们个谢请问么买对时说东车书钱见嗎們麼對說錢您你哪吧呢啊]/u, 'zh'],
    ],
  },
  {
    script: /\p{Script=Cyrillic}/gu,
    languages: ['ru', 'uk', 'bg', 'sr', 'be', 'mk', 'kk'],
    letters: [
      [/[ўЎ]/u, 'be'],
      [/[їєґЇЄҐ]/u, 'uk'],
      [/[әғқңөұүһ]/iu, 'kk'],
      [/[ѓќѕ]/iu, 'mk'],
      [/[ђћјљњџ]/iu, 'sr'],
      [/[ыэё]/iu, 'ru'],
      [/[іІ]/u, 'uk'],
    ],
  },
  {
    script: /\p{Script=Arabic}/gu,
    languages: ['ar', 'fa', 'ur'],
    letters: [
      [/[ٹڈڑںےہھ]/u, 'ur'],
      [/[پچژگ]/u, 'fa'],
      [/[ةىأإؤ]/u, 'ar'],
      [/[یک]/u, 'fa'],
    ],
  },
  { script: /\p{Script=Devanagari}/gu, languages: ['hi', 'mr', 'ne'], letters: [[/ळ|आहे|आहात/u, 'mr']] },
];

/**
 * The languages that a text's script allows: one certain language, several languages that share the script, or null for
 * Latin, digits and emoji.
 */
export type ScriptVerdict = { certain: string } | { among: readonly string[]; hint: string | null } | null;

const count = (text: string, pattern: RegExp): number => text.match(pattern)?.length ?? 0;
const LATIN = /\p{Script=Latin}/gu;
const ONLY_LATIN = /^[\p{Script=Latin}\p{Script=Common}\p{Script=Inherited}]*$/u;

export const readScript = (text: string): ScriptVerdict => {
  if (ONLY_LATIN.test(text)) return null;
  // Texts often contain product names in Latin letters. These names are long and say little about the language, so three
  // Latin letters count as one other letter.
  let best = count(text, LATIN) / 3;
  // Japanese mixes scripts, so a few kana among many kanji are enough to recognise Japanese.
  const kana = count(text, KANA);
  if (kana > 0 && kana + count(text, HAN) >= best) return { certain: 'ja' };
  let verdict: ScriptVerdict = null;
  for (const [script, language] of OWNED) {
    const letters = count(text, script);
    if (letters > 0 && letters >= best) [best, verdict] = [letters, { certain: language }];
  }
  for (const { script, languages, letters } of SHARED) {
    const found = count(text, script);
    if (found < best || found === 0) continue;
    const hint = letters.find(([letter]) => letter.test(text))?.[1] ?? null;
    best = found;
    verdict = { among: languages, hint };
  }
  return verdict;
};
