import { setTimeout as sleep } from 'node:timers/promises';
import { conversationModels, type StoredConversation, type StoredPage } from '../../src/conversations/conversation.ts';
import { collectionOf } from '../../src/platform/mongo/mongo.ts';
import { alternate, type Contender, costOf, loadFigures, type Round, runRound } from '../support/contender.ts';
import { openCounters } from '../support/counters.ts';
import { ascending, quantile } from '../../test/kit/quantiles.ts';
import { type Figure, figureOf, type Part, ratioOf } from '../support/figures.ts';
import { conversationAfter, fill, sizesOf } from '../../test/kit/fill.ts';
import { type BenchAssistant, openParley, type Parley, QUESTIONS } from '../../test/kit/parley.ts';
import { stopAll } from '../../test/kit/processes.ts';
import { cpuMsOf, type Services } from '../../test/kit/services.ts';

const CONVERSATIONS = 100_000;
const TURNS_EACH = 10;
const DELIVERIES = 1_000_000;
const IN_FLIGHT = 200;
const LONG_TURNS = 500;
const LOOKS = 60;
const SETTLE_MS = 15_000;
const IDLE_MS = 30_000;

/** Sends the requests one by one. The first few requests are a warm-up and are not counted. */
const timeEach = async (look: () => Promise<unknown>): Promise<number[]> => {
  const times: number[] = [];
  for (let nth = 0; nth < LOOKS + 5; nth += 1) {
    const startedAt = performance.now();
    await look();
    if (nth >= 5) times.push(performance.now() - startedAt);
  }
  return ascending(times);
};

const pageFigures = (id: string, what: string, times: number[]): Figure[] => [
  { id: `${id}-p50`, what: `${what}: p50`, unit: 'ms', value: quantile(times, 0.5) },
  { id: `${id}-p99`, what: `${what}: p99`, unit: 'ms', value: quantile(times, 0.99) },
];

/** Adds a conversation with 1,000 messages, and returns the address of its history. */
const addLongConversation = async ({ service }: Parley, owner: BenchAssistant): Promise<string> => {
  const { conversation, pages } = conversationAfter({ ...owner, sessionPrefix: 'long' }, 0, LONG_TURNS);
  const models = conversationModels(service.mongo);
  await collectionOf<StoredConversation>(models.conversations).insertOne(conversation);
  await collectionOf<StoredPage>(models.messages).insertMany(pages);
  return `/api/v1/conversations/${conversation.conversationId}?limit=1000`;
};

/**
 * The CPU of mongod while one process of each kind runs and nobody uses it, in percent of a core. The work that an
 * upgrade leaves to the projection counts as done.
 */
const measureIdle = async (parley: Parley, { pids }: Services): Promise<number> => {
  const projection = parley.service.mongo.collection<{ _id: string }>('projection');
  await projection.updateOne({ _id: 'projection' }, { $set: { live: new Date(), back: null } }, { upsert: true });
  for (const name of ['API', 'reply worker', 'delivery worker'] as const) await parley.start(name);
  await sleep(SETTLE_MS);
  const before = cpuMsOf(pids.mongod);
  await sleep(IDLE_MS);
  const spent = cpuMsOf(pids.mongod) - before;
  await stopAll();
  return (spent / IDLE_MS) * 100;
};

/**
 * Measures the same load on an empty store and on a store with years of data. Then measures the pages that people open,
 * on the large store.
 */
export const growth: Part = async (options, say) => {
  const { scale } = options;
  const small = await openParley('small');
  const { services } = small;
  const large = await openParley('large', services);
  const counters = await openCounters(services);
  const [smallOwner, largeOwner] = [await small.addAssistant(), await large.addAssistant()];
  const conversations = Math.round(CONVERSATIONS * scale);
  say(`growth: storing ${conversations * TURNS_EACH} turns and ${DELIVERIES * scale} deliveries`);
  await fill(large, largeOwner, { conversations, turnsEach: TURNS_EACH, deliveries: Math.round(DELIVERIES * scale) });
  const sizes = await sizesOf(large, { turns: conversations * TURNS_EACH, deliveries: DELIVERIES * scale });

  say('growth: mongod at rest');
  const idle = { small: await measureIdle(small, services), large: await measureIdle(large, services) };

  say('growth: turns on both stores');
  const children = [await small.start('API'), await small.start('reply worker')];
  const smallApi = children[0]?.port ?? 0;
  children.push(await large.start('API'), await large.start('reply worker'));
  const largeApi = children[2]?.port ?? 0;
  const contender = (name: string, port: number, owner: BenchAssistant, sessions: number): Contender => ({
    name,
    target: { kind: 'chat', port, ...owner, sessions: Math.min(sessions, conversations) },
    pids: services.pids,
  });
  const contenders = [
    contender('empty', smallApi, smallOwner, 2_000),
    contender('grown', largeApi, largeOwner, 2_000),
    contender('grown, all', largeApi, largeOwner, CONVERSATIONS),
  ];
  const run = { messages: QUESTIONS, counters, inFlight: IN_FLIGHT };
  for (const one of contenders) await runRound({ ...run, contender: one }, { seconds: 1.5, warmUpSeconds: 0.5 });
  const results = await alternate(contenders, (one) => runRound({ ...run, contender: one }, options), options.rounds);

  say('growth: pages of the large store');
  const path = await addLongConversation(large, largeOwner);
  const readHistory = async (): Promise<void> => {
    const headers = { authorization: `Bearer ${largeOwner.apiKey}` };
    const response = await fetch(`http://127.0.0.1:${largeApi}${path}`, { headers });
    const { messages } = (await response.json()) as { messages: unknown[] };
    if (messages.length !== LONG_TURNS * 2) throw new Error(`the history has ${messages.length} messages`);
  };
  const listDeliveries = large.service.deliveries.list;
  const { assistantId } = largeOwner;
  const history = await timeEach(readHistory);
  const page = await timeEach(() => listDeliveries({ assistantId }));
  const failures = await timeEach(() => listDeliveries({ assistantId, outcome: 'unknown' }));

  const of = (name: string): Round[] => results.get(name) ?? [];
  const rates = (name: string): number[] => of(name).map(({ perSecond }) => perSecond);
  const million = `${((conversations * TURNS_EACH) / 1e6).toLocaleString('en-US')} M turns stored`;
  return {
    figures: [
      ...loadFigures('growth.empty', `empty store, ${IN_FLIGHT} in flight`, of('empty')),
      ...loadFigures('growth.grown', `${million}, ${IN_FLIGHT} in flight`, of('grown')),
      ratioOf('growth.ratio', `${million}, beside empty`, rates('grown'), rates('empty')),
      figureOf('growth.wide', `${million}, all sessions active`, 'turns/s', rates('grown, all')),
      ratioOf('growth.wide-ratio', 'all sessions active, beside empty', rates('grown, all'), rates('empty')),
      { id: 'growth.idle-empty', what: 'mongod at rest, empty store', unit: '%', value: idle.small },
      { id: 'growth.idle', what: `mongod at rest, ${DELIVERIES * scale} deliveries`, unit: '%', value: idle.large },
      ...pageFigures('growth.history', 'a history of 1,000 messages', history),
      ...pageFigures('growth.deliveries-page', 'a page of the deliveries', page),
      ...pageFigures('growth.failures-page', 'a page of those that failed', failures),
      { id: 'growth.turn-bytes', what: 'a stored turn on disk, with its indexes', unit: 'B', value: sizes.turn },
      { id: 'growth.delivery-bytes', what: 'a delivery on disk, with its indexes', unit: 'B', value: sizes.delivery },
    ],
    detail: { costs: Object.fromEntries([...results].map(([name, rounds]) => [name, costOf(rounds)])) },
  };
};
