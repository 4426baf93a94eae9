import { fold, foldBeginning, words } from '../fold.ts';
import { type Hit, inLanguageOrder, toHits } from './candidate.ts';
import type { KnowledgeIndex } from './knowledge-index.ts';
import { rankEntries } from './search.ts';
import { readTerms, type Term } from './terms.ts';

/** A message before the current one. A reply's `why` is what `decideReply` gave with it. */
export type EarlierMessage = { role: string; content: string; why?: unknown };
/** Reads the latest messages before the current one, oldest first. Most messages need none. */
export type ReadEarlier = (messages: number) => Promise<EarlierMessage[]>;

/** Kind and entries of an assistant's reply, read from its `why`. */
type LastReply = { kind: string; entryIds: string[] };

/** How many earlier messages are searched for the subject. */
const LOOK_BACK = 6;
/** Kinds of replies that do not change the subject. */
const ASIDES = new Set(['greeting', 'thanks', 'yes', 'no', 'contact', 'whoAmI']);

/** Kinds of replies that give an entry's answer. */
const ANSWERS = new Set(['answer', 'hedge']);

const readWhy = (why: unknown): LastReply | null => {
  if (typeof why !== 'object' || why === null) return null;
  const { kind, hits } = why as { kind?: unknown; hits?: unknown };
  const entryIds = (Array.isArray(hits) ? hits : []).flatMap((hit: unknown) => {
    const entryId = typeof hit === 'object' && hit !== null ? (hit as { entryId?: unknown }).entryId : null;
    return typeof entryId === 'string' ? [entryId] : [];
  });
  return { kind: typeof kind === 'string' ? kind : 'answer', entryIds };
};

/** The assistant's last reply, or null. */
export const findLastReply = async (history: ReadEarlier): Promise<LastReply | null> => {
  const last = (await history(LOOK_BACK)).findLast(({ role }) => role === 'assistant');
  return last ? readWhy(last.why) : null;
};

/** The minimum and maximum number of words of a follow-up. A single word counts as a new subject. */
const FOLLOW_UP_WORDS = { least: 2, most: 8 };

/**
 * The visitor's previous question. Null if that question was not answered, or if the current message is too short or
 * too long for a follow-up.
 */
export const findPreviousQuestion = async (message: string, history: ReadEarlier): Promise<string | null> => {
  const length = words(fold(message.slice(0, 200))).length;
  if (length < FOLLOW_UP_WORDS.least || length > FOLLOW_UP_WORDS.most) return null;
  const earlier = await history(LOOK_BACK);
  const answered = earlier.findLastIndex(
    ({ role, why }) => role === 'assistant' && !ASIDES.has(readWhy(why)?.kind ?? ''),
  );
  if (!ANSWERS.has(readWhy(earlier[answered]?.why)?.kind ?? '')) return null;
  return earlier.slice(0, answered).findLast(({ role }) => role === 'user')?.content ?? null;
};

/** The id of the entry that was answered last. Small talk after that answer is ignored. */
const subjectOf = (earlier: EarlierMessage[]): string | null => {
  for (const message of earlier.slice(-LOOK_BACK).toReversed()) {
    const word = message.role === 'assistant' ? readWhy(message.why) : null;
    if (!word || ASIDES.has(word.kind)) continue;
    return ANSWERS.has(word.kind) ? (word.entryIds[0] ?? null) : null;
  }
  return null;
};

/** Words that begin a follow-up, as in "and on Sundays?". */
const CUES = new Set(
  'and what_about how_about also or but then und auch oder was_ist_mit wie_ist_es et aussi ou y tambien o que_tal e anche ed invece en ook och aussi og ja a_co a oraz i также и а і а_що ve peki ya ayrica kaj in in_kaj si dar es och_sa at och_om og_hva og_hvad και y_que e_se e_per und_wie und_was dan bagaimana_dengan con_y_si con và còn thế_còn'
    .split(' ')
    .map((cue) => fold(cue.replaceAll('_', ' '))),
);
const CUE_PATTERN = /^(?:那|那么|那麼|还有|還有|じゃあ|では|それで|그럼|그리고|แล้ว|و(?!\p{L}{4})|और|ו)/u;

const startsWithCue = (message: string): boolean => {
  const folded = foldBeginning(message, 200).trim();
  const tokens = words(folded);
  return [1, 2, 3].some((length) => CUES.has(tokens.slice(0, length).join(' '))) || CUE_PATTERN.test(folded);
};

const SHORT = 3;
const SUBJECT_SHARE = 0.5;
const MIN_NEW_SHARE = 0.5;
const CUED_CONFIDENCE = 0.6;
const UNCUED_CONFIDENCE = 0.5;
const NEW_CONFIDENCE = 0.35;

/**
 * Lexical search for a follow-up. The terms of the last answered entry are added with half the weight. Most terms of
 * the message itself must be found.
 */
export const searchFollowUp = async (
  { message, history }: { message: string; history: ReadEarlier },
  index: KnowledgeIndex,
  visitorLanguage: string,
): Promise<Hit[]> => {
  const subject = subjectOf(await history(LOOK_BACK));
  if (subject === null) return [];
  const cued = startsWithCue(message);
  for (const group of inLanguageOrder(index, visitorLanguage)) {
    const previous = group.entries.find(({ entryId }) => entryId === subject);
    if (!previous) continue;
    const fresh = readTerms(message, group.language, visitorLanguage);
    if (fresh.length === 0 || fresh.length > (cued ? 2 * SHORT : SHORT)) return [];
    const known = new Set(fresh.map(({ stem }) => stem));
    const subjectTerms: Term[] = [previous.question, ...previous.variants]
      .flatMap((wording) => readTerms(wording, group.language))
      .filter(({ stem }) => !known.has(stem) && known.add(stem));
    const candidates = rankEntries(fresh, group, { terms: subjectTerms, share: SUBJECT_SHARE });
    const found = candidates.filter(({ evidence }) => evidence.ownCoverage >= MIN_NEW_SHARE);
    const base = cued ? CUED_CONFIDENCE : UNCUED_CONFIDENCE;
    return toHits(found, group, ({ evidence }) => Math.min(0.95, base + NEW_CONFIDENCE * evidence.ownCoverage));
  }
  return [];
};
