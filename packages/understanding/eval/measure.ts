import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { EmbeddedKind } from '../src/embedder/backend.ts';
import type { Embedder } from '../src/embedder/embedder.ts';
import { decideLanguage } from '../src/language.ts';
import type { IndexedEntry } from '../src/retrieval/knowledge-index.ts';
import {
  calibrated,
  comparedTexts,
  measureSimilarity,
  rowsOf,
  type SemanticSearch,
  type VectorEntry,
} from '../src/similarity.ts';
import {
  type Answering,
  decideReply,
  type EarlierMessage,
  indexEntries,
  type KnowledgeIndex,
} from '../src/understanding.ts';

export type Half = 'tune' | 'report';
export type Question = {
  base: string;
  language: string;
  half: Half;
  /** The kind of question. The first sets have no kinds. */
  kind: string;
  /** The entries that are right answers. Empty if the question must not be answered. */
  expected: string[];
  message: string;
  /** The question that is asked first, if `message` is a follow-up. */
  first?: string;
};
type ChatMessage = { expected: string; half: Half; allowed: string[]; message: string };

const read = (name: string): string => readFileSync(new URL(name, import.meta.url), 'utf8');
const rows = (name: string): string[][] =>
  read(name)
    .trimEnd()
    .split('\n')
    .slice(1)
    .map((line) => line.split('\t'));

/** The known domains. The engine's word lists were written for them. */
export const BASES = ['shop', 'clinic', 'software'];
/** The unseen domains. The engine's word lists were written without them. */
export const UNSEEN_BASES = ['hotel', 'gym', 'library', 'internet'];

/** A knowledge base. Its entries are complete, so that a test can import them; none has an action. */
type Base = { name: string; languages: string[]; knowledge: (IndexedEntry & { actions: never[] })[] };

export const loadBase = (name: string): Base => JSON.parse(read(`${name}.json`)) as Base;

const toExpected = (cell: string): string[] => (cell === '-' || cell === '' ? [] : cell.split('|'));

export const loadQuestions = (): Question[] =>
  rows('questions.tsv').map(([base = '', language = '', half, expected = '', message = '']) => ({
    base,
    language,
    half: half as Half,
    kind: 'mixed',
    expected: toExpected(expected),
    message,
  }));

export const loadUnseen = (): Question[] =>
  rows('unseen.tsv').map(([base = '', language = '', kind = '', half, expected = '', message = '']) => ({
    base,
    language,
    half: half as Half,
    kind,
    expected: toExpected(expected),
    message,
  }));

export const loadFollowUps = (): Question[] =>
  rows('followups.tsv').map(([base = '', half, expected = '', first = '', message = '']) => ({
    base,
    language: base === 'gym' ? 'de' : 'en',
    half: half as Half,
    kind: 'follow-up',
    expected: toExpected(expected),
    first,
    message,
  }));

export const loadChatMessages = (): ChatMessage[] =>
  rows('language.tsv').map(([expected = '', half, allowed = '', message = '']) => ({
    expected,
    half: half as Half,
    allowed: allowed === '' ? [] : allowed.split(','),
    message,
  }));

/** Whether an entry, or the entry that it translates, is expected. A translation has a language suffix in its id. */
export const isEntry = (entryId: string, expected: string[]): boolean =>
  expected.some((one) => entryId === one || entryId.replace(/-(de|en)$/, '') === one);

/** Opens the model that is measured, and names the folder where its vectors are kept for the next run. */
export type EvaluationModel = { open: () => Promise<Embedder>; folder: string };

const readKept = (file: string): Map<string, Float32Array> => {
  const known = new Map<string, Float32Array>();
  if (!existsSync(file)) return known;
  for (const line of readFileSync(file, 'utf8').split('\n').filter(Boolean)) {
    const [key = '', vector = ''] = line.split(' ');
    known.set(key, new Float32Array(Uint8Array.from(Buffer.from(vector, 'base64')).buffer));
  }
  return known;
};

const written = (vector: Float32Array): string =>
  Buffer.from(vector.buffer, vector.byteOffset, vector.byteLength).toString('base64');

export type TextVectors = {
  model: string;
  of: (kind: EmbeddedKind, text: string) => Promise<Float32Array>;
  vectorEntries: (knowledge: IndexedEntry[]) => Promise<VectorEntry[]>;
  semanticSearchOf: (entries: VectorEntry[]) => SemanticSearch;
  /** Saves new vectors for the next run. */
  close: () => Promise<void>;
};

const STARTS_MS = 100;

/** Opens the model, and waits until it is there: on a busy machine, its process takes longer to start than a worker waits. */
export const openReady = async ({ open }: EvaluationModel): Promise<Embedder> => {
  const embedder = await open();
  while (embedder.status().detail === 'starting') await sleep(STARTS_MS);
  return embedder;
};

/**
 * Opens the vectors of a model. They are kept in its folder, so that only the first run waits for the model. If there is
 * no model, `none` says why.
 */
export const openTextVectors = async (opening: EvaluationModel): Promise<TextVectors | { none: string }> => {
  const { folder } = opening;
  const embedder = await openReady(opening);
  const model = embedder.model();
  if (model === null) {
    const { detail } = embedder.status();
    await embedder.close();
    return { none: detail };
  }
  const file = join(folder, `${model.replaceAll(/[^\w.@-]/g, '-')}.txt`);
  const known = readKept(file);
  let made = 0;

  const of = async (kind: EmbeddedKind, text: string): Promise<Float32Array> => {
    const key = createHash('sha256').update(`${kind}\n${text}`).digest('base64url').slice(0, 22);
    const kept = known.get(key);
    if (kept) return kept;
    const [vector] = (await embedder.embed([text], kind, { holder: 'eval', priority: 'background' })) ?? [];
    if (!vector) throw new Error(`no vector: ${embedder.status().detail}`);
    known.set(key, vector);
    made += 1;
    return vector;
  };

  return {
    model,
    of,
    vectorEntries: async (knowledge) => {
      const entries: VectorEntry[] = [];
      for (const entry of knowledge) {
        const texts = comparedTexts(entry);
        const rows: number[] = [];
        for (const { text } of texts) rows.push(...(await of('passage', text)));
        const kinds = texts.map(({ kind }) => kind);
        const vectors = rowsOf(Float32Array.from(rows), kinds.length);
        entries.push({ entryId: entry.entryId, hash: '', kinds, rows: vectors });
      }
      return entries;
    },
    semanticSearchOf: (entries) => async (text, keep, options) =>
      calibrated(await measureSimilarity(entries, await of('query', text), keep, options), embedder.calibration()),
    close: async () => {
      await embedder.close();
      if (made === 0) return;
      mkdirSync(folder, { recursive: true });
      writeFileSync(
        `${file}.${process.pid}`,
        [...known].map(([key, vector]) => `${key} ${written(vector)}\n`).join(''),
      );
      renameSync(`${file}.${process.pid}`, file); // atomic, because several runs may write at the same time
    },
  };
};

/**
 * The result of a question. `right` and `wrong` are sure answers. `hedged` and `hedgedWrong` are answers after a sentence
 * that says "may be". `offered`: the right question is among the offered ones. `othersOffered`: only other questions are
 * offered. A question that must not be answered can be anything but `right`, `hedged` and `offered`.
 */
export type Outcome = 'right' | 'hedged' | 'offered' | 'wrong' | 'hedgedWrong' | 'othersOffered' | 'refused';
export type Measured = { question: Question; answerable: boolean; outcome: Outcome; by: string; explanation: string };

/** Asks each question as a turn does. A follow-up is asked after its first question. */
export const measureAnswers = async (
  questions: Question[],
  vectors: TextVectors | null,
  { answering = 'balanced', threshold = null }: { answering?: Answering; threshold?: number | null } = {},
): Promise<Measured[]> => {
  const bases = new Map<string, { base: Base; index: KnowledgeIndex; semanticSearch: SemanticSearch | undefined }>();
  for (const name of new Set(questions.map(({ base }) => base))) {
    const base = loadBase(name);
    const semanticSearch = vectors ? vectors.semanticSearchOf(await vectors.vectorEntries(base.knowledge)) : undefined;
    bases.set(name, { base, index: indexEntries(base), semanticSearch });
  }
  const measured: Measured[] = [];
  for (const question of questions) {
    const asked = bases.get(question.base);
    if (!asked) throw new Error(`no knowledge base ${question.base}`);
    const { base, index, semanticSearch } = asked;
    const history: EarlierMessage[] = [];
    const ask = async (message: string) => {
      const { language } = decideLanguage({ message, allowed: base.languages });
      const earlier = async () => [...history];
      const asks = { message, language, index, answering, threshold, history: earlier, semanticSearch };
      const decision = await decideReply(asks);
      history.push({ role: 'user', content: message }, { role: 'assistant', content: '', why: decision.why });
      return decision;
    };
    if (question.first !== undefined) await ask(question.first);
    const { message, expected } = question;
    const decision = await ask(message);
    const { kind, by = kind, hits, language } = decision.why;
    let outcome: Outcome = 'refused';
    if (decision.kind === 'answer') outcome = isEntry(decision.entry?.entryId ?? '', expected) ? 'right' : 'wrong';
    if (decision.kind === 'hedge')
      outcome = isEntry(decision.entry?.entryId ?? '', expected) ? 'hedged' : 'hedgedWrong';
    if (decision.kind === 'askBack') {
      outcome = decision.choices.some(({ entry }) => isEntry(entry?.entryId ?? '', expected))
        ? 'offered'
        : 'othersOffered';
    }
    const scores = hits.map(
      ({ entryId, score, words, meaning: cosine }) => `${entryId} ${score} (${words ?? '–'} ${cosine ?? '–'})`,
    );
    const explanation = `[${question.base} ${question.kind} ${language}] ${message} → ${expected.join('|') || 'none'}; ${kind} by ${by}: ${scores.join(', ')}`;
    measured.push({ question, answerable: expected.length > 0, outcome, by, explanation });
  }
  return measured;
};

type MeasuredLanguage = { chat: ChatMessage; right: boolean; explanation: string };

export const measureLanguage = (messages: ChatMessage[]): MeasuredLanguage[] =>
  messages.map((chat) => {
    const { language, by, decided } = decideLanguage({ message: chat.message, allowed: chat.allowed });
    const explanation = `${chat.expected} taken for ${language} (${by}${decided ? '' : ', undecided'}): ${chat.message}`;
    return { chat, right: language === chat.expected, explanation };
  });

type Limit = Record<'right' | 'wrong' | 'hedgedWrong' | 'unanswerable' | 'offers', number>;

/**
 * Limits for all sets together. `right`: answered right, surely or hedged. `wrong`: surely wrong. Both are shares of the
 * answerable questions. `hedgedWrong` is a share of all questions. `unanswerable`: surely answered, although there is no
 * answer. `offers`: an unanswerable question got a hedged answer or was offered questions.
 */
export const LIMITS: { meaning: Limit; words: Limit; language: number } = {
  meaning: { right: 0.65, wrong: 0.03, hedgedWrong: 0.08, unanswerable: 0.04, offers: 0.4 },
  words: { right: 0.4, wrong: 0.03, hedgedWrong: 0.04, unanswerable: 0.05, offers: 0.3 },
  language: 0.95,
};

export const countOf = (measured: Measured[], ...outcomes: Outcome[]): number =>
  outcomes.length === 0 ? measured.length : measured.filter(({ outcome }) => outcomes.includes(outcome)).length;

export const shareOf = (measured: Measured[], ...outcomes: Outcome[]): number =>
  countOf(measured, ...outcomes) / measured.length;

/** Compares the measured shares with the limits. */
export const limitsOf = (measured: Measured[], limit: Limit) => {
  const answerable = measured.filter((one) => one.answerable);
  const unanswerable = measured.filter((one) => !one.answerable);
  const atLeast = (name: string, share: number, least: number) => ({
    name,
    share,
    least: `at least ${least * 100} %`,
    holds: share >= least,
  });
  const atMost = (name: string, share: number, most: number) => ({
    name,
    share,
    least: `at most ${most * 100} %`,
    holds: share <= most,
  });
  return [
    atLeast('right, surely or hedged', shareOf(answerable, 'right', 'hedged'), limit.right),
    atMost('surely wrong', shareOf(answerable, 'wrong'), limit.wrong),
    atMost('hedged wrong, of all', shareOf(measured, 'hedgedWrong'), limit.hedgedWrong),
    atMost('unanswerable surely answered', shareOf(unanswerable, 'wrong'), limit.unanswerable),
    atMost('unanswerable with offers', shareOf(unanswerable, 'hedgedWrong', 'othersOffered'), limit.offers),
  ];
};
