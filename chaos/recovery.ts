import { once } from 'node:events';
import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { freePort } from '../scripts/services.ts';
import { isFinal, type StoredDelivery } from '../src/deliveries/delivery.ts';
import { requireNode } from '../src/process/lifecycle.ts';
import type { Service } from '../src/service.ts';
import { createFeed } from '../test/support/feed.ts';
import { killWorkers } from './delivery/faults.ts';
import { print, type Verdict } from './delivery/judge.ts';
import { withOwnService } from './support/own-service.ts';
import { killAll, startProcess } from './support/process.ts';
import { createRandom, type Random } from './support/random.ts';

/**
 * Shows that what a receiver missed is recovered, whatever happens to the delivery workers: a receiver is down under load
 * and kills, then one recovery sends what it missed, while new events come and workers are killed.
 *
 *   npm run chaos -- recovery                          down for 3 minutes, 40 kills
 *   npm run chaos -- recovery --minutes 0.2 --kills 4
 */
requireNode();
const CONVERSATIONS = 100;
const EVENTS_A_SECOND = 20;
const WORKERS = 2;
const LATENCY_MS = 20;
const SETTLED_WITHIN_MS = 300_000;

const readArguments = () => {
  const { values } = parseArgs({
    options: {
      minutes: { type: 'string', default: '3' },
      kills: { type: 'string', default: '40' },
      seed: { type: 'string', default: '1' },
    },
  });
  const [minutes, kills, seed] = [Number(values.minutes), Number(values.kills), Number(values.seed)];
  if (!(minutes > 0 && minutes <= 60)) throw new Error('--minutes must be a number up to 60');
  if (!(Number.isInteger(kills) && kills >= 0 && kills <= 1_000)) throw new Error('--kills must be a whole number');
  if (!Number.isInteger(seed)) throw new Error('--seed must be a whole number');
  return { minutes, kills, seed };
};

/** A receiver that refuses an event id that it has, and keeps a ledger of each conversation. */
const openLedger = async (port: number, random: Random) => {
  const known = new Set<string>();
  const ledger = new Map<string, number[]>();
  let repeats = 0;
  const server = createServer((request, response) => {
    let body = '';
    request.setEncoding('utf8').on('data', (chunk: string) => (body += chunk));
    request.on('end', () => {
      const { event_id, payload } = JSON.parse(body) as { event_id: string; payload: { conversation_id: string } };
      if (known.has(event_id)) repeats += 1;
      const numbers = ledger.get(payload.conversation_id) ?? [];
      if (!known.has(event_id)) numbers.push(Number(request.headers['x-factory-sequence']));
      ledger.set(payload.conversation_id, numbers);
      const status = known.has(event_id) ? 409 : 200;
      known.add(event_id);
      setTimeout(() => response.writeHead(status).end(), random.next() * LATENCY_MS);
    });
    request.on('error', () => undefined);
  });
  server.listen(port, '127.0.0.1');
  await once(server, 'listening');
  return {
    known,
    ledger,
    get repeats() {
      return repeats;
    },
    close: async (): Promise<void> => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
};
type Ledger = Awaited<ReturnType<typeof openLedger>>;

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

const judge = (rows: Row[], { known, ledger, repeats }: Ledger, facts: Record<string, number>): Verdict => {
  const byEvent = Map.groupBy(rows, ({ eventId }) => eventId);
  const has = (eventId: string, outcome: string): boolean =>
    (byEvent.get(eventId) ?? []).some((row) => row.outcome === outcome);
  const events = [...byEvent.keys()];
  const wrong = events.filter((id) => {
    const mayHave = has(id, 'delivered') || has(id, 'unknown');
    return known.has(id) ? !mayHave : has(id, 'delivered');
  });
  const unknownOf = Map.groupBy(
    rows.filter(({ outcome }) => outcome === 'unknown'),
    ({ conversationId }) => conversationId ?? '',
  );
  let [disordered, gaps] = [0, 0];
  for (const [conversation, numbers] of ledger) {
    disordered += numbers.filter((number, nth) => nth > 0 && number <= (numbers[nth - 1] ?? 0)).length;
    const lost = new Set(unknownOf.get(conversation)?.map(({ sequence }) => sequence));
    const seen = new Set(numbers);
    for (let number = 1; number <= Math.max(...numbers); number += 1)
      if (!seen.has(number) && !lost.has(number)) gaps += 1;
  }
  const none = (found: number) => ({ found, limit: '0', ok: found === 0 });
  const recovered = rows.filter(({ redelivery }) => redelivery).length;
  return [
    ...Object.entries(facts).map(([what, found]) => ({ what, found, limit: '', ok: null })),
    { what: 'events', found: events.length, limit: '', ok: null },
    { what: 'sent again', found: recovered, limit: '> 0', ok: recovered > 0 },
    { what: 'unknown', found: rows.filter(({ outcome }) => outcome === 'unknown').length, limit: '', ok: null },
    { what: 'events that nobody sent', ...none(events.filter((id) => !known.has(id) && !has(id, 'unknown')).length) },
    { what: 'events that the ledgers do not agree on', ...none(wrong.length) },
    { what: 'events refused as repeats', ...none(repeats) },
    { what: 'events received out of order', ...none(disordered) },
    { what: 'gaps in a conversation', ...none(gaps) },
  ];
};

const run = async (service: Service, env: Record<string, string>, options: ReturnType<typeof readArguments>) => {
  const { minutes, kills, seed } = options;
  const port = await freePort();
  const { assistantId } = await service.assistants.createAssistant({ name: 'Chaos' });
  const { endpoint } = await service.endpoints.addEndpoint(assistantId, { url: `http://127.0.0.1:${port}/` });
  const { endpointId } = endpoint;
  const feed = createFeed(service);
  const keys = await feed.openConversations(assistantId, CONVERSATIONS);
  const random = createRandom(seed);
  const say = (nth: number) => feed.say(assistantId, keys[nth] ?? '', ['hello']);
  const start = () => startProcess({ kind: 'delivery', env });
  await startProcess({ kind: 'reply', env }); // its sweeps run, whatever happens to the others
  const kill = (count: number) => killWorkers({ kills: count, random, start, workers: WORKERS });
  const isEmpty = async (): Promise<boolean> =>
    (await service.mongo.collection('conversations').countDocuments({ 'outbox.0': { $exists: true } })) === 0;
  let ledger: Ledger | undefined;
  try {
    const from = new Date(Date.now() - 5_000);
    let stop = startTalk(say, createRandom(seed + 1));
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
    ledger = await openLedger(port, createRandom(seed + 2));
    stop = startTalk(say, createRandom(seed + 3));
    const late = await kill(Math.floor(kills / 2));
    await until('the recovery', async () => (await service.recoveries.read(recovery._id)).state === 'done');
    const seconds = Math.round((performance.now() - startedAt) / 1000);
    await stop();
    await until('the end of live events', isEmpty);
    const readRows = async (): Promise<Row[]> =>
      (await service.mongo.collection('deliveries').find({ assistantId }).toArray()) as unknown as Row[];
    await until('every outcome', async () => (await readRows()).every(({ outcome }) => isFinal(outcome)));
    await late.stop();
    return print(
      judge(await readRows(), ledger, { kills: early.kills + late.kills, missed, 'seconds of the recovery': seconds }),
    );
  } finally {
    killAll();
    await ledger?.close();
  }
};

const main = async (): Promise<boolean> => {
  const options = readArguments();
  console.log(`down for ${options.minutes} minutes, ${options.kills} kills, seed ${options.seed}`);
  return withOwnService((service, env) => run(service, env, options));
};

process.exitCode = (await main()) ? 0 : 1;
