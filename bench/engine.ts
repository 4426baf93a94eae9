/**
 * `npm run bench -- engine` measures the retrieval engine with 2,000 entries: the time of a turn, and the memory of the
 * index.
 */
import { createRetrievalEngine } from '../src/replies/engines/retrieval.ts';
import type { AssistantProfile, EngineEntry } from '../src/replies/engines/engine.ts';
import { decideLanguage } from '@parley/understanding/text';
import { BASES, loadBase, loadChatMessages, loadQuestions } from '@parley/understanding/evaluation';

const ENTRIES = 2000;
const ROUNDS = 21;
const LIMITS = { p50: 0.5, p99: 3 };

const SUBJECTS =
  'bicycle helmet lamp invoice subscription appointment parcel voucher printer router camera jacket battery licence ticket'.split(
    ' ',
  );
const PLACES = 'Berlin Paris Vienna Madrid Rome Oslo Lisbon Prague Athens Dublin'.split(' ');

/**
 * The entries of the three evaluation sets, and generated entries that share words with those, as in a large catalogue.
 */
const knowledge = (): EngineEntry[] => {
  const entries = BASES.flatMap((base) =>
    loadBase(base).knowledge.map((entry) => ({ ...entry, entryId: `${base}-${entry.entryId}` })),
  );
  for (let number = entries.length; number < ENTRIES; number += 1) {
    const subject = SUBJECTS[number % SUBJECTS.length] ?? '';
    const place = PLACES[Math.floor(number / SUBJECTS.length) % PLACES.length] ?? '';
    entries.push({
      entryId: `made-${number}`,
      question: `How do I order ${subject} model ${number} in ${place}?`,
      variants: [`Price of ${subject} ${number}`, `Is the ${subject} ${number} available in ${place}`],
      answer: `The ${subject} ${number} can be ordered online and is delivered to ${place} within ${number % 9} days.`,
      language: 'en',
      actions: [],
      tags: [subject, place],
    });
  }
  return entries;
};

const megabytes = (): number => {
  globalThis.gc?.();
  return process.memoryUsage().heapUsed / 1_000_000;
};

const assistant: AssistantProfile = {
  assistantId: 'bench',
  version: '1',
  name: 'Bench',
  instructions: '',
  languages: ['en', 'de'],
  threshold: null,
  knowledge: knowledge(),
};
const messages = [
  ...loadQuestions().map(({ message }) => message),
  ...loadChatMessages().map(({ message }) => message),
  'a '.repeat(4000),
  '😀'.repeat(8000),
];
const turns = messages.map((message) => ({
  assistant,
  message,
  language: decideLanguage({ message, allowed: assistant.languages }).language,
  history: async () => [],
  signal: new AbortController().signal,
}));

const engine = createRetrievalEngine();
const before = megabytes();
const startedAt = performance.now();
for (const turn of turns.slice(0, 1)) await engine.reply(turn);
const built = performance.now() - startedAt;
const after = megabytes();

const ascending = (numbers: number[]): number[] => numbers.sort((a, b) => a - b);
const at = (sorted: number[], share: number): number =>
  sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;

const timesOf = turns.map((): number[] => []);
for (let round = 0; round < ROUNDS; round += 1) {
  for (const [number, turn] of turns.entries()) {
    const from = performance.now();
    await engine.reply(turn);
    timesOf[number]?.push(performance.now() - from);
  }
}
const all = ascending(timesOf.flat());
// Each message counts with the median of its runs, because other processes sometimes delay a single run.
const messagesAlone = ascending(timesOf.map((times) => at(ascending(times), 0.5)));
const [p50, p99] = [at(messagesAlone, 0.5), at(messagesAlone, 0.99)];
console.log(`${assistant.knowledge.length} entries, ${all.length} turns of ${turns.length} different messages`);
console.log(
  `every turn: p50 ${at(all, 0.5).toFixed(3)} ms, p99 ${at(all, 0.99).toFixed(3)} ms, longest ${at(all, 1).toFixed(1)} ms`,
);
console.log(`each message's median: p50 ${p50.toFixed(3)} ms, p99 ${p99.toFixed(3)} ms`);
console.log(
  `index built in ${built.toFixed(0)} ms, ${(after - before).toFixed(1)} MB of heap${globalThis.gc ? '' : ' (run with --expose-gc for a true figure)'}`,
);
for (const [name, value, limit] of [
  ['p50', p50, LIMITS.p50],
  ['p99', p99, LIMITS.p99],
] as const) {
  const holds = value <= limit;
  console.log(`${holds ? 'met   ' : 'MISSED'} ${name} at most ${limit} ms`);
  if (!holds) process.exitCode = 1;
}
