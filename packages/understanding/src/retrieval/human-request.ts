import { fold, foldBeginning, withoutPiledMarks, words } from '../fold.ts';
import humanWords from './human-words.json' with { type: 'json' };

/**
 * Words of requests for a person, by language. Words are folded; `*` is any ending, `_` a space. A message is a request
 * if a `talk` word is near a `person` or `agent` word, if a `want` word is near an `agent` word, or if an `alone` word
 * is the whole message. A message with a `refuse` word is not a request, and a person or agent after a `not` word is none.
 */
type HumanWords = {
  talk: string;
  want: string;
  person: string;
  agent: string;
  alone: string;
  refuse: string;
  not: string;
};

const HUMAN_WORDS: Readonly<Record<string, HumanWords>> = humanWords;

/** Requests in scripts without spaces, where words cannot be matched one by one. */
const HUMAN_PATTERNS: readonly RegExp[] = [
  /(?:转|轉|找|接|要|叫|换|換|联系|聯繫|聯絡).{0,3}(?:人工|真人|客服|专员|專員|工作人员|活人)(?!智能|智慧)/u,
  /^(?:人工|真人|人工客服|真人客服|客服|人工服务|人工服務|在线客服)[。！!？?\s]*$/u,
  /(?:和|跟|与|與).{0,2}(?:人工|真人|客服|人类|人類|真的人|活人|工作人员).{0,3}(?:说|說|聊|谈|談|讲|講|对话|沟通|交谈)/u,
  /(?:担当者|オペレーター|人間|スタッフ|係員|係の(?:人|方)|店員|人)(?:に|と|へ).{0,6}(?:話|はな|つな|繋|代わ|替わ|変わ|相談|連絡)/u,
  /有人(?:対応|チャット|サポート)|^(?:オペレーター|担当者)(?:お願いします|をお願いします|希望)?[。！!\s]*$/u,
  /(?:상담원|상담사|사람|직원|담당자|관리자).{0,8}(?:연결|통화|대화|얘기|이야기|바꿔|상담|말하)/u,
  /^(?:상담원|상담사|사람|직원)(?:이요|요|님)?[.!\s]*$/u,
  /(?:คุย|พูด|ติดต่อ|โอน|ต่อสาย|สนทนา|ขอสาย).{0,10}(?:เจ้าหน้าที่|พนักงาน|คนจริง|แอดมิน|มนุษย์|คน)/u,
  /^(?:ขอ)?(?:เจ้าหน้าที่|แอดมิน|พนักงาน)(?:หน่อย)?(?:ครับ|ค่ะ|คะ)?$/u,
];

/** Refusals in these scripts. */
const REFUSED_PATTERNS: readonly RegExp[] = [
  /(?:不想|不要|不用|不需要|别|別|无需|無需)(?:给我|給我|再)?(?:转|轉|找|接|叫|换|換|联系|聯繫|聯絡)?(?:人工|真人|客服|专员|專員|工作人员|活人)/u,
  /(?:担当者|オペレーター|人間|スタッフ|係員|有人).{0,8}(?:不要|いらない|いりません|必要ない|必要ありません|結構です|つながないで|繋がないで)/u,
  /(?:상담원|상담사|사람|직원|담당자).{0,6}(?:필요\s?없|말고|싫|하지\s?마|안\s?해도)/u,
  /ไม่(?:ต้องการ|อยาก|เอา|ต้อง).{0,14}(?:เจ้าหน้าที่|พนักงาน|แอดมิน|มนุษย์|คน)/u,
];

/** "Are you a robot?" is small talk, not a request. */
const BOT_QUESTIONS: readonly RegExp[] = [
  /^(?:hi |hey |hello )?(?:are you|r u|am i (?:talking|speaking|chatting) (?:to|with)|is this) .{0,20}\b(?:bot|chatbot|robot|human|person|ai|machine|real)\b/u,
  /^(?:bist du|sind sie|bin ich hier|spreche ich|rede ich|schreibe ich|chatte ich) .{0,25}\b(?:mensch\w*|bot|chatbot|roboter|maschine|ki|echt)\b/u,
  /^(?:es tu|etes vous|vous etes|tu es|je parle a|est ce que (?:tu es|vous etes|je parle)) .{0,20}\b(?:robot|humain|bot|ia|personne|machine)\b/u,
  /^(?:eres|es usted|estoy hablando con|hablo con) .{0,15}\b(?:bot|robot|humano|humana|persona|maquina|ia)\b/u,
  /^(?:voce e|vc e|tu es|estou falando com|e um|falo com) .{0,15}\b(?:bot|robo|humano|pessoa|maquina|ia)\b/u,
  /^(?:sei|lei e|parlo con|sto parlando con) .{0,15}\b(?:bot|robot|umano|umana|persona|macchina)\b/u,
  /^(?:ben je|bent u|praat ik|spreek ik) .{0,20}\b(?:bot|robot|mens|persoon|computer)\b/u,
  /^(?:czy )?(?:jestes|rozmawiam z) .{0,15}\b(?:botem|robotem|czlowiekiem)\b/u,
  /^(?:ты|вы|это) .{0,8}(?:бот|робот|человек)\s*$/u,
  /^(?:sen|siz|bu) .{0,15}(?:bot|robot|insan)/u,
];

/** A message that refuses to talk to one of these machines is a request for a person. */
const MACHINES =
  'bot bots chatbot robot roboter machine maschine robo computer ai ki bota robota botem robotem робот бот роботом ботом';

type Role = 'talk' | 'want' | 'person' | 'agent' | 'refuse' | 'not';
type Mention = { language: string; role: Role; at: number };

const ROLES: readonly Role[] = ['talk', 'want', 'person', 'agent', 'refuse', 'not'];
const spaced = (entry: string): string => words(fold(entry.replaceAll('_', ' '))).join(' ');

/** Maps a word, a phrase or (in `beginnings`) the start of a word to its roles, each with its language. */
const exact = new Map<string, { language: string; role: Role }[]>();
const beginnings = new Map<string, { language: string; role: Role }[]>();
const alone = new Set<string>();
for (const [language, table] of Object.entries(HUMAN_WORDS)) {
  for (const role of ROLES) {
    for (const entry of table[role].split(' ')) {
      const index = entry.endsWith('*') ? beginnings : exact;
      const key = spaced(entry.replace('*', ''));
      index.set(key, [...(index.get(key) ?? []), { language, role }]);
    }
  }
  for (const entry of table.alone.split(' ')) alone.add(spaced(entry));
}
const machines = new Set(MACHINES.split(' '));
const LONGEST_PHRASE = 3;
const SHORTEST_BEGINNING = 2;
const LONGEST_BEGINNING = Math.max(...[...beginnings.keys()].map((beginning) => beginning.length));
const MAX_TOKENS = 40;

/** Words after "human" that make a compound, such as human resources. Such a compound is not a request for a person. */
const AFTER_HUMAN = new Set(
  'please agent being beings now representative operator support instead about for or here right i who not today person help advisor to on and that if because asap assistant staff employee service'.split(
    ' ',
  ),
);
const isCompound = (token: string, next: string | undefined): boolean =>
  token === 'human' && next !== undefined && !AFTER_HUMAN.has(next);

const POLITE =
  /^(?:(?:hi|hello|hey|ok|yes|no|please|pls|bitte|nur|just|a|an|the|ein|einen|un|une|una|um|uma|i|want|need|real|some|por favor|s'il vous plait) )+|(?: (?:please|pls|now|bitte|por favor|asap|jetzt|thanks|danke|s'il vous plait))+$/gu;

const mentionsIn = (tokens: string[]): Mention[] => {
  const mentions: Mention[] = [];
  for (const [at, token] of tokens.entries()) {
    const note = (found: readonly { language: string; role: Role }[] | undefined): void => {
      for (const { language, role } of found ?? []) mentions.push({ language, role, at });
    };
    for (let length = Math.min(LONGEST_PHRASE, tokens.length - at); length > 1; length -= 1) {
      const phrase = tokens.slice(at, at + length).join(' ');
      note(exact.get(phrase));
    }
    if (!isCompound(token, tokens[at + 1])) note(exact.get(token));
    for (let length = Math.min(token.length, LONGEST_BEGINNING); length >= SHORTEST_BEGINNING; length -= 1)
      note(beginnings.get(token.slice(0, length)));
  }
  return mentions;
};

const TALK_REACH = 8;
const WANT_REACH = 3;

const near = (mentions: Mention[], roles: readonly Role[], from: Mention, reach: number): boolean =>
  mentions.some(
    ({ role, language, at }) =>
      roles.includes(role) && language === from.language && at !== from.at && Math.abs(at - from.at) <= reach,
  );

/** Between "no" and "agent" may stand an article. */
const LONGEST_ARTICLE = 3;
/** The mentions without the persons that are not wanted, as in "no agent" and "not an agent". */
const withoutRefused = (mentions: Mention[], tokens: string[]): Mention[] =>
  mentions.filter(({ role, language, at }) => {
    if (role !== 'person' && role !== 'agent') return true;
    const isNot = (place: number): boolean =>
      mentions.some((other) => other.role === 'not' && other.language === language && other.at === place);
    const isArticle = (tokens[at - 1] ?? '').length <= LONGEST_ARTICLE;
    return !isNot(at - 1) && !(isArticle && isNot(at - 2));
  });

/** "No, an agent" begins with an answer. "No agent" refuses one. */
const ANSWERS_FIRST = /^[^\p{L}]*\p{L}+\s*[,.!;:–-]/u;

/** True if the visitor asks for a person, in any known language. */
export const asksForHuman = (message: string): boolean => {
  const text = foldBeginning(message, 400);
  if (REFUSED_PATTERNS.some((pattern) => pattern.test(text))) return false;
  if (HUMAN_PATTERNS.some((pattern) => pattern.test(text.trim()))) return true;
  const tokens = words(text).slice(0, MAX_TOKENS);
  const whole = tokens.join(' ');
  if (BOT_QUESTIONS.some((pattern) => pattern.test(whole))) return false;
  const all = mentionsIn(tokens);
  const beginsWithNot = all.some(({ role, at }) => role === 'not' && at === 0) && !ANSWERS_FIRST.test(text);
  if (!beginsWithNot && (alone.has(whole) || alone.has(whole.replace(POLITE, '')))) return true;
  const mentions = withoutRefused(all, tokens);
  const refused = mentions.some(({ role }) => role === 'refuse');
  if (refused)
    return (
      tokens.some((token) => machines.has(token)) && mentions.some(({ role }) => role === 'talk' || role === 'agent')
    );
  return mentions.some(
    (mention) =>
      (mention.role === 'talk' && near(mentions, ['person', 'agent'], mention, TALK_REACH)) ||
      (mention.role === 'want' && near(mentions, ['agent'], mention, WANT_REACH)),
  );
};

/** True if the visitor asks whether this is a robot. */
export const asksWhoThisIs = (message: string): boolean => {
  const whole = words(foldBeginning(message, 120)).join(' ');
  return BOT_QUESTIONS.some((pattern) => pattern.test(whole));
};

/**
 * An e-mail address from the last character before the `@` on. A pattern for the whole address would take more than
 * linear time.
 */
const EMAIL = /[\p{L}\p{N}._%+-]@[\p{L}\p{N}-]{1,63}(?:\.[\p{L}\p{N}-]{1,63}){0,4}\.\p{L}{2,24}/u;
const LONGEST_MAILBOX = 64;
const MAILBOX = /[\p{L}\p{N}._%+-]/u;
/** Seven to fifteen digits with separators. Whether it is a phone number depends on its form and on the words around it. */
const NUMBER = /(?<![\p{L}\p{N}#])(?:\+|00)?\(?\d[\d\s()./-]{5,22}\d(?![\p{L}\p{N}])/gu;
/** The forms that only phone numbers have: with a prefix, or three, three and four digits. */
const PREFIXED = /^(?:\+|00|\(?0)/;
const NORTH_AMERICAN = /^\(?\d{3}\)?[\s.-]?\d{3}[\s.-]\d{4}$/;
/** A date, perhaps with a time, and the address of a computer. */
const DATE = /^(?:\d{4}[-./]\d{1,2}[-./]\d{1,2}|\d{1,2}[-./]\d{1,2}[-./]\d{2,4})(?:\s+\d{1,2})?$/;
const IP_ADDRESS = /^\d{1,3}(?:\.\d{1,3}){3}$/;
/** Words that stand beside a phone number, folded. `*` is any ending. */
const CALLING =
  'phone* telephone* tel mobile cell call calling reach whatsapp sms ring handy telefon* ruf* anruf* erreich* mobil* rueckruf* appel* portable joindre llam* movil celular telefono ligar telemovel telefone cellulare chiam* bel bellen telefoon gsm ring* nummer dzwon* komork* zadzwon* volat volejte mobiltelefon ara* cep τηλ* κινητο телефон* звон* номер перезвон* تلفون هاتف جوال موبايل טלפון נייד फोन मोबाइल โทร 电话 電話 手机 手機 携帯 전화 연락처';
const [CALLING_WORDS, CALLING_BEGINNINGS] = [
  new Set(CALLING.split(' ').filter((word) => !word.endsWith('*'))),
  CALLING.split(' ').flatMap((word) => (word.endsWith('*') ? word.slice(0, -1) : [])),
];
const isOfCalling = (word: string): boolean =>
  CALLING_WORDS.has(word) || CALLING_BEGINNINGS.some((beginning) => word.startsWith(beginning));
/** A message of a number and so many other words only gives the number. */
const FEW_WORDS = 2;

type ContactDetails = { email: boolean; phone: boolean };

/**
 * The place of a phone number in a message. A number without one of the forms of phone numbers may be an order, a price, a
 * book or a parcel. It counts only if the message has little else, or speaks of calling.
 */
const findPhone = (text: string): { from: number; to: number } | null => {
  for (const { 0: found, index } of text.matchAll(NUMBER)) {
    const number = found.trim();
    const digits = number.replace(/\D/g, '').length;
    if (digits < 7 || digits > 15 || DATE.test(number) || IP_ADDRESS.test(number)) continue;
    const place = { from: index, to: index + found.length };
    if (PREFIXED.test(number) || NORTH_AMERICAN.test(number)) return place;
    const others = words(fold(`${text.slice(0, index)} ${text.slice(place.to)}`)).slice(0, MAX_TOKENS);
    const isPlain = !/[^\d]/.test(number);
    if (others.some(isOfCalling) || (others.length <= FEW_WORDS && (!isPlain || digits >= 9))) return place;
  }
  return null;
};

const MAX_LENGTH = 2000;
const DIGIT = /(?![0-9])\p{Nd}/gu;
/** The digits of a script follow each other in Unicode, its zero first. */
const asAscii = (digit: string): string => {
  let zero = digit.codePointAt(0) ?? 0;
  const code = zero;
  while (code - zero < 9 && /\p{Nd}/u.test(String.fromCodePoint(zero - 1))) zero -= 1;
  return String(code - zero);
};

/**
 * The beginning of a message, normalised, with the digits of all scripts as 0 to 9. NFKC can expand one character to
 * eighteen, so the text is cut again.
 */
const beginningOf = (message: string): string =>
  withoutPiledMarks(message.slice(0, MAX_LENGTH)).normalize('NFKC').slice(0, MAX_LENGTH).replace(DIGIT, asAscii);

/** The contact details in a message: an e-mail address or a phone number. Null if there are none. */
export const findContactDetails = (message: string): ContactDetails | null => {
  const text = beginningOf(message);
  const details = { email: text.includes('@') && EMAIL.test(text), phone: findPhone(text) !== null };
  return details.email || details.phone ? details : null;
};

const withoutEmail = (text: string): string => {
  const found = EMAIL.exec(text);
  if (!found) return text;
  const at = text.indexOf('@', found.index);
  let begins = at;
  while (begins > at - LONGEST_MAILBOX && MAILBOX.test(text.charAt(begins - 1))) begins -= 1;
  return `${text.slice(0, begins)} ${text.slice(found.index + found[0].length)}`;
};

/** The message without its e-mail address and phone number. */
export const withoutContactDetails = (message: string): string => {
  const text = withoutEmail(beginningOf(message));
  const phone = findPhone(text);
  return phone ? `${text.slice(0, phone.from)} ${text.slice(phone.to)}` : text;
};

const SENTENCE_END = /(?<=[.!?…,;])\s+|(?<=[。！？؟])\s*|\n+/u;
/** Fewer words, or letters of scripts without spaces, are a tag such as "please?". */
const LEAST_ASKED =
  /(?:[\p{L}\p{N}]+\P{L}+){2}[\p{L}\p{N}]|[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]{4}/u;

/** What a message asks beside the contact details that it leaves. Null if it asks nothing else. */
export const askedBesideContactDetails = (message: string): string | null => {
  const asked = beginningOf(message)
    .split(SENTENCE_END)
    .filter((part) => /[?？؟]$/.test(part.trimEnd()) && LEAST_ASKED.test(part))
    .filter((part) => findContactDetails(part) === null);
  return asked.length > 0 ? asked.join(' ').trim() : null;
};
