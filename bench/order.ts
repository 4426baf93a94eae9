import { setTimeout as sleep } from 'node:timers/promises';
import { createRandom } from '../test/kit/random.ts';
import { openCountingReceiver } from '../test/kit/counting-receiver.ts';
import { requireNode } from '../src/platform/process/lifecycle.ts';
import type { Service } from '../src/service.ts';
import { createFeed } from '../test/kit/feed.ts';
import { withDeliveryWorkers } from '../test/kit/own-service.ts';

/**
 * Sends 1,000 conversations of 20 events each to one endpoint with random latency, using two workers. The events of a
 * conversation must arrive in order, and each event only after the previous one was answered.
 */
requireNode();
const CONVERSATIONS = 1_000;
const EVENTS = 20;
const LATENCY_MS = 50;
const WITHIN_MS = 180_000;

const run = async (service: Service): Promise<boolean> => {
  const receiver = await openCountingReceiver(createRandom(1), LATENCY_MS);
  const { assistantId } = await service.assistants.createAssistant({ name: 'Order' });
  await service.endpoints.addEndpoint(assistantId, { url: receiver.url });
  const feed = createFeed(service);
  const keys = await feed.openConversations(assistantId, CONVERSATIONS);
  const startedAt = performance.now();
  for (let event = 1; event <= EVENTS; event += 1) {
    await Promise.all(keys.map((key) => feed.say(assistantId, key, [`${event} of ${EVENTS}`])));
  }
  while (receiver.received < CONVERSATIONS * EVENTS && performance.now() - startedAt < WITHIN_MS) await sleep(100);
  const seconds = (performance.now() - startedAt) / 1000;
  await sleep(1_000);

  const { received, inversions, overlaps } = receiver;
  console.log(`${CONVERSATIONS} conversations × ${EVENTS} events, latency 0–${LATENCY_MS} ms, 2 workers`);
  console.log(`received ${received} in ${seconds.toFixed(1)} s (${Math.round(received / seconds)}/s)`);
  console.log(`inversions ${inversions} (limit 0)\nsent before the previous one was answered ${overlaps} (limit 0)`);
  const kept = received === CONVERSATIONS * EVENTS && inversions === 0 && overlaps === 0;
  console.log(kept ? 'Every limit is kept.' : 'A limit is missed.');
  await receiver.close();
  return kept;
};

process.exitCode = (await withDeliveryWorkers(2, run)) ? 0 : 1;
