import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import type { ChangedConversation, ChangedConversations } from '../../src/insights/changed-conversations.ts';
import { createProjectionRound } from '../../src/insights/projection-round.ts';
import type { ProjectionStates } from '../../src/insights/projection-state.ts';

test('a round projects something even if listing takes all of its time', async () => {
  const updatedAt = new Date(Date.now() - 60_000);
  const listed: ChangedConversation[] = Array.from({ length: 60 }, (_, nth) => ({
    _id: `key-${nth}`,
    assistantId: 'assistant',
    updatedAt: new Date(updatedAt.getTime() + nth),
  }));
  const projected: string[] = [];
  const lives: Date[] = [];
  const round = createProjectionRound({
    states: {
      acquire: async () => ({ _id: 'projection', live: lives.at(-1) ?? updatedAt, back: null }),
      advance: async (_token, { live }) => {
        lives.push(live);
        return true;
      },
    } as Partial<ProjectionStates> as ProjectionStates,
    changed: {
      listAfter: async () => {
        await sleep(300); // longer than a round may work
        return listed;
      },
    } as Partial<ChangedConversations> as ChangedConversations,
    project: async (keys) => {
      projected.push(...keys);
      return { behind: [], failed: [] };
    },
    listAssistantIds: async () => ['assistant'],
    draining: new AbortController().signal,
  });

  for (let rounds = 0; rounds < 3; rounds += 1) await round('token');

  expect(projected).toEqual(listed.map(({ _id }) => _id));
});
