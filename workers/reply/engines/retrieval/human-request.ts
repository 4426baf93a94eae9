import { fold, foldBeginning, words } from '../../../../src/language/fold.ts';
import { BOT_QUESTIONS, HUMAN_PATTERNS, HUMAN_WORDS, MACHINES } from './human-words.ts';

type Role = 'talk' | 'want' | 'person' | 'agent' | 'refuse';
type Mention = { language: string; role: Role; at: number };

const ROLES: readonly Role[] = ['talk', 'want', 'person', 'agent', 'refuse'];
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

/** True if the visitor asks for a person, in any known language. */
export const asksForHuman = (message: string): boolean => {
  const text = foldBeginning(message, 400);
  if (HUMAN_PATTERNS.some((pattern) => pattern.test(text.trim()))) return true;
  const tokens = words(text).slice(0, MAX_TOKENS);
  const whole = tokens.join(' ');
  if (BOT_QUESTIONS.some((pattern) => pattern.test(whole))) return false;
  if (alone.has(whole) || alone.has(whole.replace(POLITE, ''))) return true;
  const mentions = mentionsIn(tokens);
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
