import { setTimeout as sleep } from 'node:timers/promises';
import type { Embedder } from '@parley/understanding';
import { afterAll, beforeAll } from 'vitest';
import { createProject, type Project } from '../../src/insights/project.ts';
import { newToken } from '../../src/platform/process/ids.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import type { Stack } from './stack.ts';

/** More than a conversation must be quiet before it is projected. */
const QUIET_MS = 3_500;
const PAUSE_MS = 50;

/** The projection itself, without a worker. */
export const projectOn = ({ service: { mongo, conversations, insights } }: Stack): Project =>
  createProject({
    connection: mongo,
    changed: conversations.changed,
    figures: insights.figures,
    usage: insights.usage,
    pendingMisses: insights.pendingMisses,
    erase: insights.eraseConversations,
    logger: createLogger({ name: 'test', level: 'silent' }),
  });

/**
 * Projects in place of the workers, which wait for seconds until a conversation is quiet and between two rounds. It
 * becomes the leader, so it begins before the first worker. Returns what stops it.
 */
export const projectAtOnce = async (stack: Stack, embedder?: Embedder): Promise<() => Promise<void>> => {
  const { insights, assistants, conversations } = stack.service;
  const { changed } = conversations;
  const stopping = new AbortController();
  const projection = insights.openProjection({
    token: newToken(),
    changed: {
      ...changed,
      listAfter: async (...range) =>
        (await changed.listAfter(...range)).map((one) => ({
          ...one,
          updatedAt: new Date(one.updatedAt.getTime() - QUIET_MS),
        })),
    },
    embedding: {
      embed: async (texts, holder) =>
        embedder ? embedder.embed(texts, 'query', { holder, priority: 'background' }) : null,
      model: () => embedder?.model() ?? null,
    },
    listAssistantIds: assistants.listAssistantIds,
    draining: stopping.signal,
    logger: createLogger({ name: 'test', level: 'silent' }),
  });
  const repeat = async (work: () => Promise<unknown>): Promise<void> => {
    while (!stopping.signal.aborted) {
      await work().catch(() => undefined); // as a sweep that fails, it is made again
      await sleep(PAUSE_MS);
    }
  };
  await projection.round();
  const running = [repeat(projection.round), repeat(projection.groupMisses)];
  return async () => {
    stopping.abort();
    await Promise.all(running);
    await projection.release();
  };
};

/** Projects at once in all tests of a file. Its stack has no reply worker before, and one from then on. */
export const useProjection = (stack: Stack, embedder?: Embedder): void => {
  let stopProjecting: () => Promise<void>;
  beforeAll(async () => {
    stopProjecting = await projectAtOnce(stack, embedder);
    await stack.startReplyWorker();
  });
  afterAll(() => stopProjecting());
};
