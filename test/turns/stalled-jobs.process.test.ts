import { randomUUID } from 'node:crypto';
import { expect, inject, onTestFinished, test } from 'vitest';
import { anAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { type Kind, startRealProcess } from '../kit/processes.ts';
import { openRelay, through } from '../kit/relay.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

/** Far more than the workers' own limits need, and less than half of what BullMQ's defaults would take. */
const SEEN_WITHIN_MS = 28_000;
/** The long form waits for the limits of production, which are five times longer. */
const kind = sized<Kind>({ everyday: 'quickReply', long: 'reply' });

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0, env: { REPLY_TIMEOUT_MS: '500' } });

test('a killed worker’s job is soon found to be stalled', async () => {
  const { chat } = await anAssistant(stack);
  // The relay holds the worker's reads of conversations forever, so that the worker's job does not end.
  let reads = 0;
  const relay = await openRelay(inject('mongodbUrl'), {
    holds: ({ name, collection }) => {
      if (collection !== 'conversations' || !['find', 'aggregate'].includes(name)) return null;
      reads += 1;
      return new Promise(() => undefined);
    },
  });
  onTestFinished(relay.cut);
  const MONGODB_URL = through(stack.env['MONGODB_URL'] ?? '', relay);
  const killed = await startRealProcess(kind, { ...stack.env, MONGODB_URL });
  await chat({ session_id: randomUUID(), message: 'What are your opening hours?' });
  const active = async () => (await stack.service.queues.turns.countJobs())['active'];
  await eventually(async () => expect(await active()).toBe(1));
  await eventually(() => expect(reads).toBeGreaterThan(0));

  await killed.kill();
  const next = await startRealProcess(kind, stack.env);

  await eventually(async () => expect(await active()).toBe(0), SEEN_WITHIN_MS);
  await next.kill('SIGTERM');
});
