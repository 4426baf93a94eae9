import { setTimeout as sleep } from 'node:timers/promises';
import { collectionOf } from '../../src/platform/mongo/mongo.ts';
import { conversationModels, OUTBOX_INDEXES, type StoredConversation } from '../../src/conversations/conversation.ts';
import { alternate, type Contender, costOf, loadFigures, type Round, runRound } from '../support/contender.ts';
import { openCounters } from '../support/counters.ts';
import { median } from '../../test/kit/quantiles.ts';
import { type Figure, figureOf, type Part, ratioOf } from '../support/figures.ts';
import { type BenchAssistant, MEASURED, openParley, type Parley, QUESTIONS } from '../../test/kit/parley.ts';
import { startRealProcess } from '../../test/kit/processes.ts';
import { openSink } from '../../test/kit/sink.ts';

const IN_FLIGHT = [1, 50, 200];
const WARM_UP = { seconds: 1.5, warmUpSeconds: 0.5 };
const DRAIN_WITHIN_MS = 20_000;
const HALF_ROUNDS = 3;

const conversationsOf = ({ service }: Parley) =>
  collectionOf<StoredConversation>(conversationModels(service.mongo).conversations);

/** Waits until every event has been delivered. */
const drainDeliveries = (parley: Parley) => async (): Promise<Record<string, number>> => {
  const countUnsent = (): Promise<number> =>
    conversationsOf(parley).countDocuments({ 'outbox.0': { $exists: true } }, { hint: OUTBOX_INDEXES.byEndpoint });
  const startedAt = performance.now();
  const left = await countUnsent();
  while ((await countUnsent()) > 0) {
    if (performance.now() - startedAt > DRAIN_WITHIN_MS) throw new Error('deliveries did not end in time');
    await sleep(25);
  }
  return {
    'conversations with pending events when the load ended': left,
    'ms until delivered': performance.now() - startedAt,
  };
};

/**
 * Fails if a conversation was handed off, because it is then answered without the engine and the figures would look too
 * good.
 */
const refuseEscalated = async (parley: Parley): Promise<void> => {
  const escalated = await conversationsOf(parley).countDocuments({ status: { $ne: 'open' } });
  if (escalated > 0) throw new Error(`${escalated} conversations are no longer answered by the engine`);
};

const LABELS: Record<string, string> = {
  bare: 'bare, storing nothing',
  durable: 'bare with two durable writes',
  whole: 'Parley whole, no endpoint',
  endpoint: 'Parley whole, delivering to an endpoint',
};

const figuresOf = (inFlight: number, results: Map<string, Round[]>): Figure[] => {
  const rates = (name: string): number[] => (results.get(name) ?? []).map(({ perSecond }) => perSecond);
  const id = (name: string): string => `turns.${inFlight}.${name}`;
  return [
    ...[...results].flatMap(([name, rounds]) =>
      loadFigures(id(name), `${LABELS[name]}, ${inFlight} in flight`, rounds),
    ),
    ratioOf(id('whole-ratio'), `whole beside bare, ${inFlight} in flight`, rates('whole'), rates('bare')),
    ratioOf(
      id('whole-durable-ratio'),
      `whole beside bare durable, ${inFlight} in flight`,
      rates('whole'),
      rates('durable'),
    ),
    ratioOf(
      id('endpoint-ratio'),
      `with an endpoint beside bare, ${inFlight} in flight`,
      rates('endpoint'),
      rates('bare'),
    ),
  ];
};

/**
 * Compares Parley, with and without an endpoint, with the baseline. All processes keep running between rounds, so that
 * no start is counted.
 */
export const turns: Part = async (options, say) => {
  const parley = await openParley('turns');
  const { services } = parley;
  const sink = await openSink();
  const counters = await openCounters(services);
  const startBare = async (name: string, more: Record<string, string>): Promise<Contender> => {
    const env = { REDIS_URL: services.redisUrl, NODE_ENV: 'production', REDIS_PREFIX: name, ...more };
    const ofApi = await startRealProcess('api', env, { ...MEASURED, file: 'bench/bare/api.ts' });
    const ofWorker = await startRealProcess('reply', env, { ...MEASURED, file: 'bench/bare/worker.ts' });
    const { mongod, ...stores } = services.pids;
    const pids = { API: ofApi.pid, 'reply worker': ofWorker.pid, ...stores, ...(more.MONGODB_URL && { mongod }) };
    const target = { kind: 'chat', port: ofApi.port, apiKey: 'none', sessionPrefix: name } as const;
    return { name, target, pids };
  };
  const bare = await startBare('bare', {});
  const durable = await startBare('durable', { MONGODB_URL: services.mongodbUrlOf('bare') });
  const [api, worker, deliveryWorker] = [
    await parley.start('API'),
    await parley.start('reply worker'),
    await parley.start('delivery worker'),
  ];
  const ours = { API: api.pid, 'reply worker': worker.pid, 'delivery worker': deliveryWorker.pid, ...services.pids };
  const whole = (name: string, assistant: BenchAssistant): Contender => ({
    name,
    target: { kind: 'chat', port: api.port, ...assistant },
    pids: name === 'endpoint' ? { ...ours, sink: sink.pid } : ours,
  });
  const quiet = whole('whole', await parley.addAssistant());
  const announced = { ...whole('endpoint', await parley.addAssistant([sink.url])), drain: drainDeliveries(parley) };
  const contenders = [bare, durable, quiet, announced];
  const run = { messages: QUESTIONS, counters };

  for (const contender of contenders) await runRound({ ...run, contender, inFlight: 50 }, WARM_UP);
  const figures: Figure[] = [];
  const costs: Record<string, unknown> = {};
  for (const inFlight of IN_FLIGHT) {
    say(`turns: ${inFlight} in flight`);
    const one = (contender: Contender) => runRound({ ...run, contender, inFlight }, options);
    const results = await alternate(contenders, one, options.rounds);
    await sink.take();
    figures.push(...figuresOf(inFlight, results));
    for (const [name, rounds] of results) costs[`${name} ${inFlight}`] = costOf(rounds);
  }
  await refuseEscalated(parley);

  const capacity = figures.find(({ id }) => id === 'turns.200.whole')?.value ?? 0;
  const rate = Math.max(1, Math.round(capacity / 2));
  say(`turns: at ${rate} a second, half of the capacity`);
  const half: Round[] = [];
  for (let round = 0; round < Math.min(HALF_ROUNDS, options.rounds); round += 1) {
    half.push(await runRound({ ...run, contender: quiet, inFlight: 0, rate }, { ...options, warmUpSeconds: 1 }));
  }
  for (const name of ['p50', 'p99'] as const) {
    const what = `at half of its capacity (${rate}/s, from the time a request was due): ${name}`;
    figures.push(
      figureOf(
        `turns.half.${name}`,
        what,
        'ms',
        half.map((round) => round[name]),
      ),
    );
  }

  return { figures, detail: { costs, half: { rate, perSecond: median(half.map(({ perSecond }) => perSecond)) } } };
};
