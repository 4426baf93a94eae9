import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { anAssistant, anEntry, aTurn } from '../support/builders.ts';
import { anOperator } from '../support/operator-client.ts';
import { problemOf } from '../support/problem.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ deliveryWorkers: 0 });

test.each([
  'chrome-extension://abcdefghijklmnop',
  'file://',
  'data:text/html,hello',
  'null',
  'blob:null/1',
  'about:blank',
  'not an address',
])('a change asked for by a page of %s is refused', async (Origin) => {
  const owner = await anOperator(stack);

  const headers = { Origin, 'Sec-Fetch-Site': 'same-origin' };
  const answers = [
    await owner.call('POST', '/assistants', { name: 'x' }, headers),
    await owner.call('POST', '/session', { email: owner.email, password: 'wrong' }, headers),
  ];

  expect(answers.map(problemOf)).toEqual(['403 forbidden', '403 forbidden']);
});
