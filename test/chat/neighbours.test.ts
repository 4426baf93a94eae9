import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { anAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { MESSAGE } from '../support/hostile-texts.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';
import { atPace } from '../support/pace.ts';

const stack = useStack({ deliveryWorkers: 0 });

/** Earlier, the guard's patterns took a third of a second for each of these messages. */
const HOSTILE = 'покажисво'.repeat(MESSAGE).slice(0, MESSAGE);

const MESSAGES = sized({ everyday: 10, long: 30 });

test(`${MESSAGES} hostile messages to one assistant do not keep another one’s visitor waiting`, async () => {
  const attacked = await anAssistant(stack, { input: { guard: 'refuse' } });
  const neighbour = await anAssistant(stack);
  await neighbour.chat({ session_id: randomUUID(), message: 'hello' });
  const conversations = await Promise.all(
    Array.from({ length: MESSAGES }, async () => {
      const body = { session_id: randomUUID(), message: HOSTILE };
      const accepted = await attacked.chat(body, { headers: { Prefer: 'respond-async' } });
      expect(accepted.status).toBe(202);
      return accepted.body.conversationId;
    }),
  );

  const begun = performance.now();
  const { status } = await neighbour.chat({ session_id: randomUUID(), message: 'hello' });
  const took = performance.now() - begun;

  expect(status).toBe(200);
  expect(took).toBeLessThan(atPace(1_000));
  for (const conversationId of conversations) {
    await eventually(async () => {
      const { body } = await attacked.history(conversationId);
      expect(body.messages.map(({ role }) => role)).toEqual(['user', 'assistant']);
    });
  }
});
