import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import type { ChangedConversation, ChangedConversations } from '../../src/conversations/changed-since.ts';
import {
  createProjectionRound,
  LAST_KEY,
  type ProjectionState,
  type ProjectionStates,
} from '../../src/insights/projection-round.ts';

test('an older conversation that fails once is projected by a later round', async () => {
  const now = new Date();
  const old: ChangedConversation = { _id: 'key', assistantId: 'assistant', updatedAt: new Date(0) };
  let back: ProjectionState['back'] = { assistantId: 'assistant', at: now, id: LAST_KEY };
  const failures = [['key'], []];
  const projected: string[][] = [];
  const round = createProjectionRound({
    states: {
      acquire: async () => ({ _id: 'projection', live: now, back }),
      advance: async (_token, position) => {
        ({ back } = position);
        return true;
      },
    } as Partial<ProjectionStates> as ProjectionStates,
    changed: {
      listAfter: async () => [],
      listBefore: async (_assistantId, { at }) => (at > old.updatedAt ? [old] : []),
    } as Partial<ChangedConversations> as ChangedConversations,
    project: async (keys) => {
      projected.push(keys);
      return { behind: [], failed: failures.shift() ?? [], costs: new Map() };
    },
    listAssistantIds: async () => ['assistant'],
    draining: new AbortController().signal,
  });

  for (let rounds = 0; rounds < 3; rounds += 1) await round('token');

  expect(projected).toEqual([['key'], ['key']]);
  expect(back).toBe(null);
});

test('a stop in the middle of a long conversation does not move the position past it', async () => {
  const long: ChangedConversation = { _id: 'key', assistantId: 'assistant', updatedAt: new Date(Date.now() - 60_000) };
  const stopping = new AbortController();
  const lives: Date[] = [];
  const round = createProjectionRound({
    states: {
      acquire: async () => ({ _id: 'projection', live: long.updatedAt, back: null }),
      advance: async (_token, { live }) => {
        lives.push(live);
        return true;
      },
    } as Partial<ProjectionStates> as ProjectionStates,
    changed: { listAfter: async () => [long] } as Partial<ChangedConversations> as ChangedConversations,
    project: async (keys) => {
      stopping.abort();
      return { behind: keys, failed: [], costs: new Map() };
    },
    listAssistantIds: async () => ['assistant'],
    draining: stopping.signal,
  });

  await round('token');

  expect(lives).toEqual([long.updatedAt]);
});

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
      return { behind: [], failed: [], costs: new Map() };
    },
    listAssistantIds: async () => ['assistant'],
    draining: new AbortController().signal,
  });

  for (let rounds = 0; rounds < 3; rounds += 1) await round('token');

  expect(projected).toEqual(listed.map(({ _id }) => _id));
});

test('an assistant whose conversation cost much has the next one after those of others', async () => {
  const updatedAt = new Date(Date.now() - 60_000);
  const many = Array.from({ length: 40 }, (_, nth) => ({ _id: `key-${nth}`, assistantId: 'other', updatedAt }));
  const stopping = new AbortController();
  const projected: string[][] = [];
  const round = createProjectionRound({
    states: {
      acquire: async () => ({ _id: 'projection', live: updatedAt, back: null }),
      advance: async () => true,
    } as Partial<ProjectionStates> as ProjectionStates,
    changed: {
      listAfter: async () => {
        await sleep(300); // longer than a round may work, so that it makes one step
        return [{ _id: `costly-${projected.length}`, assistantId: 'costly', updatedAt }, ...many];
      },
    } as Partial<ChangedConversations> as ChangedConversations,
    project: async (keys) => {
      projected.push(keys);
      if (projected.length === 2) stopping.abort();
      return { behind: [], failed: [], costs: new Map(keys.map((key) => [key, key.startsWith('costly') ? 1e6 : 1])) };
    },
    listAssistantIds: async () => ['costly', 'other'],
    draining: stopping.signal,
  });

  await round('token');

  const others = many.map(({ _id }) => _id);
  expect(projected).toEqual([
    ['costly-0', ...others.slice(0, 24)],
    [...others.slice(24), 'costly-1'],
  ]);
});
