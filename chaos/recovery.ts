import { setTimeout as sleep } from 'node:timers/promises';
import { freePort } from '../scripts/services.ts';
import { isFinal, type StoredDelivery } from '../src/events/delivery.ts';
import { requireNode } from '../src/platform/process/lifecycle.ts';
import type { Service } from '../src/service.ts';
import { followEvents } from '../test/kit/event-pages.ts';
import { createFeed } from '../test/kit/feed.ts';
import { killWorkers } from './delivery/faults.ts';
import { print, type Verdict } from './delivery/judge.ts';
import { type Answer, openReceiver, type Received } from '../test/kit/receiver.ts';
import { readArguments } from './support/arguments.ts';
import { withOwnService } from '../test/kit/own-service.ts';
import { killAll, startRealProcess } from '../test/kit/processes.ts';
import { createRandom, type Random } from '../test/kit/random.ts';

/**
 * Shows that a receiver gets back what it missed or lost, whatever happens to the delivery workers. It is down under load
 * and kills, then one recovery sends what it missed, while new events come and workers are killed. With `--rebuild` it
 * loses its database instead, and rebuilds it from the list of events alone, under load and kills before and after.
 *
 *   npm run chaos -- recovery                          3 minutes until the recovery, 40 kills
 *   npm run chaos -- recovery --rebuild                3 minutes, the database is lost in the middle, 40 kills
 *   npm run chaos -- recovery --minutes 0.2 --kills 4
 */
requireNode();
const CONVERSATIONS = 100;
const EVENTS_A_SECOND = 20;
const WORKERS = 2;
const LATENCY_MS = 20;
const SETTLED_WITHIN_MS = 300_000;
const WAIT_S = '5';

const options = readArguments(
  { minutes: [3, 0.01, 60, 'fraction'], kills: [40, 0, 1_000], seed: [1, -1e9, 1e9] },
  { flags: ['rebuild'] },
);
type Options = typeof options;

type LedgerEvent = { eventId: string; conversationId: string; sequence: number };

/** What a receiver keeps in its database: the events that it has, and the numbers of each conversation as they came. */
const createLedger = () => {
  const known = new Set<string>();
  const numbers = new Map<string, number[]>();
  return {
    known,
    numbers,
    /** False if the ledger has this event already. */
    take: ({ eventId, conversationId, sequence }: LedgerEvent): boolean => {
      if (known.has(eventId)) return false;
      known.add(eventId);
      numbers.set(conversationId, [...(numbers.get(conversationId) ?? []), sequence]);
      return true;
    },
  };
};
type Ledger = ReturnType<typeof createLedger>;

/** How many numbers of the conversations are not above the one before. */
const countDisorder = ({ numbers }: Ledger): number =>
  [...numbers.values()].flatMap((own) => own.filter((number, nth) => nth > 0 && number <= (own[nth - 1] ?? 0))).length;

/** How many numbers the conversations lack. */
const countGaps = ({ numbers }: Ledger, isLost: (conversationId: string, number: number) => boolean): number => {
  let gaps = 0;
  for (const [conversationId, own] of numbers) {
    const seen = new Set(own);
    for (let number = 1; number <= Math.max(...own); number += 1)
      if (!seen.has(number) && !isLost(conversationId, number)) gaps += 1;
  }
  return gaps;
};

/** A receiver that answers each event with a status after a random time. Returns what closes it. */
const openEndpoint = async (port: number, random: Random, receive: (event: LedgerEvent) => number) => {
  const respond = ({ json, headers }: Received): Answer => {
    const { event_id: eventId, payload } = json as { event_id: string; payload: { conversation_id: string } };
    const sequence = Number(headers['x-factory-sequence']);
    const status = receive({ eventId, conversationId: payload.conversation_id, sequence });
    return { status, delayMs: random.next() * LATENCY_MS };
  };
  return (await openReceiver({ port, respond })).close;
};

/** Says something in random conversations until it is stopped. */
const startTalk = (say: (nth: number) => Promise<unknown>, random: Random) => {
  let stopped = false;
  const talk = async (): Promise<void> => {
    while (!stopped) {
      await say(random.below(CONVERSATIONS));
      await sleep(1_000 / EVENTS_A_SECOND);
    }
  };
  const running = talk();
  running.catch(() => undefined); // `stop` reports the failure
  return async (): Promise<void> => {
    stopped = true;
    await running;
  };
};

const until = async (what: string, isSo: () => Promise<boolean>): Promise<void> => {
  const late = performance.now() + SETTLED_WITHIN_MS;
  while (!(await isSo())) {
    if (performance.now() > late) throw new Error(`${what}: not within ${SETTLED_WITHIN_MS / 1000} s`);
    await sleep(200);
  }
};

type Row = Pick<StoredDelivery, 'eventId' | 'outcome' | 'sequence' | 'conversationId' | 'redelivery'>;

/** An assistant with conversations, an endpoint at a port where nobody listens yet, and a reply worker for its sweeps. */
const openField = async (service: Service, env: Record<string, string>, { seed }: Options) => {
  const port = await freePort();
  const { assistantId } = await service.assistants.createAssistant({ name: 'Chaos' });
  const { endpoint } = await service.endpoints.addEndpoint(assistantId, { url: `http://127.0.0.1:${port}/` });
  const feed = createFeed(service);
  const keys = await feed.openConversations(assistantId, CONVERSATIONS);
  const random = createRandom(seed);
  const say = (nth: number) => feed.say(assistantId, keys[nth] ?? '', ['hello']);
  const start = () => startRealProcess('delivery', env);
  await startRealProcess('reply', env); // its sweeps run, whatever happens to the others
  const readRows = async (): Promise<Row[]> =>
    (await service.mongo.collection('deliveries').find({ assistantId }).toArray()) as unknown as Row[];
  const isEmpty = async (): Promise<boolean> =>
    (await service.mongo.collection('conversations').countDocuments({ 'outbox.0': { $exists: true } })) === 0;
  return {
    service,
    env,
    port,
    assistantId,
    endpointId: endpoint.endpointId,
    talk: (nth: number) => startTalk(say, createRandom(seed + nth)),
    kill: (count: number) => killWorkers({ kills: count, random, start, workers: WORKERS }),
    isEmpty,
    /** Every delivery, once nothing waits any more and each has its outcome. */
    readEnds: async (): Promise<Row[]> => {
      await until('the end of live events', isEmpty);
      await until('every outcome', async () => (await readRows()).every(({ outcome }) => isFinal(outcome)));
      return readRows();
    },
  };
};
type Field = Awaited<ReturnType<typeof openField>>;

const none = (found: number) => ({ found, limit: '0', ok: found === 0 });
const fact = (what: string, found: number) => ({ what, found, limit: '', ok: null });
const facts = (all: Record<string, number>): Verdict => Object.entries(all).map(([what, found]) => fact(what, found));
const counted = (rows: Row[], wanted: string): number => rows.filter(({ outcome }) => outcome === wanted).length;

const judgeRecovery = (rows: Row[], ledger: Ledger, { repeats, ...all }: Record<string, number>): Verdict => {
  const { known } = ledger;
  const byEvent = Map.groupBy(rows, ({ eventId }) => eventId);
  const has = (eventId: string, outcome: string): boolean =>
    (byEvent.get(eventId) ?? []).some((row) => row.outcome === outcome);
  const events = [...byEvent.keys()];
  const wrong = events.filter((id) => {
    const mayHave = has(id, 'delivered') || has(id, 'unknown');
    return known.has(id) ? !mayHave : has(id, 'delivered');
  });
  const unknown = rows.filter(({ outcome }) => outcome === 'unknown');
  const lost = new Set(unknown.map(({ conversationId, sequence }) => `${conversationId} ${sequence}`));
  const recovered = rows.filter(({ redelivery }) => redelivery).length;
  return [
    ...facts({ ...all, events: events.length }),
    { what: 'sent again', found: recovered, limit: '> 0', ok: recovered > 0 },
    fact('unknown', unknown.length),
    { what: 'events that nobody sent', ...none(events.filter((id) => !known.has(id) && !has(id, 'unknown')).length) },
    { what: 'events that the ledgers do not agree on', ...none(wrong.length) },
    { what: 'events refused as repeats', ...none(repeats ?? 0) },
    { what: 'events received out of order', ...none(countDisorder(ledger)) },
    { what: 'gaps in a conversation', ...none(countGaps(ledger, (id, number) => lost.has(`${id} ${number}`))) },
  ];
};

/** The receiver is down under load and kills, then one recovery sends what it missed. */
const runRecovery = async (field: Field, { minutes, kills, seed }: Options): Promise<Verdict> => {
  const { service, port, assistantId, endpointId, talk, kill, isEmpty, readEnds } = field;
  const from = new Date(Date.now() - 5_000);
  let stop = talk(1);
  const [early] = await Promise.all([kill(Math.ceil(kills / 2)), sleep(minutes * 60_000)]);
  await stop();
  // What still waits ends at once.
  await service.endpoints.setEnabled(endpointId, false);
  await until('the end of what waits', isEmpty);
  await service.endpoints.setEnabled(endpointId, true);
  await early.stop();

  const missed = await service.mongo.collection('deliveries').countDocuments({ outcome: 'not_sent' });
  const startedAt = performance.now();
  const range = { assistantId, endpointId, from, to: new Date(Date.now() + 1_000), outcomes: ['not_sent' as const] };
  const recovery = await service.recoveries.start(range, 'chaos');
  const ledger = createLedger();
  let repeats = 0;
  const close = await openEndpoint(port, createRandom(seed + 2), (event) => {
    if (ledger.take(event)) return 200;
    repeats += 1;
    return 409;
  });
  try {
    stop = talk(3);
    const late = await kill(Math.floor(kills / 2));
    await until('the recovery', async () => (await service.recoveries.read(recovery._id)).state === 'done');
    const seconds = Math.round((performance.now() - startedAt) / 1000);
    await stop();
    const rows = await readEnds();
    await late.stop();
    const found = { kills: early.kills + late.kills, missed, 'seconds of the recovery': seconds };
    return judgeRecovery(rows, ledger, { ...found, repeats });
  } finally {
    await close();
  }
};

type Rebuilt = { ledger: Ledger; outcomes: Map<string, string>; twice: number; seconds: number };

const judgeRebuilt = (rows: Row[], rebuilt: Rebuilt, arrived: Set<string>, all: Record<string, number>): Verdict => {
  const { ledger, outcomes, twice } = rebuilt;
  const stored = new Map(rows.map(({ eventId, outcome }) => [eventId, outcome]));
  const differ = rows.filter(({ eventId, outcome }) => outcomes.has(eventId) && outcomes.get(eventId) !== outcome);
  const contradicted = [...outcomes].filter(([id, outcome]) => outcome === 'delivered' && !arrived.has(id));
  const inLedger = ledger.known.size;
  const byOutcome = ['delivered', 'not_sent', 'unknown'].map((one) => [one, counted(rows, one)]);
  const rejected = counted(rows, 'rejected');
  return [
    ...facts({ ...all, events: rows.length, ...Object.fromEntries(byOutcome) }),
    { what: 'rejected', found: rejected, limit: '> 0', ok: rejected > 0 },
    { what: 'events in the rebuilt ledger', found: inLedger, limit: '> 0', ok: inLedger > 0 },
    { what: 'events that it lacks', ...none(rows.filter(({ eventId }) => !ledger.known.has(eventId)).length) },
    { what: 'events that only it has', ...none([...ledger.known].filter((id) => !stored.has(id)).length) },
    { what: 'events that the list had twice', ...none(twice) },
    { what: 'outcomes that differ', ...none(differ.length) },
    {
      what: 'events that arrived and that it lacks',
      ...none([...arrived].filter((id) => !ledger.known.has(id)).length),
    },
    { what: 'delivered events that did not arrive', ...none(contradicted.length) },
    { what: 'events out of order', ...none(countDisorder(ledger)) },
    { what: 'gaps in a conversation', ...none(countGaps(ledger, () => false)) },
  ];
};

/**
 * The receiver loses its database under load and kills, and rebuilds it from the list of events alone. It refuses what it
 * is sent, as a server without its database does, until it has come to the end of the list and to the first refused one.
 */
const runRebuild = async (field: Field, { minutes, kills, seed }: Options): Promise<Verdict> => {
  const { service, env, port, assistantId, endpointId, talk, kill, readEnds } = field;
  const made = await service.assistants.createApiKey({ assistantId, name: 'receiver', limitPerMinute: 100_000 });
  const { url } = await startRealProcess('api', env);
  const arrived = new Set<string>();
  let hasDatabase = true;
  const close = await openEndpoint(port, createRandom(seed + 2), ({ eventId }) => {
    arrived.add(eventId);
    return hasDatabase ? 200 : 503;
  });
  let settledAt = Number.POSITIVE_INFINITY;
  const rebuild = async (): Promise<Rebuilt> => {
    const startedAt = performance.now();
    const [ledger, outcomes] = [createLedger(), new Map<string, string>()];
    let [twice, seconds] = [0, 0];
    for await (const page of followEvents({ url, bearer: made.apiKey }, { endpoint: endpointId, wait: WAIT_S })) {
      const before = ledger.known.size;
      for (const { eventId, conversationId, sequence, outcome } of page.events) {
        if (!ledger.take({ eventId, conversationId: conversationId ?? '', sequence: sequence ?? 0 })) twice += 1;
        outcomes.set(eventId, outcome);
      }
      if (!hasDatabase && !page.hasMore && [...outcomes.values()].includes('rejected')) {
        hasDatabase = true;
        seconds = Math.round((performance.now() - startedAt) / 1000);
      }
      if (ledger.known.size === before && Date.parse(page.readUpTo) > settledAt) break;
    }
    return { ledger, outcomes, twice, seconds };
  };
  try {
    const stop = talk(1);
    const [early] = await Promise.all([kill(Math.ceil(kills / 2)), sleep(minutes * 30_000)]);
    hasDatabase = false;
    const rebuilding = rebuild();
    rebuilding.catch(() => undefined); // its failure is seen below
    const [late] = await Promise.all([kill(Math.floor(kills / 2)), early.stop(), sleep(minutes * 30_000)]);
    await stop();
    const rows = await readEnds();
    settledAt = Date.now();
    const rebuilt = await rebuilding;
    await late.stop();
    const found = { kills: early.kills + late.kills, 'seconds without a database': rebuilt.seconds };
    return judgeRebuilt(rows, rebuilt, arrived, found);
  } finally {
    await close();
  }
};

const main = async (): Promise<boolean> => {
  const { rebuild, minutes, kills, seed } = options;
  const what = rebuild ? `the database lost after ${minutes / 2} minutes` : `down for ${minutes} minutes`;
  console.log(`${what}, ${kills} kills, seed ${seed}`);
  return withOwnService(async (service, env) => {
    try {
      const field = await openField(service, env, options);
      return print(await (rebuild ? runRebuild : runRecovery)(field, options));
    } finally {
      await killAll();
    }
  });
};

process.exitCode = (await main()) ? 0 : 1;
