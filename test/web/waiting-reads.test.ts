import { getEventListeners } from 'node:events';
import { expect, test } from 'vitest';
import { openApi } from '../../src/api.ts';
import { readConfig } from '../../src/platform/process/config.ts';
import { createLifecycle } from '../../src/platform/process/lifecycle.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { aTurn, request } from '../support/builders.ts';
import { useStack } from '../support/stack.ts';
import { aVisitor, aWebAssistant } from '../support/visitor.ts';

const VISITORS = 10;
const stack = useStack();

test('visitors and programs that wait leave nothing at the signal of their process, which ends all waits', async () => {
  const { assistantId, apiKey, chat } = await aWebAssistant(stack);
  const { conversationId } = (await chat(aTurn())).body;
  const logger = createLogger({ name: 'test', level: 'silent' });
  const lifecycle = createLifecycle(logger, { deadlineMs: 10_000 });
  const { port } = await openApi({ config: readConfig(stack.env), logger, lifecycle });
  const api = { url: `http://127.0.0.1:${port}` };
  const listeners = (): number => getEventListeners(lifecycle.draining, 'abort').length;
  const visitors = await Promise.all(Array.from({ length: VISITORS }, () => aVisitor(api, assistantId)));
  const before = listeners();
  const history = `${api.url}/api/v1/conversations/${conversationId}`;
  const ask = (query: string) => request(`${history}${query}`, { bearer: apiKey });
  const polls = Array.from({ length: VISITORS }, () => ask('?after_seq=1&wait=25'));

  // One read more than may wait. As soon as one is answered, the others wait.
  const reads = visitors.map(({ read }) => Array.from({ length: 5 }, () => read('?after=0&wait=25')));
  await Promise.all(reads.map((ofVisitor) => Promise.race(ofVisitor)));
  await ask(''); // those that came before it have begun to wait
  const during = listeners();
  await lifecycle.close();

  const answers = await Promise.all([...polls, ...reads.flat()]);
  expect(during).toBe(before);
  expect(answers.map(({ status }) => status)).toEqual(Array.from({ length: 6 * VISITORS }, () => 200));
});
