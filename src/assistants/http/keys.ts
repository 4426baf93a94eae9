import * as z from 'zod';
import { OverlapHours } from '../api-keys.ts';
import { DEFAULT_LIMIT_PER_MINUTE, TurnsPerMonth } from '../assistant.ts';
import type { AssistantStore } from '../store.ts';
import { definedFields, type Handled, handled, line, operation, time, uuid } from '../../operators/operation.ts';

const ofAssistant = { audience: 'owners', resource: 'assistant' } as const;
const one = { audience: 'owners', resource: 'key' } as const;
const limit = z.int().min(1).max(1_000_000);

const KeyView = z
  .object({
    keyId: uuid,
    assistantId: uuid,
    name: z.string(),
    lastFour: z.string(),
    limitPerMinute: z.int(),
    turnsPerMonth: z.int().nullable().meta({ description: 'New turns in a month (UTC). Null: no quota.' }),
    createdAt: time,
    lastUsedAt: time.nullable(),
    revokedAt: time.nullable(),
    overlapUntil: time.nullable().meta({ description: 'Until then, the key before the last rotation is valid too.' }),
  })
  .meta({ id: 'ApiKey' });

const NewKeyView = z
  .object({ key: KeyView, apiKey: z.string().meta({ description: 'The full key, shown only once.' }) })
  .meta({ id: 'NewApiKey' });

export const keyOperations = {
  list: operation({
    ...ofAssistant,
    method: 'get',
    path: '/assistants/:id/keys',
    id: 'listApiKeys',
    isLarge: true,
    summary: 'List keys by their last four characters, newest first',
    answer: z.object({ keys: z.array(KeyView) }),
  }),
  create: operation({
    ...ofAssistant,
    method: 'post',
    path: '/assistants/:id/keys',
    id: 'createApiKey',
    summary: 'Create a key; it is shown only once',
    body: z.object({
      name: line(100),
      limitPerMinute: limit.default(DEFAULT_LIMIT_PER_MINUTE),
      turnsPerMonth: TurnsPerMonth.default(null),
    }),
    status: 201,
    answer: NewKeyView,
    audit: 'key.create',
  }),
  update: operation({
    ...one,
    method: 'patch',
    path: '/keys/:id',
    id: 'updateApiKey',
    summary: 'Change its name or limits within a second; the key stays the same',
    body: z.object({
      name: line(100).optional(),
      limitPerMinute: limit.optional(),
      turnsPerMonth: TurnsPerMonth.optional(),
    }),
    answer: KeyView,
    audit: 'key.update',
  }),
  rotate: operation({
    ...one,
    method: 'post',
    path: '/keys/:id/rotate',
    id: 'rotateApiKey',
    summary: 'Rotate a key under the same id; the old one stops within a second, or after the overlap',
    body: z.object({ overlapHours: OverlapHours }),
    bodyOptional: true,
    answer: NewKeyView,
    audit: 'key.rotate',
  }),
  revoke: operation({
    ...one,
    method: 'post',
    path: '/keys/:id/revoke',
    id: 'revokeApiKey',
    summary: 'Revoke a key within a second, for good',
    answer: KeyView,
    audit: 'key.revoke',
  }),
};

export const keyRoutes = ({ assistants }: { assistants: AssistantStore }): Handled[] => [
  handled(keyOperations.list, async ({ params: { id = '' } }) => {
    await assistants.getAssistant(id);
    return { keys: await assistants.listApiKeys(id) };
  }),

  handled(keyOperations.create, async ({ params: { id = '' }, body, note }) => {
    const made = await assistants.createApiKey({ assistantId: id, ...body });
    const { keyId, lastFour, name } = made.key;
    note({ target: keyId, details: { assistantId: id, name, lastFour } });
    return made;
  }),

  handled(keyOperations.update, async ({ params: { id = '' }, body, note }) => {
    const key = await assistants.updateApiKey(id, definedFields(body));
    const { name, limitPerMinute, turnsPerMonth } = key;
    note({ target: id, details: { name, limitPerMinute, turnsPerMonth } });
    return key;
  }),

  handled(keyOperations.rotate, async ({ params: { id = '' }, body: { overlapHours }, note }) => {
    const rotated = await assistants.rotateApiKey(id, overlapHours);
    const { name, lastFour } = rotated.key;
    note({ target: id, details: { name, lastFour, overlapHours } });
    return rotated;
  }),

  handled(keyOperations.revoke, async ({ params: { id = '' }, note }) => {
    const revoked = await assistants.revokeApiKey(id);
    note({ target: id, details: { name: revoked.name, lastFour: revoked.lastFour } });
    return revoked;
  }),
];
