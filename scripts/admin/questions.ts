import { setTimeout as sleep } from 'node:timers/promises';
import { type Command, Option } from 'commander';
import { evaluationOperations } from '../../src/evaluation/http/evaluations.ts';
import { questionSetOperations } from '../../src/evaluation/http/question-sets.ts';
import { writeQuestions } from '../../src/evaluation/question-files.ts';
import type { Answered, Api } from './api.ts';
import { ASSISTANT_OPTION, example, pointInTime, shortText, wholeNumber } from './arguments.ts';
import { Failure, usage } from './failure.ts';
import type { Answer, Run } from './session.ts';
import { readText } from './text-file.ts';
import { fields, plain, table } from './text.ts';

const POLL_EVERY_MS = 500;
const SHOWN_MAX = 100;
const FORMATS = ['csv', 'jsonl'] as const;
const SET_OPTION = ['--set <set>', 'a question set, by its id or name'] as const;
const EXAMPLE_ID = '6f1c0a52-3b1e-4a57-9d0a-2f8f1f0c7b11';

const FORMATS_HELP = `
CSV has the headings question, language, expect, value, passage. "expect" is entry (value: its id or question), page
(value: its address; passage: words of it), text (value: words of the reply) or none. A line of JSONL is
{"question", "language"?, "expected": {"kind": "entry", "entry"} | {"kind": "page", "page", "passage"?} |
{"kind": "text", "text"} | {"kind": "none"}}.`;

type Set = Answered<typeof questionSetOperations.list>['sets'][number];
type Evaluated = Answered<typeof evaluationOperations.read>;
type Result = Answered<typeof evaluationOperations.results>['results'][number];
type Format = (typeof FORMATS)[number];

const of = (assistantId: string) => ({ id: assistantId, what: 'assistant' });

const listSets = async (api: Api, assistant: string): Promise<Set[]> =>
  (await api.call(questionSetOperations.list, of(assistant))).sets;

const findSet = async (api: Api, assistant: string, wanted: string): Promise<Set> => {
  const found = (await listSets(api, assistant)).find(({ setId, name }) => setId === wanted || name === wanted);
  if (!found) throw new Failure('not_found', `There is no question set ${wanted}.`);
  return found;
};

const formatOf = (file: string, format: Format | undefined): Format => {
  const named = format ?? FORMATS.find((one) => file.toLowerCase().endsWith(`.${one}`));
  if (!named) throw usage(`The name of ${file} does not show its format: give --format ${FORMATS.join('|')}.`);
  return named;
};

export const addQuestionCommands = (program: Command, run: Run): void => {
  const questions = program.command('questions').description('Question sets: questions with expected answers');

  questions
    .command('list')
    .description('List the question sets of an assistant')
    .requiredOption(...ASSISTANT_OPTION)
    .action(({ assistant }: { assistant: string }) =>
      run(async (api) => {
        const sets = await listSets(api, assistant);
        const rows = sets.map(({ setId, name, questions: count, version }) => [setId, name, count, version]);
        return { json: sets, text: table(['SET', 'NAME', 'QUESTIONS', 'VERSION'], rows, 'There are no sets yet.') };
      }),
    );

  questions
    .command('import <file>')
    .description('Import questions into a set, which is created if there is none of this name')
    .requiredOption(...ASSISTANT_OPTION)
    .requiredOption(...SET_OPTION)
    .addOption(new Option('--format <format>', "if the file's name does not tell").choices(FORMATS))
    .option('--replace', 'remove the questions before')
    .addHelpText('after', FORMATS_HELP)
    .addHelpText('after', example(`questions import --assistant ${EXAMPLE_ID} --set Release questions.csv`))
    .action((file: string, options: { assistant: string; set: string; format?: Format; replace?: boolean }) =>
      run(async (api) => {
        const { assistant, set: wanted, replace = false } = options;
        const body = { format: formatOf(file, options.format), text: readText(file), replace };
        const known = (await listSets(api, assistant)).find(({ setId, name }) => [setId, name].includes(wanted));
        const set =
          known ?? (await api.call(questionSetOperations.create, { ...of(assistant), body: { name: wanted } }));
        const params = { setId: set.setId };
        const { imported, refused } = await api.call(questionSetOperations.import, {
          ...of(assistant),
          params,
          body,
        });
        const refusals = refused.map(({ line, reason }) => `\n  line ${line}: ${plain(reason)}`).join('');
        const text = `${imported} imported, ${refused.length} refused${refusals === '' ? '.' : `:${refusals}`}`;
        return { json: { setId: set.setId, imported, refused }, text };
      }),
    );

  addExport(questions, run);

  questions
    .command('show')
    .description('Show the questions of a set')
    .requiredOption(...ASSISTANT_OPTION)
    .requiredOption(...SET_OPTION)
    .option('--of-version <number>', 'as in one of its last 20 versions', wholeNumber(0, 1_000_000_000))
    .action(({ assistant, set: wanted, ofVersion: version }: { assistant: string; set: string; ofVersion?: number }) =>
      run(async (api) => {
        const { setId } = await findSet(api, assistant, wanted);
        const query = { version };
        const set = await api.call(questionSetOperations.read, { ...of(assistant), params: { setId }, query });
        const rows = set.cases.map(({ question, language, expected: { kind, ...value } }) => [
          question,
          language,
          kind,
          Object.values(value)[0],
        ]);
        return { json: set, text: table(['QUESTION', 'LANGUAGE', 'EXPECT', 'VALUE'], rows) };
      }),
    );
};

const addExport = (questions: Command, run: Run): void => {
  questions
    .command('export')
    .description('Print the questions of a set as a file that can be imported')
    .requiredOption(...ASSISTANT_OPTION)
    .requiredOption(...SET_OPTION)
    .addOption(new Option('--format <format>').choices(FORMATS).default('csv'))
    .action(({ assistant, set: wanted, format }: { assistant: string; set: string; format: Format }) =>
      run(async (api) => {
        const { setId } = await findSet(api, assistant, wanted);
        const set = await api.call(questionSetOperations.read, { ...of(assistant), params: { setId } });
        return { json: set.cases, text: [...writeQuestions(format, set.cases)].join('').trimEnd() };
      }),
    );
};

type EvaluateOptions = {
  assistant: string;
  set?: string;
  last: number;
  only: 'all' | 'unanswered' | 'offered' | 'escalated';
  language?: string;
  from?: Date;
  to?: Date;
  maxWrong: number;
  draft?: boolean;
  maxWorse: number;
  tokens?: number;
  dryRun?: boolean;
};

/** What the provider's replies to so many questions would probably cost. */
const estimate = async (api: Api, assistant: string, replies: number): Promise<Answer> => {
  const { tokensPerReply } = await api.call(evaluationOperations.list, of(assistant));
  const tokens = tokensPerReply && tokensPerReply * replies;
  const about =
    tokensPerReply === null
      ? 'the provider has not replied in the last 30 days, so their cost is not known'
      : `about ${tokens} tokens, as a reply used ${tokensPerReply} on average in the last 30 days`;
  return {
    json: { replies, tokensPerReply, tokens },
    text: `At most ${replies} ${replies === 1 ? 'reply' : 'replies'}: ${about}.`,
  };
};

const follow = async (api: Api, assistant: string, evaluationId: string): Promise<Evaluated> => {
  for (;;) {
    const now = await api.call(evaluationOperations.read, { ...of(assistant), params: { evaluationId } });
    if (now.endedAt !== null) return now;
    await sleep(POLL_EVERY_MS);
  }
};

const listNotRight = async (api: Api, assistant: string, evaluationId: string): Promise<Result[]> => {
  const shown: Result[] = [];
  for (const verdict of ['worse', 'wrong', 'hedged', 'offered', 'other', 'better']) {
    const query = { verdict, limit: SHOWN_MAX };
    const params = { evaluationId };
    const listed = await api.call(evaluationOperations.results, { ...of(assistant), params, query });
    shown.push(...listed.results);
  }
  return shown;
};

export const addEvaluateCommand = (program: Command, run: Run): void => {
  program
    .command('evaluate')
    .description('Answer the questions of a set, or the last ones of visitors, and judge the replies')
    .requiredOption(...ASSISTANT_OPTION)
    .option(...SET_OPTION)
    .option('--last <number>', 'without a set: so many questions of visitors (1–500)', wholeNumber(1, 500), 100)
    .addOption(
      new Option('--only <end>', 'without a set: only those with this end')
        .choices(['all', 'unanswered', 'offered', 'escalated'])
        .default('all'),
    )
    .option('--language <tag>', 'without a set: only those in this language', shortText(35))
    .option('--from <time>', 'without a set: only those asked at this time or later', pointInTime)
    .option('--to <time>', 'without a set: only those asked until then', pointInTime)
    .option('--max-wrong <number>', 'end with status 1 if more replies are wrong', wholeNumber(0, 1_000), 0)
    .option('--draft', 'compare the draft with what is live')
    .option('--max-worse <number>', 'with --draft: end with status 1 if more are worse', wholeNumber(0, 1_000), 0)
    .option('--tokens <number>', 'ask the provider, for at most so many tokens', wholeNumber(1, 1_000_000_000))
    .option('--dry-run', 'begin nothing: show what the replies of the provider would cost')
    .addHelpText('after', example(`evaluate --assistant ${EXAMPLE_ID} --set Release`))
    .action((options: EvaluateOptions) =>
      run(async (api) => {
        const { assistant, set: wanted, last, only, language = null, maxWrong, maxWorse, tokens } = options;
        const set = wanted === undefined ? null : await findSet(api, assistant, wanted);
        if (options.dryRun) return estimate(api, assistant, (set?.questions ?? last) * (options.draft ? 2 : 1));
        const time = { from: options.from?.toISOString(), to: options.to?.toISOString() };
        const questions = set ? { setId: set.setId } : { real: { limit: last, only, language, ...time } };
        const body = { ...questions, against: options.draft ? ('draft' as const) : ('live' as const), tokens };
        const begun = await api.call(evaluationOperations.create, { ...of(assistant), body });
        const ended = await follow(api, assistant, begun.evaluationId);
        const results = await listNotRight(api, assistant, begun.evaluationId);
        const rows = results.map(({ verdict, question, reply }) => [verdict, question, reply]);
        const { state, total, done, counts, provider } = ended;
        const used = provider && {
          tokens: `${provider.used} of ${provider.tokens}${provider.isUsedUp ? ', used up' : ''}`,
        };
        const text = [
          ...(rows.length > 0 ? [table(['VERDICT', 'QUESTION', 'REPLY'], rows)] : []),
          fields({ state, questions: total, answered: done, ...used, ...counts }),
        ].join('\n\n');
        const isGood = state === 'done' && counts.wrong <= maxWrong && counts.worse <= maxWorse;
        return { json: { ...ended, results }, text, status: isGood ? 0 : 1 };
      }),
    );
};
