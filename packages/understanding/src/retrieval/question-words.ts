import { fold, LEXICON, words } from '../fold.ts';
import questionWords from './question-words.json' with { type: 'json' };

/**
 * Words of questions, by language. Words are folded; `*` is any ending, `_` a space. `asks` begin a question, and so do
 * `opens`, such as "do" and "is". `yours` speak of the shop, `mine` of the visitor.
 */
type QuestionWords = { asks: string; opens: string; yours: string; mine: string };
type Role = keyof QuestionWords;
type Tables = Record<Role, (spaced: string) => boolean> & { common: ReadonlySet<string>; known: ReadonlySet<string> };

const ROLES: readonly Role[] = ['asks', 'opens', 'yours', 'mine'];

/** Whether a text of words with a space around each has an entry of the list, or begins with one. */
const findAny = (list: string, role: Role): Tables[Role] => {
  const entries = list.split(' ').map((entry) => fold(entry.replaceAll('_', ' ')));
  const found = entries.map((entry) => (entry.endsWith('*') ? ` ${entry.slice(0, -1)}` : ` ${entry} `));
  const isBeginning = role === 'asks' || role === 'opens';
  return (spaced) => found.some((entry) => (isBeginning ? spaced.startsWith(entry) : spaced.includes(entry)));
};

let tables: ReadonlyMap<string, Tables> | undefined;
/** The tables. They are made for the first message with contact details. */
const readTables = (): ReadonlyMap<string, Tables> =>
  (tables ??= new Map(
    Object.entries(questionWords as Record<string, QuestionWords>).map(([language, lists]) => {
      const common = new Set(words(fold(`${LEXICON[language]?.common} ${LEXICON[language]?.greeting}`)));
      const known = new Set([...common, ...ROLES.flatMap((role) => words(fold(lists[role])))]);
      const finders = Object.fromEntries(ROLES.map((role) => [role, findAny(lists[role], role)]));
      return [language, { ...(finders as Record<Role, Tables[Role]>), common, known }]; // all roles
    }),
  ));

/** Questions in scripts without spaces, and in languages that ask at the end. */
const ASKS_ANYWHERE =
  /什么|什麼|怎么|怎麼|多少|几点|幾點|哪|吗|嗎|呢$|为什么|為什麼|如何|何时|何時|能不能|可不可以|是否|有没有|有沒有|何(?:時|で|が|を|の|か|円)|いつ|どこ|どの|どう|いくら|なぜ|(?:です|ます|でしょう)か|อะไร|เท่าไ|เมื่อไ|กี่|ที่ไหน|อย่างไร|ยังไง|ไหม|มั้ย|หรือเปล่า|ทำไม|언제|어디|얼마|무엇|무슨|어떻게|왜|몇|(?:나요|까요?|는지요?)$/u;
const ASKS_LATE =
  / (?:nasil|ne kadar|ne zaman|nerede|kac|kacta|hangi|neden|var mi|nedir|कैसे|कितन\S+|कब|कहाँ|क्या|kitna|kitne|kab|kahan|kaise|چقدر|چند|كي|كجا\S*|چطور|چيست|كتنا|كتني|كب|كہاں|كيسے) | (?:mi|mu) $/u;
const OF_SHOP = /[贵貴你您](?:们|們|司|公司|店)?的|贵司|貴社|御社|そちら|あなた|귀사|고객센터|여기|ของคุณ|ของร้าน|ร้าน/u;
const OF_VISITOR = /我|私|僕|わたし|저|제 |내 |나에게|ฉัน|ผม|ดิฉัน/u;

const spacedOf = (text: string): string => ` ${words(fold(text)).join(' ')} `;

/** The languages that know most words of a text. Languages share short words, so one alone says little. */
const languagesOf = (spaced: string): Tables[] => {
  const tokens = spaced.trim().split(' ');
  const counted = [...readTables().values()].map((table) => ({
    table,
    count: tokens.filter((token) => table.known.has(token)).length,
  }));
  const most = Math.max(1, ...counted.map(({ count }) => count));
  return counted.filter(({ count }) => count === most).map(({ table }) => table);
};

/** Whether a text speaks of the visitor, as "call me" does. */
const isOfVisitor = (spaced: string, languages: readonly Tables[]): boolean =>
  OF_VISITOR.test(spaced) || languages.some((language) => language.mine(spaced));

/** Verbs of those who want a letter or a parcel, by their beginnings. */
const SENDING =
  /^(?:send|write|schick|schreib|envo|ecri|envi|escrib|escrev|mand|invi|scriv|stuur|schrijf|skick|skriv|laheta|kirjoit|wysl|przesl|napis|posl|kuld|gonder|yaz|στειλ|отправ|пришл|напиш|надішл|ارسل|שלח|भेज|kirim|gui)/u;

/** Whether a text begins as a question does, perhaps after a word such as "and". */
const begins = (spaced: string, language: Tables, mayOpen: boolean): boolean => {
  const [first = '', ...rest] = spaced.trim().split(' ');
  const starts = [spaced, ...(language.common.has(first) ? [` ${rest.join(' ')} `] : [])];
  return starts.some((start) => language.asks(start) || (mayOpen && language.opens(start)));
};

/** Whether words without a question mark ask something: "how much is shipping", "and when do you open". */
export const asksByWords = (text: string, isOfCalling: (word: string) => boolean, mayOpen: boolean): boolean => {
  const spaced = spacedOf(text);
  const languages = languagesOf(spaced);
  // "Can you send me a parcel" and "when will you call me back" leave contact details for that.
  const isMine = isOfVisitor(spaced, languages);
  if (isMine && words(spaced).some((word) => isOfCalling(word) || SENDING.test(word))) return false;
  if (ASKS_ANYWHERE.test(text) || ASKS_LATE.test(spaced)) return true;
  // "Mi" is "my" in Spanish and "what" in Hungarian.
  const asking = languages.filter((language) => begins(spaced, language, mayOpen && !isMine));
  return asking.length * 2 > languages.length;
};

/** Whether a question is about an address of the shop, as "Is this your number?" is. */
export const asksAboutShop = (before: string, after: string): boolean => {
  const spaced = spacedOf(`${before} ${after}`);
  const languages = languagesOf(spaced);
  if (isOfVisitor(spaced, languages) || words(spaced).some((word) => SENDING.test(word))) return false;
  // "eva@example.org what is your address?" leaves one, and asks for another.
  if (words(before).length === 0 && languages.some((language) => begins(spaced, language, true))) return false;
  return OF_SHOP.test(spaced) || languages.some((language) => language.yours(spaced));
};
