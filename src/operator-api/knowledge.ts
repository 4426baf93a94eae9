import * as z from 'zod';
import { KNOWLEDGE_FORMATS } from '../assistants/knowledge-import.ts';
import { type KnowledgeEntry, KnowledgeInput } from '../assistants/knowledge-input.ts';
import { readKnowledge } from '../assistants/knowledge-reading.ts';
import { createFindConflicts, searchKnowledge } from '../assistants/knowledge-search.ts';
import { findSemanticStatus } from '../assistants/semantic-state.ts';
import type { AssistantStore } from '../assistants/store.ts';
import { SuggestedAction } from '../assistants/suggested-action.ts';
import type { Insights } from '../insights/store.ts';
import { invalid } from '../process/errors.ts';
import { sendJson, toJson } from '../http/json-body.ts';
import type { Logger } from '../process/logger.ts';
import { type Call, type Handled, handled, operation, type Operation, WRITTEN } from './operation.ts';
import { uuid } from './wire.ts';

const tag = 'Operators';
const audience = 'owners';
const IMPORT_LIMIT_BYTES = 4 * 1024 * 1024;
const path = '/assistants/:id/knowledge';

const EntryView = z
  .object({
    entryId: uuid,
    question: z.string(),
    variants: z.array(z.string()),
    answer: z.string(),
    language: z.string().nullable(),
    actions: z.array(SuggestedAction),
    tags: z.array(z.string()),
  })
  .meta({ id: 'KnowledgeEntry' });

export const knowledgeOperations = {
  list: operation({
    method: 'get',
    path,
    id: 'listKnowledge',
    isLarge: true,
    tag,
    summary: 'List an assistant’s knowledge entries, in their order',
    audience,
    resource: 'assistant',
    query: z.object({
      search: z
        .string()
        .trim()
        .min(1)
        .max(256)
        .optional()
        .meta({ description: 'Only entries that contain all of these words or parts of words.' }),
    }),
    answer: z.object({ entries: z.array(EntryView) }),
    errors: ['not_found'],
  }),
  conflicts: operation({
    method: 'get',
    path: '/assistants/:id/knowledge-conflicts',
    id: 'listKnowledgeConflicts',
    tag,
    summary: 'List entries with similar questions (80 % of the words) but different answers, at most 100',
    audience,
    resource: 'assistant',
    answer: z.object({
      conflicts: z.array(
        z.object({
          entryIds: z.tuple([uuid, uuid]),
          questions: z
            .tuple([z.string(), z.string()])
            .meta({ description: 'The similar texts: a question or a variant of each.' }),
          likeness: z.number().min(0).max(1),
        }),
      ),
    }),
    errors: ['not_found'],
  }),
  status: operation({
    method: 'get',
    path: '/assistants/:id/knowledge-status',
    id: 'getKnowledgeStatus',
    tag,
    summary: 'Read the state of semantic search',
    audience,
    resource: 'assistant',
    answer: z
      .object({
        state: z.enum(['ready', 'making', 'off']),
        reason: z.string().nullable().meta({ description: 'Why semantic search is off.' }),
        model: z.string().nullable(),
        done: z.int().min(0),
        total: z.int().min(0),
        leftOut: z.int().min(0).meta({
          description: 'Questions, variants and answers whose words are not searched: the knowledge is too large.',
        }),
        vectorsLeftOut: z.array(z.enum(['question', 'variant', 'answer'])).meta({
          description: 'Kinds of texts whose vectors are not used: the knowledge is too large.',
        }),
      })
      .meta({ id: 'KnowledgeStatus' }),
    errors: ['not_found'],
  }),
  add: operation({
    method: 'post',
    path,
    id: 'addKnowledge',
    tag,
    summary: 'Add an entry',
    audience,
    resource: 'assistant',
    body: z.object({
      ...KnowledgeInput.shape,
      fromMiss: uuid
        .nullish()
        .meta({ description: 'The group of misses that this entry answers. The group is then gone.' }),
    }),
    status: 201,
    answer: EntryView,
    audit: 'knowledge.add',
    errors: ['not_found'],
  }),
  update: operation({
    method: 'put',
    path: `${path}/:entryId`,
    id: 'updateKnowledge',
    tag,
    summary: 'Replace an entry; it keeps its place',
    audience,
    resource: 'assistant',
    body: KnowledgeInput,
    answer: EntryView,
    audit: 'knowledge.update',
    errors: ['not_found'],
  }),
  remove: operation({
    method: 'delete',
    path: `${path}/:entryId`,
    id: 'removeKnowledge',
    tag,
    summary: 'Remove an entry',
    audience,
    resource: 'assistant',
    audit: 'knowledge.remove',
    errors: ['not_found'],
  }),
  importFile: operation({
    method: 'post',
    path: '/assistants/:id/knowledge-import',
    id: 'importKnowledge',
    tag,
    summary: 'Import a file; wrong rows are reported with their line. At most 4 MiB and 10,000 entries',
    audience,
    resource: 'assistant',
    body: z.object({
      format: z.enum(KNOWLEDGE_FORMATS),
      text: z.string().min(1),
      replace: z.boolean().default(false).meta({ description: 'True: the existing entries are removed.' }),
      dryRun: z.boolean().default(false).meta({ description: 'True: only tell what would be imported.' }),
    }),
    bodyLimitBytes: IMPORT_LIMIT_BYTES,
    answer: z.object({
      imported: z.int(),
      refused: z.array(z.object({ line: z.int(), reason: z.string() })),
    }),
    audit: 'knowledge.import',
    errors: ['not_found'],
  }),
};

export const knowledgeRoutes = ({
  assistants,
  insights,
  logger,
}: {
  assistants: AssistantStore;
  insights: Pick<Insights, 'misses' | 'teach'>;
  logger: Logger;
}): Handled[] => {
  const findConflicts = createFindConflicts();
  type Taught = { assistantId: string; missId: string; entryId: string };
  /** Never fails: the entry is stored already, and a caller who tried again would add it twice. */
  const teach = ({ assistantId, missId, entryId }: Taught): Promise<void> =>
    insights
      .teach(assistantId, missId, entryId)
      .catch((cause: unknown) =>
        logger.error({ err: cause, assistantId, missId, entryId }, 'a group of misses was not marked as taught'),
      );
  /**
   * The pages of a list. Each takes its turn among the costly reads, and only after the caller has taken the one
   * before, so a slow caller holds nobody up.
   */
  async function* found(
    { costly, signal }: Pick<Call<Operation>, 'costly' | 'signal'>,
    { assistantId, search }: { assistantId: string; search: string | undefined },
  ): AsyncGenerator<KnowledgeEntry[], undefined> {
    const batches = assistants.readKnowledge(assistantId, signal);
    try {
      for (;;) {
        const page = await costly(async () => {
          const { value } = await batches.next();
          return value && search !== undefined ? searchKnowledge(value, search) : value;
        });
        if (!page) return;
        if (page.length > 0) yield page;
      }
    } finally {
      await batches.return(undefined);
    }
  }

  return [
    handled(knowledgeOperations.list, async ({ params: { id = '' }, query: { search }, res, ...call }) => {
      await assistants.getAssistant(id);
      await sendJson(res, toJson({}, { entries: found(call, { assistantId: id, search }) }), call.signal);
      return WRITTEN;
    }),

    handled(knowledgeOperations.conflicts, async ({ params: { id = '' }, costly, signal }) => {
      const assistant = await assistants.getAssistant(id);
      const read = () => assistants.readKnowledge(id, signal);
      return { conflicts: await costly(() => findConflicts(assistant, read, signal)) };
    }),

    handled(knowledgeOperations.status, ({ params: { id = '' } }) => findSemanticStatus(assistants, id)),

    handled(knowledgeOperations.add, async ({ params: { id = '' }, body: { fromMiss, ...body }, note }) => {
      if (fromMiss != null && !(await insights.misses.exists(id, fromMiss)))
        throw invalid('fromMiss', 'invalid', 'is not a group of misses of this assistant');
      const [entry] = await assistants.addKnowledge(id, [body]);
      if (!entry) throw new Error('an entry was added and is not there');
      note({ target: id, details: { entryId: entry.entryId, ...(fromMiss != null && { missId: fromMiss }) } });
      if (fromMiss != null) await teach({ assistantId: id, missId: fromMiss, entryId: entry.entryId });
      return entry;
    }),

    handled(knowledgeOperations.update, async ({ params: { id = '', entryId = '' }, body, note }) => {
      note({ target: id, details: { entryId } });
      return assistants.updateKnowledge(id, entryId, body);
    }),

    handled(knowledgeOperations.remove, async ({ params: { id = '', entryId = '' }, note }) => {
      note({ target: id, details: { entryId } });
      await assistants.removeKnowledge(id, [entryId]);
    }),

    handled(knowledgeOperations.importFile, async ({ params: { id = '' }, body, note, signal }) => {
      await assistants.getAssistant(id);
      const { format, text, replace, dryRun } = body;
      const { entries, refused } = await readKnowledge(format, text, { assistantId: id, signal });
      note({ target: id, details: { imported: entries.length, refused: refused.length, replace, dryRun } });
      if (dryRun || entries.length === 0) return { imported: entries.length, refused };
      await assistants.addKnowledge(id, entries, { replace });
      return { imported: entries.length, refused };
    }),
  ];
};
