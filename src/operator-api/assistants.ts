import * as z from 'zod';
import { ANSWERING, type Assistant, AssistantInput, GUARDS, IF_NOT_TAKEN } from '../assistants/assistant.ts';
import { EngineInput, toEngineView } from '../assistants/engine-settings.ts';
import { OpeningHours } from '../assistants/opening-hours.ts';
import type { AssistantStore } from '../assistants/store.ts';
import { requirePublicUrl } from '../webhooks/address-guard.ts';
import { hasAssistant } from '../operators/operator.ts';
import { type Handled, handled, operation } from './operation.ts';
import { time, uuid } from './wire.ts';

const tag = 'Operators';
const audience = 'owners';

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

const AssistantView = z
  .object({
    assistantId: uuid,
    name: z.string(),
    instructions: z.string(),
    languages: z.array(z.string()),
    holdingText: z.string().nullable(),
    answering: z.enum(ANSWERING),
    threshold: z.number().nullable(),
    dedupeWindowSeconds: z.number(),
    guard: z.enum(GUARDS),
    allowedLinks: z.array(z.string()),
    strict: z.boolean(),
    openingHours: OpeningHours.nullable(),
    takeWithinMinutes: z.number().nullable(),
    ifNotTaken: z.enum(IF_NOT_TAKEN),
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
    tag,
    summary: 'List the assistants the caller has access to, oldest first',
    audience,
    resource: 'filtered',
    answer: z.object({ assistants: z.array(AssistantView) }),
  }),
  create: operation({
    method: 'post',
    path: '/assistants',
    id: 'createAssistant',
    tag,
    summary: 'Create an assistant',
    audience,
    resource: null,
    body: AssistantInput,
    status: 201,
    answer: AssistantView,
    audit: 'assistant.create',
  }),
  read: operation({
    method: 'get',
    path: '/assistants/:id',
    id: 'getAssistant',
    tag,
    summary: 'Read an assistant',
    audience,
    resource: 'assistant',
    answer: AssistantView,
    errors: ['not_found'],
  }),
  update: operation({
    method: 'patch',
    path: '/assistants/:id',
    id: 'updateAssistant',
    tag,
    summary: 'Change the given fields; the rest stays',
    audience,
    resource: 'assistant',
    body: AssistantInput.partial(),
    answer: AssistantView,
    audit: 'assistant.update',
    errors: ['not_found'],
  }),
  setEngine: operation({
    method: 'put',
    path: '/assistants/:id/engine',
    id: 'setEngine',
    tag,
    summary: 'Set the engine; an omitted provider key keeps the stored one, for the same address',
    audience,
    resource: 'assistant',
    body: EngineInput,
    answer: AssistantView,
    audit: 'assistant.set_engine',
    errors: ['not_found'],
  }),
};

/**
 * The view of an assistant. The fields are listed one by one, so that a secret field that is added later is not shown
 * by accident.
 */
const toView = (assistant: Assistant): z.input<typeof AssistantView> => {
  const { connected, tokenHash, limitPerMinute } = assistant.channel;
  return {
    assistantId: assistant.assistantId,
    name: assistant.name,
    instructions: assistant.instructions,
    languages: assistant.languages,
    holdingText: assistant.holdingText,
    answering: assistant.answering,
    threshold: assistant.threshold,
    dedupeWindowSeconds: assistant.dedupeWindowSeconds,
    guard: assistant.guard,
    allowedLinks: assistant.allowedLinks,
    strict: assistant.strict,
    openingHours: assistant.openingHours,
    takeWithinMinutes: assistant.takeWithinMinutes,
    ifNotTaken: assistant.ifNotTaken,
    engine: toEngineView(assistant.engine),
    createdAt: assistant.createdAt,
    channel: { connected, open: connected && tokenHash === null, limitPerMinute },
  };
};

type Dependencies = { assistants: AssistantStore; allowPrivate: boolean };

export const assistantRoutes = ({ assistants, allowPrivate }: Dependencies): Handled[] => [
  handled(assistantOperations.list, async ({ operator }) => {
    const all = await assistants.listAssistants();
    return { assistants: all.filter(({ assistantId }) => hasAssistant(operator, assistantId)).map(toView) };
  }),

  handled(assistantOperations.create, async ({ body, note }) => {
    const made = await assistants.createAssistant(body);
    note({ target: made.assistantId, details: { name: made.name } });
    return toView(made);
  }),

  handled(assistantOperations.read, async ({ params: { id = '' } }) => toView(await assistants.getAssistant(id))),

  handled(assistantOperations.update, async ({ params: { id = '' }, body, req, note }) => {
    // The schema adds defaults for omitted fields. These defaults are only for new assistants, so they are removed
    // here.
    const named = Object.entries(body).filter(([name]) => Object.hasOwn(req.body as object, name));
    const changed = await assistants.updateAssistant(id, Object.fromEntries(named));
    note({ target: id, details: { fields: named.map(([name]) => name).join(', ') } });
    return toView(changed);
  }),

  handled(assistantOperations.setEngine, async ({ params: { id = '' }, body, note }) => {
    if (body.kind === 'openai') await requirePublicUrl(body.baseUrl, { allowPrivate }, 'baseUrl');
    const changed = await assistants.setEngine(id, body);
    const { kind } = changed.engine;
    note({ target: id, details: { kind, newKey: body.kind === 'openai' && typeof body.apiKey === 'string' } });
    return toView(changed);
  }),
];
