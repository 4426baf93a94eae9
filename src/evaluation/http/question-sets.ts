import * as z from 'zod';
import type { AssistantStore } from '../../assistants/store.ts';
import type { ConversationStore } from '../../conversations/store.ts';
import type { Evaluations } from '../evaluations.ts';
import { CaseInput, Expected } from '../question.ts';
import { QUESTION_FORMATS, readQuestions, writeQuestions } from '../question-files.ts';
import type { QuestionCase, QuestionSet, QuestionSets } from '../question-sets.ts';
import { sendJson, toJson } from '../../platform/http/json-body.ts';
import type { Insights } from '../../insights/store.ts';
import { createRestedWork, workOnBody } from '../../platform/http/request-slots.ts';
import { invalid } from '../../platform/process/errors.ts';
import { wholeNumber } from '../../platform/process/validation.ts';
import { type Handled, handled, line, operation, time, uuid, WRITTEN } from '../../operators/operation.ts';

const IMPORT_LIMIT_BYTES = 1024 * 1024;

const one = { audience: 'owners', resource: 'assistant' } as const;
const sets = '/assistants/:id/question-sets';
const set = `${sets}/:setId`;

const SetView = z
  .object({
    setId: uuid,
    name: z.string(),
    version: z.int().min(0).meta({ description: 'Rises with each change of the questions.' }),
    createdAt: time,
    changedAt: time,
  })
  .meta({ id: 'QuestionSet' });

const CaseView = z
  .object({
    caseId: uuid,
    question: z.string(),
    language: z.string().nullable(),
    expected: Expected,
    conversationId: uuid.nullable().meta({ description: 'Where the question comes from. Its erasure removes it.' }),
  })
  .meta({ id: 'QuestionCase' });

const From = z
  .union([
    z.object({ missId: uuid }),
    z.object({ conversationId: uuid }),
    z.object({ resultId: z.string().regex(/^[\w-]{36}:\d{6}$/) }),
  ])
  .nullish()
  .meta({ description: 'Where the question comes from: the question is removed when that conversation is erased.' });

export const questionSetOperations = {
  list: operation({
    ...one,
    method: 'get',
    path: sets,
    id: 'listQuestionSets',
    summary: 'List question sets, by name',
    answer: z.object({ sets: z.array(z.object({ ...SetView.shape, questions: z.int().min(0) })) }),
  }),
  create: operation({
    ...one,
    method: 'post',
    path: sets,
    id: 'createQuestionSet',
    summary: 'Create an empty question set',
    body: z.object({ name: line(100) }),
    status: 201,
    answer: SetView,
    audit: 'question_set.create',
  }),
  read: operation({
    ...one,
    method: 'get',
    path: set,
    id: 'getQuestionSet',
    isLarge: true,
    summary: 'Read a set with its questions, as they are or in one of its last 20 versions',
    query: z.object({ version: wholeNumber(0, 1_000_000_000).optional() }),
    answer: z.object({ ...SetView.shape, cases: z.array(CaseView) }),
  }),
  rename: operation({
    ...one,
    method: 'patch',
    path: set,
    id: 'renameQuestionSet',
    summary: 'Rename a set',
    body: z.object({ name: line(100) }),
    answer: SetView,
    audit: 'question_set.rename',
  }),
  remove: operation({
    ...one,
    method: 'delete',
    path: set,
    id: 'removeQuestionSet',
    summary: 'Remove a set; results of its evaluations stay',
    audit: 'question_set.remove',
  }),
  import: operation({
    ...one,
    method: 'post',
    path: `${set}/import`,
    id: 'importQuestions',
    summary: 'Import questions; wrong rows are reported with their line. At most 1 MiB and 1,000 questions',
    body: z.object({
      format: z.enum(QUESTION_FORMATS),
      text: z.string().min(1),
      replace: z.boolean().default(false).meta({ description: 'True: the questions before are removed.' }),
    }),
    bodyLimitBytes: IMPORT_LIMIT_BYTES,
    answer: z.object({
      imported: z.int(),
      refused: z.array(z.object({ line: z.int(), reason: z.string() })),
    }),
    audit: 'question_set.import',
  }),
  export: operation({
    ...one,
    method: 'get',
    path: `${set}/export`,
    id: 'exportQuestions',
    isLarge: true,
    summary: 'Download the questions of a set, as they can be imported',
    query: z.object({ format: z.enum(QUESTION_FORMATS).default('csv') }),
    contentType: 'text/csv',
    answer: z.string(),
    answerHeaders: { 'Content-Disposition': z.string() },
  }),
  addCase: operation({
    ...one,
    method: 'post',
    path: `${set}/cases`,
    id: 'addQuestion',
    summary: 'Add a question with the answer that is expected',
    body: z.object({ ...CaseInput.shape, from: From }),
    status: 201,
    answer: CaseView,
    audit: 'question.add',
  }),
  updateCase: operation({
    ...one,
    method: 'put',
    path: `${set}/cases/:caseId`,
    id: 'updateQuestion',
    summary: 'Replace a question; it keeps its place',
    body: CaseInput,
    answer: CaseView,
    audit: 'question.update',
  }),
  removeCase: operation({
    ...one,
    method: 'delete',
    path: `${set}/cases/:caseId`,
    id: 'removeQuestion',
    summary: 'Remove a question',
    audit: 'question.remove',
  }),
};

const toSetView = ({ setId, name, version, createdAt, changedAt }: QuestionSet) => ({
  setId,
  name,
  version,
  createdAt,
  changedAt,
});

const toCaseView = ({ caseId, question, language, expected, conversationIds }: QuestionCase) => ({
  caseId,
  question,
  language,
  expected,
  conversationId: conversationIds[0] ?? null,
});

type Dependencies = {
  assistants: Pick<AssistantStore, 'getAssistant'>;
  conversations: Pick<ConversationStore, 'findOwner'>;
  evaluations: Pick<Evaluations, 'getResult'>;
  insights: Pick<Insights, 'misses'>;
  questionSets: QuestionSets;
};

export const questionSetRoutes = ({
  assistants,
  conversations,
  evaluations,
  insights: { misses },
  questionSets,
}: Dependencies): Handled[] => {
  /** The conversations whose erasure must remove a question. */
  const originsOf = async (assistantId: string, from: z.output<typeof From>): Promise<string[]> => {
    if (!from) return [];
    if ('missId' in from) {
      const texts = await misses.findConversations(assistantId, from.missId);
      if (!texts) throw invalid('from.missId', 'invalid', 'is not a group of misses of this assistant');
      return texts;
    }
    if ('resultId' in from) return (await evaluations.getResult(assistantId, from.resultId)).conversationIds;
    const owner = await conversations.findOwner(from.conversationId);
    if (owner?.assistantId !== assistantId || owner.channel === 'playground')
      throw invalid('from.conversationId', 'invalid', 'is not a conversation of this assistant');
    return [from.conversationId];
  };

  const rested = createRestedWork();

  return [
    handled(questionSetOperations.list, async ({ params: { id = '' } }) => ({
      sets: (await questionSets.list(id)).map(({ questions, ...one }) => ({ ...toSetView(one), questions })),
    })),

    handled(questionSetOperations.create, async ({ params: { id = '' }, body: { name }, note }) => {
      await assistants.getAssistant(id);
      const created = await questionSets.create(id, name);
      note({ target: id, details: { setId: created.setId, name } });
      return toSetView(created);
    }),

    handled(questionSetOperations.read, async ({ params: { id = '', setId = '' }, query: { version }, res }) => {
      const found = await questionSets.get({ assistantId: id, setId });
      async function* cases(): AsyncGenerator<z.input<typeof CaseView>[]> {
        for await (const page of questionSets.readCases(found, version)) yield page.map(toCaseView);
      }
      await sendJson(res, toJson({ ...toSetView(found), version: version ?? found.version }, { cases: cases() }));
      return WRITTEN;
    }),

    handled(questionSetOperations.rename, async ({ params: { id = '', setId = '' }, body: { name }, note }) => {
      note({ target: id, details: { setId, name } });
      return toSetView(await questionSets.rename({ assistantId: id, setId }, name));
    }),

    handled(questionSetOperations.remove, async ({ params: { id = '', setId = '' }, note }) => {
      note({ target: id, details: { setId } });
      await questionSets.remove({ assistantId: id, setId });
    }),

    handled(questionSetOperations.import, async ({ params: { id = '', setId = '' }, body, note, signal, req, res }) => {
      const { format, text, replace } = body;
      await questionSets.get({ assistantId: id, setId });
      const add = async () => {
        const { cases, refused } = await readQuestions(format, text);
        note({ target: id, details: { setId, imported: cases.length, refused: refused.length, replace } });
        if (cases.length > 0) await questionSets.addCases({ assistantId: id, setId }, cases, { replace });
        return { imported: cases.length, refused };
      };
      // The wait for other imports of the assistant keeps the place of the body too, so it counts as work.
      return workOnBody(req, res, rested(id, add, signal));
    }),

    handled(questionSetOperations.export, async ({ params: { id = '', setId = '' }, query: { format }, res }) => {
      const found = await questionSets.get({ assistantId: id, setId });
      async function* lines(): AsyncGenerator<string> {
        yield* writeQuestions(format, []);
        for await (const page of questionSets.readCases(found)) yield* writeQuestions(format, page, { heading: false });
      }
      res.setHeader('Content-Disposition', `attachment; filename="questions.${format}"`);
      await sendJson(res, lines(), undefined, format === 'csv' ? 'text/csv' : 'application/jsonl');
      return WRITTEN;
    }),

    handled(questionSetOperations.addCase, async ({ params: { id = '', setId = '' }, body, note }) => {
      const { from, ...input } = body;
      const conversationIds = await originsOf(id, from);
      const [added] = await questionSets.addCases({ assistantId: id, setId }, [{ ...input, conversationIds }]);
      if (!added) throw new Error('a question was added and is not there');
      note({ target: id, details: { setId, caseId: added.caseId } });
      return toCaseView(added);
    }),

    handled(questionSetOperations.updateCase, async ({ params: { id = '', setId = '', caseId = '' }, body, note }) => {
      note({ target: id, details: { setId, caseId } });
      return toCaseView(await questionSets.changeCase({ assistantId: id, setId, caseId }, body));
    }),

    handled(questionSetOperations.removeCase, async ({ params: { id = '', setId = '', caseId = '' }, note }) => {
      note({ target: id, details: { setId, caseId } });
      await questionSets.removeCase({ assistantId: id, setId, caseId });
    }),
  ];
};
