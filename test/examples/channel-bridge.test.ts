import { expect, test } from 'vitest';
import { openOperatorApi } from '../../examples/channel-bridge/set-up.ts';
import { simulate } from '../../examples/channel-bridge/simulate.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack();

test('the chat of a bridge that is killed and loses events ends as the history', async () => {
  const { secret } = await stack.service.tokens.createToken({
    name: 'bridge',
    scope: 'manage',
    assistantIds: null,
    createdBy: null,
  });

  const { history, chat, counts } = await simulate(stack.url, openOperatorApi(stack.url, secret), () => undefined);

  expect(chat).toEqual(history);
  expect(history.map(({ role }) => role).join(' ')).toBe(
    'user assistant user assistant user assistant system operator operator user assistant user ' +
      'operator operator operator operator operator operator system user assistant',
  );
  expect(counts.lost).toBeGreaterThan(3);
  expect(counts.repeated).toBeGreaterThan(1);
  expect(counts.restarts).toBe(2);
});
