import { baseLanguage } from '../src/fold.ts';
import { decideLanguage } from '../src/language.ts';
import { type IndexedEntry, indexEntries } from '../src/retrieval/knowledge-index.ts';
import type { Passage } from '../src/retrieval/passage-parts.ts';
import { decideReply } from '../src/understanding.ts';
import {
  type DocumentSet,
  loadSets,
  loadSites,
  openAll,
  type ReadDocument,
  searchOf,
  type TokenReader,
} from './documents.ts';
import {
  BASES,
  type EvaluationModel,
  loadBase,
  loadQuestions,
  loadUnseen,
  type TextVectors,
  UNSEEN_BASES,
} from './measure.ts';

// What something unrelated changes that is added to what an assistant knows: it should never come first or change who
// does, and hardly the confidence.

/** A question asked before and after. `first`: the entry or passage that is likeliest, and `confidence` how likely. */
type Asked = { first: string | null; confidence: number; kind: string };
type Change = { question: string; before: Asked; after: Asked; isNewFirst: boolean };
type Known = { entries: IndexedEntry[]; passages: Passage[] };
type Site = Known & { name: string; languages: string[]; usual: string | null; questions: string[] };

const SURE = new Set(['answer', 'hedge', 'askBack', 'unsure']);

type Models = { vectors: TextVectors; tokens: TokenReader };

/** Asks the questions of a site that knows this. */
const askAll = async (
  site: Site,
  { entries, passages }: Known,
  { vectors, tokens }: Models,
): Promise<(Asked | null)[]> => {
  const { name, languages, usual } = site;
  const set: DocumentSet = { name, languages, usual, passages, knowledge: [], questions: [] };
  const search = passages.length > 0 ? await searchOf(set, { tokens, evidence: 'tokens' }) : undefined;
  const index = entries.length > 0 ? indexEntries({ knowledge: entries, languages }) : null;
  const semanticSearch = index ? vectors.semanticSearchOf(await vectors.vectorEntries(entries)) : undefined;
  const asked: (Asked | null)[] = [];
  for (const message of site.questions) {
    const { language } = decideLanguage({ message, allowed: usual === null ? languages : [], usual });
    const decision = await decideReply({
      message,
      language,
      index,
      answering: 'balanced',
      threshold: null,
      history: async () => [],
      semanticSearch,
      passages: search,
    });
    const { kind, why } = decision;
    // Small talk and requests for a person search for nothing.
    if (!SURE.has(kind)) {
      asked.push(null);
      continue;
    }
    const ranked = [
      ...why.hits.slice(0, 1).map(({ entryId, score }) => ({ id: entryId, score })),
      ...(why.passages ?? []).slice(0, 1).map(({ passageId, score }) => ({ id: passageId, score })),
    ].toSorted((one, other) => other.score - one.score);
    const given =
      'entry' in decision && decision.entry
        ? decision.entry.entryId
        : 'passage' in decision && decision.passage
          ? decision.passage.passageId
          : null;
    asked.push({ first: given ?? ranked[0]?.id ?? null, confidence: ranked[0]?.score ?? 0, kind });
  }
  return asked;
};

/** What the addition changes for each question of a site. `before`: its answers without it. */
const compare = async (site: Site, before: (Asked | null)[], added: Known, models: Models): Promise<Change[]> => {
  const known = { entries: [...site.entries, ...added.entries], passages: [...site.passages, ...added.passages] };
  const after = await askAll(site, known, models);
  const fresh = new Set([
    ...added.entries.map(({ entryId }) => entryId),
    ...added.passages.map(({ passageId }) => passageId),
  ]);
  return site.questions.flatMap((question, nth): Change[] => {
    const [one, other] = [before[nth], after[nth]];
    return one && other ? [{ question, before: one, after: other, isNewFirst: fresh.has(other.first ?? '') }] : [];
  });
};

const siteOf = (set: DocumentSet): Site => ({
  ...set,
  entries: [],
  questions: set.questions
    .filter(({ half, kind }) => half === 'tune' && kind !== 'entry')
    .map(({ question }) => question),
});
const siteOfBase = (name: string): Site => {
  const { knowledge, languages } = loadBase(name);
  const questions = [...loadQuestions(), ...loadUnseen()].filter((one) => one.half === 'tune' && one.base === name);
  return {
    name,
    languages,
    usual: null,
    entries: knowledge,
    passages: [],
    questions: questions.map(({ message }) => message),
  };
};

/** What is asked, and what is added to it. */
export type Addition =
  | `small sites, ${'one entry' | 'five entries' | 'one passage' | 'five passages'}`
  | 'small sites with entries, one passage'
  | `large sites, ${'one entry' | 'one passage'}`
  | `entries, ${'one entry' | 'five entries' | 'one passage'}`;
type Case = { name: Addition; changes: Change[] };

/** Adds what has to do with no question of the tune halves: a site's own entries on other things, and pages for programmers. */
export const measureUnrelated = async (models: Models, readDocument: ReadDocument): Promise<Case[]> => {
  const [small, large] = await Promise.all([loadSets('small', readDocument), loadSets('documents', readDocument)]);
  const sites = small.map(siteOf).filter(({ questions }) => questions.length > 0);
  const own = new Map(
    small.map(({ name, knowledge }) => [name, knowledge.map((one) => ({ ...one, entryId: `added ${one.entryId}` }))]),
  );
  const entriesOf = (name: string): IndexedEntry[] => own.get(name) ?? [];
  /** An entry that is the answer to a question of the clinic. */
  const isRelated = ({ question }: IndexedEntry): boolean => question.includes('Schulpraktikum');
  const pages = loadSites().flatMap(({ passages }) => passages);
  const page = (nth: number): Passage => pages[(nth * 97) % pages.length] as Passage;
  const foreign = (site: Site): IndexedEntry[] => {
    const language = baseLanguage(site.languages[0] ?? 'en');
    const other =
      language === 'de' ? 'dentist' : language === 'fr' ? 'velo' : site.name === 'software' ? 'bakery' : 'saas';
    return entriesOf(other).filter((one) => !isRelated(one));
  };
  const cases: Case[] = [];
  const add = async (name: Addition, of: Site[], added: (site: Site) => Partial<Known>[]): Promise<void> => {
    const changes: Change[] = [];
    for (const site of of) {
      const before = await askAll(site, site, models);
      for (const one of added(site))
        changes.push(...(await compare(site, before, { entries: [], passages: [], ...one }, models)));
    }
    cases.push({ name, changes });
  };
  const each = <One>(list: One[]): One[][] => list.map((one) => [one]);
  const withEntries = sites.map((site): Site => ({ ...site, entries: entriesOf(site.name) }));
  const largeSites = large.map(siteOf);
  const bases = [...BASES, ...UNSEEN_BASES].map(siteOfBase);
  await add('small sites, one entry', sites, (site) => each(entriesOf(site.name)).map((entries) => ({ entries })));
  await add('small sites, five entries', sites, (site) => [{ entries: entriesOf(site.name) }]);
  await add('small sites, one passage', sites, () => [1, 2, 3].map((nth) => ({ passages: [page(nth)] })));
  await add('small sites, five passages', sites, () => [{ passages: [1, 2, 3, 4, 5].map(page) }]);
  await add('small sites with entries, one passage', withEntries, () =>
    [1, 2].map((nth) => ({ passages: [page(nth)] })),
  );
  await add('large sites, one entry', largeSites, (site) =>
    each(foreign(site).slice(0, 2)).map((entries) => ({ entries })),
  );
  await add('large sites, one passage', largeSites, () => [{ passages: [page(1)] }]);
  await add('entries, one entry', bases, (site) => each(foreign(site).slice(0, 3)).map((entries) => ({ entries })));
  await add('entries, five entries', bases, (site) => [{ entries: foreign(site) }]);
  await add('entries, one passage', bases, () => [1, 2].map((nth) => ({ passages: [page(nth)] })));
  return cases;
};

/**
 * Shares of the questions: `first`, another one comes first in a reply that gave or offered one before; `newFirst`, what was
 * added is first in a reply that gives or offers it (`newAnswers`: so many surely); `kind`, another kind of reply. And by how much the confidence changes:
 * of the middle one, and of 95 of 100 at `most`.
 */
export const figuresOf = (changes: Change[]) => {
  const moved = changes
    .map(({ before, after }) => Math.abs(after.confidence - before.confidence))
    .toSorted((one, other) => one - other);
  const share = (is: (one: Change) => boolean): number => changes.filter(is).length / changes.length;
  return {
    count: changes.length,
    first: share(({ before, after }) => before.kind !== 'unsure' && after.first !== before.first),
    newAnswers: changes.filter(({ isNewFirst, after }) => isNewFirst && after.kind === 'answer').length,
    newFirst: share(({ isNewFirst, after }) => isNewFirst && after.kind !== 'unsure'),
    kind: share(({ before, after }) => after.kind !== before.kind),
    middle: moved[Math.floor(0.5 * moved.length)] ?? 0,
    most: moved[Math.floor(0.95 * moved.length)] ?? 0,
  };
};

export const reportUnrelated = async (
  model: EvaluationModel,
  readDocument: ReadDocument,
  isTold: boolean,
): Promise<void> => {
  const { vectors, tokens, close } = await openAll(model, false);
  if (!vectors || !tokens) throw new Error('this is measured with the model');
  console.log(
    'added                                   asked   another first   the new one   another kind   confidence: median    p95',
  );
  for (const { name, changes } of await measureUnrelated({ vectors, tokens }, readDocument)) {
    const { count, first, newFirst, kind, middle, most } = figuresOf(changes);
    const percent = (share: number): string => `${(100 * share).toFixed(1)} %`;
    const cells = [count, percent(first), percent(newFirst), percent(kind), middle.toFixed(2), most.toFixed(2)];
    console.log(
      [name.padEnd(37), ...cells.map((cell, nth) => String(cell).padStart([7, 15, 13, 14, 20, 6][nth] ?? 8))].join(' '),
    );
    if (isTold)
      for (const { question, before, after, isNewFirst } of changes.filter(
        (one) => one.before.first !== one.after.first || one.before.kind !== one.after.kind,
      ))
        console.log(
          `    ${isNewFirst ? 'new ' : ''}${question}: ${before.kind} ${before.confidence} → ${after.kind} ${after.confidence}`,
        );
  }
  await close();
};
