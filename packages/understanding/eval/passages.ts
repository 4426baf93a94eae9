import { createHash } from 'node:crypto';
import { globSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { mean } from '../src/embedder/backend.ts';
import { LOCAL_PIECES } from '../src/embedder/embedder.ts';
import { piecesOf, readable } from '../src/embedder/embedding.ts';
import { openSession } from '../src/embedder/model-files.ts';
import {
  createProjection,
  joinTokens,
  rankByTokens,
  TOKEN_DIMENSIONS,
  writtenProjection,
} from '../src/embedder/token-vectors.ts';
import { BASES, type Half, loadBase, loadChatMessages, loadQuestions, loadUnseen, UNSEEN_BASES } from './measure.ts';

/** A part of a page, as it would be stored of a document. `sections` are its headings, each behind
 * its page's name. */
export type Passage = { site: string; sections: string[]; text: string };

export type PassageQuestion = {
  half: Half;
  message: string;
  /** Whether a passage answers it. */
  isAnswer: (passage: Passage) => boolean;
  isAnswerable: boolean;
};

const MODULES = join(import.meta.dirname, '../../../node_modules');
/** The pages of each site. They belong to installed packages, whose versions are locked. */
const SITES: Record<string, string[]> = {
  http: ['undici/docs/docs/**/*.md'],
  logs: ['pino/docs/*.md', 'pino-pretty/Readme.md', 'thread-stream/README.md', 'sonic-boom/README.md'],
  data: ['ioredis', 'mongodb', 'mongoose', 'mquery', 'connect-mongo', 'express-session', 'bson', 'sift'].map(
    (name) => `${name}/README.md`,
  ),
  tools: [
    'commander/Readme.md',
    ...['wouter', 'yauzl', 'prom-client', 'lru-cache', 'helmet', 'cron-parser', 'qs', 'fast-check'].map(
      (name) => `${name}/README.md`,
    ),
  ],
};

const OTHER_PAGES = [
  'body-parser',
  'semver',
  'router',
  'picomatch',
  'magic-string',
  'rate-limiter-flexible',
  'debug',
].map((name) => `${name}/README.md`);

/** A passage has at most so many words, and aims at so many at least. */
const WORDS = { most: 160, least: 60 };
/** What is shorter and stands alone says hardly more than its heading. */
const LEAST_OF_PASSAGE = 15;

/** What a reader of the page sees: links by their words, without pictures, marks and raw HTML. */
const readableLine = (line: string): string =>
  line
    .split('`')
    .map((part, nth) => (nth % 2 === 1 ? part : part.replaceAll(/<[^>]*>/g, '')))
    .join(' ')
    .replaceAll(/!\[[^\]]*\](\([^)]*\)|\[[^\]]*\])/g, '')
    .replaceAll(/\[([^\]]*)\](\([^)]*\)|\[[^\]]*\])/g, '$1')
    .replaceAll(/[*|]+|-{3,}/g, ' ')
    .replaceAll(/\s+/g, ' ')
    .trim();

/** The sections of a page in order, each with its words. Blocks of code are left out. */
const sectionsOf = (page: string): { heading: string; words: string[] }[] => {
  const sections: { heading: string; words: string[] }[] = [{ heading: '', words: [] }];
  let isCode = false;
  for (const line of page.replaceAll(/<!--[\s\S]*?-->/g, '').split('\n')) {
    if (/^\s*(```|~~~)/.test(line)) isCode = !isCode;
    else if (!isCode) {
      const [, heading] = /^#+ +(.*?)#*$/.exec(line) ?? [];
      if (heading !== undefined) sections.push({ heading: readableLine(heading), words: [] });
      else sections.at(-1)?.words.push(...readableLine(line).split(' ').filter(Boolean));
    }
  }
  return sections;
};

/** Cuts a text into parts of a passage's length, between words. */
const cut = (words: string[]): string[] => {
  const parts = Math.ceil(words.length / WORDS.most);
  const size = Math.ceil(words.length / parts);
  return Array.from({ length: parts }, (_, nth) => words.slice(nth * size, (nth + 1) * size).join(' '));
};

/** Short sections that follow each other are one passage. */
const passagesOf = (site: string, file: string): Passage[] => {
  const sections = sectionsOf(readFileSync(join(MODULES, file), 'utf8'));
  const title = sections.find(({ heading }) => heading !== '')?.heading ?? '';
  const name = file.replace(/^undici\/docs\/docs\//, '').replace(/\.md$/i, '');
  const passages: Passage[] = [];
  let open: { headings: string[]; words: string[] } = { headings: [], words: [] };
  const close = (): void => {
    const first = open.headings.find((heading) => heading !== '') ?? title;
    const path = first === title ? title : `${title}: ${first}`;
    const inside = open.headings.map((heading) => `${name}#${heading}`);
    if (open.words.length >= LEAST_OF_PASSAGE)
      for (const text of cut(open.words)) passages.push({ site, sections: inside, text: `${path}\n${text}` });
    open = { headings: [], words: [] };
  };
  for (const { heading, words } of sections) {
    if (open.words.length + words.length > WORDS.most || open.words.length >= WORDS.least) close();
    open.words.push(...(open.headings.length > 0 ? heading.split(' ') : []), ...words);
    open.headings.push(heading);
  }
  close();
  return passages;
};

const passagesOfSites = (sites: Record<string, string[]>): Passage[] =>
  Object.entries(sites).flatMap(([site, patterns]) =>
    globSync(patterns, { cwd: MODULES })
      .toSorted()
      .flatMap((file) => passagesOf(site, file)),
  );

export const loadPassages = (): Passage[] => passagesOfSites(SITES);

/** Passages of other pages, to which the projection of token vectors is fitted. */
export const loadOtherPassages = (): Passage[] => passagesOfSites({ other: OTHER_PAGES });

/** A question belongs to a half by its hash, which was so before anything was measured. */
const halfOf = (message: string): Half =>
  (createHash('sha256').update(message).digest()[0] as number) % 2 === 0 ? 'tune' : 'report';

/** `page#heading`, and after `~` words that only the right passage of a long section has. `-`: none answers it. */
export const loadPassageQuestions = (): PassageQuestion[] =>
  readFileSync(new URL('passages.tsv', import.meta.url), 'utf8')
    .trimEnd()
    .split('\n')
    .slice(1)
    .map((line) => {
      const [expected = '', message = ''] = line.split('\t');
      const [section = '', words = ''] = expected.split('~');
      const isAnswer = ({ sections, text }: Passage): boolean => sections.includes(section) && text.includes(words);
      return { half: halfOf(message), message, isAnswer, isAnswerable: expected !== '-' };
    });

/** How many passages the one vector finds for the second stage. */
const CANDIDATES = 30;
/** Of the unanswerable questions, the share that may be answered. */
const MAY_BE_ANSWERED = 0.05;

type Kind = 'query' | 'passage';
type Ranked = { passage: Passage; score: number }[];
type Asked = { question: PassageQuestion; ranked: Ranked };

const product = (one: Float32Array, other: Float32Array): number => {
  let sum = 0;
  for (let at = 0; at < one.length; at += 1) sum += (one[at] as number) * (other[at] as number);
  return sum;
};

type Session = Pick<Awaited<ReturnType<typeof openSession>>, 'run' | 'dimensions'>;

/** The states of a text's own tokens, each of length 1, and its one vector, as the embedder would make it. */
const createReader =
  ({ run, dimensions }: Session) =>
  async (text: string, kind: Kind) => {
    const { pieceBytes: bytes, pieces: most } = LOCAL_PIECES;
    const pieces = piecesOf(readable(text), { bytes, most: most[kind] });
    const vectors: Float32Array[] = [];
    const states: Float32Array[] = [];
    for (const piece of pieces) {
      const output = await run(piece, kind, true);
      vectors.push(output.vector);
      for (let at = output.from; output.states && at < output.to; at += 1) {
        const state = output.states.slice(at * dimensions, (at + 1) * dimensions);
        const length = Math.hypot(...state);
        states.push(state.map((value) => value / length));
      }
    }
    const lengths = pieces.map(({ length }) => length);
    return { vector: mean(vectors, lengths), states };
  };

/** What the passages rank like, of a question's first candidates, by the whole states. */
const scoreOfStates = (question: Float32Array[], passage: Float32Array[]): number =>
  question.reduce((sum, one) => {
    let best = -1;
    for (const other of passage) best = Math.max(best, product(one, other));
    return sum + best / question.length;
  }, 0);

const byScore = (ranked: Ranked): Ranked => ranked.toSorted((one, other) => other.score - one.score);

/** The best candidates of a question by the one vector. */
export const findCandidates = <Known extends { vector: Float32Array }>(vector: Float32Array, all: Known[]): Known[] =>
  all
    .map((one) => ({ one, score: product(vector, one.vector) }))
    .toSorted((one, other) => other.score - one.score)
    .slice(0, CANDIDATES)
    .map(({ one }) => one);

/** Of the answerable questions, how many have their answer among the first. */
export const countRight = (asked: Asked[], first: number): number =>
  asked.filter(({ question, ranked }) => ranked.slice(0, first).some(({ passage }) => question.isAnswer(passage)))
    .length;

/** How many are answered right and wrong, if the least score for an answer lets only few unanswerable ones through. */
const countAnswered = (asked: Asked[]): { right: number; wrong: number } => {
  const ordered = asked.toSorted((one, other) => (other.ranked[0]?.score ?? 0) - (one.ranked[0]?.score ?? 0));
  let left = Math.floor(MAY_BE_ANSWERED * asked.filter(({ question }) => !question.isAnswerable).length);
  const answered = { right: 0, wrong: 0 };
  for (const one of ordered) {
    if (!one.question.isAnswerable) {
      if (left === 0) break;
      left -= 1;
    } else if (countRight([one], 1) === 1) answered.right += 1;
    else answered.wrong += 1;
  }
  return answered;
};

const report = (name: string, asked: Asked[], half: Half | null): void => {
  const counted = asked.filter(({ question }) => half === null || question.half === half);
  const { right, wrong } = countAnswered(counted);
  const answerable = counted.filter(({ question }) => question.isAnswerable).length;
  const cells = [answerable, countRight(counted, 1), countRight(counted, 3), `${right} / ${wrong}`];
  console.log([name.padEnd(28), ...cells.map((cell) => String(cell).padStart(9))].join(' '));
};

/** Measures how the passages of documents are ranked by one vector, and by the vectors of their tokens. */
export const reportPassages = async (folder: string): Promise<void> => {
  const session = await openSession(folder);
  const read = createReader(session);
  const project = createProjection(session.dimensions);
  const all = loadPassages();
  const known: (Awaited<ReturnType<typeof read>> & { passage: Passage; kind: string; tokens: Int8Array })[] = [];
  const reduced = (states: Float32Array[], kind: Kind): Int8Array =>
    joinTokens(
      states.map((state) => project(state, 0, 1)),
      kind,
    );
  for (const passage of all) {
    const one = await read(passage.text, 'passage');
    known.push({ ...one, passage, kind: '', tokens: reduced(one.states, 'passage') });
  }
  const [pooled, whole, stage]: [Asked[], Asked[], Asked[]] = [[], [], []];
  for (const question of loadPassageQuestions()) {
    const { vector, states } = await read(question.message, 'query');
    const candidates = findCandidates(vector, known);
    const scored = (score: (one: (typeof known)[number]) => number): Ranked =>
      byScore(candidates.map((one) => ({ passage: one.passage, score: score(one) })));
    pooled.push({ question, ranked: scored((one) => product(vector, one.vector)) });
    whole.push({ question, ranked: scored((one) => scoreOfStates(states, one.states)) });
    const ranked = await rankByTokens({ kind: '', tokens: reduced(states, 'query') }, candidates);
    stage.push({ question, ranked: ranked.map(({ candidate: { passage }, score }) => ({ passage, score })) });
  }
  const sizes = known.map(({ tokens }) => tokens.length).toSorted((one, other) => one - other);
  console.log(`${all.length} passages; bytes of tokens: median ${sizes[sizes.length >> 1]}, most ${sizes.at(-1)}`);
  for (const half of ['tune', 'report', null] as const) {
    console.log(`\n${(half ?? 'both').padEnd(28)} answerable   right   among 3   at 5 % right / wrong`);
    report('one vector', pooled, half);
    report('tokens, whole', whole, half);
    report(`tokens, ${TOKEN_DIMENSIONS} of 8 bits`, stage, half);
  }
};

/** The texts that the projection is fitted to: other pages, and customer service in forty languages. */
const fittingTexts = (): [Kind, string][] => [
  ...[...BASES, ...UNSEEN_BASES]
    .flatMap((name) => loadBase(name).knowledge)
    .map(({ question, answer }): [Kind, string] => ['passage', `${question}\n${answer}`]),
  ...[...loadQuestions(), ...loadUnseen(), ...loadChatMessages()].map(({ message }): [Kind, string] => [
    'query',
    message,
  ]),
  ...loadOtherPassages().map(({ text }): [Kind, string] => ['passage', text]),
];

/** Makes rows of length 1 that are at right angles to each other, in order. */
const orthogonalise = (rows: Float64Array[]): void => {
  rows.forEach((row, nth) => {
    for (const before of rows.slice(0, nth)) {
      const shared = before.reduce((sum, value, at) => sum + value * (row[at] as number), 0);
      before.forEach((value, at) => (row[at] = (row[at] as number) - shared * value));
    }
    const length = Math.hypot(...row);
    row.forEach((value, at) => (row[at] = value / length));
  });
};

/**
 * Fits the projection: the directions in which the tokens of the texts differ most, by iteration from a fixed start. False
 * if the model gives no vectors of tokens.
 */
export const fitProjection = async (session: Session, file: string): Promise<boolean> => {
  const { dimensions } = session;
  // A third more than is kept, because the last directions are the slowest to settle.
  const count = (TOKEN_DIMENSIONS * 4) / 3;
  const read = createReader(session);
  const rows: Float32Array[] = [];
  for (const [kind, text] of fittingTexts()) rows.push(...(await read(text, kind)).states);
  if (rows.length === 0 || dimensions < count) return false;
  const middle = new Float64Array(dimensions);
  for (const row of rows) row.forEach((value, at) => (middle[at] = (middle[at] as number) + value / rows.length));
  const covariance = Array.from({ length: dimensions }, () => new Float64Array(dimensions));
  for (const row of rows) {
    const centred = Float64Array.from(row, (value, at) => value - (middle[at] as number));
    for (let one = 0; one < dimensions; one += 1) {
      const into = covariance[one] as Float64Array;
      const factor = centred[one] as number;
      for (let other = 0; other < dimensions; other += 1) {
        into[other] = (into[other] as number) + factor * (centred[other] as number);
      }
    }
  }
  let directions = Array.from({ length: count }, (_, nth) =>
    Float64Array.from({ length: dimensions }, (_value, at) => Math.sin((nth + 1) * (at + 1) * 1.7)),
  );
  orthogonalise(directions);
  for (let step = 0; step < 40; step += 1) {
    directions = directions.map((direction) =>
      Float64Array.from(covariance, (row) => {
        let sum = 0;
        for (let at = 0; at < dimensions; at += 1) sum += (row[at] as number) * (direction[at] as number);
        return sum;
      }),
    );
    orthogonalise(directions);
  }
  const kept = new Float64Array(TOKEN_DIMENSIONS * dimensions);
  directions.slice(0, TOKEN_DIMENSIONS).forEach((direction, nth) => kept.set(direction, nth * dimensions));
  writeFileSync(file, writtenProjection(kept, middle));
  console.log(`tokens: fitted to ${rows.length}, ${file}`);
  return true;
};
