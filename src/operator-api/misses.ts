import * as z from 'zod';
import type { StoredMiss } from '../insights/misses.ts';
import type { Insights } from '../insights/store.ts';
import { type Handled, handled, operation } from './operation.ts';
import { time, uuid } from './wire.ts';

const shared = { tag: 'Operators', audience: 'owners', resource: 'assistant', errors: ['not_found'] } as const;
const path = '/assistants/:id/misses';

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
    ...shared,
    method: 'get',
    path,
    id: 'listMisses',
    isLarge: true,
    summary: 'List questions without a sure answer, grouped by meaning, the most frequent first; at most 200 groups',
    answer: z.object({ misses: z.array(MissView) }),
  }),
  dismiss: operation({
    ...shared,
    method: 'post',
    path: `${path}/:missId/dismiss`,
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
