import { readFileSync } from 'node:fs';
import type { IndexedEntry } from '../src/retrieval/knowledge-index.ts';

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
export type ChatMessage = { expected: string; half: Half; allowed: string[]; message: string };

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
export type Base = { name: string; languages: string[]; knowledge: (IndexedEntry & { actions: never[] })[] };

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
