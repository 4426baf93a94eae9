import SearchableMap from 'minisearch/SearchableMap';
import { baseLanguage } from '../../../../src/language/base.ts';
import { foldBeginning } from '../../../../src/language/fold.ts';
import type { AssistantProfile, KnowledgeEntry } from '../engine.ts';
import { Scoreboard } from './scoreboard.ts';
import { readTerms, type Term } from './terms.ts';

/** A question or one of its other wordings: what it speaks of, and how much that tells in all. */
export type Wording = { entry: number; mass: number };

/** Where a key stands: wordings by number, the entries these belong to, and entries whose answer or tags hold it. */
export type Postings = { wordings: number[]; askedBy: number[]; answers: number[]; weight: number };

/** All entries of one language. A key is a stem, or `§` and a concept. */
export type KnowledgeGroup = {
  language: string;
  entries: KnowledgeEntry[];
  wordings: Wording[];
  postings: Map<string, Postings>;
  /** The stems, for words that are misspelt or cut short. */
  stems: SearchableMap<string>;
  /** folded word → stem, as the knowledge spells it: a word typed without diacritics finds the right stem. */
  spellings: Map<string, string>;
  /** What a word that the knowledge does not have would tell. */
  strangeWeight: number;
  /** What was asked exactly as it is stored. */
  exact: Map<string, number>;
  boards: Boards;
};

/** Where one search adds up; used again by the next, since a search runs to its end without a break. */
export type Boards = Record<'covered' | 'asked' | 'matched' | 'fresh' | 'nearest' | 'byWording', Scoreboard>;

const createBoards = (wordings: number, entries: number): Boards => ({
  byWording: new Scoreboard(wordings),
  covered: new Scoreboard(entries),
  asked: new Scoreboard(entries),
  matched: new Scoreboard(entries),
  fresh: new Scoreboard(entries),
  nearest: new Scoreboard(entries),
});

/** Question words tell a little: they may settle a tie, never carry an answer. */
const WEAK_CONCEPTS = new Set(['time', 'where', 'today', 'what', 'item']);
const WEAK_SHARE = 0.4;
/** What is done tells less than what it is done to. */
const VERB_CONCEPTS = new Set([
  'sell',
  'buy',
  'create',
  'add',
  'change',
  'connect',
  'stop',
  'access',
  'keep',
  'forgot',
  'bring',
  'test',
  'used',
]);
const VERB_SHARE = 0.65;

export const conceptKey = (concept: string): string => `§${concept}`;
export const unitKey = (term: Term): string => (term.concept === null ? term.stem : conceptKey(term.concept));
export const shareOf = ({ concept }: Term): number => {
  if (concept === null) return 1;
  if (WEAK_CONCEPTS.has(concept)) return WEAK_SHARE;
  return VERB_CONCEPTS.has(concept) ? VERB_SHARE : 1;
};

export const plain = (text: string): string =>
  foldBeginning(text, 1000)
    .replace(/[^\p{L}\p{M}\p{N}]+/gu, ' ')
    .trim();

const informationOf = (holding: number, all: number): number => Math.log(1 + (all - holding + 0.5) / (holding + 0.5));

const keysOf = (term: Term): string[] => (term.concept === null ? [term.stem] : [term.stem, conceptKey(term.concept)]);

const append = (list: number[], item: number): void => {
  if (list.at(-1) !== item) list.push(item);
};

/** Reads texts into a group: each stem and concept gets its place. */
const createReader = (language: string) => {
  const postings = new Map<string, Postings>();
  const stems = new SearchableMap<string>();
  const spellings = new Map<string, string>();
  const read = (text: string, note: (place: Postings) => void): Term[] => {
    const terms = readTerms(text, language);
    for (const term of terms) {
      if (!spellings.has(term.word)) spellings.set(term.word, term.stem);
      stems.set(term.stem, term.stem);
      for (const key of keysOf(term)) {
        const place = postings.get(key) ?? { wordings: [], askedBy: [], answers: [], weight: 0 };
        postings.set(key, place);
        note(place);
      }
    }
    return terms;
  };
  return { postings, stems, spellings, read };
};

/** `all` entries of the assistant set the scale: what is rare in a small language is not rarer than in a large one. */
function* buildGroup(language: string, entries: KnowledgeEntry[], all: number): Generator<void, KnowledgeGroup> {
  const { postings, stems, spellings, read } = createReader(language);
  const exact = new Map<string, number>();
  const readWordings: { entry: number; terms: Term[] }[] = [];
  for (const [entry, { question, variants, answer, tags }] of entries.entries()) {
    for (const wording of [question, ...variants]) {
      const asked = plain(wording);
      if (asked !== '' && !exact.has(asked)) exact.set(asked, entry);
      const terms = read(wording, (place) => {
        append(place.wordings, readWordings.length);
        append(place.askedBy, entry);
      });
      readWordings.push({ entry, terms });
      yield;
    }
    read(`${tags.join(' ')} ${answer}`, (place) => append(place.answers, entry));
    yield;
  }

  for (const place of postings.values()) {
    // Half a look at answers: a word in many answers and few questions still tells questions apart.
    const holding = new Set([...place.askedBy, ...place.answers]).size;
    place.weight = informationOf((place.askedBy.length + holding) / 2, all);
    yield;
  }
  const massOf = (terms: Term[]): number =>
    terms.reduce((sum, term) => sum + (postings.get(unitKey(term))?.weight ?? 0) * shareOf(term), 0);
  const wordings: Wording[] = [];
  for (const { entry, terms } of readWordings) {
    wordings.push({ entry, mass: massOf(terms) });
    yield;
  }
  return {
    language,
    entries,
    wordings,
    postings,
    stems,
    spellings,
    exact,
    strangeWeight: informationOf(0, all),
    boards: createBoards(wordings.length, entries.length),
  };
}

export type KnowledgeIndex = {
  groups: KnowledgeGroup[];
  /** Where each entry is, by its id. */
  places: Map<string, { entry: KnowledgeEntry; group: KnowledgeGroup }>;
};

/** Entries are grouped by language, because a stem means something in one language only. Between any two steps others may go on. */
export function* indexSteps({ knowledge, languages }: AssistantProfile): Generator<void, KnowledgeIndex> {
  const byLanguage = Map.groupBy(knowledge, (entry) => baseLanguage(entry.language ?? languages[0] ?? 'en'));
  const groups: KnowledgeGroup[] = [];
  for (const [language, entries] of byLanguage) groups.push(yield* buildGroup(language, entries, knowledge.length));
  const places: KnowledgeIndex['places'] = new Map();
  for (const group of groups) for (const entry of group.entries) places.set(entry.entryId, { entry, group });
  return { groups, places };
}

/** The same in one go. */
export const buildIndex = (profile: AssistantProfile): KnowledgeIndex => {
  const steps = indexSteps(profile);
  for (;;) {
    const step = steps.next();
    if (step.done) return step.value;
  }
};
