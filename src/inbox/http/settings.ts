import * as z from 'zod';
import { TagView } from '../../conversations/view.ts';
import { sendJson, toJson } from '../../platform/http/json-body.ts';
import type { CannedReplies, ManagedTags } from '../records.ts';
import { invalid } from '../../platform/process/errors.ts';
import {
  definedFields,
  type Handled,
  handled,
  line,
  operation,
  TagName,
  textField,
  time,
  uuid,
  WRITTEN,
} from '../../operators/operation.ts';

const TITLE_MAX = 80;
const CONTENT_MAX = 4_000;

const list = { audience: 'operators', resource: 'assistant', path: '/assistants/:id/canned-replies' } as const;
const one = { audience: 'operators', resource: 'canned reply', path: '/canned-replies/:id' } as const;

const CannedReplyView = z
  .object({
    cannedReplyId: uuid,
    assistantId: uuid,
    title: z.string(),
    content: z.string().meta({
      description:
        'As written, with the placeholders {{session_id}}, {{language}}, {{agent}} and {{attribute.NAME}}. The page fills them.',
    }),
    createdAt: time,
    updatedAt: time,
  })
  .meta({ id: 'CannedReply' });

const input = { title: line(TITLE_MAX), content: textField(CONTENT_MAX) };

export const cannedReplyOperations = {
  list: operation({
    ...list,
    method: 'get',
    id: 'listCannedReplies',
    isLarge: true,
    summary: 'List an assistant’s canned replies, by title',
    answer: z.object({ cannedReplies: z.array(CannedReplyView) }),
  }),
  add: operation({
    ...list,
    method: 'post',
    id: 'addCannedReply',
    summary: 'Add a canned reply',
    body: z.object(input),
    status: 201,
    answer: CannedReplyView,
    audit: 'canned_reply.add',
  }),
  update: operation({
    ...one,
    method: 'patch',
    id: 'updateCannedReply',
    summary: 'Change a canned reply',
    body: z.object(input).partial(),
    answer: CannedReplyView,
    audit: 'canned_reply.update',
  }),
  remove: operation({
    ...one,
    method: 'delete',
    id: 'removeCannedReply',
    summary: 'Remove a canned reply',
    audit: 'canned_reply.remove',
  }),
};

export const cannedReplyRoutes = ({ cannedReplies }: { cannedReplies: CannedReplies }): Handled[] => [
  handled(cannedReplyOperations.list, async ({ params: { id = '' }, res }) => {
    await sendJson(res, toJson({}, { cannedReplies: cannedReplies.read(id) }));
    return WRITTEN;
  }),

  handled(cannedReplyOperations.add, async ({ params: { id = '' }, body, note }) => {
    const added = await cannedReplies.add(id, body);
    note({ target: added.cannedReplyId, details: { assistantId: id, title: added.title } });
    return added;
  }),

  handled(cannedReplyOperations.update, async ({ params: { id = '' }, body, note }) => {
    const { assistantId, title, ...rest } = await cannedReplies.update(id, definedFields(body));
    note({ target: id, details: { assistantId, title } });
    return { assistantId, title, ...rest };
  }),

  handled(cannedReplyOperations.remove, async ({ params: { id = '' }, note }) => {
    const { assistantId, title } = await cannedReplies.get(id);
    await cannedReplies.remove(id);
    note({ target: id, details: { assistantId, title } });
  }),
];

const TAGS_MAX = 100;

const sharedTags = { resource: 'assistant', path: '/assistants/:id/tags' } as const;
const answer = z.object({ tags: z.array(TagView) });

export const managedTagOperations = {
  list: operation({
    ...sharedTags,
    audience: 'operators',
    method: 'get',
    id: 'listTags',
    summary: 'List the tags that operators choose from',
    answer,
  }),
  replace: operation({
    ...sharedTags,
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
