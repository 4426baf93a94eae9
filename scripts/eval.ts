/**
 * `node scripts/eval.ts` measures answers, `node scripts/eval.ts language` the language decision, on the labelled sets
 * of test/eval. Figures are of the report half; `--tune` shows the other half, with every miss, for work on the engine.
 */
import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { baseLanguage, decideLanguage } from '../src/turns/language.ts';
import type { AssistantProfile, KnowledgeEntry } from '../workers/reply/engines/engine.ts';
import { createRetrievalEngine } from '../workers/reply/engines/retrieval/engine.ts';
import { readTerms } from '../workers/reply/engines/retrieval/terms.ts';

/** What the figures must reach; the exit status says whether they did. */
const LIMITS = { answeredRight: 0.85, wrongAnswers: 0.05, language: 0.95, unlikeStored: 0.4, mustNotBeAnswered: 0.25 };

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { tune: { type: 'boolean', default: false }, threshold: { type: 'string' } },
});
const half = values.tune ? 'tune' : 'report';

const path = (name: string): URL => new URL(`../test/eval/${name}`, import.meta.url);
const table = (name: string): string[][] =>
  readFileSync(path(name), 'utf8')
    .trimEnd()
    .split('\n')
    .slice(1)
    .map((line) => line.split('\t'));
const percent = (part: number, whole: number): string => (whole === 0 ? '–' : `${((100 * part) / whole).toFixed(1)} %`);

const failures: string[] = [];
const mustHold = (holds: boolean, limit: string): void => {
  console.log(`${holds ? 'met   ' : 'MISSED'} ${limit}`);
  if (!holds) failures.push(limit);
};

const measureLanguage = (): void => {
  const rows = table('language.tsv');
  const languages = new Set(rows.map(([expected = '']) => baseLanguage(expected)));
  console.log(`${rows.length} messages in ${languages.size} languages; counted: the ${half} half`);
  let right = 0;
  let counted = 0;
  let milliseconds = 0;
  const misses: string[] = [];
  for (const [expected = '', split, allowed = '', message = ''] of rows) {
    if (split !== half) continue;
    const startedAt = performance.now();
    const decision = decideLanguage({ message, allowed: allowed === '' ? [] : allowed.split(',') });
    milliseconds += performance.now() - startedAt;
    counted += 1;
    if (decision.language === expected) right += 1;
    else
      misses.push(
        `${expected} taken for ${decision.language} (${decision.by}${decision.decided ? '' : ', undecided'}): ${message}`,
      );
  }
  // The report half is counted, never read: looking at its misses would turn it into a second tune half.
  if (values.tune) for (const miss of misses) console.log(miss);
  console.log(
    `right ${right} of ${counted} (${percent(right, counted)}), ${(milliseconds / counted).toFixed(3)} ms a message`,
  );
  mustHold(right / counted >= LIMITS.language, `language right in at least ${LIMITS.language * 100} %`);
};

type Base = { name: string; languages: string[]; knowledge: KnowledgeEntry[] };
const loadBase = (name: string): AssistantProfile => {
  const base = JSON.parse(readFileSync(path(`${name}.json`), 'utf8')) as Base;
  const threshold = values.threshold ? Number(values.threshold) : null;
  return { assistantId: name, version: '1', instructions: '', threshold, ...base };
};

type Counts = {
  answeredRight: number;
  answeredWrong: number;
  askedBack: number;
  refusedRight: number;
  refusedWrong: number;
};
const none = (): Counts => ({ answeredRight: 0, answeredWrong: 0, askedBack: 0, refusedRight: 0, refusedWrong: 0 });
const whole = (counts: Counts): number => Object.values(counts).reduce((sum, count) => sum + count, 0);

/** Translations of an entry carry its name and a language. */
const sameEntry = (entryId: string, expected: string): boolean => entryId.replace(/-(de|en)$/, '') === expected;

/** Share of a message's stems that its nearest stored question holds. */
const sharedStems = (message: string, language: string, knowledge: KnowledgeEntry[]): number => {
  const asked = new Set(readTerms(message, language).map((term) => term.stem));
  if (asked.size === 0) return 1;
  const shares = knowledge.flatMap((entry) =>
    [entry.question, ...entry.variants].map((wording) => {
      const stored = new Set(readTerms(wording, baseLanguage(entry.language ?? 'en')).map((term) => term.stem));
      return [...asked].filter((stem) => stored.has(stem)).length / asked.size;
    }),
  );
  return Math.max(...shares);
};

const measureAnswers = async (): Promise<void> => {
  const engine = createRetrievalEngine();
  const bases = new Map(['shop', 'clinic', 'software'].map((name) => [name, loadBase(name)]));
  const rows = table('questions.tsv');
  const byLanguage = new Map<string, { answerable: Counts; other: Counts }>();
  const total = { answerable: none(), other: none() };
  let unlike = 0;
  let answerableRows = 0;
  for (const [base = '', language = '', split, expected = '', message = ''] of rows) {
    const assistant = bases.get(base);
    if (!assistant) throw new Error(`no knowledge base ${base}`);
    const answerable = expected !== '-';
    if (answerable) answerableRows += 1;
    if (answerable && sharedStems(message, language, assistant.knowledge) <= 0.5) unlike += 1;
    if (split !== half) continue;
    const decided = decideLanguage({ message, allowed: assistant.languages });
    const turn = { assistant, message, language: decided.language, history: [], signal: new AbortController().signal };
    const reply = await engine.reply(turn);
    const { kind, hits } = reply.why as { kind: string; hits: { entryId: string; score: number }[] };
    const top = hits[0]?.entryId ?? '';
    const offered = hits.slice(0, reply.suggestedActions.length).some((hit) => sameEntry(hit.entryId, expected));
    let outcome: keyof Counts = answerable ? 'refusedWrong' : 'refusedRight';
    if (kind === 'answer') outcome = answerable && sameEntry(top, expected) ? 'answeredRight' : 'answeredWrong';
    if (kind === 'askBack') outcome = answerable && offered ? 'askedBack' : 'answeredWrong';
    const counts = byLanguage.get(language) ?? { answerable: none(), other: none() };
    byLanguage.set(language, counts);
    const side = answerable ? 'answerable' : 'other';
    counts[side][outcome] += 1;
    total[side][outcome] += 1;
    if (values.tune && outcome !== 'answeredRight' && outcome !== 'refusedRight') {
      const scores = hits.map((hit) => `${hit.entryId} ${hit.score}`).join(', ');
      console.log(`${outcome} [${base} ${decided.language}] ${message} → ${expected}; ${kind}: ${scores}`);
    }
  }

  console.log(`${rows.length} questions; ${percent(rows.length - answerableRows, rows.length)} must not be answered;`);
  console.log(
    `${percent(unlike, answerableRows)} of the answerable share at most half their stems with any stored question`,
  );
  console.log(`counted: the ${half} half\n`);
  console.log('language  questions  answered-right  asked-back  answered-wrong  refused-right  refused-wrong');
  const line = (name: string, { answerable: a, other: o }: { answerable: Counts; other: Counts }): void =>
    console.log(
      [
        name.padEnd(8),
        String(whole(a) + whole(o)).padStart(10),
        String(a.answeredRight).padStart(15),
        String(a.askedBack).padStart(11),
        `${a.answeredWrong}+${o.answeredWrong}`.padStart(15),
        String(o.refusedRight).padStart(14),
        String(a.refusedWrong).padStart(14),
      ].join(' '),
    );
  for (const [language, counts] of [...byLanguage].sort()) line(language, counts);
  line('all', total);
  console.log('(answered-wrong: on answerable + on those that must not be answered)\n');

  const right = total.answerable.answeredRight + total.answerable.askedBack;
  const answerable = whole(total.answerable);
  const wrong = total.other.answeredWrong;
  const other = whole(total.other);
  console.log(
    `answerable: right ${percent(right, answerable)}, of these asked back ${percent(total.answerable.askedBack, answerable)},`,
  );
  console.log(
    `  wrong ${percent(total.answerable.answeredWrong, answerable)}, refused ${percent(total.answerable.refusedWrong, answerable)}`,
  );
  console.log(`must not be answered: answered ${percent(wrong, other)}\n`);
  mustHold(
    unlike / answerableRows >= LIMITS.unlikeStored,
    'at least 40 % of the answerable are unlike any stored question',
  );
  mustHold(
    (rows.length - answerableRows) / rows.length >= LIMITS.mustNotBeAnswered,
    'at least 25 % must not be answered',
  );
  mustHold(right / answerable >= LIMITS.answeredRight, 'at least 85 % of the answerable right');
  mustHold(wrong / other <= LIMITS.wrongAnswers, 'at most 5 % of the others answered');
};

if (positionals[0] === 'language') measureLanguage();
else await measureAnswers();
process.exitCode = failures.length > 0 ? 1 : 0;
