import { fold, foldBeginning, LEXICON, withoutPiledMarks, words } from '../fold.ts';
import { asksAboutShop, asksByWords } from './question-words.ts';
import humanWords from './human-words.json' with { type: 'json' };

/**
 * Words of requests for a person, by language. Words are folded; `*` is any ending, `_` a space. A message is a request
 * if a `talk` word is near a `person` or `agent` word, if a `want` word is near an `agent` word, or if an `alone` word
 * is the whole message or its last sentence. So is one that wants to be passed to a service ("transfer me to customer
 * service"; "how do I reach customer service?" is none), and one that asks whether a real person exists here. What follows a `refuse` word in its clause is no request, nor is a person or
 * a `talk` word beside a `not` word, or in a phrase of `other`, which means somebody or something else.
 */
type HumanWords = {
  talk: string;
  want: string;
  person: string;
  agent: string;
  alone: string;
  refuse: string;
  not: string;
  other?: string;
  pass?: string;
  service?: string;
  exists?: string;
  real?: string;
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

const BY_PATTERN = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Hangul}]/u;

/** Refusals in these scripts. */
const REFUSED_PATTERNS: readonly RegExp[] = [
  /(?:不想|不要|不用|不需要|别|別|无需|無需)(?:给我|給我|再)?(?:转|轉|找|接|叫|换|換|联系|聯繫|聯絡)?(?:人工|真人|客服|专员|專員|工作人员|活人)/u,
  /(?:担当者|オペレーター|人間|スタッフ|係員|有人).{0,8}(?:不要|たくな|たくありません|いらない|いりません|必要ない|必要ありません|結構です|つながないで|繋がないで)/u,
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

/** A clause that refuses to talk to one of these machines is a request for a person. */
const MACHINES =
  'bot bots chatbot robot robots roboter machine maschine robo computer ai ki bota robota botem robotem робот бот роботом ботом روبوت بوت בוט רובוט';

const ROLES = ['talk', 'want', 'person', 'agent', 'refuse', 'not', 'pass', 'service', 'exists', 'real'] as const;
type Role = (typeof ROLES)[number];
type Mention = { language: string; role: Role; at: number };

const spaced = (entry: string): string => words(fold(entry.replaceAll('_', ' '))).join(' ');

/** Maps a word, a phrase or (in `beginnings`) the start of a word to its roles, each with its language. */
const exact = new Map<string, { language: string; role: Role }[]>();
const beginnings = new Map<string, { language: string; role: Role }[]>();
const alone = new Set<string>();
const others = new Set<string>();
for (const [language, table] of Object.entries(HUMAN_WORDS)) {
  for (const role of ROLES) {
    for (const entry of table[role]?.split(' ') ?? []) {
      const index = entry.endsWith('*') ? beginnings : exact;
      const key = spaced(entry.replace('*', ''));
      index.set(key, [...(index.get(key) ?? []), { language, role }]);
    }
  }
  for (const entry of table.alone.split(' ')) alone.add(spaced(entry));
  for (const entry of table.other?.split(' ') ?? []) others.add(spaced(entry));
}
const machines = new Set(MACHINES.split(' '));
const LONGEST_PHRASE = 3;
const phraseBeginnings = [...beginnings.keys()].filter((beginning) => beginning.includes(' '));
const SHORTEST_BEGINNING = 2;
const LONGEST_BEGINNING = Math.max(...[...beginnings.keys()].map((beginning) => beginning.length));
const MAX_TOKENS = 40;

const commonWords = new Map(
  Object.entries(LEXICON).map(([language, { common }]) => [
    language,
    new Set(words(fold(common.replaceAll('|', ' ')))),
  ]),
);
/** Words after a person that leave it a person. Others make a compound, such as human resources or staff discount. */
const AFTER_PERSON = new Set(
  'agent being beings now representative operator support instead here right today person advisor on because asap assistant staff employee service no more thanks pls plz so a an help assistance member members call callback chat live regarding concerning re urgently immediately quickly soon available tomorrow sir madam'.split(
    ' ',
  ),
);
const MODIFIERS = new Set(
  'human staff employee agent operator representative rep advisor adviser supervisor manager'.split(' '),
);
const ADDRESSED = new Set(['to', 'with']);
const ARTICLES = new Set(['a', 'an', 'the', 'your', 'one', 'of', 'some', 'any', 'another', 'real', 'live', 'actual']);

/** Whether a person is talked to here, so that what follows is not part of its name: "talk to an agent refund missing". */
const isAddressed = (tokens: string[], at: number): boolean => {
  let before = at - 1;
  while (ARTICLES.has(tokens[before] ?? '')) before -= 1;
  return ADDRESSED.has(tokens[before] ?? '');
};

const isEnglishCompound = (tokens: string[], at: number): boolean => {
  const [token = '', next] = [tokens[at], tokens[at + 1]];
  return (
    MODIFIERS.has(token) &&
    next !== undefined &&
    next !== token &&
    /^\p{L}+$/u.test(next) &&
    !AFTER_PERSON.has(next) &&
    !commonWords.get('en')?.has(next) &&
    !machines.has(next) &&
    !exact.get(next)?.some(({ language }) => language === 'en') &&
    (token === 'human' || !isAddressed(tokens, at))
  );
};

const PLEASE =
  "please|pls|plz|bitte|por favor|per favore|s'il (?:vous|te) plait|svp|stp|alstublieft|aub|prosze|prosim|lutfen|tack|kerem|пожалуйста|παρακαλω|من فضلك|בבקשה";
const BEFORE = new RegExp(
  `^(?:(?:hi|hello|hey|ok|yes|nur|just|a|an|the|ein|einen|un|une|una|um|uma|i|want|need|real|some|sondern|but|sino|mais|${PLEASE}) )+`,
  'u',
);
const AFTER = new RegExp(`(?: (?:now|asap|jetzt|thanks|danke|${PLEASE}))+$`, 'u');
const IS_POLITE = new RegExp(`(?:^| )(?:${PLEASE})(?: |$)`, 'u');

const mentionsIn = (tokens: string[]): Mention[] => {
  const mentions: Mention[] = [];
  const meantOtherwise = new Set<number>();
  for (const [at, token] of tokens.entries()) {
    const note = (found: readonly { language: string; role: Role }[] | undefined): void => {
      for (const { language, role } of found ?? []) mentions.push({ language, role, at });
    };
    for (let length = Math.min(LONGEST_PHRASE, tokens.length - at); length > 1; length -= 1) {
      const phrase = tokens.slice(at, at + length).join(' ');
      note(exact.get(phrase));
      if (others.has(phrase)) for (let nth = at; nth < at + length; nth += 1) meantOtherwise.add(nth);
    }
    const found = exact.get(token);
    note(isEnglishCompound(tokens, at) ? found?.filter(({ language }) => language !== 'en') : found);
    for (let length = Math.min(token.length, LONGEST_BEGINNING); length >= SHORTEST_BEGINNING; length -= 1)
      note(beginnings.get(token.slice(0, length)));
    for (const phrase of phraseBeginnings)
      if (
        phrase.startsWith(`${token} `) &&
        tokens
          .slice(at, at + LONGEST_PHRASE)
          .join(' ')
          .startsWith(phrase)
      )
        note(beginnings.get(phrase));
  }
  return meantOtherwise.size === 0 ? mentions : mentions.filter(({ at }) => !meantOtherwise.has(at));
};

const TALK_REACH = 8;
const WANT_REACH = 3;
const EXISTS_REACH = 4;

const near = (mentions: Mention[], roles: readonly Role[], from: Mention, reach: number): boolean =>
  mentions.some(
    ({ role, language, at }) =>
      roles.includes(role) && language === from.language && at !== from.at && Math.abs(at - from.at) <= reach,
  );

const SENTENCE = /([.!?。！？؟\n]+)/u;
const CLAUSE = /[,;:，、،–—]|\s-\s|\s(?:but|sondern|aber|sino|pero|mais|mas|maar|ale|lecz|ama|но)\s/u;
/** Negations that a question does not turn into a wish: "without an agent?" is none, "can I not talk to an agent?" is. */
const WITHOUT = new Set(
  'without ohne sans sin sem senza zonder sense fara utan uden uten ilman ilma bez be χωρις без بدون בלי ללא बिना tanpa bila sonder'.split(
    ' ',
  ),
);
/** "I don't get it agent please": these deny only what they stand beside. */
const DENIES_TALK = /^(?:don'?t|never)$/u;
/** Languages that deny after what they deny, at the end of the clause. */
const VERB_LAST = new Set(['tr', 'hi', 'ur', 'fa']);
/** Between "not" and "agent" may stand so many common words, as in "nicht mit einem Mitarbeiter". */
const MOST_BETWEEN = 2;
const LONGEST_ARTICLE = 3;

/** The mentions of a clause without the persons and the talks that are not wanted. */
const withoutRefused = (mentions: Mention[], tokens: string[], isQuestion: boolean): Mention[] => {
  const refusals = mentions.filter(({ role }) => role === 'refuse');
  const nots = mentions.filter(({ role, at }) => role === 'not' && (!isQuestion || WITHOUT.has(tokens[at] ?? '')));
  const isSmall = (token: string, language: string): boolean =>
    token.length <= LONGEST_ARTICLE || commonWords.get(language)?.has(token) === true;
  const isRefusedIn = ({ role, language, at }: Mention): boolean => {
    // "I don't want this, I want an agent" without its comma: the second wish counts.
    const isInRefusal = refusals.some(
      (refusal) =>
        (VERB_LAST.has(language) || at >= refusal.at) &&
        !mentions.some((other) => other.role === 'want' && other.at > refusal.at + 1 && other.at <= at),
    );
    if (isInRefusal) return true;
    return nots.some((not) => {
      if (not.language !== language || role === 'want') return false;
      if (VERB_LAST.has(language)) return not.at === at + 1;
      const isTalk = role === 'talk' || role === 'pass';
      if (isTalk && not.at === at + 1) return true;
      if (!isTalk && DENIES_TALK.test(tokens[not.at] ?? '')) return false;
      const between = tokens.slice(not.at + 1, at);
      return not.at < at && between.length <= MOST_BETWEEN && between.every((word) => isSmall(word, language));
    });
  };
  // Languages share words: what is refused in one of them is refused.
  const asking = mentions.filter(({ role }) => role !== 'refuse' && role !== 'not');
  const refusedAt = new Set(asking.filter(isRefusedIn).map(({ at }) => at));
  return asking.filter(({ at }) => !refusedAt.has(at));
};

/** A word that is said again is said once, and "not a bot" and "bot değil" say nothing of a person. */
const wishOf = (tokens: string[]): string => {
  const wish = tokens.filter((token, at) => token !== tokens[at - 1]).join(' ');
  return tokens.some((token) => machines.has(token)) ? wish.replace(NO_MACHINE, ' ').trim() : wish;
};
const NO_MACHINE = new RegExp(
  `(?:^| )(?:(?:no|not|kein|keinen|nicht|pas|no more|geen|non|nie|не)(?: (?:an?|de|un|der))? (?:${MACHINES.replaceAll(' ', '|')})|(?:${MACHINES.replaceAll(' ', '|')}) degil)(?= |$)`,
  'gu',
);
const MOST_ALONE = 10;
const isAlone = (tokens: string[]): boolean => {
  if (tokens.length > MOST_ALONE) return false;
  const wish = wishOf(tokens);
  return alone.has(wish) || alone.has(wish.replace(BEFORE, '').replace(AFTER, ''));
};

/** True if the visitor asks for a person, in any known language. */
export const asksForHuman = (message: string): boolean => {
  const text = foldBeginning(message, 400);
  if (REFUSED_PATTERNS.some((pattern) => pattern.test(text))) return false;
  const whole = words(text).slice(0, MAX_TOKENS);
  if (BOT_QUESTIONS.some((pattern) => pattern.test(whole.join(' ')))) return false;
  if (isAlone(whole)) return true;
  // Most messages speak of nobody and no machine, and need not be read clause by clause.
  const isOfPerson = ({ role }: Mention): boolean => ['person', 'agent', 'service', 'real'].includes(role);
  if (
    !BY_PATTERN.test(text) &&
    !whole.some((word) => word === 'human' || machines.has(word)) &&
    !mentionsIn(whole).some(isOfPerson)
  )
    return false;
  const parts = text.trim().split(SENTENCE);
  const wanted: Mention[] = [];
  let from = 0;
  let isDenied = false;
  for (let part = 0; part < parts.length && from < MAX_TOKENS; part += 2) {
    const isQuestion = /[?？؟]/u.test(parts[part + 1] ?? '');
    const sentence = parts[part] ?? '';
    if (!isQuestion && isAlone(words(sentence))) return true;
    const clauses = sentence.split(CLAUSE);
    for (const [index, clause] of clauses.entries()) {
      if (HUMAN_PATTERNS.some((pattern) => pattern.test(clause.trim()))) return true;
      const tokens = words(clause).slice(0, MAX_TOKENS);
      const mentions = mentionsIn(tokens);
      const isLast = index === clauses.length - 1 && !isQuestion;
      const isSaid = isDenied || IS_POLITE.test(clause);
      if (isLast && isSaid && isAlone(tokens)) return true;
      const isRefused = mentions.some(({ role }) => role === 'refuse');
      isDenied ||= isRefused || mentions.some(({ role }) => role === 'not');
      if (isRefused && tokens.some((token) => machines.has(token)) && mentions.some(({ role }) => role === 'talk'))
        return true;
      for (const mention of withoutRefused(mentions, tokens, isQuestion)) {
        wanted.push({ ...mention, at: mention.at + from });
      }
      from += tokens.length;
    }
  }
  const isAskedFor = (mention: Mention): boolean => {
    const isNear = (roles: Role[], reach: number): boolean => near(wanted, roles, mention, reach);
    switch (mention.role) {
      case 'talk':
        return (
          isNear(['person', 'agent'], TALK_REACH) || (isNear(['service'], TALK_REACH) && isNear(['want'], TALK_REACH))
        );
      case 'want':
        return isNear(['agent'], WANT_REACH);
      case 'pass':
        return isNear(['person', 'agent', 'service'], TALK_REACH);
      case 'exists':
        return isNear(['real'], EXISTS_REACH);
      default:
        return false;
    }
  };
  return wanted.some(isAskedFor);
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
const EMAIL =
  /[\p{L}\p{N}._%+-]@[\p{L}\p{N}-]{1,63}(?:\.[\p{L}\p{N}-]{1,63}){0,4}\.(?:[A-Za-z]{2,24}(?![A-Za-z])|\p{L}{2,24}(?!\p{L}))(?!:[\p{L}/])/u;
const LONGEST_MAILBOX = 64;
const MAILBOX = /[\p{L}\p{N}._%+-]/u;
/** Seven to fifteen digits with separators. Whether it is a phone number depends on its form and on the words around it. */
const NUMBER = /(?<![\p{L}\p{N}#])(?:\+|00)?\(?\d[\d\s()./–-]{5,22}\d(?![\p{L}\p{N}])/gu;
/** The forms that only phone numbers have: with a prefix, three, three and four digits, or a Chinese mobile phone's. */
const PREFIXED = /^(?:\+|00|\(?0)/;
const CHINESE_MOBILE = /^1[3-9]\d(?:\d{8}|([ -])\d{4}\1\d{4})$/;
const NORTH_AMERICAN = /^\(?\d{3}\)?[\s.-]?\d{3}[\s.-]\d{4}$/;
/** A date, perhaps with a time, and the address of a computer. */
const DATE = /^(?:\d{4}[-./]\d{1,2}[-./]\d{1,2}|\d{1,2}[-./]\d{1,2}[-./]\d{2,4})(?:\s+\d{1,2})?$/;
const IP_ADDRESS = /^\d{1,3}(?:\.\d{1,3}){3}$/;
/** Words that stand beside a phone number, folded. `*` is any ending. */
const CALLING =
  'phone* telephone* tel mobile cell cellphone* call calling reach whatsapp sms ring handy* telefo* ruf* anruf* erreich* mobil* rueckruf* ruckruf* festnetz* durchwahl* kontaktnummer privatnummer dienstnummer appel* portable joindre llam* movil celular ligar telemovel cellulare chiam* bel bellen gsm ring* dzwon* komork* zadzwon* volat volejte mobiltelefon ara* cep τηλ* κινητο телефон* звон* перезвон* تلفون هاتف جوال موبايل טלפון נייד फोन मोबाइल โทร 연락처';
const [CALLING_WORDS, CALLING_BEGINNINGS] = [
  new Set(CALLING.split(' ').filter((word) => !word.endsWith('*'))),
  CALLING.split(' ').flatMap((word) => (word.endsWith('*') ? word.slice(0, -1) : [])),
];
const isOfCalling = (word: string): boolean =>
  CALLING_WORDS.has(word) ||
  /电话|電話|手机|手機|携帯|전화/u.test(word) ||
  CALLING_BEGINNINGS.some((beginning) => word.startsWith(beginning));
/** "Number" says what a number is: one's own, or that of the word before it, as in "order number". */
const NUMBER_WORD = /(?:.(?:nummer|numer|nr)|code|番号|号|번호)$/u;
const PLAIN_NUMBER_WORD = /^(?:number|no|num|numero|n|nr|nummer|numer|numara\p{L}*|номер|رقم|cislo|番号|号|번호)$/u;
const OWN =
  /^(?:my|our|mine|meine?|unsere?|mijn|min|mitt?|mon|notre|mi|nuestro|meu|mio|moj|мои|contact|new|home|work|office|private|neue|nouveau)$/u;
/** "The number is" says nothing: the form of the number does. */
const NO_KIND = /^(?:the|this|that|is|under|die|der|diese|unter|ist|de|het|le|la|ce|el|este|il|o|a)$/u;
/** So many words around a number say what it is, and stand in so many characters. */
const REACH = 4;
const REACH_LENGTH = 150;
/** How long a number is without country code, and with it. */
const MOST_NATIONAL = 12;
const LEAST_INTERNATIONAL = 9;
/** Groups of equal length or of thousands, as in prices, codes and series. */
const SERIES = /^\d{1,3}(?:[.]\d{3})+$|^\d{1,2}(?:\.\d{1,2})+$|^\d{4}(?:[ -]\d{4}){2,}$/;

/** A full stop may also end an abbreviation, as in "tel.". */
const CLAUSE_END = /[,;!?。，！？؟\n]|\.(?=\s+\p{Lu})/u;

type ContactDetails = { email: boolean; phone: boolean };

/**
 * What the words around a number say that it is. They are those of its clause: "My mobile is broken, order 4500123456"
 * gives no phone number.
 */
const readLabel = (before: string, after: string): 'phone' | 'other' | 'none' => {
  const left = words(fold(before.slice(-REACH_LENGTH).split(CLAUSE_END).at(-1) ?? '')).slice(-REACH);
  const right = words(fold(after.slice(0, REACH_LENGTH).split(CLAUSE_END, 1)[0] ?? '')).slice(0, REACH);
  if ([...left, ...right].some(isOfCalling)) return 'phone';
  const named = left.findLastIndex((word) => NUMBER_WORD.test(word) || PLAIN_NUMBER_WORD.test(word));
  const word = left[named];
  if (word === undefined) return 'none';
  if (!PLAIN_NUMBER_WORD.test(word)) return 'other';
  const kind = left[named - 1];
  if (kind === undefined) return named === left.length - 1 && word.length > 2 ? 'phone' : 'none';
  if (OWN.test(kind)) return 'phone';
  return NO_KIND.test(kind) ? 'none' : 'other';
};

/**
 * The place of a phone number in a message. A number may be an order, a price, a book or a parcel. One without the forms
 * of phone numbers counts only if it is the whole message, or if its clause speaks of calling.
 */
const findPhone = (text: string): { from: number; to: number } | null => {
  for (const { 0: found, index } of text.matchAll(NUMBER)) {
    const number = found.trim();
    const digits = number.replace(/\D/g, '');
    const isInternational = /^\(?(?:\+|00)/.test(number);
    const most = isInternational ? 15 : MOST_NATIONAL;
    if (digits.length < 7 || digits.length > most || DATE.test(number) || IP_ADDRESS.test(number)) continue;
    if (number.startsWith('00') && (digits[2] === '0' || digits.length - 2 < LEAST_INTERNATIONAL)) continue;
    const place = { from: index, to: index + found.length };
    const [before, after] = [text.slice(0, index), text.slice(place.to)];
    const label = readLabel(before, after);
    if (label === 'phone') return place;
    if (label === 'other' || SERIES.test(number)) continue;
    if ([PREFIXED, NORTH_AMERICAN, CHINESE_MOBILE].some((form) => form.test(number))) return place;
    if (![before, after].some((rest) => /[\p{L}\p{M}\p{N}]/u.test(rest)) && (/\D/.test(number) || digits.length >= 9))
      return place;
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

const detailsIn = (text: string): ContactDetails | null => {
  const details = { email: text.includes('@') && EMAIL.test(text), phone: findPhone(text) !== null };
  return details.email || details.phone ? details : null;
};

/** The text around an e-mail address. Null if there is none. */
const aroundEmail = (text: string): [before: string, after: string] | null => {
  const found = text.includes('@') ? EMAIL.exec(text) : null;
  if (!found) return null;
  const at = text.indexOf('@', found.index);
  let begins = at;
  while (begins > at - LONGEST_MAILBOX && MAILBOX.test(text.charAt(begins - 1))) begins -= 1;
  return [text.slice(0, begins), text.slice(found.index + found[0].length)];
};

/** The text before, between and after an e-mail address and a phone number. */
const aroundContactDetails = (text: string): string[] =>
  (aroundEmail(text) ?? [text]).flatMap((part) => {
    const phone = findPhone(part);
    return phone ? [part.slice(0, phone.from), part.slice(phone.to)] : [part];
  });

const CLAUSE_OR_SENTENCE_END = /(?<=[.!?…,;])\s+|(?<=[。！？；，؟])|\s[-–—]\s|\n+/u;
const QUESTION_END = /[?？؟]$/u;
/** Fewer words, or letters of scripts without spaces, are a tag such as "please?". */
const LEAST_ASKED =
  /(?:[\p{L}\p{N}]+\P{L}+){2}[\p{L}\p{N}]|[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Hangul}]{4}/u;

const SHORTEST_ASKED = 4;

const isAboutShop = (part: string): boolean => {
  if (!QUESTION_END.test(part.trimEnd()) || detailsIn(part) === null) return false;
  const [before = '', ...after] = aroundContactDetails(part);
  return asksAboutShop(before, after.join(' '));
};

/**
 * The contact details in a message: an e-mail address or a phone number. Null if there are none. Those of the shop, as in
 * "Is hello@shop.example your address?", are not meant.
 */
export const findContactDetails = (message: string): ContactDetails | null => {
  const text = beginningOf(message);
  const details = detailsIn(text);
  if (!details || !/[?？؟]/u.test(text)) return details;
  const parts = text.split(CLAUSE_OR_SENTENCE_END);
  const own = parts.filter((part) => !isAboutShop(part));
  return own.length === parts.length ? details : detailsIn(own.join(' '));
};

/** The message without its e-mail address and phone number. */
export const withoutContactDetails = (message: string): string => aroundContactDetails(beginningOf(message)).join(' ');

/** What a message asks beside the contact details that it leaves. Null if it asks nothing else. */
export const askedBesideContactDetails = (message: string): string | null => {
  const asked = beginningOf(message)
    .split(CLAUSE_OR_SENTENCE_END)
    .filter((part) => part.length >= SHORTEST_ASKED) // there may be a thousand others
    .flatMap((part) => {
      if (isAboutShop(part)) return [part];
      const around = aroundContactDetails(part);
      if (around.length === 1 && QUESTION_END.test(part.trimEnd())) return [part];
      // "Could you write to eva@example.org" opens like a question, and asks for nothing else.
      return around.filter((one, at) => asksByWords(one, isOfCalling, around.length === 1 || at > 0));
    })
    .filter((part) => LEAST_ASKED.test(part));
  return asked.length > 0 ? asked.join(' ').trim() : null;
};
