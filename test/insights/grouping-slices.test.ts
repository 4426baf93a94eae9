import { setImmediate as nextTick } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { createGroupMisses } from '../../src/insights/group-misses.ts';
import { newId } from '../../src/platform/process/ids.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });

/** As many assistants as are grouped at once, and what each of them has waiting. */
const ASSISTANTS = 4;
const MISSES = 10;
const NO_MODEL = { embed: async () => null, model: () => null };
/** Longer than a slice of the loop. */
const WORK_MS = 5;

const workFully = (): void => {
  const until = performance.now() + WORK_MS;
  while (performance.now() < until);
};

test('of the misses of all assistants one is compared in each round of the loop', async () => {
  const { mongo, insights } = stack.service;
  const waiting = Array.from({ length: ASSISTANTS }, () => ({
    _id: newId(),
    assistantId: newId(),
    conversationId: newId(),
    at: new Date(0),
    lessons: Array.from({ length: MISSES }, (_, nth) => ({
      kind: 'miss',
      question: `Question ${nth}?`,
      language: 'en',
      at: new Date(nth),
    })),
  }));
  await mongo.collection('pendingMisses').insertMany(waiting as never);
  let compared = 0;
  const groupMisses = createGroupMisses(mongo, NO_MODEL);
  /** Each miss takes as long as one that is compared with many long groups. */
  const groupSlowly: typeof groupMisses = (learners, options) => {
    for (const { lessons } of learners)
      for (const lesson of lessons) {
        const { at } = lesson;
        Object.defineProperty(lesson, 'at', {
          get: () => {
            workFully();
            compared += 1;
            return at;
          },
        });
      }
    return groupMisses(learners, options);
  };
  const draining = new AbortController().signal;
  const logger = createLogger({ name: 'test', level: 'silent' });

  let isOver = false;
  const grouping = insights.pendingMisses.group(groupSlowly, { draining, logger }).finally(() => (isOver = true));
  const inRounds: number[] = [];
  while (!isOver) {
    const before = compared;
    await nextTick();
    inRounds.push(compared - before);
  }
  await grouping;

  expect(Math.max(...inRounds)).toBe(1);
  expect(await mongo.collection('misses').countDocuments()).toBe(ASSISTANTS * MISSES);
});
