import { setTimeout as sleep } from 'node:timers/promises';
import { requireNode } from '../src/platform/process/lifecycle.ts';
import type { Service } from '../src/service.ts';
import { createFeed } from '../test/kit/feed.ts';
import { openReceiver } from '../test/kit/receiver.ts';
import { ascending, median, quantile } from '../test/kit/quantiles.ts';
import { withDeliveryWorkers } from '../test/kit/own-service.ts';

/**
 * Measures how much hanging endpoints slow down the others. One delivery worker serves ten endpoints under a steady
 * load, while none, one or five of them hang. The measured time is from the commit of an event to its arrival at one of
 * the five endpoints that never hang. The three conditions alternate for five rounds, so that other load on the machine
 * affects all of them alike. The median of the rounds counts. Fails if p99 more than doubles.
 */
requireNode();
const ENDPOINTS = 10;
const HANGING = [0, 1, 5];
const ALWAYS_HEALTHY = ENDPOINTS - Math.max(...HANGING);
const CONVERSATIONS = 50;
const EVENTS_A_SECOND = 200;
const SECONDS = 5;
const WARM_UP_SECONDS = 1;
const ROUNDS = 5;
const TICK_MS = 10;
const LIMIT = 2;

const openPlace = async (service: Service, hangs: boolean, received: (content: string) => void) => {
  const receiver = await openReceiver({
    respond: ({ json }) => {
      received((json as { payload: { content: string } }).payload.content);
      return hangs ? new Promise(() => undefined) : {};
    },
  });
  const { assistantId } = await service.assistants.createAssistant({ name: 'Bench' });
  const { endpoint } = await service.endpoints.addEndpoint(assistantId, { url: receiver.url });
  const keys = await createFeed(service).openConversations(assistantId, CONVERSATIONS);
  const close = async (): Promise<void> => {
    await service.endpoints.removeEndpoint(endpoint.endpointId);
    await receiver.close();
  };
  return { assistantId, keys, close };
};

/** Runs one condition for some seconds. Returns the delivery time of each event to the healthy endpoints, in ms. */
const measure = async (service: Service, hanging: number): Promise<number[]> => {
  const feed = createFeed(service);
  const arrivedAt = new Map<string, number>();
  const arrived = (content: string) => void arrivedAt.set(content, performance.now());
  const healthy = await Promise.all(
    Array.from({ length: ENDPOINTS }, (_, index) => openPlace(service, index >= ENDPOINTS - hanging, arrived)),
  );
  const committed: { content: string; committedAt: number }[] = [];
  const say = async (assistantId: string, key: string, content: string, counts: boolean): Promise<void> => {
    const [event] = await feed.say(assistantId, key, [content]);
    if (counts && event) committed.push(event);
  };
  const startedAt = performance.now();
  const announced: Promise<void>[] = [];
  let count = 0;
  while (performance.now() - startedAt < (WARM_UP_SECONDS + SECONDS) * 1000) {
    const due = ((performance.now() - startedAt) / 1000) * EVENTS_A_SECOND;
    for (; count < due; count += 1) {
      const endpoint = healthy[count % ENDPOINTS] as (typeof healthy)[number];
      const key = endpoint.keys[Math.floor(count / ENDPOINTS) % CONVERSATIONS] as string;
      const counts = count % ENDPOINTS < ALWAYS_HEALTHY && performance.now() - startedAt > WARM_UP_SECONDS * 1000;
      announced.push(say(endpoint.assistantId, key, `${count}`, counts));
    }
    await sleep(TICK_MS);
  }
  await Promise.all(announced);
  await sleep(1_500);
  const took = committed.map(
    ({ content, committedAt }) => (arrivedAt.get(content) ?? Number.POSITIVE_INFINITY) - committedAt,
  );
  await Promise.all(healthy.map(({ close }) => close()));
  // During this wait, the last request to a hanging endpoint times out, and the remaining events of its stream end.
  if (hanging > 0) await sleep(6_000);
  return took;
};

const run = async (service: Service): Promise<boolean> => {
  const rounds = new Map(HANGING.map((hanging) => [hanging, { p50: [] as number[], p99: [] as number[], events: 0 }]));
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const [hanging, measured] of rounds) {
      const times = ascending(await measure(service, hanging));
      measured.events += times.length;
      measured.p50.push(quantile(times, 0.5));
      measured.p99.push(quantile(times, 0.99));
    }
  }
  console.log(`${ENDPOINTS} endpoints, ${EVENTS_A_SECOND} events/s, one worker; commit to receipt at healthy ones, ms`);
  console.log('hanging   events    p50    p99  against none    p99 of each round');
  const alone = median(rounds.get(0)?.p99 ?? []);
  let kept = true;
  for (const [hanging, { p50, p99, events }] of rounds) {
    const ratio = median(p99) / alone;
    kept &&= ratio <= LIMIT;
    const cells = [hanging, events, median(p50).toFixed(1), median(p99).toFixed(1)];
    const [a, b, c, d] = cells.map((cell, column) => String(cell).padStart([7, 8, 6, 6][column] as number));
    const each = p99.map((value) => value.toFixed(0)).join(' ');
    console.log(`${a} ${b} ${c} ${d}  ${ratio.toFixed(2)} × (≤ ${LIMIT})  ${each}`);
  }
  console.log(kept ? 'The limit is kept.' : 'The limit is missed.');
  return kept;
};

process.exitCode = (await withDeliveryWorkers(1, run)) ? 0 : 1;
