import * as z from 'zod';
import { type Assistant, DRAFTED_FIELDS } from '../assistant.ts';
import type { Draft } from './draft-reads.ts';
import type { AssistantVersion, EditAuthor } from './versions.ts';
import type { AssistantStore } from '../store.ts';
import type { Evaluation, Evaluations } from '../../evaluation/evaluations.ts';
import type { OperatorCaller } from '../../operators/token.ts';
import { createRestedWork } from '../../platform/http/request-slots.ts';
import { conflict, MAX_DETAILS, notFound } from '../../platform/process/errors.ts';
import { parseWholeNumber, wholeNumber } from '../../platform/process/validation.ts';
import { VerdictCounts, wholeCounts } from '../../evaluation/question.ts';
import { type Handled, handled, line, operation, textField, time, uuid } from '../../operators/operation.ts';

const REVISION_MAX = 1_000_000_000;

export const authorOf = ({ operatorId, email }: OperatorCaller): EditAuthor => ({ operatorId, name: email });

/** The query of operations that change what a draft holds. */
export const Seen = z.object({
  seen: wholeNumber(0, REVISION_MAX).optional().meta({
    description:
      'The revision of the draft that you have read. A part that somebody else changed since gives 409. Without it, the last change counts.',
  }),
});

/** The query of operations that read what is live, or the draft. */
export const ofDraft = z.object({
  draft: z
    .enum(['true', 'false'])
    .default('false')
    .transform((value) => value === 'true')
    .meta({
      override: { type: 'boolean', enum: undefined, default: false },
      description: 'True: as it would be after publishing the draft.',
    }),
});

export const Author = z
  .object({ operatorId: uuid.nullable(), name: z.string().nullable() })
  .meta({ id: 'Author', description: 'An operator with the email address, or a token with its name.' });

export const EditKind = z.enum(['added', 'changed', 'removed']);
export const SourceEditKind = EditKind.exclude(['changed']);

const counted = {
  added: z.int().min(0),
  changed: z.int().min(0),
  removed: z.int().min(0),
  isReplaced: z.boolean().meta({ description: 'True: an import replaced all entries.' }),
};
const Field = z.enum(DRAFTED_FIELDS);

const DraftView = z
  .object({
    begunBy: Author,
    begunAt: time,
    by: Author.meta({ description: 'Who changed it last.' }),
    at: time,
    counts: z.object(counted),
    settings: z.array(z.object({ field: Field, by: Author, at: time })),
    sources: z
      .array(z.object({ sourceId: uuid, kind: SourceEditKind, name: z.string(), by: Author, at: time }))
      .meta({ description: 'The sources that the draft adds or removes.' }),
    entries: z
      .array(z.object({ entryId: uuid, kind: EditKind, question: z.string(), by: Author, at: time }))
      .meta({ description: 'The last 100 changed entries, newest first.' }),
  })
  .meta({ id: 'Draft' });

const VersionView = z
  .object({
    version: z.int().min(1),
    name: z.string().nullable(),
    note: z.string().nullable(),
    by: Author,
    at: time,
    changes: z.object({
      ...counted,
      settings: z.array(Field),
      sources: z.object({ added: z.int().min(0), removed: z.int().min(0) }),
    }),
    result: z
      .object({
        evaluationId: uuid
          .nullable()
          .meta({ description: 'Null: it is no longer among the evaluations that are kept.' }),
        set: z.string().nullable().meta({ description: 'The question set. Null: questions of visitors.' }),
        counts: z.object(VerdictCounts),
        judged: z.object(VerdictCounts).meta({ description: 'Its replies by the expected answers.' }),
      })
      .nullable()
      .meta({
        description:
          'What the last comparison of the draft found, or since then the last evaluation of this version by a question set. Null: there was none.',
      }),
    canRollBack: z.boolean().meta({ description: 'False: it is live, or not all of its entries are kept.' }),
  })
  .meta({ id: 'AssistantVersion' });

const one = { audience: 'owners', resource: 'assistant' } as const;
const path = '/assistants/:id/draft';

export const draftOperations = {
  read: operation({
    ...one,
    method: 'get',
    path,
    id: 'getDraft',
    summary: 'Read what the draft changes, and who changed it',
    answer: z.object({
      drafts: z.boolean().meta({ description: 'The setting.' }),
      version: z.int().nullable().meta({ description: 'The version that is live. Null: drafts are off.' }),
      revision: z.int().min(0).meta({ description: 'Rises with each change of the draft: what `seen` means.' }),
      draft: DraftView.nullable().meta({ description: 'Null: nothing differs from what is live.' }),
    }),
  }),
  discard: operation({
    ...one,
    method: 'delete',
    path,
    id: 'discardDraft',
    summary: 'Discard the draft with the changes of all its authors',
    query: z.object({
      seen: wholeNumber(0, REVISION_MAX)
        .optional()
        .meta({ description: 'The revision that you have read: another one gives 409.' }),
    }),
    audit: 'draft.discard',
    errors: ['conflict'],
  }),
  publish: operation({
    ...one,
    method: 'post',
    path: `${path}/publish`,
    id: 'publishDraft',
    summary: 'Make the draft live as the next version, wholly or not at all',
    body: z.object({
      name: line(100).nullish(),
      note: textField(2_000).nullish(),
      seen: z
        .int()
        .min(0)
        .max(REVISION_MAX)
        .nullish()
        .meta({ description: 'The revision that you have read: another one gives 409.' }),
      confirm: z
        .boolean()
        .default(false)
        .meta({ description: 'True: also if more cases got worse than `worseAllowed`, or nothing was compared.' }),
    }),
    answer: VersionView,
    audit: 'draft.publish',
    errors: ['conflict'],
  }),
  versions: operation({
    ...one,
    method: 'get',
    path: '/assistants/:id/versions',
    id: 'listVersions',
    summary: 'List the last 50 versions, newest first',
    answer: z.object({ versions: z.array(VersionView) }),
  }),
  rollBack: operation({
    ...one,
    method: 'post',
    path: '/assistants/:id/versions/:version/roll-back',
    params: z.object({ id: uuid, version: wholeNumber(1, REVISION_MAX) }),
    id: 'rollBack',
    summary: 'Make an earlier version live again as the next one, wholly or not at all',
    body: z.object({
      note: textField(2_000).nullish(),
      live: z
        .int()
        .min(1)
        .max(REVISION_MAX)
        .nullish()
        .meta({ description: 'The version that you have read to be live: if another one is, 409.' }),
    }),
    answer: VersionView,
    audit: 'version.roll_back',
    errors: ['conflict'],
  }),
};

const toDraftView = ({ settings, sources, revision: _revision, ...draft }: Draft): z.input<typeof DraftView> => ({
  ...draft,
  settings: DRAFTED_FIELDS.flatMap((field) => {
    const edited = settings[field];
    return edited ? [{ field, by: edited.by, at: edited.at }] : [];
  }),
  sources: Object.entries(sources).map(([sourceId, { kind, name, by, at }]) => ({ sourceId, kind, name, by, at })),
});

/** `isKept`: whether the results of an evaluation can still be read. */
const toVersionView = (
  { result, changes, ...version }: AssistantVersion,
  isKept: (evaluationId: string) => boolean = () => true,
): z.input<typeof VersionView> => ({
  ...version,
  changes: { ...changes, sources: changes.sources ?? { added: 0, removed: 0 } },
  result: result
    ? {
        evaluationId: isKept(result.evaluationId) ? result.evaluationId : null,
        set: result.set,
        counts: wholeCounts(result.counts),
        judged: wholeCounts(result.judged),
      }
    : null,
});

type Dependencies = {
  assistants: Pick<AssistantStore, 'drafts' | 'getAssistant' | 'versions'>;
  evaluations: Pick<Evaluations, 'findComparison' | 'list' | 'listResults'>;
};

/** Refuses a draft that made more cases worse than the assistant's setting allows, and names them. */
const createGuardRail =
  ({ evaluations }: Pick<Dependencies, 'evaluations'>) =>
  async ({ assistantId, worseAllowed }: Assistant, comparison: Evaluation | null): Promise<void> => {
    if (worseAllowed === null) return;
    const detail = (code: string, message: string) => ({ field: 'confirm', code, message });
    if (!comparison) {
      const why = 'This draft was not compared with what is live. Compare it, or confirm.';
      throw conflict(why, detail('not_compared', 'must be true, because the draft was not compared'));
    }
    const { evaluationId, counts } = comparison;
    const worse = counts.worse ?? 0;
    if (worse <= worseAllowed) return;
    const options = { verdict: 'worse' as const, after: null, limit: MAX_DETAILS };
    const { results } = await evaluations.listResults({ assistantId, evaluationId }, options);
    const why = `${worse} ${worse === 1 ? 'case' : 'cases'} got worse. Mend the draft, or confirm.`;
    const named = results.map(({ question }) => detail('worse', question));
    throw conflict(why, ...(named.length > 0 ? named : [detail('erased', 'must be true: the cases were erased')]));
  };

/** A draft may have thousands of changes, which are counted each time. */
const rested = createRestedWork();

export const draftRoutes = ({
  assistants: { drafts, getAssistant, versions },
  evaluations,
}: Dependencies): Handled[] => [
  handled(draftOperations.read, async ({ params: { id = '' }, signal }) => {
    const read = async () => {
      const assistant = await getAssistant(id);
      const draft = assistant.drafts ? await drafts.find(id) : null;
      return {
        drafts: assistant.drafts,
        version: assistant.drafts ? (assistant.publishedVersion ?? null) : null,
        revision: assistant.draftRevision ?? 0,
        draft: draft && toDraftView(draft),
      };
    };
    return rested(id, read, signal);
  }),

  handled(draftOperations.discard, async ({ params: { id = '' }, query: { seen }, operator }) => {
    await drafts.discard(id, { by: authorOf(operator), seen });
  }),

  handled(draftOperations.publish, async ({ params: { id = '' }, body, operator, note }) => {
    const { name = null, note: words = null, confirm } = body;
    const assistant = await getAssistant(id);
    // What is published is what was compared: a change meanwhile gives 409.
    const seen = body.seen ?? assistant.draftRevision ?? 0;
    const comparison = await evaluations.findComparison(id, seen);
    if (!confirm) await createGuardRail({ evaluations })(assistant, comparison);
    const result = comparison && {
      evaluationId: comparison.evaluationId,
      set: comparison.set?.name ?? null,
      counts: comparison.counts,
      judged: comparison.judged,
    };
    const published = await drafts.publish(id, { by: authorOf(operator), seen, name, note: words, result });
    note({ target: id, details: { version: published.version, ...(name !== null && { name }) } });
    return toVersionView(published);
  }),

  handled(draftOperations.versions, async ({ params: { id = '' } }) => {
    const { drafts: isOn } = await getAssistant(id);
    const [listed, kept] = await Promise.all([versions.list(id), evaluations.list(id)]);
    const ids = new Set(kept.map(({ evaluationId }) => evaluationId));
    const isKept = (evaluationId: string): boolean => ids.has(evaluationId);
    return { versions: listed.map((one) => toVersionView({ ...one, canRollBack: isOn && one.canRollBack }, isKept)) };
  }),

  handled(draftOperations.rollBack, async ({ params: { id = '', version = '' }, body, operator, note }) => {
    const to = parseWholeNumber(version, 1, REVISION_MAX);
    if (to === null) throw notFound();
    const options = { by: authorOf(operator), live: body.live ?? undefined, note: body.note ?? null };
    const made = await drafts.rollBack(id, to, options);
    note({ target: id, details: { version: made.version, to } });
    return toVersionView(made);
  }),
];
