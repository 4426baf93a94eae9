/**
 * The second half of `npm run bench -- engine` measures the cost of semantic search, with 2,000 entries. It measures
 * one turn that uses the model; then turns that do not use it, while 50 turns per second do use it; then event-loop
 * delay and memory. Most vectors are random, because only their number affects the figures.
 */
import { readFileSync } from 'node:fs';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { readConfig } from '../src/platform/process/config.ts';
import { createLogger } from '../src/platform/process/logger.ts';
import { decideLanguage } from '@parley/understanding/text';
import { BASES, loadBase, loadQuestions, loadUnseen, UNSEEN_BASES } from '@parley/understanding/evaluation';
import { modelProcessesOf } from '../test/kit/semantic.ts';
import { openChosenEmbedder } from '../src/embedder.ts';
import type { AssistantProfile, EngineEntry } from '../src/replies/engines/engine.ts';
import { createRetrievalEngine } from '../src/replies/engines/retrieval.ts';

import { measureSimilarity, rowsOf, type SemanticSearch, type VectorEntry } from '@parley/understanding';

const ENTRIES = 2_000;
const DIMENSIONS = 384;
const ALONE = 150;
const PHASE_S = 4;
const ROUNDS = 3;
const SURE_EVERY_MS = 4;
const MEANT_A_SECOND = 50;
const LIMITS = { sure: 0.5, meant: 20, growth: 1.5, blocked: 10, megabytes: 150 };

const embedder = await openChosenEmbedder({
  config: readConfig({
    NODE_ENV: 'test',
    SEMANTIC: process.env['SEMANTIC'],
    SEMANTIC_DIR: process.env['SEMANTIC_DIR'],
  }),
  logger: createLogger({ name: 'bench', level: 'error' }),
});
if (embedder.model() === null) {
  console.log(`no model (${embedder.status().detail}): the cost of semantic search is not measured`);
  process.exit(0);
}

const knowledge: EngineEntry[] = [...BASES, ...UNSEEN_BASES].flatMap((base) =>
  loadBase(base).knowledge.map((entry) => ({ ...entry, entryId: `${base}-${entry.entryId}` })),
);
for (let number = knowledge.length; number < ENTRIES; number += 1) {
  const question = `How do I order model ${number} of the catalogue?`;
  knowledge.push({
    entryId: `made-${number}`,
    question,
    variants: [],
    answer: 'Online.',
    language: 'en',
    actions: [],
    tags: [],
  });
}
let seed = 1;
const random = (): number => {
  seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648;
  return seed / 2_147_483_648 - 0.5;
};
const vectorsBefore = process.memoryUsage().arrayBuffers;
const entries = knowledge.map(
  ({ entryId }): VectorEntry => ({
    entryId,
    hash: '',
    kinds: ['question', 'answer'],
    rows: rowsOf(
      Float32Array.from({ length: 2 * DIMENSIONS }, () => random() / 6),
      2,
    ),
  }),
);
const vectorMegabytes = (process.memoryUsage().arrayBuffers - vectorsBefore) / 1e6;

const assistant: AssistantProfile = {
  assistantId: 'bench',
  version: '1',
  name: 'Bench',
  instructions: '',
  languages: [],
  threshold: null,
  knowledge,
};
let unknown = 0;
const semanticSearch: SemanticSearch = async (text, keep, options) => {
  const [query] = (await embedder.embed([text], 'query', { holder: 'bench' })) ?? [];
  if (!query) unknown += 1;
  return query ? measureSimilarity(entries, query, keep, options) : null;
};
const engine = createRetrievalEngine();
const { signal } = new AbortController();
/** The language of a turn is decided by the API before a worker reads the turn. */
const toTurn = (message: string) => ({ message, language: decideLanguage({ message, allowed: [] }).language });
const answer = async ({ message, language }: ReturnType<typeof toTurn>) => {
  return engine.reply({ assistant, message, language, history: async () => [], signal, semanticSearch });
};

const at = (values: number[], share: number): number => {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
};
const median = (values: number[]): number => at(values, 0.5);

/** The questions of visitors. Each text is asked only once, because vectors of repeated texts are cached. */
const asked = [...loadUnseen(), ...loadQuestions()]
  .filter(({ half }) => half === 'tune')
  .map(({ message }) => toTurn(message));
let next = 0;
const aQuestion = (): ReturnType<typeof toTurn> => {
  next += 1;
  const { message, language } = asked[(next * 7) % asked.length] ?? toTurn('');
  return { message: `${message} ${'?'.repeat(Math.floor(next / asked.length))}`, language };
};
const exact = knowledge.slice(0, 200).map(({ question }) => toTurn(question));

for (const message of exact) await answer(message);

const sure: number[] = [];
const meant: number[] = [];
for (let turn = 0; turn < ALONE; turn += 1) {
  const startedAt = performance.now();
  const { why } = await answer(aQuestion());
  if (why['by'] === 'both') meant.push(performance.now() - startedAt);
  const exactAt = performance.now();
  await answer(exact[turn % exact.length] ?? toTurn(''));
  sure.push(performance.now() - exactAt);
}

/**
 * Sends turns that need no model at a fixed rate. With `withMeaning`, other turns use the model meanwhile. The time of
 * a turn is measured from its planned start.
 */
const phase = async (withMeaning: boolean): Promise<{ p99: number; blocked: number }> => {
  const loop = monitorEventLoopDelay({ resolution: 1 });
  const times: number[] = [];
  const under = new Set<Promise<unknown>>();
  const begunAt = performance.now();
  let due = begunAt;
  let dueMeant = begunAt;
  loop.enable();
  while (performance.now() - begunAt < PHASE_S * 1_000) {
    await sleep(Math.max(0, due - performance.now()));
    if (withMeaning && performance.now() >= dueMeant) {
      dueMeant += 1_000 / MEANT_A_SECOND;
      const one: Promise<unknown> = answer(aQuestion()).finally(() => under.delete(one));
      under.add(one);
    }
    const startedAt = performance.now();
    await answer(exact[times.length % exact.length] ?? toTurn(''));
    times.push(performance.now() - Math.min(startedAt, due + 1));
    due = Math.max(due + SURE_EVERY_MS, performance.now());
  }
  loop.disable();
  await Promise.all(under);
  return { p99: at(times, 0.99), blocked: loop.percentile(99.9) / 1e6 };
};

const rounds: { without: Awaited<ReturnType<typeof phase>>; beside: Awaited<ReturnType<typeof phase>> }[] = [];
for (let round = 0; round < ROUNDS; round += 1) rounds.push({ without: await phase(false), beside: await phase(true) });

/**
 * The memory of a process in MB: its private memory, and its share of the memory that several processes use together.
 */
const megabytesOf = (pid: number): number =>
  Number(/^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8'))?.[1] ?? 0) / 1_000;
const memory = modelProcessesOf().reduce((sum, pid) => sum + megabytesOf(pid), 0) + vectorMegabytes;
await embedder.close();

const growth = median(rounds.map(({ without, beside }) => beside.p99 / without.p99));
const blocked = median(rounds.map(({ beside }) => beside.blocked));
console.log(`\ncost of semantic search, ${knowledge.length} entries`);
console.log(
  `needs the model: ${meant.length} turns, p50 ${median(meant).toFixed(1)} ms, p95 ${at(meant, 0.95).toFixed(1)} ms`,
);
console.log(`sure by its words: p50 ${median(sure).toFixed(3)} ms`);
for (const { without, beside } of rounds) {
  console.log(
    `sure turns' p99 ${without.p99.toFixed(2)} ms, beside ${MEANT_A_SECOND} others a second ${beside.p99.toFixed(2)} ms; event loop p99.9 ${without.blocked.toFixed(1)} and ${beside.blocked.toFixed(1)} ms`,
  );
}
console.log(
  `memory: ${memory.toFixed(0)} MB, of which vectors ${vectorMegabytes.toFixed(0)} MB; ${unknown} questions found no room`,
);
for (const [name, value, limit] of [
  ['sure by its words, p50 in ms', median(sure), LIMITS.sure],
  ['needs the model, p50 in ms', median(meant), LIMITS.meant],
  ["growth of sure turns' p99", growth, LIMITS.growth],
  ['event loop, p99.9 in ms', blocked, LIMITS.blocked],
  ['megabytes a worker', memory, LIMITS.megabytes],
] as const) {
  const holds = value <= limit;
  console.log(`${holds ? 'met   ' : 'MISSED'} ${name}: ${value.toFixed(2)} (at most ${limit})`);
  if (!holds) process.exitCode = 1;
}
