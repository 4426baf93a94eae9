import { readFileSync } from 'node:fs';
import type { AssistantProfile, KnowledgeEntry } from '../../workers/reply/engines/engine.ts';

export type Half = 'tune' | 'report';
export type Question = { base: string; language: string; half: Half; expected: string | null; message: string };
export type ChatMessage = { expected: string; half: Half; allowed: string[]; message: string };

const read = (name: string): string => readFileSync(new URL(name, import.meta.url), 'utf8');
const rows = (name: string): string[][] =>
  read(name)
    .trimEnd()
    .split('\n')
    .slice(1)
    .map((line) => line.split('\t'));

export const BASES = ['shop', 'clinic', 'software'];

export const loadBase = (name: string, threshold: number | null = null): AssistantProfile => {
  const base = JSON.parse(read(`${name}.json`)) as { name: string; languages: string[]; knowledge: KnowledgeEntry[] };
  return { assistantId: name, version: '1', instructions: '', threshold, ...base };
};

export const loadQuestions = (): Question[] =>
  rows('questions.tsv').map(([base = '', language = '', half, expected, message = '']) => ({
    base,
    language,
    half: half as Half,
    expected: expected === '-' || expected === undefined ? null : expected,
    message,
  }));

export const loadChatMessages = (): ChatMessage[] =>
  rows('language.tsv').map(([expected = '', half, allowed = '', message = '']) => ({
    expected,
    half: half as Half,
    allowed: allowed === '' ? [] : allowed.split(','),
    message,
  }));

/** Translations of an entry carry its name and a language. */
export const isEntry = (entryId: string, expected: string | null): boolean =>
  expected !== null && entryId.replace(/-(de|en)$/, '') === expected;
