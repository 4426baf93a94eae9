import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { anAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { openProvider } from '../support/provider.ts';
import { startRealProcess } from '../support/processes.ts';
import { useStack } from '../support/stack.ts';

/** Lock and two looks of BullMQ's; its own defaults would make it a minute and more. */
const SEEN_WITHIN_MS = 28_000;

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0, env: { REPLY_TIMEOUT_MS: '500' } });

test('a killed worker’s job is soon seen to be nobody’s', { timeout: 60_000 }, async () => {
  const { assistantId, chat } = await anAssistant(stack);
  const provider = await openProvider();
  await stack.service.assistants.setEngine(assistantId, { kind: 'openai', baseUrl: provider.baseUrl, model: 'm' });
  provider.behave(({ open }) => open());
  const killed = await startRealProcess('reply', stack.env);
  await chat({ session_id: randomUUID(), message: 'What are your opening hours?' });
  const active = async () => (await stack.service.turnQueue.countJobs())['active'];
  await eventually(async () => expect(await active()).toBe(1));
  await eventually(() => expect(provider.asked).toHaveLength(1));

  await killed.kill();
  provider.behave(({ open, say, done }) => {
    open();
    say('From nine to five.');
    done();
  });
  const next = await startRealProcess('reply', stack.env);

  await eventually(async () => expect(await active()).toBe(0), SEEN_WITHIN_MS);
  await next.kill('SIGTERM');
  await provider.close();
});
