import * as z from 'zod';
import type { SourceEdits } from '../assistants/drafts/draft-reads.ts';
import type { AssistantStore } from '../assistants/store.ts';
import { createCursor, cursor, wholeNumber } from '../platform/process/validation.ts';
import { uploadedBytes } from '../platform/http/json-body.ts';
import { createRestedWork } from '../platform/http/request-slots.ts';
import {
  FILE_MAX_BYTES,
  FileSourceInput,
  NO_CHANGES,
  NO_COUNTS,
  PAGE_STATES,
  SCHEDULES,
  type Source,
  SOURCE_KINDS,
  SOURCE_STATES,
  SourceChange,
  UrlSourceInput,
} from './source.ts';
import { FILE_ENDINGS, type SourceStore } from './store.ts';
import { Author, authorOf, Seen, SourceEditKind } from '../assistants/drafts/http.ts';
import {
  definedFields,
  type Handled,
  handled,
  nextCursor,
  operation,
  readPage,
  time,
  uuid,
} from '../operators/operation.ts';

const path = '/assistants/:id/sources';
const onePath = `${path}/:sourceId` as const;
const proposalsPath = '/assistants/:id/proposed-entries';
const LIST_MAX = 100;
const CHOSEN_MAX = 500;

const SourceProblem = z
  .object({ code: z.string(), message: z.string().meta({ description: 'For the owner: what to do.' }) })
  .nullable();

const counts = <Name extends string>(names: Record<Name, number>) =>
  z.object(Object.fromEntries(Object.keys(names).map((name) => [name, z.int().min(0)])) as Record<Name, z.ZodInt>);

const SourceView = z
  .object({
    sourceId: uuid,
    assistantId: uuid,
    kind: z.enum(SOURCE_KINDS),
    name: z.string(),
    url: z.string().nullable(),
    include: z.array(z.string()),
    exclude: z.array(z.string()),
    schedule: z.enum(SCHEDULES),
    state: z.enum(SOURCE_STATES),
    error: SourceProblem,
    counts: counts(NO_COUNTS).meta({
      description:
        'The pages that the last run found, what became of them, the passages, and how many of these have vectors.',
    }),
    changed: counts(NO_CHANGES).meta({ description: 'Pages that differ from the run before.' }),
    run: z.int().min(0).meta({ description: 'The last run that started. 0: none yet.' }),
    live: z.int().min(0).meta({ description: 'The run that answers use. 0: none yet.' }),
    startedAt: time.nullable(),
    endedAt: time.nullable(),
    nextAt: time.nullable().meta({ description: 'When it is read again. Null: on request.' }),
    createdAt: time,
    edit: z
      .object({ kind: SourceEditKind, by: Author, at: time })
      .nullable()
      .meta({ description: 'What the draft does with it. Added: only the draft has it. Null: it is live as it is.' }),
  })
  .meta({ id: 'Source' });

const PageView = z
  .object({
    pageId: z.string(),
    url: z.string().meta({ description: 'The name of a file.' }),
    title: z.string().nullable(),
    state: z.enum(PAGE_STATES),
    error: SourceProblem.meta({ description: 'Also of a page that was read: what it lacks, or what is beside it.' }),
  })
  .meta({ id: 'SourcePage' });

const ProposalView = z
  .object({
    proposalId: z.string(),
    sourceId: uuid,
    url: z.string().nullable(),
    question: z.string(),
    answer: z.string().meta({ description: 'What the page says now.' }),
    entryId: uuid.nullable().meta({
      description:
        'The entry that was made of it, which keeps its answer (edited, or in drafts) until you decide. Null: a new one.',
    }),
  })
  .meta({ id: 'ProposedEntry' });

const listed = {
  limit: wholeNumber(1, LIST_MAX).optional(),
  cursor: cursor.optional(),
};

const Chosen = z.object({
  proposalIds: z
    .array(z.string().max(100))
    .min(1)
    .max(CHOSEN_MAX)
    .nullable()
    .meta({ description: 'Null: all new ones.' }),
});
const Decided = z.object({ entries: z.int().min(0).meta({ description: 'How many were decided by this request.' }) });

const uploadedName = FileSourceInput.extend({
  name: FileSourceInput.shape.name.meta({ description: `Ends with .${FILE_ENDINGS.join(', .')}.` }),
});

const one = { audience: 'owners', resource: 'assistant' } as const;

export const sourceOperations = {
  list: operation({
    ...one,
    method: 'get',
    path,
    id: 'listSources',
    isLarge: 'inTurn',
    summary: 'List an assistant’s sources, oldest first, with their state and progress',
    answer: z.object({
      sources: z.array(SourceView),
      leftOut: z.int().min(0).meta({
        description: 'Passages that answers do not use, because they exceed the memory of a reply worker.',
      }),
      proposed: z.int().min(0).meta({ description: 'Proposed entries that wait for a decision.' }),
    }),
  }),
  add: operation({
    ...one,
    method: 'post',
    path,
    id: 'addSource',
    summary: 'Add a website or a page, or its draft; it is read in the background',
    body: UrlSourceInput,
    status: 201,
    answer: SourceView,
    audit: 'source.add',
    errors: ['conflict'],
  }),
  upload: operation({
    ...one,
    method: 'post',
    path: '/assistants/:id/source-files',
    id: 'uploadSource',
    summary: `Add a file as a source: at most ${FILE_MAX_BYTES / 1e6} MB, its bytes as the body`,
    query: uploadedName,
    upload: { description: 'The bytes of the file.' },
    status: 201,
    answer: SourceView,
    audit: 'source.add',
    errors: ['conflict'],
  }),
  replace: operation({
    ...one,
    method: 'put',
    path: `${onePath}/file`,
    id: 'replaceSourceFile',
    summary: 'Replace the content of a file; the one before answers until the new one is read',
    query: uploadedName,
    upload: { description: 'The bytes of the file.' },
    status: 202,
    answer: SourceView,
    audit: 'source.replace',
  }),
  read: operation({
    ...one,
    method: 'get',
    path: onePath,
    id: 'getSource',
    summary: 'Read a source',
    answer: SourceView,
  }),
  update: operation({
    ...one,
    method: 'patch',
    path: onePath,
    id: 'updateSource',
    summary: 'Change its name, schedule or paths; with other paths it is read again',
    body: SourceChange,
    answer: SourceView,
    audit: 'source.update',
  }),
  remove: operation({
    ...one,
    method: 'delete',
    path: onePath,
    id: 'removeSource',
    summary: 'Remove a source, its passages and its proposed entries; with drafts, once it is published',
    query: Seen,
    audit: 'source.remove',
    errors: ['conflict'],
  }),
  keep: operation({
    ...one,
    method: 'post',
    path: `${onePath}/keep`,
    id: 'keepSource',
    summary: 'Keep a source that the draft removes',
    query: Seen,
    answer: SourceView,
    audit: 'source.keep',
    errors: ['conflict'],
  }),
  refresh: operation({
    ...one,
    method: 'post',
    path: `${onePath}/refresh`,
    id: 'refreshSource',
    summary: 'Read it again now; one that is being read stays as it is',
    status: 202,
    answer: SourceView,
    audit: 'source.refresh',
  }),
  pages: operation({
    ...one,
    method: 'get',
    path: `${onePath}/pages`,
    id: 'listSourcePages',
    summary: 'List the pages of a source by URL, with their state',
    query: z.object({ ...listed, state: z.enum(PAGE_STATES).optional() }),
    answer: z.object({ pages: z.array(PageView), nextCursor }),
  }),
  proposals: operation({
    ...one,
    method: 'get',
    path: proposalsPath,
    id: 'listProposedEntries',
    isLarge: 'inTurn',
    summary: 'List questions and answers found in sources that wait for a decision',
    query: z.object({ ...listed, sourceId: uuid.optional() }),
    answer: z.object({ proposals: z.array(ProposalView), nextCursor }),
  }),
  accept: operation({
    ...one,
    method: 'post',
    path: `${proposalsPath}/accept`,
    id: 'acceptProposedEntries',
    summary: 'Make knowledge entries of proposals: of some, or of all. An edited entry gets the answer of its page',
    body: Chosen,
    answer: Decided,
    audit: 'source.accept',
    errors: ['conflict'],
  }),
  dismiss: operation({
    ...one,
    method: 'post',
    path: `${proposalsPath}/dismiss`,
    id: 'dismissProposedEntries',
    summary: 'Dismiss proposals; they are not proposed again, and an edited entry stays as it is',
    body: Chosen,
    answer: Decided,
    audit: 'source.dismiss',
  }),
};

const cursors = createCursor(z.string());
const afterOf = (text: string | undefined) => (text === undefined ? {} : { after: cursors.decode(text) });
const toNext = (next: string | null): string | null => (next === null ? null : cursors.encode(next));

/** The audit trail shows only the host of a URL, because its path may contain a secret. */
const detailsOf = ({ sourceId, kind, name, url }: Source) => ({
  sourceId,
  kind,
  ...(url === null ? { name } : { host: URL.parse(url)?.host ?? '' }),
});

type Dependencies = { assistants: Pick<AssistantStore, 'drafts' | 'getAssistant'>; sources: SourceStore };
type View = z.input<typeof SourceView>;

const viewOf = (source: Source, edits: SourceEdits): View => {
  const edit = edits[source.sourceId];
  return { ...source, edit: edit ? { kind: edit.kind, by: edit.by, at: edit.at } : null };
};

export const sourceRoutes = ({ assistants, sources }: Dependencies): Handled[] => {
  const { findSources } = assistants.drafts;
  const view = async (source: Source): Promise<View> => viewOf(source, await findSources(source.assistantId));
  // Its sources and its proposals may each have some MB.
  const rested = { list: createRestedWork(), accept: createRestedWork() };
  return [
    handled(sourceOperations.list, async ({ params: { id = '' }, ...call }) => {
      const list = async () => {
        const { passages } = await assistants.getAssistant(id);
        const [listed, edits, proposed] = await Promise.all([
          sources.list(id),
          findSources(id),
          sources.countProposals(id),
        ]);
        return { sources: listed.map((one) => viewOf(one, edits)), proposed, leftOut: passages?.leftOut ?? 0 };
      };
      return rested.list(id, () => readPage(call, list), call.signal);
    }),

    handled(sourceOperations.add, async ({ params: { id = '' }, body, operator, note }) => {
      await assistants.getAssistant(id);
      const added = await sources.add(id, body, { by: authorOf(operator) });
      note({ target: id, details: detailsOf(added) });
      return view(added);
    }),

    handled(sourceOperations.upload, async ({ params: { id = '' }, query: { name }, req, res, operator, note }) => {
      await assistants.getAssistant(id);
      const bytes = uploadedBytes(req, res, FILE_MAX_BYTES);
      const added = await sources.addFile(id, name, bytes, { by: authorOf(operator) });
      note({ target: id, details: detailsOf(added) });
      return view(added);
    }),

    handled(
      sourceOperations.replace,
      async ({ params: { id = '', sourceId = '' }, query: { name }, req, res, note }) => {
        const replaced = await sources.replaceFile(id, sourceId, name, uploadedBytes(req, res, FILE_MAX_BYTES));
        note({ target: id, details: detailsOf(replaced) });
        return view(replaced);
      },
    ),

    handled(sourceOperations.read, async ({ params: { id = '', sourceId = '' } }) =>
      view(await sources.get(id, sourceId)),
    ),

    handled(sourceOperations.update, async ({ params: { id = '', sourceId = '' }, body, note }) => {
      const changed = await sources.change(id, sourceId, definedFields(body));
      note({ target: id, details: { ...detailsOf(changed), schedule: changed.schedule } });
      return view(changed);
    }),

    handled(
      sourceOperations.remove,
      async ({ params: { id = '', sourceId = '' }, query: { seen }, operator, note }) => {
        note({ target: id, details: detailsOf(await sources.remove(id, sourceId, { by: authorOf(operator), seen })) });
      },
    ),

    handled(sourceOperations.keep, async ({ params: { id = '', sourceId = '' }, query: { seen }, operator, note }) => {
      const kept = await sources.keep(id, sourceId, { by: authorOf(operator), seen });
      note({ target: id, details: detailsOf(kept) });
      return view(kept);
    }),

    handled(sourceOperations.refresh, async ({ params: { id = '', sourceId = '' }, note }) => {
      const refreshed = await sources.refresh(id, sourceId);
      note({ target: id, details: detailsOf(refreshed) });
      return view(refreshed);
    }),

    handled(sourceOperations.pages, async ({ params: { id = '', sourceId = '' }, query }) => {
      const { limit = LIST_MAX, state } = query;
      const filter = { assistantId: id, sourceId, limit, ...(state && { state }), ...afterOf(query.cursor) };
      const { pages, next } = await sources.listPages(filter);
      return { pages, nextCursor: toNext(next) };
    }),

    handled(sourceOperations.proposals, async ({ params: { id = '' }, query, ...call }) => {
      await assistants.getAssistant(id);
      const { limit = LIST_MAX, sourceId } = query;
      const filter = { assistantId: id, limit, ...(sourceId !== undefined && { sourceId }), ...afterOf(query.cursor) };
      const list = () => sources.listProposals(filter);
      const { proposals, next } = await rested.list(id, () => readPage(call, list), call.signal);
      return {
        proposals: proposals.map(({ proposalId, sourceId: source, url, question, answer, entryId = null }) => {
          return { proposalId, sourceId: source, url, question, answer, entryId };
        }),
        nextCursor: toNext(next),
      };
    }),

    handled(sourceOperations.accept, async ({ params: { id = '' }, body, operator, note, signal }) => {
      await assistants.getAssistant(id);
      const accept = () => sources.accept(id, body.proposalIds, { by: authorOf(operator), signal });
      const entries = await rested.accept(id, accept, signal);
      note({ target: id, details: { entries } });
      return { entries };
    }),

    handled(sourceOperations.dismiss, async ({ params: { id = '' }, body, note }) => {
      await assistants.getAssistant(id);
      const entries = await sources.dismiss(id, body.proposalIds);
      note({ target: id, details: { entries } });
      return { entries };
    }),
  ];
};
