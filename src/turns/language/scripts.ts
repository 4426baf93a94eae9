/** Scripts that one language owns, by far, in a chat. */
const OWNED: readonly (readonly [RegExp, string])[] = [
  [/\p{Script=Hangul}/gu, 'ko'],
  [/\p{Script=Thai}/gu, 'th'],
  [/\p{Script=Greek}/gu, 'el'],
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

/** Scripts several languages share: letters that only one of them uses come first, the first language is the guess. */
const SHARED: readonly {
  script: RegExp;
  languages: readonly string[];
  letters: readonly (readonly [RegExp, string])[];
}[] = [
  { script: /[\p{Script=Hiragana}\p{Script=Katakana}]/gu, languages: ['ja'], letters: [[/./u, 'ja']] },
  {
    script: /\p{Script=Han}/gu,
    languages: ['zh', 'ja'],
    letters: [[/[这吗们个谢请问么买对时说东车书钱见嗎們個謝請問麼買對時說東車書錢見您您你哪吧呢啊]/u, 'zh']],
  },
  { script: /\p{Script=Hebrew}/gu, languages: ['he'], letters: [[/./u, 'he']] },
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

/** What the script says: one language for certain, the languages that share it, or nothing (Latin, digits, emoji). */
export type ScriptVerdict = { certain: string } | { among: readonly string[]; hint: string | null } | null;

const count = (text: string, pattern: RegExp): number => text.match(pattern)?.length ?? 0;
const LATIN = /\p{Script=Latin}/gu;
const ONLY_LATIN = /^[\p{Script=Latin}\p{Script=Common}\p{Script=Inherited}]*$/u;

export const readScript = (text: string): ScriptVerdict => {
  if (ONLY_LATIN.test(text)) return null;
  // A product's name in Latin letters is long and says nothing: every other letter counts for three.
  let best = count(text, LATIN) / 3;
  let verdict: ScriptVerdict = null;
  for (const [script, language] of OWNED) {
    const letters = count(text, script);
    if (letters > best) [best, verdict] = [letters, { certain: language }];
  }
  const kana = count(text, /[\p{Script=Hiragana}\p{Script=Katakana}]/gu);
  for (const { script, languages, letters } of SHARED) {
    const found = count(text, script);
    if (found <= best) continue;
    const hint = letters.find(([letter]) => letter.test(text))?.[1] ?? null;
    best = found;
    verdict = languages.length === 1 ? { certain: languages[0] ?? 'en' } : { among: languages, hint };
  }
  // Japanese mixes: a few kana among many kanji settle it.
  if (kana > 0 && verdict !== null && 'among' in verdict && verdict.among.includes('ja')) return { certain: 'ja' };
  return verdict;
};
