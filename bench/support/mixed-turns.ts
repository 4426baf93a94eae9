import {
  BASES,
  loadBase,
  loadFollowUps,
  loadQuestions,
  loadUnseen,
  UNSEEN_BASES,
} from '@parley/understanding/evaluation';
import { decidesByWords, indexEntries, inOneStep } from '@parley/understanding';
import { decideLanguage } from '@parley/understanding/text';
import { createRandom } from '../../test/kit/random.ts';

/** `sure`: words decide. `meant`: the model is needed, and there is an answer. `none`: there is no answer. */
type TurnKind = 'sure' | 'meant' | 'followUp' | 'smallTalk' | 'none';
export type MixedTurn = { base: string; session: string; language: string; kind: TurnKind; message: string };

/** Twenty turns in a row: 45 % sure, 40 % meant, and 5 % of each other kind. */
const MIX: Record<TurnKind, number> = { sure: 9, meant: 8, followUp: 1, smallTalk: 1, none: 1 };
/** A follow-up comes so many turns after its first question that the first one has been answered. */
const FOLLOWS_AFTER = 200;
export const MIXED_BASES = [...BASES, ...UNSEEN_BASES];

/**
 * Words that visitors add to a question in any of its wordings. The engine reads over them, so they make a question
 * distinct (its vector is in no cache) without making it another one.
 */
const POLITENESS: Record<string, { before: string[]; after: string[] }> = {
  en: {
    before: ['', 'hi, ', 'hello, ', 'hey, ', 'please, ', 'help: ', 'a question: ', 'hi please, ', 'hey, quickly: '],
    after: ['', ' please', ' thanks', ' thank you', ' actually', ' maybe', ' right now', ' exactly', ' still'],
  },
  de: {
    before: ['', 'hallo, ', 'hallo, bitte: ', 'eine frage: ', 'info bitte: ', 'sagen, ', 'vielleicht: ', 'mal: '],
    after: ['', ' bitte', ' danke', ' eigentlich', ' vielleicht', ' jetzt', ' genau', ' doch', ' einfach'],
  },
};
/** For questions in other languages. */
const MARKS = ['', '?', '!', '.', '…', ' :)', ' ??', ' ?!', ' …?'];
const ANY = { before: ['', '¿', '… ', '- ', '* ', '" ', '> ', '( ', '# '], after: MARKS };

const SMALL_TALK = ['hello', 'hi there', 'good morning', 'thanks', 'thank you', 'ok thanks', 'bye', 'hallo', 'danke'];

/** One of many variants of a text, each with another politeness. */
const variantOf = (text: string, language: string, nth: number): string => {
  const { before, after } = POLITENESS[language] ?? ANY;
  const opening = before[nth % before.length] ?? '';
  const closing = after[Math.floor(nth / before.length) % after.length] ?? '';
  const marks = '?'.repeat(Math.floor(nth / (before.length * after.length)));
  return `${opening}${text}${closing}${marks}`;
};

type Asked = { base: string; language: string; message: string; expected: string[]; next?: string };

const createKindOf = () => {
  const bases = new Map(
    MIXED_BASES.map((name) => {
      const base = loadBase(name);
      return [name, { index: indexEntries(base), allowed: base.languages }];
    }),
  );
  return ({ base, message, expected }: Asked): 'sure' | 'meant' | 'none' => {
    const { index, allowed } = bases.get(base) ?? { index: null, allowed: [] };
    if (expected.length === 0) return 'none';
    const { language } = decideLanguage({ message, allowed });
    const inquiry = {
      message,
      language,
      index,
      answering: 'balanced' as const,
      threshold: null,
      history: async () => [],
      semanticSearch: async () => null,
    };
    const isSure = inOneStep(decidesByWords(inquiry));
    return isSure ? 'sure' : 'meant';
  };
};

/**
 * Makes turns from the tune halves of the evaluation sets, in fixed proportions of their kinds. Within a kind, all
 * questions take turns, so domains and languages have their shares of the sets. No two questions are equal.
 */
export const createMixedTurns = (): ((count: number) => MixedTurn[]) => {
  const random = createRandom(7);
  const shuffled = <Item>(items: Item[]): Item[] =>
    items
      .map((item) => ({ item, at: random.next() }))
      .toSorted((a, b) => a.at - b.at)
      .map(({ item }) => item);
  const kindOf = createKindOf();
  const isTune = ({ half }: { half: string }): boolean => half === 'tune';
  const asked: Asked[] = shuffled([...loadQuestions(), ...loadUnseen()].filter(isTune));
  const followUps: Asked[] = shuffled(loadFollowUps().filter(isTune)).flatMap(({ first, message, ...one }) =>
    first === undefined ? [] : [{ ...one, message: first, next: message }],
  );

  /** Questions by kind, without end. A variant of a question may be of another kind than the question. */
  const waiting: Record<'sure' | 'meant' | 'none', Asked[]> = { sure: [], meant: [], none: [] };
  let made = 0;
  const nextOf = (kind: 'sure' | 'meant' | 'none'): Asked => {
    for (;;) {
      const ready = waiting[kind].shift();
      if (ready) return ready;
      const round = Math.floor(made / asked.length);
      const question = asked[made % asked.length] as Asked;
      const message = variantOf(question.message, question.language, round);
      const variant = { ...question, message };
      waiting[kindOf(variant)].push(variant);
      made += 1;
    }
  };

  let followed = 0;
  const dueFollowUps: (MixedTurn & { dueAt: number })[] = [];
  /** The first question of a follow-up takes the place of another question of its kind. */
  const firsts: Record<'sure' | 'meant' | 'none', Asked[]> = { sure: [], meant: [], none: [] };
  const planFollowUp = (): void => {
    const pair = followUps[followed % followUps.length] as Asked;
    const round = Math.floor(followed / followUps.length);
    const planned = { ...pair, expected: ['any'], message: variantOf(pair.message, pair.language, round) };
    firsts[kindOf(planned)].push({ ...planned, next: `${pair.next}${'?'.repeat(round % 30)}` });
    followed += 1;
  };

  let position = 0;
  const turnOf = (kind: TurnKind): MixedTurn => {
    position += 1;
    const session = `mixed-${position}`;
    if (kind === 'smallTalk') {
      const message = SMALL_TALK[position % SMALL_TALK.length] ?? '';
      return { base: MIXED_BASES[position % MIXED_BASES.length] ?? '', session, language: 'any', kind, message };
    }
    if (kind === 'followUp') {
      planFollowUp();
      const [due] = dueFollowUps;
      if (due && due.dueAt <= position) return dueFollowUps.shift() as MixedTurn;
      return turnOf('meant');
    }
    const { base, language, message, next } = firsts[kind].shift() ?? nextOf(kind);
    if (next !== undefined) {
      dueFollowUps.push({ base, session, language, kind: 'followUp', message: next, dueAt: position + FOLLOWS_AFTER });
    }
    return { base, session, language, kind, message };
  };

  return (count) => {
    const turns: MixedTurn[] = [];
    while (turns.length < count) {
      const kinds = Object.entries(MIX).flatMap(([kind, share]) => Array.from({ length: share }, () => kind));
      turns.push(...shuffled(kinds as TurnKind[]).map(turnOf));
    }
    return turns;
  };
};
