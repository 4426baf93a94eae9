import * as z from 'zod';
import { AssistantInput, settingsOf } from '../assistant.ts';
import { EngineInput, toEngineView } from '../settings.ts';
import type { AssistantStore, ListedAssistant } from '../store.ts';
import { sendJson, toJson } from '../../platform/http/json-body.ts';
import { requirePublicUrl } from '../../platform/http/address-guard.ts';
import { assistantIdsOf } from '../../operators/operator.ts';
import { authorOf, ofDraft, Seen } from '../drafts/http.ts';
import { type Handled, handled, operation, time, uuid, WRITTEN } from '../../operators/operation.ts';

const one = { audience: 'owners', resource: 'assistant' } as const;

const EngineView = z.union([
  z.object({ kind: z.literal('retrieval') }),
  z.object({
    kind: z.literal('openai'),
    baseUrl: z.string(),
    model: z.string(),
    timeoutMs: z.number(),
    temperature: z.number().nullable(),
    maxTokens: z.number(),
    historyTokens: z.number(),
    apiKey: z.string().meta({ description: '`configured` or `none`; never the key.' }),
  }),
]);

type Shape = typeof AssistantInput.shape;
type WithoutDefaults = { [Name in keyof Shape]: Shape[Name] extends z.ZodDefault<infer Inner> ? Inner : Shape[Name] };

/** A stored setting always has a value. */
const withoutDefaults = (shape: Shape): WithoutDefaults =>
  Object.fromEntries(
    Object.entries(shape).map(([name, one]) => [name, one instanceof z.ZodDefault ? one.unwrap() : one]),
  ) as WithoutDefaults;

const AssistantView = z
  .object({
    assistantId: uuid,
    ...withoutDefaults(AssistantInput.shape),
    languages: z.array(z.string()),
    holdingText: z.string().nullable(),
    draftRevision: z
      .int()
      .min(0)
      .optional()
      .meta({ description: 'With drafts: the revision of the draft, for `seen`.' }),
    engine: EngineView,
    createdAt: time,
    channel: z.object({ connected: z.boolean(), open: z.boolean(), limitPerMinute: z.number() }),
  })
  .meta({ id: 'Assistant' });

export const assistantOperations = {
  list: operation({
    method: 'get',
    path: '/assistants',
    id: 'listAssistants',
    summary: 'List the assistants the caller has access to, oldest first',
    audience: 'owners',
    resource: 'filtered',
    isLarge: true,
    answer: z.object({ assistants: z.array(AssistantView) }),
  }),
  create: operation({
    method: 'post',
    path: '/assistants',
    id: 'createAssistant',
    summary: 'Create an assistant',
    audience: 'owners',
    resource: null,
    body: AssistantInput,
    status: 201,
    answer: AssistantView,
    audit: 'assistant.create',
  }),
  read: operation({
    ...one,
    method: 'get',
    path: '/assistants/:id',
    id: 'getAssistant',
    summary: 'Read an assistant',
    query: ofDraft,
    answer: AssistantView,
  }),
  update: operation({
    ...one,
    method: 'patch',
    path: '/assistants/:id',
    id: 'updateAssistant',
    summary: 'Change the given fields; the rest stays',
    query: Seen,
    body: AssistantInput.partial(),
    answer: AssistantView,
    audit: 'assistant.update',
    errors: ['conflict'],
  }),
  setEngine: operation({
    ...one,
    method: 'put',
    path: '/assistants/:id/engine',
    id: 'setEngine',
    summary: 'Set the engine; an omitted provider key keeps the stored one, for the same address',
    query: Seen,
    body: EngineInput,
    answer: AssistantView,
    audit: 'assistant.set_engine',
    errors: ['conflict'],
  }),
};

/** A secret is in none of the fields that it names. */
const toView = (assistant: ListedAssistant): z.input<typeof AssistantView> => {
  const { assistantId, channel, drafts, draftRevision = 0, engine, createdAt } = assistant;
  const { connected, tokenHash, limitPerMinute } = channel;
  return {
    assistantId,
    ...settingsOf(assistant),
    ...(drafts && { draftRevision }),
    engine: toEngineView(engine),
    createdAt,
    channel: { connected, open: connected && tokenHash === null, limitPerMinute },
  };
};

type Dependencies = { assistants: AssistantStore; allowPrivate: boolean };

export const assistantRoutes = ({ assistants, allowPrivate }: Dependencies): Handled[] => [
  handled(assistantOperations.list, async ({ operator, res, signal }) => {
    async function* views() {
      for await (const page of assistants.readAssistants(assistantIdsOf(operator), signal)) yield page.map(toView);
    }
    await sendJson(res, toJson({}, { assistants: views() }), signal);
    return WRITTEN;
  }),

  handled(assistantOperations.create, async ({ body, operator, note }) => {
    const made = await assistants.createAssistant(body, { by: authorOf(operator) });
    note({ target: made.assistantId, details: { name: made.name } });
    return toView(made);
  }),

  handled(assistantOperations.read, async ({ params: { id = '' }, query: { draft } }) => {
    const assistant = await assistants.getAssistant(id);
    return toView(draft ? await assistants.drafts.apply(assistant) : assistant);
  }),

  handled(assistantOperations.update, async ({ params: { id = '' }, query: { seen }, body, req, operator, note }) => {
    // The schema adds defaults for omitted fields. These defaults are only for new assistants, so they are removed
    // here.
    const named = Object.entries(body).filter(([name]) => Object.hasOwn(req.body as object, name));
    const changed = await assistants.updateAssistant(id, Object.fromEntries(named), { by: authorOf(operator), seen });
    note({ target: id, details: { fields: named.map(([name]) => name).join(', ') } });
    return toView(changed);
  }),

  handled(assistantOperations.setEngine, async ({ params: { id = '' }, query: { seen }, body, operator, note }) => {
    if (body.kind === 'openai') await requirePublicUrl(body.baseUrl, { allowPrivate }, 'baseUrl');
    const changed = await assistants.setEngine(id, body, { by: authorOf(operator), seen });
    const { kind } = changed.engine;
    note({ target: id, details: { kind, newKey: body.kind === 'openai' && typeof body.apiKey === 'string' } });
    return toView(changed);
  }),
];
