import * as z from 'zod';
import type { AssistantStore } from '../../assistants/store.ts';
import type { ConversationStore } from '../../conversations/store.ts';
import type { Asked, Evaluation, EvaluationResult, Evaluations } from '../evaluations.ts';
import { Expected, VerdictCounts, VERDICTS, wholeCounts } from '../question.ts';
import { createFindRealQuestions, type QuestionCase, type QuestionSets, RealQuestions } from '../question-sets.ts';
import { createCursor, cursor, wholeNumber } from '../../platform/process/validation.ts';
import { REPLY_OUTCOMES } from '../../insights/figures.ts';
import type { Insights } from '../../insights/store.ts';
import { createRestedWork } from '../../platform/http/request-slots.ts';
import { DAY_MS, serverNow } from '../../platform/process/clock.ts';
import { conflict, invalid } from '../../platform/process/errors.ts';
import { cachedByCost } from '../../platform/process/lru.ts';
import { type Handled, handled, nextCursor, operation, time, uuid } from '../../operators/operation.ts';

/** The tokens of a reply are averaged over this many days. */
const AVERAGE_OF_DAYS = 30;
/** The maximum number of results on a page. */
const LIST_MAX = 100;

const one = { audience: 'owners', resource: 'assistant' } as const;
const runs = '/assistants/:id/evaluations';
const run = `${runs}/:evaluationId`;

const AGAINST = ['live', 'draft'] as const;

const EvaluationView = z
  .object({
    evaluationId: uuid,
    state: z.enum(['waiting', 'running', 'done', 'stopped', 'failed']),
    set: z
      .object({ setId: uuid, name: z.string(), version: z.int() })
      .nullable()
      .meta({ description: 'Null: questions that visitors asked.' }),
    against: z.enum(AGAINST).meta({ description: 'What answers: only what is live, or also the draft.' }),
    provider: z.object({ tokens: z.int(), used: z.int(), isUsedUp: z.boolean() }).nullable().meta({
      description:
        'The tokens that its provider may use, and those used or reserved. `isUsedUp`: a call did not fit into these or into `tokensPerDay`. Null: no provider is asked.',
    }),
    total: z.int().min(0),
    done: z.int().min(0),
    counts: z.object(VerdictCounts),
    judged: z.object(VerdictCounts).nullable().meta({
      description: 'With a draft and a set: how the replies of the draft are judged by the expected answers.',
    }),
    createdAt: time,
    startedAt: time.nullable(),
    endedAt: time.nullable(),
  })
  .meta({ id: 'Evaluation' });

const ReplyKinds = z.enum(REPLY_OUTCOMES);

const given = {
  kind: ReplyKinds,
  confidence: z.number(),
  reply: z.string(),
  sources: z.array(z.object({ title: z.string(), url: z.string().nullable(), quote: z.string() })),
  why: z.record(z.string(), z.unknown()),
};

const ResultView = z
  .object({
    resultId: z.string(),
    question: z.string(),
    language: z.string().nullable(),
    expected: Expected.nullable(),
    caseId: uuid.nullable(),
    conversationId: uuid.nullable(),
    before: z.object({ kind: ReplyKinds, reply: z.string() }).nullable().meta({ description: 'What the visitor got.' }),
    verdict: z.enum(VERDICTS),
    ...given,
    judged: z.enum(VERDICTS).nullish().meta({ description: 'With a draft: its reply, by the expected answer.' }),
    difference: z
      .object({ before: z.array(z.string()), now: z.array(z.string()), meaning: z.number().nullable() })
      .nullish()
      .meta({
        description:
          'Of two texts, one of which a provider may have written: links, addresses, numbers and names that only one has, and the cosine of their meanings.',
      }),
    live: z
      .object({ ...given, judged: z.enum(VERDICTS).nullable() })
      .nullish()
      .meta({ description: 'What the reply of the draft is compared with.' }),
  })
  .meta({ id: 'EvaluationResult' });

export const evaluationOperations = {
  list: operation({
    ...one,
    method: 'get',
    path: runs,
    id: 'listEvaluations',
    summary: 'List the last 30 evaluations, newest first',
    answer: z.object({
      evaluations: z.array(EvaluationView),
      tokensPerReply: z.int().nullable().meta({
        description: 'What a reply of the provider used on average in the last 30 days. Null: there was none.',
      }),
    }),
  }),
  create: operation({
    ...one,
    method: 'post',
    path: runs,
    id: 'createEvaluation',
    summary: 'Answer the questions of a set, or the last ones that visitors asked, in the background',
    body: z.object({
      setId: uuid.nullish(),
      against: z.enum(AGAINST).default('live').meta({
        description: '`draft`: each question is answered by what is live and by the draft. Without one: 409.',
      }),
      real: RealQuestions.nullish().meta({ description: 'Which questions of visitors; not with `setId`.' }),
      tokens: z.int().min(1).max(1_000_000_000).nullish().meta({
        description: 'The tokens that the provider may use. Null: it is not asked.',
      }),
    }),
    status: 201,
    answer: EvaluationView,
    audit: 'evaluation.create',
    errors: ['conflict'],
  }),
  read: operation({
    ...one,
    method: 'get',
    path: run,
    id: 'getEvaluation',
    summary: 'Read the progress and the counts of an evaluation',
    answer: EvaluationView,
  }),
  results: operation({
    ...one,
    method: 'get',
    path: `${run}/results`,
    id: 'listEvaluationResults',
    isLarge: true,
    summary: 'List answered questions, those that a person should look at first; at most 100',
    query: z.object({
      verdict: z.enum(VERDICTS).optional(),
      limit: wholeNumber(1, LIST_MAX).default(LIST_MAX),
      cursor: cursor.optional(),
    }),
    answer: z.object({ results: z.array(ResultView), nextCursor }),
  }),
  stop: operation({
    ...one,
    method: 'post',
    path: `${run}/stop`,
    id: 'stopEvaluation',
    summary: 'End an evaluation; what is answered stays',
    answer: EvaluationView,
    audit: 'evaluation.stop',
  }),
};

const toView = ({
  assistantId: _assistant,
  counts,
  judged,
  draftRevision,
  versions: _versions,
  ...shown
}: Evaluation): z.input<typeof EvaluationView> => ({
  ...shown,
  against: draftRevision === null ? 'live' : 'draft',
  counts: wholeCounts(counts),
  judged: draftRevision === null || shown.set === null ? null : wholeCounts(judged),
});

const toResultView = ({ conversationIds: _conversations, ...shown }: EvaluationResult) => shown;

const positions = createCursor(z.tuple([z.number(), z.string().max(100)]));

type Dependencies = {
  assistants: Pick<AssistantStore, 'drafts' | 'getAssistant'>;
  conversations: Pick<ConversationStore, 'changed'>;
  evaluations: Evaluations;
  insights: Pick<Insights, 'usage'>;
  questionSets: QuestionSets;
};

export const evaluationRoutes = ({
  assistants,
  conversations,
  evaluations,
  insights: { usage },
  questionSets,
}: Dependencies): Handled[] => {
  const findRealQuestions = createFindRealQuestions(conversations.changed);

  const askedOf = ({ caseId, conversationIds, ...input }: QuestionCase): Asked => ({
    ...input,
    caseId,
    conversationId: conversationIds[0] ?? null,
    conversationIds,
    before: null,
  });

  /** An assistant may have a row of usage for each of a thousand keys and thirty days. */
  const readTokens = cachedByCost(async (assistantId) => {
    const to = new Date(serverNow() + DAY_MS);
    const range = { from: new Date(to.getTime() - AVERAGE_OF_DAYS * DAY_MS), to };
    const days = await usage.sumBy('day', assistantId, range);
    const sum = (value: (day: (typeof days)[number]) => number): number =>
      days.reduce((all, day) => all + value(day), 0);
    const replies = sum((day) => day.providerReplies);
    const tokens = sum((day) => day.promptTokens + day.completionTokens);
    return { perReply: replies === 0 ? null : Math.round(tokens / replies) };
  });

  const rested = createRestedWork();

  return [
    handled(evaluationOperations.list, async ({ params: { id = '' }, costly }) => {
      const [listed, { perReply }] = await Promise.all([evaluations.list(id), costly(() => readTokens(id))]);
      return { evaluations: listed.map(toView), tokensPerReply: perReply };
    }),

    handled(evaluationOperations.create, async ({ params: { id = '' }, body, note, costly, signal }) => {
      const { setId, real, against, tokens = null } = body;
      if ((setId == null) === (real == null))
        throw invalid('setId', 'invalid', 'must be given, or `real` must, and not both');
      const create = async () => {
        const { engine } = await assistants.getAssistant(id);
        const draft = against === 'draft' ? await assistants.drafts.find(id) : null;
        if (against === 'draft' && !draft) throw conflict('There is no draft to compare.');
        const engines = [engine, draft?.settings.engine?.value];
        if (tokens !== null && engines.every((one) => one?.kind !== 'openai'))
          throw invalid('tokens', 'invalid', 'can be given only if the assistant has a provider');
        await evaluations.requireRoom(id);
        let set: { setId: string; name: string; version: number } | null = null;
        let questions: Asked[] = [];
        if (setId != null) {
          const found = await questionSets.get({ assistantId: id, setId });
          set = { setId, name: found.name, version: found.version };
          await costly(async () => {
            for await (const page of questionSets.readCases(found)) questions.push(...page.map(askedOf));
          });
        } else if (real != null) questions = await findRealQuestions(id, real, { inTurn: costly, signal });
        if (questions.length === 0)
          throw invalid(setId == null ? 'real' : 'setId', 'invalid', 'has no such question yet');
        return evaluations.create({ assistantId: id, set, questions, draftRevision: draft?.revision ?? null, tokens });
      };
      const created = await rested(id, create, signal);
      note({ target: id, details: { evaluationId: created.evaluationId, questions: created.total } });
      return toView(created);
    }),

    handled(evaluationOperations.read, async ({ params: { id = '', evaluationId = '' } }) =>
      toView(await evaluations.get({ assistantId: id, evaluationId })),
    ),

    handled(evaluationOperations.results, async ({ params: { id = '', evaluationId = '' }, query }) => {
      await evaluations.get({ assistantId: id, evaluationId });
      const { verdict = null, limit } = query;
      const [doubt, resultId] = query.cursor === undefined ? [] : positions.decode(query.cursor);
      const after = doubt !== undefined && resultId !== undefined ? { doubt, id: resultId } : null;
      const listed = await evaluations.listResults({ assistantId: id, evaluationId }, { verdict, after, limit });
      return {
        results: listed.results.map(toResultView),
        nextCursor: listed.next && positions.encode([listed.next.doubt, listed.next.id]),
      };
    }),

    handled(evaluationOperations.stop, async ({ params: { id = '', evaluationId = '' }, note }) => {
      note({ target: id, details: { evaluationId } });
      return toView(await evaluations.stop({ assistantId: id, evaluationId }));
    }),
  ];
};
