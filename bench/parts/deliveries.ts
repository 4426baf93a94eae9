import { medianReading } from '../support/contender.ts';
import { openCounters, perItem, type Reading } from '../support/counters.ts';
import { openEventFeed } from '../support/event-feed.ts';
import { type Figure, figureOf, type Part, ratioOf } from '../support/figures.ts';
import { openParley } from '../../test/kit/parley.ts';
import { openPosts } from '../support/posts.ts';
import { openSink } from '../../test/kit/sink.ts';

const EVENTS = 10_000;
const WARM_UP_EVENTS = 3_000;
const ENDPOINTS = 10;
const IN_FLIGHT = [50, 200];
const RATES = [100, 200, 500];
const RATE_ROUNDS = 3;
const TALKS = 2_000;

/**
 * Measures the delivery of stored events at full speed, compared with plain POSTs that write no records. Then measures
 * events that arrive at a fixed rate.
 */
export const deliveries: Part = async ({ rounds, scale, seconds }, say) => {
  const parley = await openParley('deliveries');
  const { services } = parley;
  const [sink, posts, counters] = [await openSink(), openPosts(), await openCounters(services)];
  const feed = await openEventFeed(parley, sink);
  const count = Math.round((EVENTS * scale) / 100) * 100;
  const figures: Figure[] = [];
  const costs: Record<string, unknown> = {};

  const startWorker = (inFlight: number) =>
    parley.start('delivery worker', {
      DELIVERY_CONCURRENCY: String(inFlight),
      ENDPOINT_CONCURRENCY: String(inFlight / ENDPOINTS),
    });

  for (const inFlight of IN_FLIGHT) {
    say(`deliveries: ${count} stored events, ${inFlight} in flight`);
    const worker = await startWorker(inFlight);
    const order = { port: sink.port, count, inFlight, body: feed.body };
    await feed.drain(WARM_UP_EVENTS * scale);
    await posts.run(order);
    const [ours, bare]: [number[], number[]] = [[], []];
    const used: Reading[] = [];
    const pids = { 'delivery worker': worker.pid, ...services.pids };
    for (let round = 0; round < rounds; round += 1) {
      const before = await counters.read(pids);
      ours.push(await feed.drain(count));
      used.push(perItem(before, await counters.read(pids), count));
      bare.push(await posts.run(order));
    }
    costs[`drain ${inFlight}`] = medianReading(used);
    await worker.stop();
    const id = `deliveries.drain-${inFlight}`;
    figures.push(
      figureOf(id, `stored events delivered, ${inFlight} in flight`, '/s', ours),
      figureOf(`${id}-bare`, `POSTs by undici alone, ${inFlight} in flight`, '/s', bare),
      ratioOf(`${id}-ratio`, `deliveries beside those POSTs, ${inFlight} in flight`, ours, bare),
    );
  }

  await startWorker(200);
  const conversations = await feed.openTalks(TALKS);
  await feed.stream(conversations, 500, 1); // warms up the worker
  for (const rate of RATES) {
    say(`deliveries: ${rate} events a second`);
    const streams: Awaited<ReturnType<typeof feed.stream>>[] = [];
    for (let round = 0; round < Math.min(RATE_ROUNDS, rounds); round += 1) {
      streams.push(await feed.stream(conversations, rate, seconds + 0.5));
    }
    for (const name of ['p50', 'p95', 'p99'] as const) {
      figures.push(
        figureOf(
          `deliveries.${rate}.${name}`,
          `${rate} events/s, from the time one was due: ${name}`,
          'ms',
          streams.map(({ due }) => due[name]),
        ),
      );
    }
    for (const name of ['p50', 'p99'] as const) {
      figures.push(
        figureOf(
          `deliveries.${rate}.stored-${name}`,
          `${rate} events/s, from its being stored: ${name}`,
          'ms',
          streams.map(({ stored }) => stored[name]),
        ),
      );
    }
  }

  return { figures, detail: { costs } };
};
