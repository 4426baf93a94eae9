import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Embedder } from '../src/embedder/embedder.ts';
import type { TokenVectors } from '../src/embedder/token-vectors.ts';
import { decideLanguage, mainLanguage, sameLanguage } from '../src/language.ts';
import { baseLanguage } from '../src/fold.ts';
import type { PassageCalibration } from '../src/calibration.ts';
import { indexEntries, type IndexedEntry } from '../src/retrieval/knowledge-index.ts';
import { type PassageIndex, PassageIndexUpdate } from '../src/retrieval/passage-index.ts';
import { type Passage, passageText } from '../src/retrieval/passage-parts.ts';
import {
  collectPassages,
  type PassageCandidates,
  type PassageEvidence,
  passageFeatures,
  type PassageSearch,
  rankPassages,
} from '../src/retrieval/passage-search.ts';
import { quantised, rankByScore } from '../src/similarity.ts';
import { type Answering, type Choice, decideReply } from '../src/understanding.ts';
import { type Choice as FittedChoice, fitChoice, fitLogistic, rounded, type Sample } from './fit.ts';
import { loadPassageQuestions, loadPassages, type Passage as SitePassage } from './passages.ts';
import { type EvaluationModel, type Half, openReady, openTextVectors, type TextVectors } from './measure.ts';

/** Reads a page: its title, language and passages. The caller has the reader that the service uses. */
export type ReadDocument = (
  bytes: Uint8Array,
  name: string,
) => Promise<{ title: string; language: string | null; passages: { path: string[]; text: string }[] }>;

type DocumentKind = 'close' | 'paraphrased' | 'short' | 'foreign' | 'unanswerable' | 'entry';
type DocumentQuestion = {
  half: Half;
  kind: DocumentKind;
  language: string;
  evidence: string;
  question: string;
  /** Whether this text of a passage answers it. */
  isAnswer: (text: string, passage: Passage) => boolean;
};
export type DocumentSet = {
  name: string;
  languages: string[];
  /** The language of a message that says nothing: that of nearly all texts, as the service stores it. */
  usual: string | null;
  passages: Passage[];
  knowledge: IndexedEntry[];
  questions: DocumentQuestion[];
};

const plain = (text: string): string => text.replaceAll(/\s+/g, ' ').toLowerCase();
const has = (text: string, evidence: string): boolean => evidence !== '' && plain(text).includes(plain(evidence));

/** The folders of sets: sites of 31 to 40 pages, and of at most 13. */
type Folder = 'documents' | 'small';
const pathOf = (folder: Folder, ...names: string[]): string => join(import.meta.dirname, folder, ...names);
const COLUMNS = ['half', 'kind', 'language', 'page', 'evidence', 'question'];

const loadQuestionsOf = (folder: Folder, set: string): DocumentQuestion[] => {
  const [head, ...lines] = readFileSync(pathOf(folder, set, 'questions.tsv'), 'utf8')
    .trimEnd()
    .split('\n');
  if (head !== COLUMNS.join('\t')) throw new Error(`the columns of ${set}/questions.tsv have changed`);
  return lines.map((line) => {
    const [half, kind, language = '', , evidence = '', question = ''] = line.split('\t');
    const isAnswer = (text: string): boolean => has(text, evidence);
    return { half: half as Half, kind: kind as DocumentKind, language, evidence, question, isAnswer };
  });
};

const loadSet = async (folder: Folder, name: string, readDocument: ReadDocument): Promise<DocumentSet> => {
  const passages = new Map<string, Passage>();
  for (const file of readdirSync(pathOf(folder, name, 'pages')).toSorted()) {
    const {
      title,
      language,
      passages: own,
    } = await readDocument(readFileSync(pathOf(folder, name, 'pages', file)), file);
    for (const { path, text } of own) {
      const passageId = createHash('sha256')
        .update(JSON.stringify([name, file, path, text]))
        .digest('hex')
        .slice(0, 32);
      passages.set(passageId, { passageId, title, path, text, language });
    }
  }
  const entries = JSON.parse(readFileSync(pathOf(folder, name, 'entries.json'), 'utf8')) as Partial<IndexedEntry>[];
  const knowledge = entries.map(
    ({ question = '', variants = [], answer = '', language = null, tags = [] }, nth): IndexedEntry => ({
      entryId: `e${nth}`,
      question,
      variants,
      answer,
      language,
      tags,
    }),
  );
  const counts = Map.groupBy(passages.values(), ({ language }) => baseLanguage(language ?? 'en'));
  const languages = [...counts]
    .toSorted(([, one], [, other]) => other.length - one.length)
    .map(([language]) => language);
  const written = knowledge.map(({ question, answer }) => decideLanguage({ message: `${question} ${answer}` }));
  const decided = written.map(({ language, decided: isDecided }) => ({ language: isDecided ? language : null }));
  const usual = sameLanguage([mainLanguage(passages.values()), mainLanguage(decided)]);
  const questions = loadQuestionsOf(folder, name);
  return { name, languages, usual, passages: [...passages.values()], knowledge, questions };
};

export const loadSets = async (folder: Folder, readDocument: ReadDocument): Promise<DocumentSet[]> => {
  const names = readdirSync(pathOf(folder), { withFileTypes: true }).filter((one) => one.isDirectory());
  return Promise.all(names.map(({ name }) => loadSet(folder, name, readDocument)));
};

/** The pages of packages with their questions, for the fit: a question's right passages are known, but not its sentences. */
export const loadSites = (): DocumentSet[] => {
  const all = Map.groupBy(loadPassages(), ({ site }) => site);
  const questions = loadPassageQuestions();
  return [...all].map(([site, own]) => {
    const known = new Map<string, SitePassage>();
    const passages = own.map((one, nth): Passage => {
      const [heading = '', ...lines] = one.text.split('\n');
      const [title = '', ...path] = heading.split(': ');
      const passageId = `${site} ${nth}`;
      known.set(passageId, one);
      return {
        passageId,
        title,
        path: [title, path.join(': ')].filter(Boolean),
        text: lines.join('\n'),
        language: 'en',
      };
    });
    const asked = questions.filter((one) => !one.isAnswerable || own.some((passage) => one.isAnswer(passage)));
    return {
      name: 'sites',
      languages: ['en'],
      usual: 'en',
      passages,
      knowledge: [],
      questions: asked.map(({ half, message, isAnswer, isAnswerable }) => ({
        half,
        kind: isAnswerable ? 'paraphrased' : 'unanswerable',
        language: 'en',
        evidence: '',
        question: message,
        isAnswer: (_text, { passageId }) => {
          const passage = known.get(passageId);
          return passage !== undefined && isAnswer(passage);
        },
      })),
    };
  });
};

type Embedded = { vector: Float32Array; tokens: TokenVectors };
export type TokenReader = {
  of: (kind: 'query' | 'passage', text: string) => Promise<Embedded>;
  calibration: Embedder['calibration'];
  save: () => void;
};

/** The vectors of texts and of their tokens. They are kept in a file, like those of `openTextVectors`. */
export const openTokens = async (embedder: Embedder, folder: string): Promise<TokenReader> => {
  const options = { holder: 'eval', priority: 'background' } as const;
  const make = async (asked: string, kind: 'query' | 'passage'): Promise<Embedded> => {
    const [whole] = (await embedder.embedTokens([asked], kind, options)) ?? [];
    if (whole) return { vector: whole.vector, tokens: whole };
    const [vector] = (await embedder.embed([asked], kind, options)) ?? [];
    if (!vector) throw new Error(`no vectors: ${embedder.status().detail}`);
    return { vector, tokens: { kind: '-', tokens: new Int8Array() } }; // a model that gives none of its tokens
  };
  const { kind: kindNow } = (await make('', 'query')).tokens;
  const file = join(folder, 'documents-tokens.txt');
  const known = new Map<string, Embedded>();
  const bytes = (text = ''): ArrayBuffer => Uint8Array.from(Buffer.from(text, 'base64')).buffer;
  for (const line of existsSync(file) ? readFileSync(file, 'utf8').split('\n').filter(Boolean) : []) {
    const [key = '', kind = '', vector, tokens] = line.split(' ');
    if (kind.startsWith(`${embedder.model()}+`) && kind !== kindNow) continue; // by another projection
    known.set(key, { vector: new Float32Array(bytes(vector)), tokens: { kind, tokens: new Int8Array(bytes(tokens)) } });
  }
  let made = 0;
  const text = (values: Float32Array | Int8Array): string =>
    Buffer.from(values.buffer, values.byteOffset, values.byteLength).toString('base64');
  const save = (): void => {
    if (made === 0) return;
    mkdirSync(folder, { recursive: true });
    const lines = [...known].map(
      ([key, { vector, tokens }]) => `${key} ${tokens.kind} ${text(vector)} ${text(tokens.tokens)}\n`,
    );
    writeFileSync(`${file}.${process.pid}`, lines.join(''));
    renameSync(`${file}.${process.pid}`, file);
    made = 0;
  };
  return {
    save,
    calibration: embedder.calibration,
    of: async (kind, asked) => {
      const key = createHash('sha256').update(`${embedder.model()} ${kind}\n${asked}`).digest('base64url').slice(0, 22);
      const kept = known.get(key);
      if (kept) return kept;
      const one = await make(asked, kind);
      known.set(key, one);
      made += 1;
      if (made === 200) save();
      return one;
    },
  };
};

type SearchOptions = { tokens: TokenReader | null; evidence: PassageEvidence };

const finished = (update: PassageIndexUpdate): PassageIndex => {
  const steps = update.finish();
  let step = steps.next();
  while (!step.done) step = steps.next();
  return step.value;
};

/** The search of a set's passages, as a worker has it. */
export const searchOf = async (
  { passages, languages }: DocumentSet,
  { tokens, evidence }: SearchOptions,
): Promise<PassageSearch> => {
  const update = new PassageIndexUpdate(null, { model: 'eval', language: languages[0] ?? 'en' });
  const known = new Map<string, { passage: Passage; tokens: Int8Array | null }>();
  for (const passage of passages) {
    const made = tokens && evidence !== 'words' ? await tokens.of('passage', passageText(passage)) : null;
    update.add({ ...passage, vector: made && quantised(made.vector) });
    known.set(passage.passageId, { passage, tokens: made?.tokens.tokens ?? null });
  }
  return {
    index: finished(update),
    ...(tokens && { calibration: tokens.calibration }),
    embed: async (question) => {
      if (!tokens || evidence === 'words') return null;
      const made = await tokens.of('query', question);
      return evidence === 'tokens' ? made : { vector: made.vector, tokens: null };
    },
    read: async (passageIds) => passageIds.flatMap((passageId) => known.get(passageId) ?? []),
  };
};

/** What a reply is worth: `inReply` and `inButtons` count the evidence, `refused` neither gives nor offers anything. */
type DocumentOutcome = 'right' | 'hedged' | 'offered' | 'wrong' | 'hedgedWrong' | 'othersOffered' | 'refused';
type MeasuredDocument = { set: string; asked: DocumentQuestion; outcome: DocumentOutcome; explanation: string };

const textOf = (choice: Choice): string => (choice.entry ? choice.entry.answer : choice.quote);
/** What a button leads to: the answer of an entry, or all below the headings of a passage. */
const isBehind = (choice: Choice, { passages }: DocumentSet, evidence: string): boolean => {
  if (choice.entry) return has(choice.entry.answer, evidence);
  const { title, path } = choice.passage;
  const isSame = (one: Passage): boolean => one.title === title && one.path.join('\n') === path.join('\n');
  return passages.some((one) => isSame(one) && has(one.text, evidence));
};

type With = { entries: boolean; passages: boolean };

const measureSet = async (
  set: DocumentSet,
  search: PassageSearch,
  { entries, passages }: With,
  { vectors, answering }: { vectors: TextVectors | null; answering: Answering },
): Promise<MeasuredDocument[]> => {
  const index = entries ? indexEntries({ knowledge: set.knowledge, languages: set.languages }) : null;
  const semanticSearch =
    entries && vectors ? vectors.semanticSearchOf(await vectors.vectorEntries(set.knowledge)) : undefined;
  const measured: MeasuredDocument[] = [];
  for (const asked of set.questions) {
    if (asked.kind === 'entry' && !entries) continue;
    const message = asked.question;
    const { language } = decideLanguage({ message, allowed: [], usual: set.usual });
    const decision = await decideReply({
      message,
      language,
      index,
      answering,
      threshold: null,
      history: async () => [],
      semanticSearch,
      passages: passages ? search : undefined,
    });
    const { evidence } = asked;
    let outcome: DocumentOutcome = 'refused';
    if (decision.kind === 'answer') outcome = has(textOf(decision), evidence) ? 'right' : 'wrong';
    if (decision.kind === 'hedge') {
      const isOffered = [decision, ...decision.others.slice(0, 2)].some((one) => isBehind(one, set, evidence));
      outcome = has(textOf(decision), evidence) ? 'hedged' : isOffered ? 'offered' : 'hedgedWrong';
    }
    if (decision.kind === 'askBack') {
      const isOffered = decision.choices.slice(0, 3).some((choice) => isBehind(choice, set, evidence));
      outcome = isOffered ? 'offered' : 'othersOffered';
    }
    const explanation = `[${set.name} ${asked.kind} ${language}] ${message} → ${evidence || 'none'}; ${JSON.stringify(decision.why.passages ?? decision.why.hits)}`;
    measured.push({ set: set.name, asked, outcome, explanation });
  }
  return measured;
};

const share = (of: MeasuredDocument[], ...outcomes: DocumentOutcome[]): string =>
  of.length === 0
    ? '–'
    : ((100 * of.filter(({ outcome }) => outcomes.includes(outcome)).length) / of.length).toFixed(1);

const TITLES = ['n', 'right', 'hedged', 'in reply', 'or offered', 'wrong', 'hedged wrong', 'others', 'refused'];
const head = (title: string): void =>
  console.log(`\n${[title.padEnd(34), ...TITLES.map((one) => one.padStart(12))].join('')}`);
const line = (name: string, of: MeasuredDocument[]): void => {
  if (of.length === 0) return;
  const cells = [
    String(of.length),
    share(of, 'right'),
    share(of, 'hedged'),
    share(of, 'right', 'hedged'),
    share(of, 'right', 'hedged', 'offered'),
    share(of, 'wrong'),
    share(of, 'hedgedWrong'),
    share(of, 'othersOffered'),
    share(of, 'refused'),
  ];
  console.log([name.padEnd(34), ...cells.map((cell) => cell.padStart(12))].join(''));
};

const isAnswerable = ({ asked }: MeasuredDocument): boolean => asked.kind !== 'unanswerable';
const isPage = (one: MeasuredDocument): boolean => isAnswerable(one) && one.asked.kind !== 'entry';

type DocumentOptions = { folder: Folder; half: Half; isWordsOnly: boolean; answering: Answering };

export const openAll = async (model: EvaluationModel, isWordsOnly: boolean) => {
  if (isWordsOnly) return { vectors: null, tokens: null, close: async () => undefined };
  const embedder = await openReady(model);
  const vectors = await openTextVectors({ ...model, open: async () => embedder });
  if ('none' in vectors) {
    console.log(`no model (${vectors.none}): words alone are measured`);
    return { vectors: null, tokens: null, close: async () => undefined };
  }
  const tokens = await openTokens(embedder, model.folder);
  const close = async (): Promise<void> => {
    tokens.save();
    await vectors.close();
  };
  return { vectors, tokens, close };
};

/** Measures the sets of a folder with all that a worker has: entries, passages and the model. */
export const measureDocuments = async (
  model: EvaluationModel,
  readDocument: ReadDocument,
  { folder, half }: Pick<DocumentOptions, 'folder' | 'half'>,
): Promise<{ share: (isAnswered: boolean, ...outcomes: DocumentOutcome[]) => number }> => {
  const { vectors, tokens, close } = await openAll(model, false);
  const measured: MeasuredDocument[] = [];
  for (const set of await loadSets(folder, readDocument)) {
    const search = await searchOf(set, { tokens, evidence: 'tokens' });
    const questions = set.questions.filter((one) => one.half === half);
    const used = { vectors, answering: 'balanced' as const };
    measured.push(...(await measureSet({ ...set, questions }, search, { entries: true, passages: true }, used)));
  }
  await close();
  return {
    share: (isAnswered, ...outcomes) => {
      const of = measured.filter((one) => isAnswerable(one) === isAnswered);
      return of.filter(({ outcome }) => outcomes.includes(outcome)).length / of.length;
    },
  };
};

/** Measures how often the reply has the evidence: entries alone, passages alone, and both. */
export const reportDocuments = async (
  model: EvaluationModel,
  readDocument: ReadDocument,
  { folder, half, isWordsOnly, answering }: DocumentOptions,
): Promise<void> => {
  const sets = await loadSets(folder, readDocument);
  const { vectors, tokens, close } = await openAll(model, isWordsOnly);
  const evidences: PassageEvidence[] = tokens ? ['tokens', 'vectors', 'words'] : ['words'];
  for (const evidence of evidences) {
    const used = { vectors: evidence === 'words' ? null : vectors, answering };
    const kinds: [string, With][] = [
      ['entries alone', { entries: true, passages: false }],
      ['passages alone', { entries: false, passages: true }],
      ['both', { entries: true, passages: true }],
    ];
    const searches = new Map<DocumentSet, PassageSearch>();
    for (const set of sets) searches.set(set, await searchOf(set, { tokens, evidence }));
    tokens?.save();
    console.log(`\n== ${half} half, ${answering}, by ${evidence}`);
    for (const [name, what] of kinds) {
      const measured: MeasuredDocument[] = [];
      for (const [set, search] of searches) measured.push(...(await measureSet(set, search, what, used)));
      const counted = measured.filter(({ asked }) => asked.half === half);
      head(name);
      line('pages answer', counted.filter(isPage));
      if (what.passages) {
        for (const [set, of] of Map.groupBy(counted.filter(isPage), ({ set: own }) => own)) line(`  ${set}`, of);
        for (const [kind, of] of Map.groupBy(counted.filter(isPage), ({ asked }) => asked.kind))
          line(`  kind ${kind}`, of);
      }
      line(
        'entries answer',
        counted.filter(({ asked }) => asked.kind === 'entry'),
      );
      line(
        'unanswerable',
        counted.filter((one) => !isAnswerable(one)),
      );
      if (half === 'tune' && what.passages && what.entries && evidence === evidences[0]) {
        for (const { outcome, explanation } of counted.filter((one) => one.outcome !== 'right'))
          console.log(`${outcome} ${explanation}`);
      }
    }
  }
  for (const { name, passages, questions } of sets) {
    const pages = questions.filter(
      ({ kind, half: own }) => own === half && kind !== 'entry' && kind !== 'unanswerable',
    );
    const reachable = pages.filter(({ evidence }) => passages.some(({ text }) => has(text, evidence)));
    console.log(
      `${name}: ${passages.length} passages; ${reachable.length} of ${pages.length} questions have their evidence in one`,
    );
  }
  await close();
};

/** A question asked of `size` passages of a site, or of all of them (null), for the fit. */
type Example = { set: string; weight: number; size: number | null; asked: DocumentQuestion; found: PassageCandidates };

const RIDGE = { score: 0.01, confidence: 0.01 };
/**
 * Each question is also asked of parts of its site, with and without the passages that answer it, because most sites are
 * small. `weight`: of each part, and `site` of each question on packages.
 */
const CUT = { sizes: [1, 5, 13, 50, 300], weight: 0.25, site: 0.5 };

/** At most `size` passages, whole pages as far as they fit. The order of the pages depends on the question. */
const cut = ({ passages }: DocumentSet, { question, isAnswer }: DocumentQuestion, size: number, isTold: boolean) => {
  const right = passages.filter((one) => isAnswer(one.text, one));
  const rank = ({ title }: Passage): string => createHash('sha256').update(`${question}\n${title}`).digest('hex');
  const others = passages
    .filter((one) => !right.includes(one))
    .map((one) => ({ one, rank: rank(one) }))
    .toSorted((one, other) => one.rank.localeCompare(other.rank))
    .map(({ one }) => one);
  return [...(isTold ? right.slice(0, 1) : []), ...others].slice(0, size);
};

const examplesOf = async (
  sets: DocumentSet[],
  tokens: TokenReader | null,
  evidence: PassageEvidence,
): Promise<Example[]> => {
  const examples: Example[] = [];
  for (const set of sets) {
    const whole = await searchOf(set, { tokens, evidence });
    for (const asked of set.questions.filter(({ half, kind }) => half === 'tune' && kind !== 'entry')) {
      const { language } = decideLanguage({ message: asked.question, allowed: [], usual: set.usual });
      const ask = async (search: PassageSearch, weight: number, size: number | null = null): Promise<void> => {
        const found = await collectPassages(search, asked.question, baseLanguage(language));
        if (found.candidates.length > 0) examples.push({ set: set.name, weight, size, asked, found });
      };
      const own = set.name === 'sites' ? CUT.site : 1;
      await ask(whole, own);
      for (const size of CUT.sizes.filter((one) => one < set.passages.length)) {
        for (const isTold of asked.kind === 'unanswerable' ? [false] : [true, false]) {
          const passages = cut(set, asked, size, isTold);
          await ask(await searchOf({ ...set, passages }, { tokens, evidence }), own * CUT.weight, size);
        }
      }
    }
  }
  return examples;
};

const fitPassages = (examples: Example[]): PassageCalibration => {
  const choices = examples.flatMap(({ asked, found, weight }): FittedChoice[] => {
    const right = found.candidates.map(({ passage }) => asked.isAnswer(passage.text, passage));
    if (!right.includes(true) || !right.includes(false)) return [];
    return [{ features: found.candidates.map(({ scoreFeatures }) => scoreFeatures), right, weight }];
  });
  const score = fitChoice(choices, RIDGE.score);
  const samples = examples.map(({ asked, found, weight }): Sample => {
    const ranked = rankByScore(found.candidates, score);
    const [first] = ranked;
    const right = first !== undefined && asked.isAnswer(first.quote()?.text ?? '', first.passage);
    return { features: passageFeatures(found, ranked, 0), right, weight };
  });
  return { score, confidence: fitLogistic(samples, RIDGE.confidence) };
};

/** What a fit tells of a question: the first quote and its passage, and whether the answer is among the first four. */
type Told = {
  set: string;
  asked: DocumentQuestion;
  confidence: number;
  right: boolean;
  passage: boolean;
  three: boolean;
};

/** Fits the confidence of passages to the tune halves, and measures each set by a fit to the others. */
export const fitDocuments = async (
  tokens: TokenReader,
  readDocument: ReadDocument,
  evidences: readonly PassageEvidence[] = ['tokens', 'vectors', 'words'],
): Promise<Map<PassageEvidence, PassageCalibration>> => {
  const sets = [
    ...(await loadSets('documents', readDocument)),
    ...(await loadSets('small', readDocument)),
    ...loadSites(),
  ];
  const fitted = new Map<PassageEvidence, PassageCalibration>();
  for (const evidence of evidences) {
    const examples = await examplesOf(sets, tokens, evidence);
    tokens.save();
    const all = fitPassages(examples);
    fitted.set(evidence, all);
    console.log(
      `\n${evidence}: ${examples.length} examples\n  score: ${rounded(all.score)},\n  confidence: ${rounded(all.confidence)},`,
    );
    const told: Told[] = [];
    for (const name of new Set(sets.map((one) => one.name))) {
      const calibration = fitPassages(examples.filter(({ set }) => set !== name));
      for (const { set, asked, found } of examples.filter((one) => one.set === name && one.size === null)) {
        const ranked = await rankPassages(found, calibration);
        const [first] = ranked;
        told.push({
          set,
          asked,
          confidence: first?.confidence ?? 0,
          right: first !== undefined && asked.isAnswer(first.quote, first.passage),
          passage: first !== undefined && asked.isAnswer(first.passage.text, first.passage),
          three: ranked.slice(0, 4).some(({ passage }) => asked.isAnswer(passage.text, passage)),
        });
      }
    }
    // The questions on packages are harder than those of visitors, so they only help to fit.
    const visitors = told.filter(({ set }) => set !== 'sites');
    const known = visitors.filter(({ asked }) => asked.kind !== 'unanswerable');
    const unknown = visitors.filter(({ asked }) => asked.kind === 'unanswerable');
    const percent = (of: Told[], is: (one: Told) => boolean): string =>
      `${((100 * of.filter(is).length) / of.length).toFixed(1)} %`.padStart(9);
    const loss = -told.reduce((sum, { right, confidence }) => sum + Math.log(right ? confidence : 1 - confidence), 0);
    console.log(`each set by a fit to the others: log loss ${(loss / told.length).toFixed(3)}`);
    for (const [set, of] of Map.groupBy(known, (one) => one.set))
      console.log(
        `  ${set.padEnd(10)} quote right ${percent(of, ({ right }) => right)}  passage first ${percent(of, ({ passage }) => passage)}  among four ${percent(of, ({ three }) => three)}`,
      );
    console.log('from    quote right    wrong   among four   unanswerable');
    for (const least of [
      0, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.7, 0.8, 0.9,
    ]) {
      const is = (one: Told): boolean => one.confidence >= least;
      console.log(
        `${String(least).padEnd(6)} ${percent(known, (one) => is(one) && one.right)} ${percent(known, (one) => is(one) && !one.right)} ${percent(known, (one) => is(one) && one.three)} ${percent(unknown, is)}`,
      );
    }
  }
  return fitted;
};
