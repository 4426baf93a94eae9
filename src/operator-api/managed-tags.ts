import * as z from 'zod';
import { TagView } from '../conversations/view.ts';
import type { ManagedTags } from '../inbox/managed-tags.ts';
import { invalid } from '../process/errors.ts';
import { type Handled, handled, operation } from './operation.ts';
import { TagName } from './wire.ts';

const TAGS_MAX = 100;

const shared = {
  tag: 'Operators',
  resource: 'assistant',
  path: '/assistants/:id/tags',
  errors: ['not_found'],
} as const;
const answer = z.object({ tags: z.array(TagView) });

export const managedTagOperations = {
  list: operation({
    ...shared,
    audience: 'operators',
    method: 'get',
    id: 'listTags',
    summary: 'List the tags that operators choose from',
    answer,
  }),
  replace: operation({
    ...shared,
    audience: 'owners',
    method: 'put',
    id: 'replaceTags',
    summary: 'Replace the tags that operators choose from; conversations keep their tags',
    body: z.object({ tags: z.array(TagName).max(TAGS_MAX) }),
    answer,
    audit: 'assistant.tags',
  }),
};

type Dependencies = { managedTags: ManagedTags; assistants: { getAssistant: (id: string) => Promise<unknown> } };

export const managedTagRoutes = ({ managedTags, assistants }: Dependencies): Handled[] => [
  handled(managedTagOperations.list, async ({ params: { id = '' } }) => ({ tags: await managedTags.list(id) })),

  handled(managedTagOperations.replace, async ({ params: { id = '' }, body: { tags }, note }) => {
    await assistants.getAssistant(id);
    if (new Set(tags.map(({ tag }) => tag)).size < tags.length)
      throw invalid('tags', 'duplicate', 'must not have a tag twice');
    note({ target: id, details: { tags: tags.map(({ tag }) => tag).join(', ') } });
    return { tags: await managedTags.replace(id, tags) };
  }),
];
