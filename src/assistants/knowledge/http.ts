import type { Request, Response } from 'express';
import * as z from 'zod';
import type { DraftedEntry } from '../drafts/draft-reads.ts';
import { bytesOfEntry, type KnowledgeEntry, KnowledgeInput } from './entry.ts';
import { inParts } from '../../platform/mongo/batches.ts';
import { KNOWLEDGE_FORMATS } from './import.ts';
import { type ReadFor, readKnowledge } from './reading.ts';
import { createFindConflicts, searchKnowledge } from './search.ts';
import { findSemanticStatus } from './semantic-state.ts';
import type { AssistantStore } from '../store.ts';
import { SuggestedAction } from '../suggested-action.ts';
import { sendJson, toJson } from '../../platform/http/json-body.ts';
import { takeRoomForList, workOnBody } from '../../platform/http/request-slots.ts';
import { senderOf } from '../../platform/http/shares.ts';
import type { StoredMiss } from '../../insights/misses.ts';
import type { Insights } from '../../insights/store.ts';
import { invalid } from '../../platform/process/errors.ts';
import type { Logger } from '../../platform/process/logger.ts';
import { Author, authorOf, EditKind, ofDraft, Seen } from '../drafts/http.ts';
import {
  type Call,
  type Handled,
  handled,
  operation,
  type Operation,
  time,
  uuid,
  WRITTEN,
} from '../../operators/operation.ts';

const one = { audience: 'owners', resource: 'assistant' } as const;
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
    edit: z
      .object({ kind: EditKind, by: Author, at: time })
      .nullish()
      .meta({ description: 'With `draft=true`: what the draft changed. Null: it is live as it is.' }),
  })
  .meta({ id: 'KnowledgeEntry' });

export const knowledgeOperations = {
  list: operation({
    ...one,
    method: 'get',
    path,
    id: 'listKnowledge',
    summary: 'List an assistant’s knowledge entries, in their order',
    query: z.object({
      search: z
        .string()
        .trim()
        .min(1)
        .max(256)
        .optional()
        .meta({ description: 'Only entries that contain all of these words or parts of words.' }),
      ...ofDraft.shape,
    }),
    answer: z.object({
      draftRevision: z.int().min(0).optional().meta({ description: 'With `draft=true`, for `seen`.' }),
      entries: z.array(EntryView),
    }),
  }),
  conflicts: operation({
    ...one,
    method: 'get',
    path: '/assistants/:id/knowledge-conflicts',
    id: 'listKnowledgeConflicts',
    summary: 'List entries with similar questions (80 % of the words) but different answers, at most 100',
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
  }),
  status: operation({
    ...one,
    method: 'get',
    path: '/assistants/:id/knowledge-status',
    id: 'getKnowledgeStatus',
    summary: 'Read the state of semantic search',
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
  }),
  add: operation({
    ...one,
    method: 'post',
    path,
    id: 'addKnowledge',
    summary: 'Add an entry',
    body: z.object({
      ...KnowledgeInput.shape,
      fromMiss: uuid
        .nullish()
        .meta({ description: 'The group of misses that this entry answers. The group is then gone.' }),
    }),
    status: 201,
    answer: EntryView,
    audit: 'knowledge.add',
    errors: ['conflict'],
  }),
  update: operation({
    ...one,
    method: 'put',
    path: `${path}/:entryId`,
    id: 'updateKnowledge',
    summary: 'Replace an entry; it keeps its place',
    query: Seen,
    body: KnowledgeInput,
    answer: EntryView,
    audit: 'knowledge.update',
    errors: ['conflict'],
  }),
  remove: operation({
    ...one,
    method: 'delete',
    path: `${path}/:entryId`,
    id: 'removeKnowledge',
    summary: 'Remove an entry',
    query: Seen,
    audit: 'knowledge.remove',
    errors: ['conflict'],
  }),
  importFile: operation({
    ...one,
    method: 'post',
    path: '/assistants/:id/knowledge-import',
    id: 'importKnowledge',
    summary: 'Import a file; wrong rows are reported with their line. At most 4 MiB and 10,000 entries',
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
    errors: ['conflict'],
  }),
};

/** Whose turn the reading of a file is, and who answers for its time. */
export const readFor = (req: Request, res: Response): Pick<ReadFor, 'tenant' | 'work'> => ({
  tenant: senderOf(req, res),
  work: (reading) => workOnBody(req, res, reading),
});

async function* toDraftEntries(
  batches: AsyncGenerator<DraftedEntry[], undefined>,
): AsyncGenerator<KnowledgeEntry[], undefined> {
  for await (const batch of batches) {
    yield batch.map(({ edit, ...entry }) => ({
      ...entry,
      edit: edit && { kind: edit.kind, by: edit.by, at: edit.at },
    }));
  }
}

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
   * The parts of a list. Each part is read in its turn among the costly reads, and only after the caller has taken the
   * previous part. So a slow caller delays nobody.
   */
  async function* found(
    { costly }: Pick<Call<Operation>, 'costly'>,
    { batches, search }: { batches: AsyncGenerator<KnowledgeEntry[], undefined>; search: string | undefined },
  ): AsyncGenerator<KnowledgeEntry[], undefined> {
    const parts = inParts(batches, bytesOfEntry);
    try {
      for (;;) {
        const part = await costly(async () => {
          const { value } = await parts.next();
          return value && search !== undefined ? searchKnowledge(value, search) : value;
        });
        if (!part) return;
        if (part.length > 0) yield part;
      }
    } finally {
      await parts.return(undefined);
    }
  }

  return [
    handled(knowledgeOperations.list, async ({ params: { id = '' }, query: { search, draft }, ...call }) => {
      const assistant = await assistants.getAssistant(id);
      const isDraft = draft && assistant.drafts;
      // The revision is read before the entries, so that a change between the two reads counts as not seen.
      const head = isDraft ? { draftRevision: assistant.draftRevision ?? 0 } : {};
      await takeRoomForList(call.req, call.res);
      const batches = isDraft
        ? toDraftEntries(assistants.drafts.readEntries(id, call.signal))
        : assistants.readKnowledge(id, call.signal);
      await sendJson(call.res, toJson(head, { entries: found(call, { batches, search }) }), call.signal);
      return WRITTEN;
    }),

    handled(knowledgeOperations.conflicts, async ({ params: { id = '' }, costly, signal, req, res }) => {
      const assistant = await assistants.getAssistant(id);
      const read = () => assistants.readKnowledge(id, signal);
      const turn = { tenant: senderOf(req, res), inTurn: costly, signal };
      return { conflicts: await findConflicts(assistant, read, turn) };
    }),

    handled(knowledgeOperations.status, ({ params: { id = '' } }) => findSemanticStatus(assistants, id)),

    handled(knowledgeOperations.add, async ({ params: { id = '' }, body: { fromMiss, ...body }, operator, note }) => {
      if (fromMiss != null && !(await insights.misses.exists(id, fromMiss)))
        throw invalid('fromMiss', 'invalid', 'is not a group of misses of this assistant');
      const [entry] = await assistants.addKnowledge(id, [body], { by: authorOf(operator) });
      if (!entry) throw new Error('an entry was added and is not there');
      note({ target: id, details: { entryId: entry.entryId, ...(fromMiss != null && { missId: fromMiss }) } });
      if (fromMiss != null) await teach({ assistantId: id, missId: fromMiss, entryId: entry.entryId });
      return entry;
    }),

    handled(
      knowledgeOperations.update,
      async ({ params: { id = '', entryId = '' }, query: { seen }, body, operator, note }) => {
        note({ target: id, details: { entryId } });
        return assistants.updateKnowledge(id, entryId, body, { by: authorOf(operator), seen });
      },
    ),

    handled(
      knowledgeOperations.remove,
      async ({ params: { id = '', entryId = '' }, query: { seen }, operator, note }) => {
        note({ target: id, details: { entryId } });
        await assistants.removeKnowledge(id, [entryId], { by: authorOf(operator), seen });
      },
    ),

    handled(knowledgeOperations.importFile, async ({ params: { id = '' }, body, operator, note, signal, req, res }) => {
      await assistants.getAssistant(id);
      const { format, text, replace, dryRun } = body;
      const { entries, refused } = await readKnowledge(format, text, { assistantId: id, signal, ...readFor(req, res) });
      note({ target: id, details: { imported: entries.length, refused: refused.length, replace, dryRun } });
      if (dryRun || entries.length === 0) return { imported: entries.length, refused };
      // A draft may wait for its place. Whoever lets it wait keeps a place of large bodies, so it counts as work.
      await workOnBody(req, res, assistants.addKnowledge(id, entries, { replace, by: authorOf(operator) }));
      return { imported: entries.length, refused };
    }),
  ];
};

const missPath = '/assistants/:id/misses';

const MissView = z
  .object({
    missId: uuid,
    question: z.string(),
    language: z.string().nullable(),
    count: z.int().min(1),
    firstAt: time,
    lastAt: time,
    examples: z
      .array(z.object({ conversationId: uuid, question: z.string(), at: time }))
      .meta({ description: 'The latest questions, at most five.' }),
    answer: z
      .object({ conversationId: uuid, content: z.string(), at: time })
      .nullable()
      .meta({ description: 'What an operator wrote after one of the questions.' }),
  })
  .meta({ id: 'Miss' });

export const missOperations = {
  list: operation({
    ...one,
    method: 'get',
    path: missPath,
    id: 'listMisses',
    isLarge: true,
    summary: 'List questions without a sure answer, grouped by meaning, the most frequent first; at most 200 groups',
    answer: z.object({ misses: z.array(MissView) }),
  }),
  dismiss: operation({
    ...one,
    method: 'post',
    path: `${missPath}/:missId/dismiss`,
    id: 'dismissMiss',
    summary: 'Hide a group; its questions make no new one',
    audit: 'miss.dismiss',
  }),
};

const toView = ({ _id, question, language, count, firstAt, lastAt, examples, answer }: StoredMiss) => ({
  missId: _id,
  question,
  language,
  count,
  firstAt,
  lastAt,
  examples: examples.toReversed(),
  answer,
});

export const missRoutes = ({ insights: { misses } }: { insights: Insights }): Handled[] => [
  handled(missOperations.list, async ({ params: { id = '' } }) => ({ misses: (await misses.list(id)).map(toView) })),

  handled(missOperations.dismiss, async ({ params: { id = '', missId = '' }, note }) => {
    note({ target: id, details: { missId } });
    await misses.dismiss(id, missId);
  }),
];
